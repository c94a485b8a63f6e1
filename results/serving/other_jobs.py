"""Jobs next to a serving workload: durations of their iterations, from the records of their ops. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from etloop.results.schema.serving import OtherJob
from etloop.results.serving.figures import percentiles

if TYPE_CHECKING:
    from etloop.contract.model.run import PlanTables


def other_jobs(
    tables: PlanTables, ops: NDArray[np.void], start_ns: int, begins_ns: Mapping[int, int]
) -> tuple[OtherJob, ...]:
    """Return the jobs of `begins_ns`, which has their number and the time of their first iteration.

    `ops`: OP_RECORD rows of a run that began at `start_ns`. An iteration lasts until its last op has ended on every rank, from
    the end of the iteration before, so that its compute is part of it.
    """
    jobs = []
    for number, begin_ns in begins_ns.items():
        assert tables.several is not None
        job = tables.several.jobs[number]
        rows = np.flatnonzero(
            (tables.ops.rank >= job.first_rank) & (tables.ops.rank < job.first_rank + job.ranks)
        )
        keys = _key(tables.ops.rank[rows], tables.ops.op[rows])
        records = ops[np.isin(_key(ops["rank"], ops["op"]), keys)]
        turn = tables.several.turn[rows][np.searchsorted(keys, _key(records["rank"], records["op"]))]
        planned = np.bincount(tables.several.turn[rows], minlength=job.passes)
        is_complete = np.bincount(turn, minlength=job.passes) == planned
        ends_ns = np.zeros(job.passes, np.int64)
        np.maximum.at(ends_ns, turn, records["completed_ns"] - start_ns)
        complete = int(np.argmin(is_complete)) if not is_complete.all() else job.passes
        durations = percentiles(np.diff(ends_ns[:complete], prepend=begin_ns))
        end_ns = int(ends_ns.max(initial=0))
        jobs.append(OtherJob(job.name, job.passes, complete, end_ns, durations))
    return tuple(jobs)


def _key(rank: NDArray[np.int32], op: NDArray[np.int32]) -> NDArray[np.int64]:
    return (rank.astype(np.int64) << 32) + op
