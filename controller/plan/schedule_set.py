"""The schedules that a job uses: the choice made for each op, and one schedule for all ops whose choices request the same.

Chooses no algorithm (`traffic.collectives.choice` does), but records which choice each op got, so that a plan can report it.
A choice is made for the bytes that the trace states: a job that is scaled down keeps the algorithms, protocols and channels
of the full-size job, and with them its communication pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic.collectives.choice import Choice, Settings
from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.table import Schedule
from etloop.traffic.collectives.selection import choose_for, choose_for_send, choose_for_splits

MOST_UNEVEN_LANES: Final = 1 << 21
"""Limit of the lanes of all uneven all-to-alls: about 80 MB in every agent's assignment."""
MOST_SCHEDULES: Final = 4096
"""Limit of schedules of one job. Op sizes are usually powers of two or one per layer, so far fewer distinct ones occur."""


@dataclass(frozen=True, slots=True)
class ChosenOp:
    """Ops of one kind and size, with the schedule they run."""

    collective: str
    """Name of the collective, as in `Schedule.collective`."""
    ranks: int
    ranks_per_host: int
    op_bytes: int
    """Bytes in the plan; for an uneven all-to-all the bytes of the member that sends most."""
    trace_bytes: int
    """The same before scaling; the choice is made for this size."""
    schedule: int
    choice: Choice


class ScheduleSet:
    """The schedules in use, numbered in the order in which they are first requested."""

    def __init__(
        self,
        settings: Sequence[Settings],
        source: str,
        splits: Sequence[NDArray[np.int64]],
        split_trace_bytes: Sequence[int],
    ) -> None:
        """Create an empty set.

        `settings` are those of every part of the job set; the `index_of` methods take the part as a number into them.
        `source` names the job in errors. `splits` are the job's all-to-all matrices (row by sender), `split_trace_bytes` the
        bytes of the busiest sender of each before scaling.
        """
        self.schedules: list[Schedule] = []
        # Parts with equal settings share their choices.
        self._distinct: list[Settings] = []
        for part_settings in settings:
            if part_settings not in self._distinct:
                self._distinct.append(part_settings)
        self._settings = [self._distinct.index(part_settings) for part_settings in settings]
        self._source = source
        self._splits = splits
        self._split_trace_bytes = split_trace_bytes
        self._chosen: dict[tuple[object, ...], ChosenOp] = {}
        self._index: dict[tuple[str, object], int] = {}
        self._uneven_lanes = 0

    @property
    def chosen(self) -> tuple[ChosenOp, ...]:
        """Return the distinct ops requested so far, in the order of their first request."""
        return tuple(self._chosen.values())

    def index_of(
        self, collective: int, group: tuple[int, int], op_bytes: int, trace_bytes: int, part: int = 0
    ) -> int:
        """Return the index of the schedule of a collective, given by its Chakra number; `group` is (size, ranks per host).

        Raises `PlanError` if there is no such schedule, or too many.
        """
        size, ranks_per_host = group
        settings_index = self._settings[part]
        key = (collective, size, min(size, ranks_per_host), op_bytes, trace_bytes, settings_index)
        if key not in self._chosen:
            settings = self._distinct[settings_index]
            choice = choose_for(collective, size, trace_bytes, settings, ranks_per_host=ranks_per_host)
            self._keep(key, choice, op_bytes, trace_bytes)
        return self._chosen[key].schedule

    def index_of_send(self, op_bytes: int, trace_bytes: int, part: int = 0) -> int:
        """Return the index of the schedule of a send and its receive."""
        settings_index = self._settings[part]
        key = ("send", op_bytes, trace_bytes, settings_index)
        if key not in self._chosen:
            choice = choose_for_send(trace_bytes, self._distinct[settings_index])
            self._keep(key, choice, op_bytes, trace_bytes)
        return self._chosen[key].schedule

    def index_of_splits(self, split: int, ranks_per_host: int, part: int = 0) -> int:
        """Return the index of the schedule of the uneven all-to-all with matrix number `split` of `Job.splits`.

        Raises `PlanError` if the uneven all-to-alls together need too many lanes.
        """
        matrix = self._splits[split]
        settings_index = self._settings[part]
        key = ("splits", split, min(ranks_per_host, len(matrix)), settings_index)
        if key not in self._chosen:
            settings = self._distinct[settings_index]
            trace_bytes = self._split_trace_bytes[split]
            choice = choose_for_splits(
                matrix.tolist(), settings, ranks_per_host=ranks_per_host, busiest_bytes=trace_bytes
            )
            self._uneven_lanes += 2 * int(np.count_nonzero(matrix)) * choice.request.cutting.parts
            if self._uneven_lanes > MOST_UNEVEN_LANES:
                problem = (
                    f"its uneven all-to-alls have more than {MOST_UNEVEN_LANES // 2} different splits in all"
                )
                remedy = "replay fewer steps of the job, or remove the split sizes from the trace"
                raise PlanError(Problem(self._source, problem, remedy))
            self._keep(key, choice, int(matrix.sum(axis=1).max()), trace_bytes)
        return self._chosen[key].schedule

    def _keep(self, key: tuple[object, ...], choice: Choice, op_bytes: int, trace_bytes: int) -> None:
        request = choice.request
        schedule_key = (choice.algorithm, request)
        if schedule_key not in self._index:
            if len(self.schedules) >= MOST_SCHEDULES:
                problem = f"its operations need more than {MOST_SCHEDULES} different schedules"
                remedy = "pin algorithm, protocol and channels in the scenario's collectives section"
                raise PlanError(Problem(self._source, problem, remedy))
            self._index[schedule_key] = len(self.schedules)
            self.schedules.append(
                _build_schedule(choice.build, request) if not request.splits else choice.schedule()
            )
        self._chosen[key] = ChosenOp(
            request.collective,
            request.size,
            request.ranks_per_host,
            op_bytes,
            trace_bytes,
            self._index[schedule_key],
            choice,
        )


# Cached because most points of a sweep need the same schedules.
@lru_cache(maxsize=32)
def _build_schedule(build: Callable[[Request], Schedule], request: Request) -> Schedule:
    return build(request)
