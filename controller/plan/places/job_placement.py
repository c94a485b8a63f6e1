"""Placement of the ranks of all jobs of a plan: each job is placed as if it were alone, and jobs may share ports.

Decides the numbering of hosts and ports over all jobs, and the address of each rank on a port that several jobs share.
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
    from numpy.typing import NDArray

    from etloop.controller.inputs.rig import Rig
    from etloop.controller.plan.demand import PairColumns


def place_jobs(jobs: JobSet, chunks: Iterable[PairColumns], rig: Rig) -> Placement:
    """Place every job by its own mapping and its own traffic. Raises `PlanError` as `place`.

    `chunks` are the pairs of all jobs, in any number of pieces.
    """
    host = np.array(jobs.hosts(), np.int64)
    bytes_of_hosts = _host_bytes(host, chunks, jobs.parts)
    refuse_planes(rig, (part.mapping for part in jobs.parts))
    cards = by_card(rig)
    placements = [
        place(part.ranks, host_bytes, part.mapping, cards)
        for part, host_bytes in zip(jobs.parts, bytes_of_hosts, strict=True)
    ]
    return with_planes(
        placements[0] if len(placements) == 1 else _merge_placements(jobs, placements, cards), rig
    )


def _merge_placements(jobs: JobSet, placed: Sequence[Placement], rig: Rig) -> Placement:
    """Merge the placements of several jobs into one."""
    host = np.array(jobs.hosts(), np.int64)
    labels = list(rig.ports)
    members: dict[str, list[int]] = {label: [] for label in labels}
    port_by_label = {port.label: port for placement in placed for port in placement.ports}
    for part, placement in zip(jobs.parts, placed, strict=True):
        for rank, port in enumerate(placement.port):
            members[placement.ports[port].label].append(part.first_rank + rank)
    ports = tuple(
        PortPlace(port_by_label[label].agent, port_by_label[label].port, tuple(members[label]))
        for label in labels
        if members[label]
    )
    location_of = {
        rank: (row, index) for row, port in enumerate(ports) for index, rank in enumerate(port.ranks)
    }
    ranks = range(len(host))
    return Placement(
        host=tuple(host.tolist()),
        port=tuple(location_of[rank][0] for rank in ranks),
        address=tuple(
            location_of[rank][1] % len(ports[location_of[rank][0]].port.addresses) for rank in ranks
        ),
        ports=ports,
        notes=(*unused_ports([label for label in labels if not members[label]]), *shared_addresses(ports)),
        nic=_nics(jobs.parts, [placement.nic for placement in placed]),
    )


def _nics(parts: Sequence[JobPart], of_part: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the NIC of every rank, or () if no job uses rails; ranks of jobs without rails get NIC 0."""
    if not any(of_part):
        return ()
    nics_of_parts = (nics or (0,) * part.ranks for part, nics in zip(parts, of_part, strict=True))
    return tuple(nic for nics in nics_of_parts for nic in nics)


def _host_bytes(
    host: NDArray[np.int64], chunks: Iterable[PairColumns], parts: Sequence[JobPart]
) -> list[list[int]]:
    """Return, for each part and each of its hosts, the payload that leaves and enters the host in one iteration.

    Counts only traffic between ranks of the same part and between different hosts. `host` is the host of every rank, numbered
    over all parts.
    """
    hosts_of_parts = [host[part.first_rank : part.first_rank + part.ranks] for part in parts]
    bases = [int(part_hosts.min()) for part_hosts in hosts_of_parts]
    totals = [
        np.zeros(int(part_hosts.max()) - base + 1, np.int64)
        for part_hosts, base in zip(hosts_of_parts, bases, strict=True)
    ]
    for pairs in chunks:
        for part, base, total in zip(parts, bases, totals, strict=True):
            first, last = part.first_rank, part.first_rank + part.ranks
            is_within = (
                (pairs.src_rank >= first)
                & (pairs.src_rank < last)
                & (pairs.dst_rank >= first)
                & (pairs.dst_rank < last)
            )
            src, dst = host[pairs.src_rank[is_within]], host[pairs.dst_rank[is_within]]
            crossing_bytes = np.where(src != dst, pairs.payload_bytes[is_within], 0)
            np.add.at(total, src - base, crossing_bytes)
            np.add.at(total, dst - base, crossing_bytes)
    return [[int(host_total) for host_total in total] for total in totals]
