"""Which ranks of a job share a host, where that is not said by their numbers. Pure.

Generators number ranks as they like: with data parallelism as the fastest axis, the ranks of a tensor-parallel group lie far
from each other, although a job keeps them in one host. A mapping may list the hosts, give another order of the ranks (by
their numbers, or by axes), or have the communicators with most bytes kept together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Final

import numpy as np
from etloop.contract.base.errors import PlanError, Problem
from etloop.controller.inputs.scenario.mapping import Mapping
from etloop.workload.trace.program import Job, OpKind
from numpy.typing import NDArray

Hosts = tuple[tuple[int, ...], ...]
_WHERE: Final = "mapping"
_MOST_NAMED: Final = 8


def with_hosts(mapping: Mapping, job: Job) -> Mapping:
    """Return a mapping whose `hosts` say which ranks of a job share one, where numbers do not.

    Raises `PlanError` where what the mapping says is not about all ranks of the job, each once.
    """
    ranks = len(job.ranks)
    if mapping.hosts:
        _refuse_uneven(mapping.hosts, ranks)
        return replace(mapping, ranks_per_host=max(map(len, mapping.hosts)))
    if mapping.by_communicators:
        return replace(mapping, hosts=hosts_by_communicators(job, mapping.ranks_per_host))
    if not mapping.order:
        return mapping
    order = _by_axes(mapping, ranks) if mapping.axes else tuple(int(rank) for rank in mapping.order)
    _refuse_uneven((order,), ranks)
    step = mapping.ranks_per_host
    return replace(mapping, hosts=tuple(order[at : at + step] for at in range(0, ranks, step)))


def hosts_by_communicators(job: Job, ranks_per_host: int) -> Hosts:
    """Return hosts of at most so many ranks, in which the communicators with most bytes that fit are kept together.

    Communicators are taken by their bytes, the most first, as long as none of their ranks has been taken; then each goes into
    the first host with room, in the order of its first rank. Ranks of none go where room is left.
    """
    carried = communicator_bytes(job)
    fits = [
        (carried[at], group.members)
        for at, group in enumerate(job.communicators)
        if 1 < len(group.members) <= ranks_per_host and carried[at]
    ]
    taken: set[int] = set()
    kept: list[tuple[int, ...]] = []
    for _, members in sorted(fits, key=lambda one: (-one[0], one[1])):
        if taken.isdisjoint(members):
            taken.update(members)
            kept.append(members)
    ranks = len(job.ranks)
    kept += [(rank,) for rank in range(ranks) if rank not in taken]
    hosts: list[list[int]] = [[] for _ in range(-(-ranks // ranks_per_host))]
    open_from = 0
    for members in sorted(kept, key=lambda one: (len(one) == 1, one[0])):
        while open_from < len(hosts) and len(hosts[open_from]) == ranks_per_host:
            open_from += 1
        room = next((host for host in hosts[open_from:] if len(host) + len(members) <= ranks_per_host), None)
        if room is None:
            # What is left of the hosts is in pieces too small for it: another host.
            room = []
            hosts.append(room)
        room += members
    return tuple(tuple(host) for host in sorted(filter(None, hosts)))


def communicator_bytes(job: Job) -> list[int]:
    """Return what the members of each communicator put into its collectives in one iteration."""
    of_program: dict[int, NDArray[np.int64]] = {}
    total = [0] * len(job.communicators)
    for rank in job.ranks:
        if rank.program not in of_program:
            program = job.programs[rank.program]
            own = program.kind == OpKind.COLLECTIVE
            sums = np.zeros(len(rank.communicators), np.int64)
            np.add.at(sums, program.slot[own], program.message_bytes[own])
            of_program[rank.program] = sums
        for communicator, size in zip(rank.communicators, of_program[rank.program].tolist(), strict=False):
            total[communicator] += size
    return total


def crossing_bytes(
    hosts: Hosts, src: NDArray[np.int32], dst: NDArray[np.int32], payload: NDArray[np.int64]
) -> int:
    """Return how much of the payload between pairs of ranks goes from one of these hosts to another."""
    host = np.zeros(sum(map(len, hosts)), np.int64)
    for number, members in enumerate(hosts):
        host[list(members)] = number
    return int(payload[host[src] != host[dst]].sum())


def _by_axes(mapping: Mapping, ranks: int) -> tuple[int, ...]:
    sizes = dict(mapping.axes)
    if prod(sizes.values()) != ranks:
        made = " x ".join(f"{name} {size}" for name, size in mapping.axes)
        what = f"{made} are {prod(sizes.values())} ranks, and the job has {ranks}"
        raise PlanError(Problem(f"{_WHERE}.axes", what, "name every axis, that which counts fastest first"))
    # numpy counts the last axis fastest, mappings the first.
    numbers = np.arange(ranks).reshape([size for _, size in reversed(mapping.axes)])
    names = [name for name, _ in reversed(mapping.axes)]
    turned = numbers.transpose([names.index(name) for name in reversed(mapping.order)])
    return tuple(turned.reshape(-1).tolist())


def _refuse_uneven(hosts: Hosts, ranks: int) -> None:
    where = f"{_WHERE}.hosts" if len(hosts) > 1 else f"{_WHERE}.order"
    listed = [rank for host in hosts for rank in host]
    problems: list[Problem] = []
    if beyond := sorted({rank for rank in listed if rank >= ranks}):
        what = f"the job has ranks 0 to {ranks - 1}, and {_named(beyond)} stands there"
        problems.append(Problem(where, what, "remove it"))
    if missing := sorted(set(range(ranks)) - set(listed)):
        problems.append(Problem(where, f"rank {_named(missing)} is not there", "name every rank of the job"))
    if problems:
        raise PlanError(*problems)


def _named(ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - _MOST_NAMED} more" if len(ranks) > _MOST_NAMED else ""
    return ", ".join(map(str, ranks[:_MOST_NAMED])) + more
