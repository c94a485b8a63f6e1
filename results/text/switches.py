"""Counters of the modelled switches as a printed table: one line for every used port and lane, and for idle links between
switches; the busiest ones if there are too many. Decides wording and rounding only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.units import approximate_bytes
from etloop.contract.model.counters import CounterObject, CounterUse, counters_of
from etloop.contract.model.topology import Topology
from etloop.results.tables.switch_tables import shown_cos, totals
from etloop.results.text.layout import aligned

if TYPE_CHECKING:
    from numpy.typing import NDArray

LANES_SHOWN: Final = 32
_HEADINGS: Final = (
    ("switch/port", "to", "cos", "sent", "packets", "marked", "dropped", "pauses", "", "paused", "queue"),
    ("", "", "", "", "", "", "", "sent", "heard", "us", "max"),
)


_NAMED: Final = frozenset({"ecn_marked_packets", "dropped_packets"})
"""Totals that the line of totals always has."""


def render_switches(topology: Topology, switch_ports: tuple[NDArray[np.void], ...]) -> str:
    """Return the table of used lanes and of idle links between switches; it ends with a newline."""
    all_cos = [
        (switch, int(port), int(cos))
        for switch, lanes in enumerate(shown_cos(topology, switch_ports))
        for port, cos in np.argwhere(lanes)
    ]
    peers = _peers(topology)
    shown_lanes = sorted(
        all_cos, key=lambda row: _interest(switch_ports[row[0]][row[1]], row[2]), reverse=True
    )[:LANES_SHOWN]
    rows = [*_HEADINGS]
    for switch, port, cos in sorted(shown_lanes):
        port_counts = switch_ports[switch][port]
        queue, group = port_counts["queues"][cos], port_counts["groups"][cos]
        name = f"{topology.switches[switch].name}/{topology.switches[switch].ports[port].name}"
        rows.append(
            (
                name,
                peers.get((switch, port), "-"),
                str(cos),
                approximate_bytes(int(queue["bytes"])),
                str(int(queue["packets"])),
                str(int(queue["ecn_marked_packets"])),
                str(int(queue["dropped_packets"] + group["dropped_packets"])),
                str(int(port_counts["pfc_tx"][cos])),
                str(int(port_counts["pfc_rx"][cos])),
                f"{int(queue['paused_ns']) / 1000:.1f}",
                approximate_bytes(int(queue["watermark_bytes"])),
            )
        )
    lines = aligned(rows)
    lanes_left_out = sorted(set(all_cos) - set(shown_lanes))
    if lanes_left_out:
        idle = sum(
            not any(_interest(switch_ports[switch][port], cos)) for switch, port, cos in lanes_left_out
        )
        words = f", {idle} of them of idle links between switches" if idle else ""
        lines.append(f"({len(lanes_left_out)} more lanes{words}; all are in switches.parquet with --out)")
    lines += ["", *_totals(switch_ports)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _totals(switch_ports: tuple[NDArray[np.void], ...]) -> list[str]:
    sums = totals(switch_ports)
    first = (
        f"{sums['tx_packets']} packets, {sums['ecn_marked_packets']} marked, {sums['dropped_packets']} dropped for want of "
        f"room, {sums['pfc_tx_frames']} pause frames"
    )
    other_totals = [
        f"{sums[counter.name]} {counter.words}"
        for owner in (CounterObject.QUEUE, CounterObject.PORT)
        for counter in counters_of(owner, CounterUse.MODELLED | CounterUse.SUMMED)
        if counter.words and counter.name not in _NAMED and sums[counter.name]
    ]
    return [f"switches        {', '.join([first, *other_totals])}"]


def _interest(port: np.void, cos: int) -> tuple[int, ...]:
    """Return the sort key of a lane: drops, marks, pauses, depth, bytes."""
    queue, group = port["queues"][cos], port["groups"][cos]
    return (
        int(queue["dropped_packets"] + group["dropped_packets"]),
        int(queue["ecn_marked_packets"]),
        int(port["pfc_tx"][cos] + port["pfc_rx"][cos]),
        int(queue["watermark_bytes"]),
        int(queue["bytes"]),
    )


def _peers(topology: Topology) -> dict[tuple[int, int], str]:
    """Return the name of the peer of each connected switch port, by switch and port number."""
    peer_names = {
        (attachment.end.switch, attachment.end.port): attachment.rig_port
        for attachment in topology.attachments
    }
    for link in topology.links:
        peer_names[link.a.switch, link.a.port] = topology.port_name(link.b)
        peer_names[link.b.switch, link.b.port] = topology.port_name(link.a)
    return peer_names
