"""Whether the ranks that talk most sit on different hosts although they need not. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from etloop.controller.inputs.scenario.mapping import BY_COMMUNICATORS, PlacementRule
from etloop.controller.plan.places.placement import hosts_of
from etloop.controller.plan.places.rank_order import crossing_bytes, hosts_by_communicators
from etloop.workload.trace.program import Communicator, Job

if TYPE_CHECKING:
    from collections.abc import Iterable

    from etloop.controller.plan.demand import PairColumns
    from etloop.controller.plan.job_set import JobPart, JobSet
    from numpy.typing import NDArray

_LEAST_GAIN: Final = 0.05
"""Of the payload: whatever would cross less for another order is not worth a word below it."""


def order_warnings(jobs: JobSet, chunks: Iterable[PairColumns]) -> tuple[str, ...]:
    """Return for each job whose mapping leaves the order of its ranks to their numbers what another order would keep in hosts.

    `chunks`: the pairs of all jobs, in as many pieces as the caller likes; gone through once for each such job.
    """
    return tuple(
        text
        for at, part in enumerate(jobs.parts)
        if not part.mapping.orders_ranks
        and part.mapping.rule is not PlacementRule.EXPLICIT
        and 1 < part.mapping.ranks_per_host < part.ranks
        and (text := _warning(jobs, at, part, chunks))
    )


def _warning(jobs: JobSet, at: int, part: JobPart, chunks: Iterable[PairColumns]) -> str:
    hosts = hosts_of(part.ranks, part.mapping)
    other = hosts_by_communicators(_alone(jobs, at, part), part.mapping.ranks_per_host)
    whole = crossing_now = crossing_best = 0
    for pairs in chunks:
        talk = _own(part, pairs)
        whole += int(talk[2].sum())
        crossing_now += crossing_bytes(hosts, *talk)
        crossing_best += crossing_bytes(other, *talk)
    now, best = crossing_now / max(whole, 1), crossing_best / max(whole, 1)
    if now - best < _LEAST_GAIN:
        return ""
    shown = ", ".join(map(str, other[0][:4])) + (", ..." if len(other[0]) > 4 else "")
    name = f"{part.name}: " if part.name else ""
    return (
        f"{name}ranks that talk most sit on different hosts: {now:.0%} of the payload goes from host to host, and "
        f"{best:.0%} would with mapping: {{order: {BY_COMMUNICATORS}}}, which puts ranks {shown} on one"
    )


def _own(part: JobPart, pairs: PairColumns) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
    """Source and destination, numbered within the part, and bytes of what the part's own ranks exchange."""
    first, last = part.first_rank, part.first_rank + part.ranks
    own = (
        (pairs.src_rank >= first)
        & (pairs.src_rank < last)
        & (pairs.dst_rank >= first)
        & (pairs.dst_rank < last)
    )
    return pairs.src_rank[own] - first, pairs.dst_rank[own] - first, pairs.payload_bytes[own]


def _alone(jobs: JobSet, at: int, part: JobPart) -> Job:
    """One part of a set with its own numbers."""
    whole = jobs.job
    if len(jobs.parts) == 1:
        return whole
    of_part = np.array(jobs.communicator_part)
    first = part.first_rank
    ranks = whole.ranks[first : first + part.ranks]
    groups = tuple(
        Communicator(
            number, group.name, tuple(rank - first for rank in group.members) if of_part[number] == at else ()
        )
        for number, group in enumerate(whole.communicators)
    )
    return Job(whole.source, groups, whole.programs, ranks, whole.policy, {}, ())
