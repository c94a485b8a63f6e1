"""Duration of an iteration: the only definition, which summaries, key figures, comparisons and sweeps share.

Decides where an iteration begins and ends. Ranks begin the next iteration as soon as their own dependencies allow, so
spans from first issue to last completion overlap and leave out compute before the first op of an iteration. Spans from
the end of one iteration to the end of the next do neither: their sum is the time of the job.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from etloop.results.measure.joined import MeasuredOps
from etloop.results.schema.summary import IterationSummary


def measure_iterations(
    ops: MeasuredOps, ops_per_iteration: int, before_ns: int = 0
) -> tuple[IterationSummary, ...]:
    """Return every iteration that has a record, in their order. Rows of `ops` are sorted by iteration.

    `jct_ns` is counted from the latest completion of all earlier iterations, for the first one from the start of the run
    (0): BMWG's JCT, "wall clock of an iteration, compute and communication, until all accelerators are done".
    `before_ns`: latest completion of the iterations before `ops`.
    """
    iteration = ops.records["iteration"]
    bounds = np.flatnonzero(np.diff(iteration, prepend=-1, append=np.iinfo(np.int32).max)).tolist()
    iterations = []
    for first, last in pairwise(bounds):
        records = ops.records[first:last]
        end_ns = int(records["completed_ns"].max())
        iterations.append(
            IterationSummary(
                iteration=int(iteration[first]),
                start_ns=int(records["issued_ns"].min()),
                end_ns=end_ns,
                jct_ns=max(end_ns - before_ns, 0),
                ops_recorded=last - first,
                complete=last - first == ops_per_iteration,
            )
        )
        before_ns = max(before_ns, end_ns)
    return tuple(iterations)


def list_counted_iterations(
    per_iteration: tuple[IterationSummary, ...], warm_up: int
) -> tuple[IterationSummary, ...]:
    """Return the complete iterations after the warm-up; all complete ones if there are no more than `warm_up`."""
    complete = tuple(summary for summary in per_iteration if summary.complete)
    return complete[warm_up:] if len(complete) > warm_up else complete
