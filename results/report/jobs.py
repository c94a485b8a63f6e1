"""Several jobs and background: their times alone and together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.results.report.table import Cell, Column, Table, Unit, Value
from etloop.results.report.values import us

if TYPE_CHECKING:
    from etloop.results.schema.jobs import JobShare, PhaseTimes
    from etloop.results.schema.summary import Summary

_FACTOR: Final = "interference factor"
_RANKS: Final = Column("ranks", "ranks", Unit.NUMBER)
_JOB_COLUMNS: Final = (
    Column("job", "job", most_characters=20),
    _RANKS,
    Column("alone", "alone", Unit.TIME, "JCT"),
    Column("together", "together", Unit.TIME, "JCT"),
    Column("alone_range", "alone min to max (us)", Unit.NUMBER, is_detail=True),
    Column("together_range", "together min to max (us)", Unit.NUMBER, is_detail=True),
    Column("rounds", "rounds", Unit.NUMBER),
    Column("factor_mean", "mean", Unit.FACTOR, _FACTOR),
    Column("factor_min", "min", Unit.FACTOR, _FACTOR),
    Column("factor_max", "max", Unit.FACTOR, _FACTOR),
    Column("factor_by_round", "factor by round", is_detail=True),
    Column("overlap", "overlap", Unit.PERCENT),
)
_BACKGROUND_COLUMNS: Final = (
    Column("background", "background", most_characters=20),
    _RANKS,
    Column("ops", "ops", Unit.NUMBER),
    Column("sent", "through the device", Unit.BYTES),
    Column("from", "from", Unit.TIME),
    Column("to", "to", Unit.TIME),
)
_DEFINITIONS: Final = (
    "JCT: mean over rounds. Interference factor: time together / time alone of the same round, mean over rounds. Overlap: "
    "share of a job's time together during which another job ran; below 100% the factor is diluted."
)
_MOST_ROUNDS: Final = 20


def jobs_table(summary: Summary) -> Table:
    """Return every job's time alone and together with the other jobs; no rows for a run of one job."""
    jobs = [job for job in summary.jobs if not job.background]
    has_factor = any(job.interference is not None for job in jobs)
    notes = (_DEFINITIONS,) if has_factor else ()
    return Table("jobs-table", "Jobs alone and together", _JOB_COLUMNS, tuple(map(_job_row, jobs)), notes)


def _job_row(job: JobShare) -> tuple[Value, ...]:
    factors = [f"{factor:.2f}" for factor in job.interference_by_round[:_MOST_ROUNDS]]
    by_round = ", ".join(factors) + (" ..." if len(job.interference_by_round) > len(factors) else "")
    return (
        *(job.name, _rank_range(job)),
        *(None if times is None else times.jct_avg_ns for times in (job.alone, job.together)),
        *(_range(times) for times in (job.alone, job.together)),
        0 if job.together is None else job.together.count,
        Cell(job.interference, is_strong=True),
        *(job.interference_min, job.interference_max, by_round or None, job.beside_share),
    )


def background_table(summary: Summary) -> Table:
    """Return the traffic of every job that only loads the device; no rows without background."""
    rows = tuple(
        (
            *(job.name, _rank_range(job), f"{job.ops_recorded} of {job.ops_planned}"),
            *(job.sent_bytes, job.start_ns, job.end_ns),
        )
        for job in summary.jobs
        if job.background
    )
    notes = ("Background is not part of the figures of jobs; it ends with the jobs.",)
    return Table("background-table", "Background", _BACKGROUND_COLUMNS, rows, notes)


def _rank_range(job: JobShare) -> str:
    return f"{job.first_rank}-{job.first_rank + job.ranks - 1}"


def _range(times: PhaseTimes | None) -> str | None:
    return None if times is None else f"{us(times.jct_min_ns)} to {us(times.jct_max_ns)}"
