"""Several jobs in one run: the ops that count, the time of each job alone and together with the others, and the
background.

Decides the interference factor and which ops belong to no job: barriers between phases, and background, which is in no
figure of a job. In a run of one job without background every op counts.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.measure.joined import NO_OPS, MeasuredOps
from etloop.results.schema.jobs import JobShare, Phase, PhaseTimes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.contract.model.run import PlannedJobs, PlanTables


@dataclass(frozen=True, slots=True, eq=False)
class PassRows:
    """One row per round, job and pass with a recorded op, sorted by (round, job, phase, pass)."""

    round: NDArray[np.int64]
    job: NDArray[np.int64]
    phase: NDArray[np.int64]
    number: NDArray[np.int64]
    """Number of the pass in its phase."""
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    ops_recorded: NDArray[np.int64]
    complete: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.round)


def interference_factor(contended_jct_ns: float, alone_jct_ns: float) -> float:
    """Return how many times longer a job takes with other jobs than alone (BMWG, JCT Interference Factor)."""
    return contended_jct_ns / alone_jct_ns


def job_of_rank(tables: PlanTables) -> NDArray[np.int32]:
    """Return the job of each rank (int32); -1 in a run of one job without background."""
    if tables.several is None:
        return np.full(len(tables.rank_agent), -1, np.int32)
    counts = [job.ranks for job in tables.several.jobs]
    return np.repeat(np.arange(len(counts), dtype=np.int32), counts)


def background_ranks(tables: PlanTables) -> NDArray[np.bool_]:
    """Return whether each rank is background (bool)."""
    if tables.several is None:
        return np.zeros(len(tables.rank_agent), np.bool_)
    return np.array([job.background for job in tables.several.jobs])[job_of_rank(tables)]


def mark_counted_ops(tables: PlanTables) -> NDArray[np.bool_]:
    """Return whether each planned op belongs to a job (bool): no background, no barrier between phases."""
    if tables.several is None:
        return np.ones(len(tables.ops.rank), np.bool_)
    return ~background_ranks(tables)[tables.ops.rank] & (tables.several.turn >= 0)


def phase_and_pass_of_op(tables: PlanTables) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return phase and pass of each planned op (int64); -1 for ops of no job, and in a run of one job."""
    phase, number = (np.full(len(tables.ops.rank), -1, np.int64) for _ in range(2))
    if tables.several is not None:
        is_counted = mark_counted_ops(tables)
        passes = np.array([job.passes for job in tables.several.jobs])[job_of_rank(tables)]
        phase[is_counted], number[is_counted] = np.divmod(
            tables.several.turn[is_counted], passes[tables.ops.rank[is_counted]]
        )
    return phase, number


def sort_of_phase(several: PlannedJobs, phase: int) -> Phase:
    """Return whether a phase runs one job alone or several together."""
    return Phase.ALONE if len(several.phases[phase]) == 1 and len(several.phases) > 1 else Phase.TOGETHER


def pass_rows(ops: MeasuredOps, tables: PlanTables) -> PassRows:
    """Return the passes of all jobs in a run of several jobs."""
    assert tables.several is not None
    phases = len(tables.several.phases)
    most = max(job.passes for job in tables.several.jobs)
    is_counted = mark_counted_ops(tables)
    rank_job = job_of_rank(tables)
    phase_of_op, pass_of_op = phase_and_pass_of_op(tables)
    cell_of_op = (rank_job[tables.ops.rank].astype(np.int64) * phases + phase_of_op) * most + pass_of_op
    cells = len(tables.several.jobs) * phases * most
    planned = np.bincount(cell_of_op[is_counted], minlength=cells)
    rows = is_counted[ops.plan_row]
    records = ops.records[rows]
    key = records["iteration"].astype(np.int64) * cells + cell_of_op[ops.plan_row[rows]]
    unique, member, recorded = np.unique(key, return_inverse=True, return_counts=True)
    start_ns = np.full(len(unique), np.iinfo(np.int64).max)
    end_ns = np.full(len(unique), np.iinfo(np.int64).min)
    np.minimum.at(start_ns, member.reshape(-1), records["issued_ns"])
    np.maximum.at(end_ns, member.reshape(-1), records["completed_ns"])
    round_number, cell = np.divmod(unique, cells)
    job_phase, number = np.divmod(cell, most)
    job, phase = np.divmod(job_phase, phases)
    complete = recorded == planned[cell]
    return PassRows(round_number, job, phase, number, start_ns, end_ns, recorded.astype(np.int64), complete)


@dataclass(slots=True)
class _RecordedOps:
    """Sums over the recorded ops of a job."""

    ops: int = 0
    sent_bytes: int = 0
    start_ns: int | None = None
    end_ns: int | None = None

    def take(self, mine: NDArray[np.void]) -> None:
        """Add records."""
        if not len(mine):
            return
        self.ops += len(mine)
        self.sent_bytes += int(mine["wire_tx_bytes"].sum())
        start_ns, end_ns = int(mine["issued_ns"].min()), int(mine["completed_ns"].max())
        self.start_ns = start_ns if self.start_ns is None else min(self.start_ns, start_ns)
        self.end_ns = end_ns if self.end_ns is None else max(self.end_ns, end_ns)


class JobTally:
    """Per-job shares, accumulated over blocks of iterations; empty for a run of one job."""

    def __init__(self, tables: PlanTables) -> None:
        self._tables = tables
        self._passes: list[PassRows] = []
        several = tables.several
        self._recorded = [] if several is None else [_RecordedOps() for _ in several.jobs]

    def take(self, ops: MeasuredOps) -> None:
        """Add the ops of a block."""
        if self._tables.several is None:
            return
        self._passes.append(pass_rows(ops, self._tables))
        for job, recorded in enumerate(self._recorded):
            recorded.take(ops.records[_ops_of_job(self._tables, job)[ops.plan_row]])

    def passes(self) -> PassRows | None:
        """Return the passes of all jobs; None for a run of one job without background."""
        if self._tables.several is None:
            return None
        names = [field.name for field in fields(PassRows)]
        parts = self._passes or [pass_rows(NO_OPS, self._tables)]
        return PassRows(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

    def shares(self) -> tuple[JobShare, ...]:
        """Return the shares of every job and background; empty for a run of one job."""
        rows = self.passes()
        if rows is None:
            return ()
        return tuple(_share(self._tables, rows, job, recorded) for job, recorded in enumerate(self._recorded))


def _ops_of_job(tables: PlanTables, job: int) -> NDArray[np.bool_]:
    """Return whether each planned op belongs to a job (bool), without barriers between phases."""
    assert tables.several is not None
    planned, rank = tables.several.jobs[job], tables.ops.rank
    is_in_job = (rank >= planned.first_rank) & (rank < planned.first_rank + planned.ranks)
    return is_in_job & (tables.several.turn >= 0)


def _share(tables: PlanTables, rows: PassRows, job: int, recorded: _RecordedOps) -> JobShare:
    """Return the figures of one job."""
    assert tables.several is not None
    planned = tables.several.jobs[job]
    times = {} if planned.background else _phase_times(tables.several, rows, job)
    factors = _factors(tables.several, times)
    return JobShare(
        name=planned.name,
        background=planned.background,
        first_rank=planned.first_rank,
        ranks=planned.ranks,
        passes=planned.passes,
        ops_planned=int(_ops_of_job(tables, job).sum()) * (1 if planned.background else tables.iterations),
        ops_recorded=recorded.ops,
        sent_bytes=recorded.sent_bytes,
        start_ns=recorded.start_ns,
        end_ns=recorded.end_ns,
        alone=_summary(tables.several, job, times, Phase.ALONE),
        together=_summary(tables.several, job, times, Phase.TOGETHER),
        interference=float(np.mean(factors)) if factors else None,
        interference_min=min(factors, default=None),
        interference_max=max(factors, default=None),
        interference_by_round=tuple(factors),
        beside_share=_beside_share(tables.several, rows, job),
    )


_Times = dict[tuple[int, int], tuple[int, int]]
"""(round, phase) -> start and end of a job in it, if every op completed."""


def _phase_times(several: PlannedJobs, rows: PassRows, job: int) -> _Times:
    """Return start and end of a job in each round and phase in which every pass completed."""
    rows_by_phase: dict[tuple[int, int], list[int]] = {}
    for row in np.flatnonzero((rows.job == job) & rows.complete).tolist():
        rows_by_phase.setdefault((int(rows.round[row]), int(rows.phase[row])), []).append(row)
    return {
        key: (int(rows.start_ns[phase_rows].min()), int(rows.end_ns[phase_rows].max()))
        for key, phase_rows in rows_by_phase.items()
        if len(phase_rows) == several.jobs[job].passes
    }


def _factors(several: PlannedJobs, times: _Times) -> list[float]:
    """Return the interference factor of each round in which the job completed both alone and together."""
    by_sort: dict[tuple[int, Phase], int] = {}
    for (round_number, phase), (start_ns, end_ns) in times.items():
        by_sort[round_number, sort_of_phase(several, phase)] = end_ns - start_ns
    rounds = sorted({round_number for round_number, _ in by_sort})
    return [
        interference_factor(by_sort[number, Phase.TOGETHER], by_sort[number, Phase.ALONE])
        for number in rounds
        if (number, Phase.TOGETHER) in by_sort and by_sort.get((number, Phase.ALONE), 0) > 0
    ]


def _summary(several: PlannedJobs, job: int, times: _Times, sort: Phase) -> PhaseTimes | None:
    """Return the times of a job over its phases of one kind; None if it completed none."""
    matching_keys = [key for key in times if sort_of_phase(several, key[1]) is sort]
    if not matching_keys:
        return None
    jct_ns = [times[key][1] - times[key][0] for key in matching_keys]
    return PhaseTimes(
        len(jct_ns),
        min(jct_ns),
        sum(jct_ns) // len(jct_ns),
        max(jct_ns),
        sum(jct_ns) // (len(jct_ns) * several.jobs[job].passes),
    )


def _beside_share(several: PlannedJobs, rows: PassRows, job: int) -> float | None:
    """Return, over all rounds, time together with at least one other job running / time together; None if unknown."""
    if several.jobs[job].background:
        return None
    together = [phase for phase, members in enumerate(several.phases) if len(members) > 1]
    spans: dict[tuple[int, int], list[int]] = {}
    for row in np.flatnonzero(np.isin(rows.phase, together)).tolist():
        span = spans.setdefault((int(rows.round[row]), int(rows.job[row])), [int(rows.start_ns[row]), 0])
        span[0] = min(span[0], int(rows.start_ns[row]))
        span[1] = max(span[1], int(rows.end_ns[row]))
    shared_ns = total_ns = 0
    for (round_number, owner), (start_ns, end_ns) in spans.items():
        if owner != job:
            continue
        other_spans = [
            span for (number, other_job), span in spans.items() if number == round_number and other_job != job
        ]
        total_ns += end_ns - start_ns
        shared_ns += _covered_ns(start_ns, end_ns, other_spans)
    return shared_ns / total_ns if total_ns else None


def _covered_ns(start_ns: int, end_ns: int, spans: list[list[int]]) -> int:
    """Return how much of an interval the spans cover, in ns."""
    covered, covered_until = 0, start_ns
    for first, last in sorted(spans):
        begin, end = max(first, covered_until), min(last, end_ns)
        if end > begin:
            covered += end - begin
            covered_until = end
    return covered
