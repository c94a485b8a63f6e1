"""Tables of a run as far as jobs go: without background, and without the barriers between phases of a round.

Key figures and conditions are about jobs, so these are the tables that they see. What ports, switches and counters say is of
everything that crossed them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from etloop.results.measure.job_shares import background_ranks
from etloop.results.tables.frames import LazyColumns
from etloop.results.verdict.evaluation import Frame

if TYPE_CHECKING:
    from etloop.contract.model.run import PlanTables
    from numpy.typing import NDArray


def of_jobs(frames: Mapping[str, Frame], plan: PlanTables) -> dict[str, Frame]:
    """The frames of a run directory that key figures are worked out from."""
    found = dict(frames)
    if plan.several is None:
        return found
    background = background_ranks(plan)
    for name in ("ops", "collectives"):
        phase = frames[name].columns["phase"]
        found[name] = _only(frames[name], np.array([one is not None for one in phase], np.bool_))
    for name in ("flows", "cc"):
        if name in frames:
            found[name] = _only(frames[name], ~background[frames[name].columns["src_rank"].astype(np.int64)])
    return found


def _only(frame: Frame, chosen: NDArray[np.bool_]) -> Frame:
    rows = np.flatnonzero(chosen)
    columns = LazyColumns(frame.columns, lambda name: frame.columns[name][rows])
    return Frame(columns, frame.units, len(rows), lambda row: frame.label(int(rows[row])))
