"""Where the ranks of all jobs of a plan are: each job is placed as if it were alone, and jobs may share ports.

Decides the numbering of hosts and ports over all jobs, and which address each rank takes where several jobs share a port.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from etloop.controller.plan.job_set import JobPart, JobSet
from etloop.controller.plan.places.cards import by_card, refuse_planes, with_planes
from etloop.controller.plan.places.placement import (
    Placement,
    PortPlace,
    place,
    shared_addresses,
    unused_ports,
)

if TYPE_CHECKING:
    from etloop.controller.inputs.rig import Rig
    from etloop.controller.plan.demand import PairColumns
    from numpy.typing import NDArray


def place_jobs(jobs: JobSet, chunks: Iterable[PairColumns], rig: Rig) -> Placement:
    """Places every job by its own mapping and its own traffic. Raises `PlanError` as `place`.

    `chunks`: the pairs of all jobs, in as many pieces as the caller likes.
    """
    host = np.array(jobs.hosts(), np.int64)
    moved = _host_bytes(host, chunks, jobs.parts)
    refuse_planes(rig, (part.mapping for part in jobs.parts))
    cards = by_card(rig)
    placed = [
        place(part.ranks, own, part.mapping, cards) for part, own in zip(jobs.parts, moved, strict=True)
    ]
    return with_planes(placed[0] if len(placed) == 1 else _joined(jobs, placed, cards), rig)


def _joined(jobs: JobSet, placed: Sequence[Placement], rig: Rig) -> Placement:
    """Several jobs' placements as one."""
    host = np.array(jobs.hosts(), np.int64)
    labels = list(rig.ports)
    members: dict[str, list[int]] = {label: [] for label in labels}
    of_label = {port.label: port for one in placed for port in one.ports}
    for part, one in zip(jobs.parts, placed, strict=True):
        for rank, port in enumerate(one.port):
            members[one.ports[port].label].append(part.first_rank + rank)
    ports = tuple(
        PortPlace(of_label[label].agent, of_label[label].port, tuple(members[label]))
        for label in labels
        if members[label]
    )
    at = {rank: (row, k) for row, port in enumerate(ports) for k, rank in enumerate(port.ranks)}
    ranks = range(len(host))
    return Placement(
        host=tuple(host.tolist()),
        port=tuple(at[rank][0] for rank in ranks),
        address=tuple(at[rank][1] % len(ports[at[rank][0]].port.addresses) for rank in ranks),
        ports=ports,
        notes=(*unused_ports([label for label in labels if not members[label]]), *shared_addresses(ports)),
        nic=_nics(jobs.parts, [one.nic for one in placed]),
    )


def _nics(parts: Sequence[JobPart], of_part: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """By rank its NIC; 0 in jobs without rails beside such that have them."""
    if not any(of_part):
        return ()
    found = (nics or (0,) * part.ranks for part, nics in zip(parts, of_part, strict=True))
    return tuple(nic for nics in found for nic in nics)


def _host_bytes(
    host: NDArray[np.int64], chunks: Iterable[PairColumns], parts: Sequence[JobPart]
) -> list[list[int]]:
    """Per part and host of it, the bytes that leave and enter it in one iteration; what the part's own ranks exchange."""
    own_hosts = [host[part.first_rank : part.first_rank + part.ranks] for part in parts]
    bases = [int(own.min()) for own in own_hosts]
    totals = [
        np.zeros(int(own.max()) - base + 1, np.int64) for own, base in zip(own_hosts, bases, strict=True)
    ]
    for pairs in chunks:
        for part, base, total in zip(parts, bases, totals, strict=True):
            first, last = part.first_rank, part.first_rank + part.ranks
            own = (
                (pairs.src_rank >= first)
                & (pairs.src_rank < last)
                & (pairs.dst_rank >= first)
                & (pairs.dst_rank < last)
            )
            src, dst = host[pairs.src_rank[own]], host[pairs.dst_rank[own]]
            between = np.where(src != dst, pairs.payload_bytes[own], 0)
            np.add.at(total, src - base, between)
            np.add.at(total, dst - base, between)
    return [[int(one) for one in total] for total in totals]
