"""Which operations of the trace lost most beyond what their bytes need: names people know a model's layers by.

Decides what counts as lost: time with every member present, less what the busiest port needs for the bytes at line rate. So
a straggler's compute is nobody's loss, and bytes that have to be carried are none either. Summed over iterations, for a name
that is a little slow every time costs more than one that was once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from etloop.results.kpis.job import least_and_joined_ns
from etloop.results.schema.slow_ops import MOST_SLOW_NAMES, SlowName, SlowNames

if TYPE_CHECKING:
    from etloop.results.kpis.input import KpiInput
    from numpy.typing import NDArray


def slow_names(given: KpiInput) -> SlowNames | None:
    """Return the names that lost most; None where the trace has no names, or nothing that has one crossed the device."""
    columns = given.frames["collectives"].columns
    name, kind = columns["name"], columns["kind"]
    least_ns, joined_ns = least_and_joined_ns(given)
    rows = np.flatnonzero((columns["complete"] == 1) & (least_ns > 0) & _is_there(name))
    if not rows.size:
        return None
    # Of those that a late member held up some bytes were there before it came.
    lost_ns = np.maximum(joined_ns - least_ns, 0)[rows]
    keys: dict[tuple[str, str], int] = {}
    pairs = zip(name[rows], kind[rows], strict=True)
    member = np.array([keys.setdefault((str(one), str(two)), len(keys)) for one, two in pairs], np.int64)
    count, joined, least, beyond = (
        np.bincount(member, weights, len(keys))
        for weights in (None, joined_ns[rows], least_ns[rows], lost_ns)
    )
    names = list(keys)
    iteration = given.column("collectives", "iteration")[rows]
    found = []
    for number in np.argsort(-beyond, kind="stable")[:MOST_SLOW_NAMES].tolist():
        own = np.flatnonzero(member == number)
        worst = own[int(np.argmax(lost_ns[own]))]
        found.append(
            SlowName(
                name=names[number][0],
                kind=names[number][1],
                count=int(count[number]),
                joined_avg_ns=round(joined[number] / count[number]),
                least_avg_ns=round(least[number] / count[number]),
                beyond_ns=round(beyond[number]),
                worst_iteration=int(iteration[worst]),
                worst_beyond_ns=round(float(lost_ns[worst])),
            )
        )
    return SlowNames(len(names), tuple(found))


def _is_there(names: NDArray[np.generic]) -> NDArray[np.bool_]:
    return np.array([one is not None for one in names], np.bool_)
