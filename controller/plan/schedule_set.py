"""The schedules that a job uses: each op's choice, and one schedule for all ops whose choices ask for the same.

Decides nothing about algorithms (`traffic.collectives.choice` does) and keeps what was chosen for whom, so that a plan
can tell it. What is chosen is chosen for the bytes that the trace states: a job that is scaled down keeps the algorithms,
protocols and channels of the whole one, and with them who sends to whom.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic.collectives.choice import Choice, Settings
from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.table import Schedule
from etloop.traffic.collectives.selection import choose_for, choose_for_send, choose_for_splits
from numpy.typing import NDArray

MOST_UNEVEN_LANES: Final = 1 << 21
"""Lanes of the step tables of all uneven all-to-alls: about 80 MB in every agent's assignment."""
MOST_SCHEDULES: Final = 4096
"""Schedules of one job; sizes come in powers of two or layers, not in thousands."""


@dataclass(frozen=True, slots=True)
class ChosenOp:
    """Ops of one sort and the schedule they run."""

    collective: str
    """As `Schedule.collective`."""
    ranks: int
    ranks_per_host: int
    op_bytes: int
    """As in the plan; of an uneven all-to-all what its busiest member sends."""
    trace_bytes: int
    """The same before scaling, which the choice is made for."""
    schedule: int
    choice: Choice


class ScheduleSet:
    """The schedules in use; each gets the next index the first time it is asked for."""

    def __init__(
        self,
        settings: Sequence[Settings],
        source: str,
        splits: Sequence[NDArray[np.int64]],
        split_trace_bytes: Sequence[int],
    ) -> None:
        """`settings` are those of every part of the job set; a question names the part that it asks for. `splits` and their bytes
        before scaling are the job's."""
        self.schedules: list[Schedule] = []
        # Parts that are shaped alike share their choices.
        self._distinct: list[Settings] = []
        for one in settings:
            if one not in self._distinct:
                self._distinct.append(one)
        self._settings = [self._distinct.index(one) for one in settings]
        self._source = source
        self._splits = splits
        self._split_trace_bytes = split_trace_bytes
        self._chosen: dict[tuple[object, ...], ChosenOp] = {}
        self._index: dict[tuple[str, object], int] = {}
        self._uneven_lanes = 0

    @property
    def chosen(self) -> tuple[ChosenOp, ...]:
        """Every sort of op that was asked for, in the order of asking."""
        return tuple(self._chosen.values())

    def index_of(
        self, collective: int, group: tuple[int, int], op_bytes: int, trace_bytes: int, part: int = 0
    ) -> int:
        """The schedule of a collective, by its Chakra number; `group` is its size and its ranks a host."""
        size, ranks_per_host = group
        shaped = self._settings[part]
        key = (collective, size, min(size, ranks_per_host), op_bytes, trace_bytes, shaped)
        if key not in self._chosen:
            settings = self._distinct[shaped]
            choice = choose_for(collective, size, trace_bytes, settings, ranks_per_host=ranks_per_host)
            self._keep(key, choice, op_bytes, trace_bytes)
        return self._chosen[key].schedule

    def index_of_send(self, op_bytes: int, trace_bytes: int, part: int = 0) -> int:
        """The schedule of a send and its receive."""
        shaped = self._settings[part]
        key = ("send", op_bytes, trace_bytes, shaped)
        if key not in self._chosen:
            choice = choose_for_send(trace_bytes, self._distinct[shaped])
            self._keep(key, choice, op_bytes, trace_bytes)
        return self._chosen[key].schedule

    def index_of_splits(self, split: int, ranks_per_host: int, part: int = 0) -> int:
        """The schedule of a matrix of `Job.splits`."""
        matrix = self._splits[split]
        shaped = self._settings[part]
        key = ("splits", split, min(ranks_per_host, len(matrix)), shaped)
        if key not in self._chosen:
            settings = self._distinct[shaped]
            trace_bytes = self._split_trace_bytes[split]
            choice = choose_for_splits(
                matrix.tolist(), settings, ranks_per_host=ranks_per_host, busiest_bytes=trace_bytes
            )
            self._uneven_lanes += 2 * int(np.count_nonzero(matrix)) * choice.request.cutting.parts
            if self._uneven_lanes > MOST_UNEVEN_LANES:
                what = (
                    f"its uneven all-to-alls have more than {MOST_UNEVEN_LANES // 2} different splits in all"
                )
                remedy = "replay fewer steps of the job, or leave the split sizes out of the trace"
                raise PlanError(Problem(self._source, what, remedy))
            self._keep(key, choice, int(matrix.sum(axis=1).max()), trace_bytes)
        return self._chosen[key].schedule

    def _keep(self, key: tuple[object, ...], choice: Choice, op_bytes: int, trace_bytes: int) -> None:
        request = choice.request
        same = (choice.algorithm, request)
        if same not in self._index:
            if len(self.schedules) >= MOST_SCHEDULES:
                what = f"its operations need more than {MOST_SCHEDULES} different schedules"
                remedy = "pin algorithm, protocol and channels in the scenario's collectives section"
                raise PlanError(Problem(self._source, what, remedy))
            self._index[same] = len(self.schedules)
            self.schedules.append(
                _schedule(choice.build, request) if not request.splits else choice.schedule()
            )
        self._chosen[key] = ChosenOp(
            request.collective,
            request.size,
            request.ranks_per_host,
            op_bytes,
            trace_bytes,
            self._index[same],
            choice,
        )


# Points of a sweep differ in much that schedules do not depend on.
@lru_cache(maxsize=32)
def _schedule(build: Callable[[Request], Schedule], request: Request) -> Schedule:
    return build(request)
