"""Arrows between slices of a trace for ui.perfetto.dev: from a send to its receive, and from the last member of a
collective.

Decides which slices are connected. In a collective an arrow goes from the member that joined last, which delayed the
others, to each member that waited for it. An arrow begins and ends a nanosecond inside its slices, which binds it to
them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from etloop.results.export.perfetto_counters import Event
from etloop.results.kpis.job import collective_of_ops
from etloop.results.kpis.transfers import begin_ns

if TYPE_CHECKING:
    from etloop.results.kpis.input import KpiInput

MOST_ARROWS: Final = 50_000
MOST_MEMBERS: Final = 16
"""Most arrows of a collective; in a larger one the first members that waited."""
_INSIDE_NS: Final = 1.0


class Slice(NamedTuple):
    """Process and thread of the slice of an op."""

    process: int
    thread: int


def arrows(inputs: KpiInput, slice_of: Callable[[int], Slice]) -> Iterator[Event]:
    """Yield both ends of every arrow."""
    began, completed = begin_ns(inputs.frames["ops"]), inputs.column("ops", "completed_ns")
    connections = itertools.islice(_join_arrows(inputs), MOST_ARROWS)
    for number, (name, source, target) in enumerate(connections, start=1):
        from_ns, to_ns = began[source] + _INSIDE_NS, completed[target] - _INSIDE_NS
        inside = from_ns < completed[source] and to_ns > began[target]
        # Clocks of two hosts differ by some microseconds; an arrow that would end before it begins is left out.
        if inside and from_ns <= to_ns:
            common_fields = {"name": name, "cat": name, "id": number}
            for phase, row, time_ns, more in (
                ("s", source, from_ns, {}),
                ("f", target, to_ns, {"bp": "e"}),
            ):
                place = slice_of(row)
                yield Event(
                    phase, place.process, float(time_ns), {"tid": place.thread, **common_fields, **more}
                )


def _join_arrows(inputs: KpiInput) -> Iterator[tuple[str, int, int]]:
    """Yield the label of each arrow, and the rows of ops that it starts and ends at."""
    group = collective_of_ops(inputs)
    ops = inputs.frames["ops"].columns
    kind, issued = ops["kind"], inputs.column("ops", "issued_ns")
    order = np.argsort(group, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        if len(rows) < 2:
            continue
        if kind[rows[0]] == "collective":
            last = int(rows[np.argmax(issued[rows])])
            waited = [int(row) for row in rows[: MOST_MEMBERS + 1] if issued[row] < issued[last]]
            for row in waited[:MOST_MEMBERS]:
                yield "waited for", last, row
        else:
            first, second = (int(row) for row in rows[:2])
            yield ("sent", first, second) if kind[first] == "send" else ("sent", second, first)
