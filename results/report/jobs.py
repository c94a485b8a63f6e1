"""Several jobs and background: their times alone and together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from etloop.results.report.table import Column, Table, Unit, Value, table_of
from etloop.results.report.values import us
from etloop.results.schema.jobs import Phase

if TYPE_CHECKING:
    from etloop.results.schema.jobs import JobShare, PhaseTimes
    from etloop.results.schema.summary import Summary

_MOST_ROUNDS: Final = 20


def _jct_ns(phase: str) -> Callable[[JobShare], Value]:
    def value(job: JobShare) -> Value:
        return getattr(getattr(job, phase), "jct_avg_ns", None)

    return value


def _jct_range(phase: str) -> Callable[[JobShare], Value]:
    def value(job: JobShare) -> Value:
        times: PhaseTimes | None = getattr(job, phase)
        return None if times is None else f"{us(times.jct_min_ns)} to {us(times.jct_max_ns)}"

    return value


def _by_round(job: JobShare) -> Value:
    factors = [f"{factor:.2f}" for factor in job.interference_by_round]
    return ", ".join(factors[:_MOST_ROUNDS]) + (" ..." if len(factors) > _MOST_ROUNDS else "") or None


_RANKS: Final = Column(
    "ranks",
    "ranks",
    Unit.NUMBER,
    value=lambda job: f"{job.first_rank}-{job.first_rank + job.ranks - 1}",
)
_JOB_COLUMNS: Final = (
    Column("name", "job", most_characters=20),
    _RANKS,
    *(Column(phase, phase, Unit.TIME, "JCT", value=_jct_ns(phase)) for phase in Phase),
    *(
        Column(
            f"{phase}_range", f"{phase} min to max (us)", Unit.NUMBER, is_detail=True, value=_jct_range(phase)
        )
        for phase in Phase
    ),
    Column("rounds", "rounds", Unit.NUMBER, value=lambda job: job.together.count if job.together else 0),
    Column("interference", "mean", Unit.FACTOR, "interference factor"),
    Column("interference_min", "min", Unit.FACTOR, "interference factor"),
    Column("interference_max", "max", Unit.FACTOR, "interference factor"),
    Column("interference_by_round", "factor by round", is_detail=True, value=_by_round),
    Column("beside_share", "overlap", Unit.PERCENT),
)
_BACKGROUND_COLUMNS: Final = (
    Column("name", "background", most_characters=20),
    _RANKS,
    Column("ops", "ops", Unit.NUMBER, value=lambda job: f"{job.ops_recorded} of {job.ops_planned}"),
    Column("sent_bytes", "through the device", Unit.BYTES),
    Column("start_ns", "from", Unit.TIME),
    Column("end_ns", "to", Unit.TIME),
)
_DEFINITIONS: Final = (
    "JCT: mean over rounds. Interference factor: time together / time alone of the same round, mean over rounds. Overlap: "
    "share of a job's time together during which another job ran; below 100% the factor is diluted."
)


def jobs_table(summary: Summary) -> Table:
    """Return every job's time alone and together with the other jobs; no rows for a run of one job."""
    jobs = [job for job in summary.jobs if not job.background]
    has_factor = any(job.interference is not None for job in jobs)
    notes = (_DEFINITIONS,) if has_factor else ()
    return table_of("jobs-table", "Jobs alone and together", _JOB_COLUMNS, jobs, notes)


def background_table(summary: Summary) -> Table:
    """Return the traffic of every job that only loads the device; no rows without background."""
    background = [job for job in summary.jobs if job.background]
    notes = ("Background is not part of the figures of jobs; it ends with the jobs.",)
    return table_of("background-table", "Background", _BACKGROUND_COLUMNS, background, notes)
