"""What our own lateness explains of each iteration at most: the longest chain of late ops that waited for each other.

Decides what waits for what: an op of a rank for all that completed at this rank before it was issued, and a collective for the
last of its members. Lateness of ops beside each other is not added up. Pure.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from etloop.results.kpis.input import KpiInput
from etloop.results.kpis.job import collective_of_ops
from etloop.results.measure.iterations import counted_iterations
from etloop.results.schema.needless import needless_packets
from etloop.results.verdict.own_share import wire_time_ns
from etloop.results.verdict.weakness import OwnShare
from numpy.typing import NDArray


def own_share(given: KpiInput, figures: dict[str, float | None]) -> OwnShare:
    """Return what our lateness, our timers and our buffers explain of a run at most."""
    summary = given.summary
    every = summary.job.per_iteration
    late = _late_by_iteration(given)
    # What is late in an iteration may be felt in the next; where iterations overlap, in all that overlap.
    felt: dict[int, float] = {}
    before_ns = carried_ns = 0.0
    for earlier, one in zip((None, *every), every, strict=False):
        overlaps = earlier is not None and one.start_ns < earlier.end_ns
        carried_ns = carried_ns + before_ns if overlaps else before_ns
        before_ns = late.get(one.iteration, 0.0)
        felt[one.iteration] = carried_ns + before_ns
    counted = counted_iterations(every, 0)
    again = float(needless_packets(summary.transport))
    return OwnShare(
        iterations=tuple(one.iteration for one in counted),
        jct_ns=np.array([one.jct_ns for one in counted], np.float64),
        late_ns=np.array([felt[one.iteration] for one in counted], np.float64),
        whole_late_ns=sum(late.values()),
        whole_ns=float(summary.job.jct_ns or 0),
        again_ns=_time_of(again, given),
        again_packets=again,
        lost_packets=float(summary.transport["receive_overflows"]) + summary.overload_frames,
        figures=figures,
    )


def _time_of(packets: float, given: KpiInput) -> float | None:
    """Return the time of packets on the slowest link of the run; None where the speed of one is not known."""
    if not packets:
        return 0.0
    _, speeds = given.port_of_rank()
    if not len(speeds) or np.isnan(speeds).any():
        return None
    return wire_time_ns(packets, given.mtu_bytes, float(speeds.min()))


def _late_by_iteration(given: KpiInput) -> dict[int, float]:
    late_ns = given.column("ops", "slip_ns").clip(min=0)
    iteration = given.column("ops", "iteration").astype(np.int64)
    if not len(late_ns):
        return {}
    rank, collective = given.column("ops", "rank").astype(np.int64), collective_of_ops(given)
    issued_ns, completed_ns = given.column("ops", "issued_ns"), given.column("ops", "completed_ns")
    # Clocks of two agents are not quite one: what came first by less than their error is taken to have come first or last,
    # whichever explains more, but never later than the next op of the rank itself.
    seen_ns = _not_after_the_next(rank, issued_ns, completed_ns, given.summary.clock.between_agents_error_ns)
    order = np.argsort(iteration, kind="stable")
    bounds = np.flatnonzero(np.diff(iteration[order], prepend=-1, append=-2))
    found = {}
    for first, end in pairwise(bounds.tolist()):
        rows = order[first:end]
        found[int(iteration[rows[0]])] = longest_chain_ns(
            rank[rows], collective[rows], (issued_ns[rows], seen_ns[rows]), late_ns[rows]
        )
    return found


def _not_after_the_next(
    rank: NDArray[np.int64],
    issued_ns: NDArray[np.float64],
    completed_ns: NDArray[np.float64],
    error_ns: float,
) -> NDArray[np.float64]:
    seen_ns = completed_ns + error_ns
    if not error_ns:
        return seen_ns
    for one in np.unique(rank):
        rows = np.flatnonzero(rank == one)
        begins = np.sort(issued_ns[rows])
        following = np.searchsorted(begins, completed_ns[rows], "left")
        begins = np.append(begins, np.inf)
        seen_ns[rows] = np.minimum(seen_ns[rows], begins[following])
    return seen_ns


def longest_chain_ns(
    rank: NDArray[np.int64],
    collective: NDArray[np.int64],
    spans_ns: tuple[NDArray[np.float64], NDArray[np.float64]],
    late_ns: NDArray[np.float64],
) -> float:
    """Return the most lateness that ops can have handed on to each other, an op a row; `spans_ns`: issued and completed."""
    count = len(rank)
    moments = np.concatenate(spans_ns)
    # Of one moment what completed comes first: what is issued then may have waited for it.
    order = np.lexsort((np.arange(2 * count) < count, moments))
    of_rank: dict[int, float] = {}
    of_collective: dict[int, float] = {}
    ranks, collectives, late = rank.tolist(), collective.tolist(), late_ns.tolist()
    is_instant = (spans_ns[1] <= spans_ns[0]).tolist()
    most_ns = 0.0
    for event in order.tolist():
        row = event % count
        mine, shared = ranks[row], collectives[row]
        if event < count:
            reached_ns = of_rank.get(mine, 0.0) + late[row]
            of_collective[shared] = max(of_collective.get(shared, 0.0), reached_ns)
            most_ns = max(most_ns, reached_ns)
            if is_instant[row]:
                of_rank[mine] = reached_ns
        else:
            of_rank[mine] = max(of_rank.get(mine, 0.0), of_collective.get(shared, 0.0))
    return most_ns
