"""Pairs of ranks -> connections: the path of each, and its queue pairs on the wire. Pure; seeded.

Decides paths and queue pair numbers. Numbers are assigned as network cards do: nearly sequential within a port, in the order
of the connections, from a base that differs between ports (roce_wire conventions). UDP source ports are assigned by
`source_ports`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.ip_address import IP_ADDRESS, NO_ADDRESS, ip_bytes, ip_column
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import ConnectionColumns, Path
from etloop.controller.inputs.scenario.source_ports import SourcePorts, deal_source_ports

if TYPE_CHECKING:
    from etloop.controller.plan.demand import PairColumns
    from etloop.controller.plan.places.placement import Placement

FIRST_QPN: Final = 0x100
"""First QPN in use; 0 and 1 have special meanings, and drivers reserve some more."""
QPN_SPACE: Final = 1 << 24
QPN_ENDS: Final = QPN_SPACE - FIRST_QPN
"""Number of queue pair ends that can be numbered."""
_AS_THE_KERNEL: Final = SourcePorts()


@dataclass(frozen=True, slots=True, eq=False)
class PlacedConnections:
    """Connections of the whole job, row i for pair i, and the block of queue pair numbers of every used port."""

    columns: ConnectionColumns
    src_port: NDArray[np.int32]
    """Port of the source rank by connection, an index into `Placement.ports`."""
    dst_port: NDArray[np.int32]
    qpn_base: tuple[int, ...]
    qpn_count: tuple[int, ...]


def connect(
    pairs: PairColumns,
    placement: Placement,
    qps_per_connection: int,
    seed: int,
    source_ports: SourcePorts = _AS_THE_KERNEL,
    nonce: int = 0,
) -> PlacedConnections:
    """Return the connections of all pairs under a placement.

    `seed` and `nonce` pick the first queue pair number of each port. UDP source ports do not depend on `nonce`, so that all
    runs of a scenario take the same paths. Raises `PlanError` if there are more queue pair ends than 24-bit numbers, a pinned
    source port is one that packets are received on, or the addresses of a pair are of different families.
    """
    port_of_rank = np.array(placement.port, np.int32)
    host_of_rank = np.array(placement.host, np.int64)
    src_port, dst_port = port_of_rank[pairs.src_rank], port_of_rank[pairs.dst_rank]
    path = paths_of(host_of_rank[pairs.src_rank], host_of_rank[pairs.dst_rank], src_port, dst_port)
    wire = path == Path.WIRE
    qps = np.where(wire, qps_per_connection, 0)
    qp_offsets = np.concatenate([[0], np.cumsum(qps)]).astype(np.int64)
    _refuse_too_many(2 * int(qp_offsets[-1]))
    # Ends in the order in which a job creates its connections: source and destination of each queue pair in turn.
    ends = np.stack([np.repeat(src_port, qps), np.repeat(dst_port, qps)], axis=1).reshape(-1)
    count = np.bincount(ends, minlength=len(placement.ports))
    qpn_without_nonce = _number_ends(ends, _draw_bases(count, seed)).reshape(-1, 2)
    src_udp_port, dst_udp_port = deal_source_ports(
        source_ports, qpn_without_nonce[:, 0], qpn_without_nonce[:, 1], seed
    )
    qpn_base = _draw_bases(count, seed, nonce)
    qpn = _number_ends(ends, qpn_base).reshape(-1, 2)
    address = ip_column(ip_bytes(placement.address_of(rank)) for rank in range(len(port_of_rank)))
    no_address = np.frombuffer(NO_ADDRESS, IP_ADDRESS)
    _refuse_mixed_families(pairs, placement, wire)
    _refuse_receiving_ports(source_ports, placement)
    columns = ConnectionColumns(
        communicator=pairs.communicator,
        channel=pairs.channel,
        src_rank=pairs.src_rank,
        dst_rank=pairs.dst_rank,
        path=path,
        src_ip=np.where(wire, address[pairs.src_rank], no_address),
        dst_ip=np.where(wire, address[pairs.dst_rank], no_address),
        qp_offsets=qp_offsets.astype(np.int32),
        src_qpn=np.ascontiguousarray(qpn[:, 0]),
        dst_qpn=np.ascontiguousarray(qpn[:, 1]),
        src_udp_port=src_udp_port,
        dst_udp_port=dst_udp_port,
    )
    return PlacedConnections(columns, src_port, dst_port, tuple(qpn_base.tolist()), tuple(count.tolist()))


def paths_of(
    src_host: NDArray[np.int64],
    dst_host: NDArray[np.int64],
    src_port: NDArray[np.int32],
    dst_port: NDArray[np.int32],
) -> NDArray[np.uint8]:
    """Return the `Path` of each connection (uint8): inside a host, between hosts of one port, or over the wire."""
    between_hosts = np.where(src_port == dst_port, np.uint8(Path.HAIRPIN), np.uint8(Path.WIRE))
    return np.where(src_host == dst_host, np.uint8(Path.SCALE_UP), between_hosts).astype(np.uint8)


def _refuse_too_many(ends: int) -> None:
    if ends > QPN_ENDS:
        raise PlanError(
            Problem(
                "plan",
                f"the job needs {ends} queue pair ends, but only {QPN_ENDS} queue pair numbers (24 bits) are available",
                "lower transport.qps_per_connection, or map more ranks to a host (mapping.ranks_per_host); etloop plan "
                "--summary counts connections without numbering them",
            )
        )


def _refuse_receiving_ports(source_ports: SourcePorts, placement: Placement) -> None:
    receiving_ports = {place.port.udp_port for place in placement.ports}
    clash = sorted(receiving_ports.intersection(source_ports.pinned))
    if clash:
        problem = f"{clash[0]} is the UDP port of the receivers"
        raise PlanError(Problem("transport.source_port", problem, "pin other source ports"))


def _refuse_mixed_families(pairs: PairColumns, placement: Placement, wire: NDArray[np.bool_]) -> None:
    has_colon = np.array([":" in placement.address_of(rank) for rank in range(len(placement.port))])
    mixed_pairs = np.flatnonzero(wire & (has_colon[pairs.src_rank] != has_colon[pairs.dst_rank]))
    if len(mixed_pairs):
        src, dst = int(pairs.src_rank[mixed_pairs[0]]), int(pairs.dst_rank[mixed_pairs[0]])
        raise PlanError(
            Problem(
                "plan",
                f"rank {src} has {placement.address_of(src)} and rank {dst} {placement.address_of(dst)}: one speaks IPv4 "
                "and the other IPv6",
                "give all ports whose ranks talk to each other addresses of one family in the rig file",
            )
        )


def _draw_bases(count: NDArray[np.int_], seed: int, nonce: int = 0) -> NDArray[np.int64]:
    """Return the first number of each port's block (int64): blocks in port order with random gaps, none overlapping."""
    spare = QPN_SPACE - FIRST_QPN - int(count.sum())
    # PCG64's raw output: unlike numpy's distributions it is the same in every numpy version.
    random_offsets = np.random.PCG64([seed, nonce] if nonce else seed).random_raw(len(count)) % np.uint64(
        spare + 1
    )
    gaps = np.sort(random_offsets).astype(np.int64)
    preceding_ends = np.concatenate([[0], np.cumsum(count)[:-1]])
    return np.asarray(gaps + preceding_ends + FIRST_QPN, np.int64)


def _number_ends(ends: NDArray[np.int32], base: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return the number of each end (uint32): the next free one of its port. `ends` is the port of each end."""
    order = np.argsort(ends, kind="stable")
    sorted_ends = ends[order]
    first = np.searchsorted(sorted_ends, np.arange(len(base)))
    qpn = np.empty(len(ends), np.uint32)
    qpn[order] = base[sorted_ends] + np.arange(len(ends)) - first[sorted_ends]
    return qpn


def select_connections(columns: ConnectionColumns, rows: NDArray[np.int32]) -> ConnectionColumns:
    """Return the connections in `rows`, in that order, with their queue pairs."""
    counts = np.diff(columns.qp_offsets)[rows]
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    within = np.arange(int(offsets[-1])) - np.repeat(offsets[:-1], counts)
    queue_pairs = np.repeat(columns.qp_offsets[:-1][rows], counts) + within
    return ConnectionColumns(
        communicator=columns.communicator[rows],
        channel=columns.channel[rows],
        src_rank=columns.src_rank[rows],
        dst_rank=columns.dst_rank[rows],
        path=columns.path[rows],
        src_ip=columns.src_ip[rows],
        dst_ip=columns.dst_ip[rows],
        qp_offsets=offsets,
        src_qpn=columns.src_qpn[queue_pairs],
        dst_qpn=columns.dst_qpn[queue_pairs],
        src_udp_port=columns.src_udp_port[queue_pairs],
        dst_udp_port=columns.dst_udp_port[queue_pairs],
    )
