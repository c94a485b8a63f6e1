"""Counters of the modelled switches as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.contract.model.counters import CounterObject, CounterUse, counters_of
from etloop.results.report.queues import queue_table
from etloop.results.tables.frames import frame_of
from etloop.results.tables.switch_tables import lanes_table, totals
from etloop.results.text.layout import label_text, table_lines

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from etloop.contract.model.topology import Topology

MOST_QUEUES: Final = 32
_ALWAYS: Final = frozenset({"ecn_marked_packets", "dropped_packets"})
"""Totals that the line of totals always has."""


def render_switches(topology: Topology, switch_ports: tuple[NDArray[np.void], ...]) -> str:
    """Return the queues that counted anything and those of idle links between switches, and the totals of all switches."""
    frame = frame_of("switches", lanes_table(topology, switch_ports))
    lines = [*table_lines(queue_table(frame, MOST_QUEUES), MOST_QUEUES), ""]
    lines += label_text("switches", _total_words(switch_ports))
    return "\n".join(lines) + "\n"


def _total_words(switch_ports: tuple[NDArray[np.void], ...]) -> str:
    sums = totals(switch_ports)
    first = (
        f"{sums['tx_packets']} packets, {sums['ecn_marked_packets']} marked, {sums['dropped_packets']} dropped for want of "
        f"room, {sums['pfc_tx_frames']} pause frames"
    )
    other_totals = [
        f"{sums[counter.name]} {counter.words}"
        for owner in (CounterObject.QUEUE, CounterObject.PORT)
        for counter in counters_of(owner, CounterUse.MODELLED | CounterUse.SUMMED)
        if counter.words and counter.name not in _ALWAYS and sums[counter.name]
    ]
    return ", ".join([first, *other_totals])
