"""Arrows between slices of a trace for ui.perfetto.dev: from a send to its receive, and from the last member of a collective.

Decides who is joined by one. Of a collective an arrow leads from the member that joined last to each that waited for it, for it
is the one that held the others up. An arrow begins and ends a nanosecond inside its slices, which is what binds it to them.
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
"""Of a collective; in a larger one the first so many that waited."""
_INSIDE_NS: Final = 1.0


class Slice(NamedTuple):
    """Where an op is drawn."""

    process: int
    thread: int


def arrows(given: KpiInput, slice_of: Callable[[int], Slice]) -> Iterator[Event]:
    """Yield both ends of every arrow."""
    began, completed = begin_ns(given.frames["ops"]), given.column("ops", "completed_ns")
    joined = itertools.islice(_joined(given), MOST_ARROWS)
    for number, (name, source, target) in enumerate(joined, start=1):
        from_ns, to_ns = began[source] + _INSIDE_NS, completed[target] - _INSIDE_NS
        inside = from_ns < completed[source] and to_ns > began[target]
        # Clocks of two hosts differ by some microseconds; what ends before it begins is no arrow.
        if inside and from_ns <= to_ns:
            about = {"name": name, "cat": name, "id": number}
            for phase, row, time_ns, more in (
                ("s", source, from_ns, {}),
                ("f", target, to_ns, {"bp": "e"}),
            ):
                place = slice_of(row)
                yield Event(phase, place.process, float(time_ns), {"tid": place.thread, **about, **more})


def _joined(given: KpiInput) -> Iterator[tuple[str, int, int]]:
    """Yield what an arrow means, and the rows it leads from and to."""
    group = collective_of_ops(given)
    ops = given.frames["ops"].columns
    kind, issued = ops["kind"], given.column("ops", "issued_ns")
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
