"""Finds a rank that enters the collectives last, again and again, because it computes for longer.

Decides when a rank arrives: when its trace lets it (`intended_ns`), so that lateness of the agents does not count. The last of
each collective is counted for each rank; a rank is suspected if so many are improbable among equals (`LEVEL`, corrected for all
ranks), if its compute since the end of its previous operation lies beyond that of its peers (robust z), and if that costs a
share of the run that matters. A rank that is last because its previous operation ended late is a matter of the network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.diagnosis.rule import Found, no_evidence, not_exercised, report
from etloop.results.kpis.job import collective_of_ops
from etloop.results.schema.findings import Fact, Finding, FindingKind, Place, PlaceKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

    Floats = NDArray[np.float64]
    Rows = NDArray[np.int64]

KIND: Final = FindingKind.STRAGGLER
LEVEL: Final = 1e-3
LEAST_Z: Final = 4.3
"""Robust z of 0.01 false findings a run (facts of the field, one-sided)."""
LEAST_SHARE: Final = 0.01
"""Share of the run below which waiting for a rank is not worth a sentence."""
LEAST_COLLECTIVES: Final = 5
LEAST_MEMBERS: Final = 3
MAD_TO_SIGMA: Final = 1.4826


@dataclass(frozen=True, slots=True, eq=False)
class _Arrivals:
    """Arrivals of ranks at collectives, one row each, sorted by collective."""

    rank: Rows
    group: Rows
    """Number of the collective, from 0."""
    compute_ns: Floats
    """Since the end of the rank's previous operation."""
    is_last: NDArray[np.bool_]
    """Whether the rank arrived last, by more than the error of the clocks."""
    chance: Floats
    """1 / members of the collective."""


def look(evidence: Evidence) -> Found:
    """Return ranks that collectives wait for."""
    arrivals = _arrivals(evidence)
    if arrivals is None:
        return no_evidence(KIND, "no collective with three or more recorded ranks")
    groups = int(arrivals.group.max()) + 1
    if groups < LEAST_COLLECTIVES:
        return not_exercised(KIND, f"{groups} collectives; {LEAST_COLLECTIVES} or more needed")
    ranks = int(arrivals.rank.max()) + 1
    entered = np.bincount(arrivals.rank, minlength=ranks)
    last = np.bincount(arrivals.rank[arrivals.is_last], minlength=ranks)
    expected = np.bincount(arrivals.rank, arrivals.chance, ranks)
    compute_ns = np.bincount(arrivals.rank, arrivals.compute_ns, ranks) / np.maximum(entered, 1)
    longer_ns = compute_ns - np.median(compute_ns[entered > 0])
    z = longer_ns / _deviation_ns(compute_ns[entered > 0], evidence.duration_ns / groups)
    shares = longer_ns * last / max(evidence.duration_ns, 1)
    findings = []
    tested = int((entered > 0).sum())
    is_suspect = (z > LEAST_Z) & (last > expected) & (shares > LEAST_SHARE)
    for rank in np.flatnonzero(is_suspect).tolist():
        last_of = (int(last[rank]), int(entered[rank]))
        p = tested * binomial_tail(last_of[1], last_of[0], expected[rank] / entered[rank])
        if p < LEVEL:
            findings.append(_finding(evidence, rank, last_of, float(longer_ns[rank]), p, float(shares[rank])))
    return report(KIND, tuple(sorted(findings, key=lambda finding: -(finding.share or 0.0))))


def _finding(
    evidence: Evidence, rank: int, last_of: tuple[int, int], longer_ns: float, p: float, share: float
) -> Finding:
    last, entered = last_of
    names = evidence.run.plan.port_names
    place = Place(PlaceKind.RANK, str(rank), names[rank] if rank < len(names) else "")
    sentence = (
        f"rank {rank} enters {last} of {entered} collectives last: it computes {longer_ns / 1e3:.4g} us longer than the"
        f" median rank, which costs up to {share:.1%} of the job's time"
    )
    facts = (
        Fact("last_arrivals", last, "collectives", None, entered),
        Fact("longer_compute_ns", longer_ns, "ns", 0.0, entered),
    )
    remedy = "look at the host of this rank: clocks, thermal throttling, other load; or at an uneven split of the work"
    return Finding(KIND, (place,), sentence, facts, 1 - p, remedy, share=share)


def _arrivals(evidence: Evidence) -> _Arrivals | None:
    """Return the arrivals at all collectives of three or more ranks."""
    run = evidence.run
    if not run.frames["ops"].rows:
        return None
    collective = collective_of_ops(run)
    order = np.argsort(collective, kind="stable")
    _, members = np.unique(collective[order], return_counts=True)
    large = members >= LEAST_MEMBERS
    rows = order[np.repeat(large, members)]
    if not len(rows):
        return None
    members = members[large]
    group = np.repeat(np.arange(len(members)), members)
    intended_ns = run.column("ops", "intended_ns")[rows]
    rank = run.column("ops", "rank").astype(np.int64)
    by_time = np.lexsort((intended_ns, group))
    ends = np.cumsum(members) - 1
    sorted_ns = intended_ns[by_time]
    is_last = np.zeros(len(rows), bool)
    error_ns = run.summary.clock.between_agents_error_ns or 0
    is_last[by_time[ends]] = sorted_ns[ends] - sorted_ns[ends - 1] > error_ns
    return _Arrivals(
        rank=rank[rows],
        group=group,
        compute_ns=intended_ns - _previous_end_ns(evidence, rank[rows], intended_ns),
        is_last=is_last,
        chance=1.0 / members[group],
    )


def _previous_end_ns(evidence: Evidence, rank: Rows, at_ns: Floats) -> Floats:
    """Return the last completion of each rank up to a time; 0 before its first."""
    run = evidence.run
    ranks = run.column("ops", "rank").astype(np.int64)
    completed_ns = run.column("ops", "completed_ns")
    order = np.lexsort((completed_ns, ranks))
    sorted_rank, sorted_ns = ranks[order], completed_ns[order]
    # Ranks and times as one ascending number: times of a rank lie within a span of their own.
    span = float(max(sorted_ns.max(), at_ns.max())) + 1
    place = np.searchsorted(sorted_rank * span + sorted_ns, rank * span + at_ns, side="right") - 1
    is_own = (place >= 0) & (sorted_rank[np.maximum(place, 0)] == rank)
    return np.where(is_own, sorted_ns[np.maximum(place, 0)], 0.0)


def _deviation_ns(compute_ns: Floats, step_ns: float) -> float:
    """Return the robust standard deviation of the ranks' compute: at least 0.5 % of a step of the job, so that nearly equal
    ranks are not called different."""
    spread = float(np.median(np.abs(compute_ns - np.median(compute_ns))))
    return max(MAD_TO_SIGMA * spread, 0.005 * step_ns, 1.0)


def binomial_tail(tries: int, hits: int, chance: float) -> float:
    """Return the probability of `hits` or more of `tries` at this chance each."""
    if hits <= 0:
        return 1.0
    if chance >= 1.0:
        return 1.0
    counts = np.arange(tries)
    logs = np.cumsum(np.log((tries - counts) / (counts + 1.0)) + np.log(chance / (1.0 - chance)))
    log_pmf = np.r_[0.0, logs] + tries * np.log1p(-chance)
    return float(min(1.0, np.exp(log_pmf[hits:]).sum()))
