"""Which UDP source ports the data of each queue pair leave by: one, or the entropy values of a transport that sprays. Pure.

Decides the same as the engine does (traffic/native/core/multipath/peer_paths.h): queue pairs of one address to one peer share
their values, which begin at the source port of the first of these in the plan; where order is kept each has one of its own.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import Assignment, Path
from etloop.contract.model.transport import (
    MOST_SPRAYED_WINDOW,
    DeliveryOrder,
    TransportKind,
    TransportSettings,
)
from etloop.traffic import _native
from numpy.typing import NDArray

FIRST_PORT: Final = 49152
"""Of the range in which values follow each other, and begin again behind its end."""
PORTS: Final = 16384


@dataclass(frozen=True, slots=True, eq=False)
class PortValues:
    """Source ports of queue pairs on the wire, in the order of the connections: as many from a first one on."""

    queue_pair: NDArray[np.int64]
    """Number of each in the columns of the plan."""
    first: NDArray[np.int64]
    count: NDArray[np.int64]

    def ports(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
        """Return all values of some rows: which row each is of, and the source port."""
        counts = self.count[rows]
        row = np.repeat(rows, counts)
        within = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        sprayed = FIRST_PORT + (self.first[row] - FIRST_PORT + within) % PORTS
        port = np.where(self.count[row] > 1, sprayed, self.first[row])
        return row, port.astype(np.uint16)

    def keys(
        self, assignment: Assignment, rows: NDArray[np.int64], ports: NDArray[np.uint16]
    ) -> NDArray[np.uint64]:
        """Return what switches hash of data that these queue pairs send from these ports."""
        raw = _native.source_port_keys(assignment, np.ascontiguousarray(self.queue_pair[rows]), ports)
        return np.frombuffer(raw, np.uint64)


def values_of(transport: TransportSettings) -> int:
    """Return by how many source ports a queue pair sends."""
    if transport.kind is TransportKind.ROCE or transport.multipath.uet.order is DeliveryOrder.SENT:
        return 1
    return transport.multipath.entropy_values


def window_of(transport: TransportSettings) -> int:
    """Return how many packets a queue pair may have under way; 0: as many as a receiver's buffer holds."""
    if transport.kind is TransportKind.ROCE:
        return transport.window_packets
    return min(transport.window_packets or MOST_SPRAYED_WINDOW, MOST_SPRAYED_WINDOW)


def port_values(assignment: Assignment) -> PortValues:
    """Return the source ports of all queue pairs on the wire."""
    connections = assignment.connections
    wire = connections.path == Path.WIRE
    qps = np.diff(connections.qp_offsets).astype(np.int64)[wire]
    starts = connections.qp_offsets[:-1].astype(np.int64)[wire]
    connection = np.repeat(np.arange(len(qps)), qps)
    queue_pair = starts[connection] + np.arange(len(connection)) - (np.cumsum(qps) - qps)[connection]
    counts = _counts_of_ranks(assignment)[connections.src_rank[wire]]
    own = connections.src_udp_port[queue_pair].astype(np.int64)
    if not (counts > 1).any():
        return PortValues(queue_pair, own, counts[connection])
    shared = _shared_first_ports(assignment, wire, starts)
    first = np.where(counts[connection] > 1, shared[connection], own)
    return PortValues(queue_pair, first, counts[connection])


def _counts_of_ranks(assignment: Assignment) -> NDArray[np.int64]:
    """Return by rank how many values what it sends has."""
    by_transport = [values_of(transport) for transport in assignment.transports]
    counts = np.ones(max((rank.rank for rank in assignment.ranks), default=-1) + 1, np.int64)
    for rank in assignment.ranks:
        counts[rank.rank] = by_transport[assignment.ports[rank.port].transport]
    return counts


def _shared_first_ports(
    assignment: Assignment, wire: NDArray[np.bool_], starts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return by connection where values from its source to its target begin.

    The first connection of the plan between the two addresses decides, whichever way its data go.
    """
    connections = assignment.connections
    both = np.concatenate([connections.src_ip[wire], connections.dst_ip[wire]])
    raw = np.ascontiguousarray(both).view(np.uint8).reshape(len(both), -1)
    _, address = np.unique(raw, axis=0, return_inverse=True)
    src, dst = np.split(address.reshape(-1).astype(np.int64), 2)
    rows = np.arange(len(src))
    # At the source of a connection, and of what comes the other way: at the target, whose values lead back.
    local, peer = np.concatenate([src, dst]), np.concatenate([dst, src])
    port = np.concatenate([connections.src_udp_port[starts], connections.dst_udp_port[starts]]).astype(
        np.int64
    )
    order = np.argsort(np.concatenate([rows, rows]), kind="stable")
    pair = local * (len(both) + 1) + peer
    known, first = np.unique(pair[order], return_index=True)
    return port[order][first][np.searchsorted(known, src * (len(both) + 1) + dst)]
