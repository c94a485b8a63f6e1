"""Tables of a run as far as jobs go: without background, and without the barriers between phases of a round.

Key figures and conditions are about jobs, so these are the tables that they see. What ports, switches and counters say is of
everything that crossed them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from etloop.results.measure.job_shares import background_ranks
from etloop.results.verdict.evaluation import Frame

if TYPE_CHECKING:
    from etloop.contract.model.run import PlanTables
    from numpy.typing import NDArray


class _Rows(Mapping[str, "NDArray[np.generic]"]):
    """Some rows of columns that are made when they are asked for."""

    def __init__(self, columns: Mapping[str, NDArray[np.generic]], rows: NDArray[np.int64]) -> None:
        self._columns = columns
        self._rows = rows
        self._made: dict[str, NDArray[np.generic]] = {}

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        if name not in self._made:
            self._made[name] = self._columns[name][self._rows]
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


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
    label = frame.label
    return Frame(_Rows(frame.columns, rows), frame.units, len(rows), lambda row: label(int(rows[row])))
