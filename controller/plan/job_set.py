"""The jobs of a plan: one job in memory, with the mapping and the settings of each of its parts.

Decides nothing: a plan of one job is a set of one part. Jobs are merged by `workload.program.merge.side_by_side`.
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
    from numpy.typing import NDArray

    from etloop.contract.model.run import PlannedJob
    from etloop.traffic.collectives.choice import Settings

ANY_CLASS = -1
"""Value of `JobPart.traffic_class`: use that of the scenario's transport."""


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
    """Index of its transport in `Scenario.transports`."""


@dataclass(frozen=True, slots=True, eq=False)
class JobSet:
    """All jobs of a plan."""

    job: Job
    parts: tuple[JobPart, ...]
    jobs: tuple[PlannedJob, ...] = ()
    """Empty if there is only one part and no background."""
    phases: tuple[tuple[int, ...], ...] = ((0,),)
    turns: tuple[NDArray[np.int32], ...] = ()
    """The turn of each op, by program of `job`; see `workload.program.merge.Together`."""
    communicator_part: tuple[int, ...] = ()
    """Part of each communicator of `job`, -1 for the group of the barriers; empty if there is only one part."""

    def hosts(self) -> tuple[int, ...]:
        """Return the host of every rank. Hosts of different parts are different hosts, even on the same port."""
        host_of_rank: list[int] = []
        first_host = 0
        for part in self.parts:
            part_hosts = [first_host + host for host in host_numbers(part.ranks, part.mapping)]
            host_of_rank += part_hosts
            first_host = max(part_hosts) + 1 if part_hosts else first_host
        return tuple(host_of_rank)

    def part_of_rank(self) -> NDArray[np.int32]:
        """Return the part of every rank, int32 of shape (ranks,)."""
        return np.repeat(np.arange(len(self.parts), dtype=np.int32), [part.ranks for part in self.parts])

    def settings_of_communicator(self) -> tuple[int, ...]:
        """Return by communicator the part whose settings apply to it.

        Barriers between jobs use the settings of the first part.
        """
        if not self.communicator_part:
            return (0,) * len(self.job.communicators)
        return tuple(max(part, 0) for part in self.communicator_part)


def only(job: Job, mapping: Mapping, settings: Settings, transport: int = 0) -> JobSet:
    """Return a set of one job."""
    part = JobPart("", 0, len(job.ranks), with_hosts(mapping, job), settings, transport=transport)
    return JobSet(job, (part,))
