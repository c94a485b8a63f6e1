"""Tables of ports: queues of the device as it counted them, and ports of the agents.

Decides which queues have a row: those that counted anything, and idle links between switches; drops, marks and pauses
come first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.results.kpis.network import between_switches
from etloop.results.report.table import Cell, Column, Table, Unit, Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.verdict.evaluation import Frame

IN_PORT_ORDER: Final = 16
_DIGITS: Final = re.compile(r"(\d+)")
_SIGNS: Final = (
    "queue_dropped_packets",
    "group_dropped_packets",
    "queue_ecn_marked_packets",
    "pfc_tx",
    "pfc_rx",
)
"""Counters of congestion and loss, by which queues are ordered."""
_COUNTER_COLUMNS: Final = (
    Column("queue_bytes", "sent", Unit.BYTES),
    Column("queue_packets", "packets", Unit.NUMBER),
    Column("queue_dropped_packets", "at queue", Unit.NUMBER, "dropped"),
    Column("group_dropped_packets", "on arrival", Unit.NUMBER, "dropped"),
    Column("queue_ecn_marked_packets", "marked", Unit.NUMBER),
    Column("pfc_tx", "sent", Unit.NUMBER, "PFC"),
    Column("pfc_rx", "received", Unit.NUMBER, "PFC"),
    Column("queue_paused_ns", "paused", Unit.TIME),
    Column("queue_watermark_bytes", "fullest", Unit.BYTES),
)
_QUEUE_COLUMNS: Final = (
    Column("port", "switch/port"),
    Column("peer", "to"),
    Column("cos", "cos", Unit.NUMBER),
    *_COUNTER_COLUMNS,
)


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key by which h2 comes before h10."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in _DIGITS.split(name))


def queue_table(frame: Frame | None, most_rows: int, colours: Mapping[str, int] | None = None) -> Table:
    """Return the device's queues in the order of their ports; if there are more than `IN_PORT_ORDER`, the most relevant
    ones first.

    `frame` has the columns of switches.parquet; `most_rows` of the table are shown; `colours`: by peer, colour number of
    the port.
    """
    title = "Queues of the device, as it counted them; drops, marks and pauses first; '-': not counted"
    if frame is None or not frame.rows:
        return Table("queues-table", title, _QUEUE_COLUMNS, ())
    columns = {column.id: frame.columns[column.id].astype(np.float64) for column in _COUNTER_COLUMNS}
    known = {name: np.nan_to_num(values) for name, values in columns.items()}
    signs = sum((known[name] for name in _SIGNS), np.zeros(frame.rows))
    is_shown = (
        (signs > 0) | (known["queue_packets"] > 0) | (known["queue_watermark_bytes"] > 0) | _idle_links(frame)
    )
    rows = np.flatnonzero(is_shown)
    rows = rows[
        np.lexsort((-known["queue_bytes"][rows], -known["queue_watermark_bytes"][rows], -signs[rows]))
    ]
    idle = int((known["queue_bytes"][rows[most_rows:]] == 0).sum())
    place, cos = _places(frame), frame.columns["cos"].astype(np.float64)
    if len(rows) <= IN_PORT_ORDER:
        rows = np.array(sorted(rows.tolist(), key=lambda row: (natural(place[row]), cos[row])), np.int64)
    cells = []
    for row in rows.tolist():
        peer = str(frame.columns["peer"][row] or "-")
        counts = (_count_value(columns[column.id][row], column.id in _SIGNS) for column in _COUNTER_COLUMNS)
        cells.append((place[row], Cell(peer, colour=(colours or {}).get(peer)), f"{cos[row]:.0f}", *counts))
    notes = (f"{idle} of the queues not shown are of idle links between switches.",) if idle else ()
    return Table("queues-table", title, _QUEUE_COLUMNS, tuple(cells), notes, all_rows_in="switches.parquet")


def _places(frame: Frame) -> list[str]:
    """Return the names SWITCH/PORT of the rows."""
    columns = frame.columns
    return [
        str(port) if "/" in str(port) or not switch else f"{switch}/{port}"
        for switch, port in zip(columns["switch"], columns["port"], strict=True)
    ]


def _idle_links(frame: Frame) -> NDArray[np.bool_]:
    """Return which queues of links between switches carried nothing, in classes that another such link carried (bool)."""
    sent, of_link = frame.columns["queue_bytes"].astype(np.float64), between_switches(frame)
    classes = frame.columns["cos"][of_link & (sent > 0)]
    return np.asarray(of_link & (sent == 0) & np.isin(frame.columns["cos"], classes), np.bool_)


_PORT_COLUMNS: Final = (
    Column("port", "port"),
    Column("tx_datagrams", "sent", Unit.NUMBER),
    Column("rx_datagrams", "received", Unit.NUMBER),
    Column("rx_pause_frames", "pause frames", Unit.NUMBER),
    Column("paused_ns", "paused", Unit.TIME),
    Column("receive_overflows", "lost in receive buffers", Unit.NUMBER),
)


def port_table(frame: Frame, colours: Mapping[str, int]) -> Table:
    """Return the agents' ports in the order of their names. `frame` has the columns of ports.parquet."""
    columns = frame.columns
    rows: list[tuple[Value, ...]] = []
    for row in range(frame.rows):
        name = str(columns["port"][row] or f"port {int(columns['port_index'][row].item())}")
        name = name if "/" in name else f"{columns['agent'][row]}/{name}"
        counts = (_count_value(columns[column.id][row]) for column in _PORT_COLUMNS[1:])
        rows.append((Cell(name, colour=colours.get(name)), *counts))
    rows.sort(key=lambda cells: natural(str(cells[0].value)) if isinstance(cells[0], Cell) else ())
    title = "Ports of the agents, as they counted"
    return Table("ports-table", title, _PORT_COLUMNS, tuple(rows), all_rows_in="ports.parquet")


def _count_value(value: object, is_sign: bool = False) -> Value:
    """Return a count; None if it is not known, strong if it is a sign of congestion."""
    number = float(np.asarray(value).item())
    if np.isnan(number):
        return None
    return Cell(int(number), is_strong=True) if is_sign and number else int(number)
