"""Grouping of ranks into hosts, if it does not follow from their numbers. Pure.

Trace generators number ranks differently: with data parallelism as the fastest axis, the ranks of a tensor-parallel group
have distant numbers, although a real job keeps them in one host. A mapping may list the hosts, give another order of the
ranks (by number or by axes), or request that the communicators with the most bytes are kept within hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import PlanError, Problem
from etloop.controller.inputs.scenario.mapping import Mapping
from etloop.workload.trace.program import Job, OpKind

Hosts = tuple[tuple[int, ...], ...]
_WHERE: Final = "mapping"
_MOST_NAMED: Final = 8


def with_hosts(mapping: Mapping, job: Job) -> Mapping:
    """Return the mapping with `hosts` filled in if they do not follow from the numbers of the ranks.

    Raises `PlanError` if the mapping does not name every rank of the job exactly once.
    """
    ranks = len(job.ranks)
    if mapping.hosts:
        _refuse_uneven(mapping.hosts, ranks)
        return replace(mapping, ranks_per_host=max(map(len, mapping.hosts)))
    if mapping.by_communicators:
        return replace(mapping, hosts=hosts_by_communicators(job, mapping.ranks_per_host))
    if not mapping.order:
        return mapping
    order = _order_by_axes(mapping, ranks) if mapping.axes else tuple(int(rank) for rank in mapping.order)
    _refuse_uneven((order,), ranks)
    step = mapping.ranks_per_host
    return replace(mapping, hosts=tuple(order[first : first + step] for first in range(0, ranks, step)))


def hosts_by_communicators(job: Job, ranks_per_host: int) -> Hosts:
    """Return hosts of at most `ranks_per_host` ranks that keep the communicators with the most bytes together.

    Communicators that fit into a host are considered by their bytes, largest first; one is kept together if none of its ranks
    belongs to a communicator kept before. Each kept communicator goes to the first host with room for it, in the order of its
    first rank; single ranks fill the room that is left.
    """
    bytes_of = communicator_bytes(job)
    candidates = [
        (bytes_of[number], group.members)
        for number, group in enumerate(job.communicators)
        if 1 < len(group.members) <= ranks_per_host and bytes_of[number]
    ]
    grouped_ranks: set[int] = set()
    groups: list[tuple[int, ...]] = []
    for _, members in sorted(candidates, key=lambda candidate: (-candidate[0], candidate[1])):
        if grouped_ranks.isdisjoint(members):
            grouped_ranks.update(members)
            groups.append(members)
    ranks = len(job.ranks)
    groups += [(rank,) for rank in range(ranks) if rank not in grouped_ranks]
    hosts: list[list[int]] = [[] for _ in range(-(-ranks // ranks_per_host))]
    open_from = 0
    for members in sorted(groups, key=lambda ranks_of_group: (len(ranks_of_group) == 1, ranks_of_group[0])):
        while open_from < len(hosts) and len(hosts[open_from]) == ranks_per_host:
            open_from += 1
        target = next(
            (host for host in hosts[open_from:] if len(host) + len(members) <= ranks_per_host), None
        )
        if target is None:
            # The room left in the hosts is fragmented: open another host.
            target = []
            hosts.append(target)
        target += members
    return tuple(tuple(host) for host in sorted(filter(None, hosts)))


def communicator_bytes(job: Job) -> list[int]:
    """Return, by communicator, the bytes that its members contribute to its collectives in one iteration, summed over
    members."""
    bytes_of_program: dict[int, NDArray[np.int64]] = {}
    total = [0] * len(job.communicators)
    for rank in job.ranks:
        if rank.program not in bytes_of_program:
            program = job.programs[rank.program]
            is_collective = program.kind == OpKind.COLLECTIVE
            sums = np.zeros(len(rank.communicators), np.int64)
            np.add.at(sums, program.slot[is_collective], program.message_bytes[is_collective])
            bytes_of_program[rank.program] = sums
        for communicator, size in zip(
            rank.communicators, bytes_of_program[rank.program].tolist(), strict=False
        ):
            total[communicator] += size
    return total


def crossing_bytes(
    hosts: Hosts, src: NDArray[np.int32], dst: NDArray[np.int32], payload: NDArray[np.int64]
) -> int:
    """Return the payload bytes between ranks on different hosts.

    `src`, `dst` (int32 ranks) and `payload` (int64 bytes) have one element per pair.
    """
    host = np.zeros(sum(map(len, hosts)), np.int64)
    for number, members in enumerate(hosts):
        host[list(members)] = number
    return int(payload[host[src] != host[dst]].sum())


def _order_by_axes(mapping: Mapping, ranks: int) -> tuple[int, ...]:
    """Return the ranks in the order of the mapping's axes. Raises `PlanError` if the axes do not multiply to the number of
    ranks."""
    sizes = dict(mapping.axes)
    if prod(sizes.values()) != ranks:
        product = " x ".join(f"{name} {size}" for name, size in mapping.axes)
        problem = f"{product} are {prod(sizes.values())} ranks, but the job has {ranks}"
        raise PlanError(Problem(f"{_WHERE}.axes", problem, "list every axis, the fastest-varying first"))
    # In numpy the last axis is the fastest, in mappings the first.
    numbers = np.arange(ranks).reshape([size for _, size in reversed(mapping.axes)])
    names = [name for name, _ in reversed(mapping.axes)]
    reordered_ranks = numbers.transpose([names.index(name) for name in reversed(mapping.order)])
    return tuple(reordered_ranks.reshape(-1).tolist())


def _refuse_uneven(hosts: Hosts, ranks: int) -> None:
    where = f"{_WHERE}.hosts" if len(hosts) > 1 else f"{_WHERE}.order"
    listed_ranks = [rank for host in hosts for rank in host]
    problems: list[Problem] = []
    if unknown_ranks := sorted({rank for rank in listed_ranks if rank >= ranks}):
        problem = f"the job has ranks 0 to {ranks - 1}, got {_list_ranks(unknown_ranks)}"
        problems.append(Problem(where, problem, "remove it"))
    if missing_ranks := sorted(set(range(ranks)) - set(listed_ranks)):
        problems.append(
            Problem(where, f"rank {_list_ranks(missing_ranks)} is missing", "list every rank of the job")
        )
    if problems:
        raise PlanError(*problems)


def _list_ranks(ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - _MOST_NAMED} more" if len(ranks) > _MOST_NAMED else ""
    return ", ".join(map(str, ranks[:_MOST_NAMED])) + more
