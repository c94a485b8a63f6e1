"""How long an iteration took: the one definition that summaries, key figures, comparisons and sweeps share.

Decides where an iteration begins and ends. Ranks begin the next iteration as soon as their own dependencies allow, so spans from
first issue to last completion overlap, and compute that stands before the first op of an iteration is in none of them. From
the end of one iteration to the end of the next neither happens: the times of all iterations add up to what the job took.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from etloop.results.measure.joined import MeasuredOps
from etloop.results.schema.summary import IterationSummary


def measure_iterations(
    ops: MeasuredOps, ops_per_iteration: int, before_ns: int = 0
) -> tuple[IterationSummary, ...]:
    """Every iteration that left a record, in their order. Rows of `ops` are sorted by iteration.

    `jct_ns` is counted from the latest completion of all earlier iterations, of the first from the start of the run (0): BMWG's
    JCT, "wall clock of an iteration, compute and communication, until all accelerators are done". `before_ns`: that of iterations
    which are not among `ops`.
    """
    iteration = ops.records["iteration"]
    bounds = np.flatnonzero(np.diff(iteration, prepend=-1, append=np.iinfo(np.int32).max)).tolist()
    found = []
    for first, last in pairwise(bounds):
        records = ops.records[first:last]
        end_ns = int(records["completed_ns"].max())
        found.append(
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
    return tuple(found)


def counted_iterations(
    per_iteration: tuple[IterationSummary, ...], warm_up: int
) -> tuple[IterationSummary, ...]:
    """Complete iterations after the warm-up; all of them where that would leave none."""
    complete = tuple(one for one in per_iteration if one.complete)
    return complete[warm_up:] if len(complete) > warm_up else complete
