"""The jobs of a plan as the plan sees them: one job in memory, and for each of its parts where it goes and whose traffic it is.

Decides nothing: a plan of one job is a set of one part. How jobs become one is decided by `workload.side_by_side`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.inputs.scenario.mapping import Mapping
from etloop.controller.plan.places.placement import host_numbers
from etloop.controller.plan.places.rank_order import with_hosts
from etloop.workload.trace.program import Job

if TYPE_CHECKING:
    from etloop.contract.model.run import PlannedJob
    from etloop.traffic.collectives.choice import Settings
    from numpy.typing import NDArray

ANY_CLASS = -1
"""A part's traffic class: that of the scenario's transport."""


@dataclass(frozen=True, slots=True)
class JobPart:
    """One job of a set: its ranks are [first_rank, first_rank + ranks)."""

    name: str
    first_rank: int
    ranks: int
    mapping: Mapping
    settings: Settings
    background: bool = False
    traffic_class: int = ANY_CLASS
    """IPv4 TOS or IPv6 traffic class byte of its packets."""
    transport: int = 0
    """Number of its transport among `Scenario.transports`."""


@dataclass(frozen=True, slots=True, eq=False)
class JobSet:
    """All jobs of a plan."""

    job: Job
    parts: tuple[JobPart, ...]
    jobs: tuple[PlannedJob, ...] = ()
    """Empty if there is one part and nothing beside it."""
    phases: tuple[tuple[int, ...], ...] = ((0,),)
    turns: tuple[NDArray[np.int32], ...] = ()
    """By program of `job`, see `workload.side_by_side.Together`."""
    communicator_part: tuple[int, ...] = ()
    """By communicator of `job` its part, -1 for the group of the barriers; empty: all of the first."""

    def hosts(self) -> tuple[int, ...]:
        """By rank its host: hosts of different parts are different hosts, whatever port they are on."""
        found: list[int] = []
        first = 0
        for part in self.parts:
            own = [first + host for host in host_numbers(part.ranks, part.mapping)]
            found += own
            first = max(own) + 1 if own else first
        return tuple(found)

    def part_of_rank(self) -> NDArray[np.int32]:
        """By rank its part."""
        return np.repeat(np.arange(len(self.parts), dtype=np.int32), [part.ranks for part in self.parts])

    def settings_of_communicator(self) -> tuple[int, ...]:
        """By communicator the part whose settings shape it; barriers between jobs are shaped as the first part's."""
        if not self.communicator_part:
            return (0,) * len(self.job.communicators)
        return tuple(max(part, 0) for part in self.communicator_part)


def only(job: Job, mapping: Mapping, settings: Settings, transport: int = 0) -> JobSet:
    """A set of one job."""
    part = JobPart("", 0, len(job.ranks), with_hosts(mapping, job), settings, transport=transport)
    return JobSet(job, (part,))
