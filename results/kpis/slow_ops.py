"""Operations of the trace that lost most time beyond what their bytes need, by their names in the trace.

Decides what counts as lost: the time since the last member's issue, minus what the busiest port needs for the bytes at
line rate. A straggler's compute is therefore no loss, nor is the time that the bytes need. Losses are summed over
iterations, because an op that is a little slow every time costs more than one that was slow once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from etloop.results.kpis.job import least_and_joined_ns
from etloop.results.schema.slow_ops import MOST_SLOW_NAMES, SlowName, SlowNames

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.kpis.input import KpiInput


def slow_names(inputs: KpiInput) -> SlowNames | None:
    """Return the names that lost most; None if the trace has no names, or no named collective crossed the device."""
    columns = inputs.frames["collectives"].columns
    name, kind = columns["name"], columns["kind"]
    least_ns, joined_ns = least_and_joined_ns(inputs)
    rows = np.flatnonzero((columns["complete"] == 1) & (least_ns > 0) & _has_name(name))
    if not rows.size:
        return None
    # If a member was late, some bytes arrived before it joined, so the difference may be negative.
    lost_ns = np.maximum(joined_ns - least_ns, 0)[rows]
    keys: dict[tuple[str, str], int] = {}
    pairs = zip(name[rows], kind[rows], strict=True)
    member = np.array(
        [keys.setdefault((str(op_name), str(op_kind)), len(keys)) for op_name, op_kind in pairs], np.int64
    )
    count, joined_sums_ns, least_sums_ns, lost_sums_ns = (
        np.bincount(member, weights, len(keys))
        for weights in (None, joined_ns[rows], least_ns[rows], lost_ns)
    )
    names = list(keys)
    iteration = inputs.column("collectives", "iteration")[rows]
    slowest = []
    for number in np.argsort(-lost_sums_ns, kind="stable")[:MOST_SLOW_NAMES].tolist():
        name_rows = np.flatnonzero(member == number)
        worst = name_rows[int(np.argmax(lost_ns[name_rows]))]
        slowest.append(
            SlowName(
                name=names[number][0],
                kind=names[number][1],
                count=int(count[number]),
                joined_avg_ns=round(joined_sums_ns[number] / count[number]),
                least_avg_ns=round(least_sums_ns[number] / count[number]),
                beyond_ns=round(lost_sums_ns[number]),
                worst_iteration=int(iteration[worst]),
                worst_beyond_ns=round(float(lost_ns[worst])),
            )
        )
    return SlowNames(len(names), tuple(slowest))


def _has_name(names: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Return which names exist (bool)."""
    return np.array([name is not None for name in names], np.bool_)
