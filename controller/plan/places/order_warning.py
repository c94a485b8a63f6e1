"""Warnings about jobs whose ranks with the most mutual traffic are on different hosts although they need not be. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.controller.inputs.scenario.mapping import BY_COMMUNICATORS, PlacementRule
from etloop.controller.plan.places.placement import hosts_of
from etloop.controller.plan.places.rank_order import crossing_bytes, hosts_by_communicators
from etloop.workload.trace.program import Communicator, Job

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from etloop.controller.plan.demand import PairColumns
    from etloop.controller.plan.job_set import JobPart, JobSet

_LEAST_GAIN: Final = 0.05
"""Share of the payload that another order must keep inside hosts before a warning is worth it."""


def order_warnings(jobs: JobSet, chunks: Iterable[PairColumns]) -> tuple[str, ...]:
    """Return a warning for each job that would send clearly less between hosts if its ranks were ordered by communicator.

    Considers only jobs whose mapping places ranks by number. `chunks` are the pairs of all jobs, in any number of pieces;
    they are iterated once for each such job.
    """
    return tuple(
        text
        for number, part in enumerate(jobs.parts)
        if not part.mapping.orders_ranks
        and part.mapping.rule is not PlacementRule.EXPLICIT
        and 1 < part.mapping.ranks_per_host < part.ranks
        and (text := _warning(jobs, number, part, chunks))
    )


def _warning(jobs: JobSet, at: int, part: JobPart, chunks: Iterable[PairColumns]) -> str:
    hosts = hosts_of(part.ranks, part.mapping)
    other_hosts = hosts_by_communicators(_job_of_part(jobs, at, part), part.mapping.ranks_per_host)
    total_bytes = crossing_now = crossing_other = 0
    for pairs in chunks:
        part_pairs = _pairs_within(part, pairs)
        total_bytes += int(part_pairs[2].sum())
        crossing_now += crossing_bytes(hosts, *part_pairs)
        crossing_other += crossing_bytes(other_hosts, *part_pairs)
    current_share, other_share = crossing_now / max(total_bytes, 1), crossing_other / max(total_bytes, 1)
    if current_share - other_share < _LEAST_GAIN:
        return ""
    first_ranks = ", ".join(map(str, other_hosts[0][:4])) + (", ..." if len(other_hosts[0]) > 4 else "")
    name = f"{part.name}: " if part.name else ""
    return (
        f"{name}the ranks with the most traffic are on different hosts: "
        f"{current_share:.0%} of the payload goes from host to host, and "
        f"{other_share:.0%} would with mapping: {{order: {BY_COMMUNICATORS}}}, which puts ranks {first_ranks} on one"
    )


def _pairs_within(
    part: JobPart, pairs: PairColumns
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
    """Return source rank, destination rank and payload bytes of the pairs within a part; ranks are numbered within the part."""
    first, last = part.first_rank, part.first_rank + part.ranks
    in_part = (
        (pairs.src_rank >= first)
        & (pairs.src_rank < last)
        & (pairs.dst_rank >= first)
        & (pairs.dst_rank < last)
    )
    return pairs.src_rank[in_part] - first, pairs.dst_rank[in_part] - first, pairs.payload_bytes[in_part]


def _job_of_part(jobs: JobSet, at: int, part: JobPart) -> Job:
    """Return one part of a set as a job with ranks numbered from 0. Communicators of other parts keep their index but lose
    their members."""
    job = jobs.job
    if len(jobs.parts) == 1:
        return job
    communicator_part = np.array(jobs.communicator_part)
    first = part.first_rank
    ranks = job.ranks[first : first + part.ranks]
    groups = tuple(
        Communicator(
            number,
            group.name,
            tuple(rank - first for rank in group.members) if communicator_part[number] == at else (),
        )
        for number, group in enumerate(job.communicators)
    )
    return Job(job.source, groups, job.programs, ranks, job.policy, {}, ())
