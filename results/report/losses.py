"""Lost packets: sent, received and lost by kind, and which counter has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from etloop.results.report.table import Column, Table, Unit, table_of
from etloop.results.schema.losses import (
    BY_LOSS_NAME,
    COUNTED_BY_WORDS,
    DEVICE_FIGURES,
    SENT_FIGURES,
    LossRow,
    LossSummary,
)

if TYPE_CHECKING:
    from etloop.results.schema.comparison import LossPair

_OF_DEVICE: Final = frozenset(figure.name for figure in DEVICE_FIGURES)
_OF_KINDS: Final = frozenset(figure.name for figure in SENT_FIGURES)
_ALWAYS: Final = frozenset({"data", "all", "unexplained"})


COUNTED_BY: Final = Column("counted_by", "counted by", value=lambda row: COUNTED_BY_WORDS[row.counted_by])


def losses_table(losses: LossSummary) -> Table:
    """Return the rows that are not empty; no rows if no packet was lost, dropped or retransmitted."""
    columns = (
        Column("name", "packets", value=row_words),
        Column("sent", "sent", Unit.COUNT),
        Column("received", "received", Unit.COUNT),
        Column("packets", "not received", Unit.COUNT),
        COUNTED_BY,
    )
    rows = [row for row in losses.rows if row.name in _ALWAYS or row.sent or row.received or row.packets]
    title = "Packets sent, received and lost"
    return table_of("losses-table", title, columns, () if losses.is_quiet else rows)


def loss_words(losses: LossSummary) -> str:
    """Return how many packets were not received and how many the device dropped, in a sentence."""
    rows = {row.name: row for row in losses.rows}
    all_row = rows["all"]
    if all_row.packets is None:
        main_clause = "packets of every kind: not known"
    elif losses.is_quiet:
        main_clause = f"none: {all_row.sent} packets were sent, every one was received, none was sent again"
    else:
        data, control = rows["data"].packets, losses.lost_control_packets or 0
        main_clause = f"{all_row.packets} of {all_row.sent} packets not received: {data} of data, {control} of their answers"
        if streams := rows["streams"].packets:
            main_clause += f", {streams} of plain UDP"
    parts = [main_clause]
    if losses.dropped_packets is not None and not losses.is_quiet:
        parts.append(f"{losses.dropped_packets} dropped by the device")
    if losses.unexplained_packets is not None and not losses.is_quiet:
        parts.append(f"{losses.unexplained_packets} not explained")
    if losses.why and not (losses.is_quiet and all_row.packets == 0):
        parts.append(losses.why)
    return "; ".join(parts)


def row_words(row: LossRow | LossPair) -> str:
    """Return the description of a row."""
    words = BY_LOSS_NAME[row.name].words if row.name in BY_LOSS_NAME else row.name
    return f"dropped: {words}" if row.name in _OF_DEVICE else words


def standalone_words(pair: LossPair) -> str:
    """Return the description of a row for use outside the table of losses."""
    if pair.name == "data_again":
        return "data sent again"
    return f"{row_words(pair)}, not received" if pair.name in _OF_KINDS else row_words(pair)


def drop_words(rows: Sequence[LossRow]) -> str:
    """Return how many packets the device dropped, with the reasons; "" if it does not count them."""
    if not rows:
        return ""
    total = sum(row.packets or 0 for row in rows)
    reasons = ", ".join(f"{row.packets} {BY_LOSS_NAME[row.name].words}" for row in rows if row.packets)
    return f"{total} dropped{f' ({reasons})' if reasons else ''}"
