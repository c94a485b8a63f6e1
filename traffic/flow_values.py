"""UDP source ports of each queue pair's data: one, or the entropy values of a transport that sprays. Pure.

The decision is the same as the engine's (traffic/native/core/multipath/peer_paths.h): queue pairs of one address to one
peer share their values, which begin at the source port of the first such queue pair in the plan. If order is preserved,
each queue pair has a single source port.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import Assignment, Path
from etloop.contract.model.transport import MOST_SPRAYED_WINDOW, DeliveryOrder, TransportSettings
from etloop.contract.model.transport_kinds import TransportKind
from etloop.traffic import _native

FIRST_PORT: Final = 49152
"""First port of the range in which entropy values are consecutive; they wrap around at its end."""
PORTS: Final = 16384


@dataclass(frozen=True, slots=True, eq=False)
class PortValues:
    """Source ports of queue pairs on the wire, in connection order: `count` consecutive ports from `first` on."""

    queue_pair: NDArray[np.int64]
    """Row of each queue pair in the columns of the plan."""
    first: NDArray[np.int64]
    count: NDArray[np.int64]

    def ports(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
        """Return all source ports of some rows: the row of each, and the port."""
        counts = self.count[rows]
        row = np.repeat(rows, counts)
        within = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        sprayed = FIRST_PORT + (self.first[row] - FIRST_PORT + within) % PORTS
        port = np.where(self.count[row] > 1, sprayed, self.first[row])
        return row, port.astype(np.uint16)

    def keys(
        self, assignment: Assignment, rows: NDArray[np.int64], ports: NDArray[np.uint16], fields: int
    ) -> NDArray[np.uint64]:
        """Return the ECMP hash keys, over the fields of the bit set `fields` but the ingress port, of data that these
        queue pairs send from these source ports."""
        raw = _native.source_port_keys(assignment, np.ascontiguousarray(self.queue_pair[rows]), ports, fields)
        return np.frombuffer(raw, np.uint64)


def values_of(transport: TransportSettings) -> int:
    """Return the number of source ports that a queue pair uses."""
    if transport.kind is TransportKind.ROCE or transport.multipath.uet.order is DeliveryOrder.SENT:
        return 1
    return transport.multipath.entropy_values


def window_of(transport: TransportSettings) -> int:
    """Return the maximum packets in flight of a queue pair; 0: limited only by the receiver's buffer."""
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
    own_port = connections.src_udp_port[queue_pair].astype(np.int64)
    if not (counts > 1).any():
        return PortValues(queue_pair, own_port, counts[connection])
    shared = _shared_first_ports(assignment, wire, starts)
    first = np.where(counts[connection] > 1, shared[connection], own_port)
    return PortValues(queue_pair, first, counts[connection])


def _counts_of_ranks(assignment: Assignment) -> NDArray[np.int64]:
    """Return the number of source ports per queue pair, indexed by sending rank."""
    by_transport = [values_of(transport) for transport in assignment.transports]
    counts = np.ones(max((rank.rank for rank in assignment.ranks), default=-1) + 1, np.int64)
    for rank in assignment.ranks:
        counts[rank.rank] = by_transport[assignment.ports[rank.port].transport]
    return counts


def _shared_first_ports(
    assignment: Assignment, wire: NDArray[np.bool_], starts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the first source port of the values shared from source to target address, by connection.

    The first connection of the plan between the two addresses determines it, in whichever direction its data flows.
    """
    connections = assignment.connections
    addresses = np.concatenate([connections.src_ip[wire], connections.dst_ip[wire]])
    raw = np.ascontiguousarray(addresses).view(np.uint8).reshape(len(addresses), -1)
    _, address = np.unique(raw, axis=0, return_inverse=True)
    src, dst = np.split(address.reshape(-1).astype(np.int64), 2)
    rows = np.arange(len(src))
    # A connection sets the values of both directions: at its source towards the target, and at its target back.
    local, peer = np.concatenate([src, dst]), np.concatenate([dst, src])
    port = np.concatenate([connections.src_udp_port[starts], connections.dst_udp_port[starts]]).astype(
        np.int64
    )
    order = np.argsort(np.concatenate([rows, rows]), kind="stable")
    pair = local * (len(addresses) + 1) + peer
    unique_pairs, first = np.unique(pair[order], return_index=True)
    return port[order][first][np.searchsorted(unique_pairs, src * (len(addresses) + 1) + dst)]
