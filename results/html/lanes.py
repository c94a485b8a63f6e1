"""Lanes of the device (a port and a class of traffic each), and the colour of each port, the same everywhere on a page.

Decides which ports have a colour: the busiest, and those with the fullest queues; other ports are only in tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.kpis.input import number_names
from etloop.results.report.queues import natural

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.kpis.input import KpiInput
    from etloop.results.verdict.evaluation import Frame

COLOURS: Final = 12
"""Number of colours in templates/style.css."""
MOST_PORTS: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """One class of traffic of a port of the device, with its rows in a table."""

    port: str
    """The peer of the port, if known; else the port itself."""
    place: str
    cos: int
    rows: NDArray[np.int64]


def sampled_lanes(inputs: KpiInput) -> tuple[Lane, ...]:
    """Return the lanes whose queues were sampled, in the order of their names."""
    queues = inputs.frames.get("queues")
    if queues is None or not queues.rows:
        return ()
    lanes = lanes_of(queues)
    return tuple(sorted(lanes, key=lambda lane: (natural(lane.port), lane.cos)))


def lanes_of(frame: Frame) -> tuple[Lane, ...]:
    """Return the lanes of a table with the columns switch, port, peer and cos."""
    columns = frame.columns
    ports, cos = columns["port"], columns["cos"].astype(np.float64)
    number, keys = number_names(
        list(zip(columns["switch"], ports, columns["peer"], cos.tolist(), strict=True))
    )
    ordered = np.argsort(number, kind="stable")
    ends = np.cumsum(np.bincount(number, minlength=len(keys)))
    parts = np.split(ordered, ends[:-1]) if len(keys) else []
    lanes = []
    for (switch, port, peer, lane), rows in zip(keys, parts, strict=True):
        name = str(port)
        place = name if "/" in name or not switch else f"{switch}/{name}"
        lanes.append(Lane(str(peer) if peer else place, place, int(lane), rows))
    return tuple(lanes)


def port_colours(
    inputs: KpiInput, lanes: Sequence[Lane], loads: Mapping[str, float] | None = None
) -> dict[str, int]:
    """Return the colour number of ports. `loads`: bytes that each port carried; None: sent plus received bytes of its agent."""
    carried = _bytes_of_ports(inputs) if loads is None else dict(loads)
    coloured_ports = sorted(carried, key=lambda name: (-carried[name], natural(name)))[:MOST_PORTS]
    if lanes:
        depth = inputs.column("queues", "queued_bytes")
        deepest: dict[str, float] = {}
        for lane in lanes:
            deepest[lane.port] = max(
                deepest.get(lane.port, 0.0), float(np.nan_to_num(depth[lane.rows]).max())
            )
        deep_ports = [name for name in deepest if name not in coloured_ports and deepest[name] > 0]
        coloured_ports += sorted(deep_ports, key=lambda name: (-deepest[name], natural(name)))[
            : COLOURS - len(coloured_ports)
        ]
    return {name: colour for colour, name in enumerate(sorted(coloured_ports, key=natural))}


def _bytes_of_ports(inputs: KpiInput) -> dict[str, float]:
    """Return the bytes that each port sent and received, as its agent counted them."""
    columns = inputs.frames["ports"].columns
    total = columns["tx_bytes"].astype(np.float64) + columns["rx_bytes"].astype(np.float64)
    bytes_by_port = dict.fromkeys(inputs.plan.port_names, 0.0)
    for agent, port, bytes_carried in zip(columns["agent"], columns["port"], total.tolist(), strict=True):
        name = str(port) if port and "/" in str(port) else f"{agent}/{port}"
        if port:
            bytes_by_port[name] = bytes_by_port.get(name, 0.0) + float(np.nan_to_num(bytes_carried))
    return bytes_by_port
