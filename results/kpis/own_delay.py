"""Time of each iteration that the emulator's own lateness explains at most: the longest chain of late ops that waited for
each other.

Decides the dependencies: an op of a rank waits for all ops that completed at this rank before it was issued, and a
collective waits for the last of its members. Lateness of concurrent ops is not added up. Pure.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from etloop.results.kpis.input import KpiInput
from etloop.results.kpis.job import collective_of_ops
from etloop.results.measure.iterations import list_counted_iterations
from etloop.results.schema.needless import needless_packets
from etloop.results.verdict.own_share import wire_time_ns
from etloop.results.verdict.weakness import OwnShare


def own_share(inputs: KpiInput, figures: dict[str, float | None]) -> OwnShare:
    """Return the upper bounds of the part of a run that our lateness, our timers and our buffers explain."""
    summary = inputs.summary
    iterations = summary.job.per_iteration
    late = _late_by_iteration(inputs)
    # Lateness in an iteration may affect the next one; if iterations overlap, all that overlap.
    late_with_carried: dict[int, float] = {}
    before_ns = carried_ns = 0.0
    for earlier, iteration in zip((None, *iterations), iterations, strict=False):
        overlaps = earlier is not None and iteration.start_ns < earlier.end_ns
        carried_ns = carried_ns + before_ns if overlaps else before_ns
        before_ns = late.get(iteration.iteration, 0.0)
        late_with_carried[iteration.iteration] = carried_ns + before_ns
    complete_iterations = list_counted_iterations(iterations, 0)
    needless = float(needless_packets(summary.transport))
    return OwnShare(
        iterations=tuple(iteration.iteration for iteration in complete_iterations),
        jct_ns=np.array([iteration.jct_ns for iteration in complete_iterations], np.float64),
        late_ns=np.array(
            [late_with_carried[iteration.iteration] for iteration in complete_iterations], np.float64
        ),
        whole_late_ns=sum(late.values()),
        whole_ns=float(summary.job.jct_ns or 0),
        again_ns=_needless_time_ns(needless, inputs),
        again_packets=needless,
        lost_packets=float(summary.transport["receive_overflows"]) + summary.overload_frames,
        figures=figures,
    )


def _needless_time_ns(packets: float, inputs: KpiInput) -> float | None:
    """Return the time in ns of packets on the slowest link of the run; None if a link speed is not known."""
    if not packets:
        return 0.0
    _, speeds = inputs.port_of_rank()
    if not len(speeds) or np.isnan(speeds).any():
        return None
    return wire_time_ns(packets, inputs.mtu_bytes, float(speeds.min()))


def _late_by_iteration(inputs: KpiInput) -> dict[int, float]:
    """Return the longest chain of lateness in ns by iteration."""
    late_ns = inputs.column("ops", "slip_ns").clip(min=0)
    iteration = inputs.column("ops", "iteration").astype(np.int64)
    if not len(late_ns):
        return {}
    rank, collective = inputs.column("ops", "rank").astype(np.int64), collective_of_ops(inputs)
    issued_ns, completed_ns = inputs.column("ops", "issued_ns"), inputs.column("ops", "completed_ns")
    # Clocks of two agents differ by up to their error: a completion is assumed that much later, which makes chains
    # longer, but never later than the next op of the rank itself was issued.
    seen_ns = _cap_at_next_issue(rank, issued_ns, completed_ns, inputs.summary.clock.between_agents_error_ns)
    order = np.argsort(iteration, kind="stable")
    bounds = np.flatnonzero(np.diff(iteration[order], prepend=-1, append=-2))
    chain_by_iteration = {}
    for first, end in pairwise(bounds.tolist()):
        rows = order[first:end]
        chain_by_iteration[int(iteration[rows[0]])] = longest_chain_ns(
            rank[rows], collective[rows], (issued_ns[rows], seen_ns[rows]), late_ns[rows]
        )
    return chain_by_iteration


def _cap_at_next_issue(
    rank: NDArray[np.int64],
    issued_ns: NDArray[np.float64],
    completed_ns: NDArray[np.float64],
    error_ns: float,
) -> NDArray[np.float64]:
    """Return completion times plus `error_ns`, capped at the issue of the rank's next op."""
    seen_ns = completed_ns + error_ns
    if not error_ns:
        return seen_ns
    for number in np.unique(rank):
        rows = np.flatnonzero(rank == number)
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
    """Return the greatest sum of lateness in ns along a chain of dependent ops, an op a row; `spans_ns`: issued and
    completed."""
    count = len(rank)
    moments = np.concatenate(spans_ns)
    # At equal times completions come first: an op issued then may have waited for them.
    order = np.lexsort((np.arange(2 * count) < count, moments))
    of_rank: dict[int, float] = {}
    of_collective: dict[int, float] = {}
    ranks, collectives, late = rank.tolist(), collective.tolist(), late_ns.tolist()
    is_instant = (spans_ns[1] <= spans_ns[0]).tolist()
    most_ns = 0.0
    for event in order.tolist():
        row = event % count
        own_rank, own_collective = ranks[row], collectives[row]
        if event < count:
            reached_ns = of_rank.get(own_rank, 0.0) + late[row]
            of_collective[own_collective] = max(of_collective.get(own_collective, 0.0), reached_ns)
            most_ns = max(most_ns, reached_ns)
            if is_instant[row]:
                of_rank[own_rank] = reached_ns
        else:
            of_rank[own_rank] = max(of_rank.get(own_rank, 0.0), of_collective.get(own_collective, 0.0))
    return most_ns
