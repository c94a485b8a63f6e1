"""Transfers that begin one by one in virtual time, without packets: the network of a simulator outside ETLoop. Pure.

A transfer is a flow over the links of its way. Flows share links max-min fairly, and rates change when a transfer begins or ends.
It is done one latency after its last byte was sent. The caller moves time forward; transfers to come are not known, so
`next_ns` is the earliest completion only if nothing begins before it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import NS_PER_S
from etloop.traffic.lasting_flows import NEVER_NS, LastingFlows
from etloop.traffic.transfer_values import Done, Transfer, TransferCounts, TransferFigures, TransferId
from etloop.traffic.transfer_ways import TransferWay, TransferWays

PACKET_BYTES: Final = 4096
"""Payload of a packet, which every switch stores before it forwards it."""


@dataclass(frozen=True, slots=True, eq=False)
class _UnderWay:
    """A transfer with its way."""

    transfer: Transfer
    way: TransferWay
    start_ns: int
    order: int
    """Number of transfers that began before it."""

    @property
    def after_ns(self) -> int:
        """Return the time from the last bit sent to the last bit received; switches store the last packet."""
        packet_bits = min(self.transfer.transfer_bytes, PACKET_BYTES) * 8
        return self.way.latency_ns + math.ceil(self.way.store_ns_per_bit * packet_bits)

    def slowdown(self, at_ns: int) -> float:
        """Return the duration until `at_ns` over that of the transfer alone."""
        alone_ns = self.transfer.transfer_bytes * 8 * NS_PER_S / self.way.bottleneck_bps + self.after_ns
        return max((at_ns - self.start_ns) / max(alone_ns, 1), 1.0)


@dataclass(slots=True, eq=False)
class _Network:
    """Transfers under way at one time, without counts."""

    flows: LastingFlows
    now_ns: int
    under_way: dict[TransferId, _UnderWay]
    flow_of: dict[TransferId, int]
    """Flows of the transfers that have bytes left to send."""
    transfer_of: dict[int, TransferId]
    """The same by flow."""
    arriving: list[tuple[int, int, TransferId]]
    """Heap of (completion, order, id) of transfers whose last bit was sent."""

    def copy(self) -> _Network:
        """Return an independent copy."""
        tables = (self.under_way.copy(), self.flow_of.copy(), self.transfer_of.copy())
        return _Network(self.flows.copy(), self.now_ns, *tables, self.arriving.copy())

    def begin(self, entry: _UnderWay) -> None:
        """Begin a transfer now; its rate is known after the flows are settled."""
        transfer, way = entry.transfer, entry.way
        self.under_way[transfer.transfer_id] = entry
        if not transfer.transfer_bytes:
            self.send_off(entry)
            return
        bits = transfer.transfer_bytes * 8
        flow = self.flows.begin(way.links, way.parts, bits, entry.after_ns, self.now_ns)
        self.flow_of[transfer.transfer_id] = flow
        self.transfer_of[flow] = transfer.transfer_id

    def end_flow(self, transfer_id: TransferId) -> None:
        """End the flow of a transfer."""
        flow = self.flow_of.pop(transfer_id)
        del self.transfer_of[flow]
        self.flows.end(flow)

    def send_off(self, entry: _UnderWay) -> None:
        """Let the last bit of a transfer travel from now on."""
        arrival_ns = self.now_ns + entry.after_ns
        heapq.heappush(self.arriving, (arrival_ns, entry.order, entry.transfer.transfer_id))

    def next_ns(self) -> int | None:
        """Return the earliest completion if nothing more begins; None if no transfer is under way."""
        arrival_ns = self.arriving[0][0] if self.arriving else NEVER_NS
        earliest_ns = min(self.flows.first_arrival_ns, arrival_ns)
        return None if earliest_ns >= NEVER_NS else earliest_ns

    def advance(self, at_ns: int) -> Iterator[tuple[_UnderWay, int]]:
        """Move time forward to `at_ns`; yield the transfers that are done until then, and when, in order."""
        while True:
            sent_ns = self.flows.first_sent_ns
            arrival_ns = self.arriving[0][0] if self.arriving else NEVER_NS
            if min(sent_ns, arrival_ns) > at_ns:
                break
            self.now_ns = min(sent_ns, arrival_ns)
            if sent_ns <= arrival_ns:
                for flow in np.flatnonzero(self.flows.sent_ns == sent_ns).tolist():
                    transfer_id = self.transfer_of[flow]
                    self.end_flow(transfer_id)
                    self.send_off(self.under_way[transfer_id])
                self.flows.settle(self.now_ns)
            else:
                _, _, transfer_id = heapq.heappop(self.arriving)
                yield self.under_way.pop(transfer_id), arrival_ns
        self.now_ns = at_ns


class FlowTransfers:
    """A network with the transfers under way at one virtual time, and counts since the beginning."""

    def __init__(self, ways: TransferWays) -> None:
        self._ways = ways
        self._network = _Network(LastingFlows.over(ways.link_bps), 0, {}, {}, {}, [])
        self._counts = TransferCounts(len(ways.endpoints))
        self._link_bytes = np.zeros(len(ways.link_names))

    @property
    def now_ns(self) -> int:
        """Return the virtual time."""
        return self._network.now_ns

    @property
    def under_way(self) -> int:
        """Return the number of transfers under way."""
        return len(self._network.under_way)

    def is_under_way(self, transfer_id: TransferId) -> bool:
        """Return whether a transfer has begun and is neither done nor cancelled."""
        return transfer_id in self._network.under_way

    def start(self, transfers: Sequence[Transfer]) -> None:
        """Begin transfers now. Their ids are not under way, and their endpoints differ and reach each other."""
        for transfer in transfers:
            self._network.begin(self._entry(transfer, self._counts.started))
            self._counts.started += 1
        self._counts.most_under_way = max(self._counts.most_under_way, self.under_way)
        self._network.flows.settle(self.now_ns)

    def advance(self, at_ns: int) -> list[Done]:
        """Move time forward to `at_ns`; return the transfers that were done until then, in order."""
        done = []
        for entry, done_ns in self._network.advance(at_ns):
            self._count(entry, done_ns)
            done.append(Done(entry.transfer.transfer_id, done_ns))
        return done

    def next_ns(self) -> int | None:
        """Return the earliest completion if nothing more begins; None if no transfer is under way."""
        return self._network.next_ns()

    def cancel(self, transfer_id: TransferId) -> int:
        """End a transfer that is under way; return the bytes that were not yet sent."""
        network = self._network
        del network.under_way[transfer_id]
        self._counts.cancelled += 1
        if transfer_id not in network.flow_of:
            network.arriving = [row for row in network.arriving if row[2] != transfer_id]
            heapq.heapify(network.arriving)
            return 0
        left_bytes = network.flows.left_bytes(network.flow_of[transfer_id], self.now_ns)
        network.end_flow(transfer_id)
        network.flows.settle(self.now_ns)
        return left_bytes

    def expect(self, src: int, dst: int, transfer_bytes: int) -> int:
        """Return when a transfer that began now would be done if nothing else began. Changes nothing."""
        network = self._network.copy()
        probe = self._entry(Transfer(None, src, dst, transfer_bytes), self._counts.started)
        network.begin(probe)
        network.flows.settle(self.now_ns)
        while (next_ns := network.next_ns()) is not None:
            for entry, done_ns in network.advance(next_ns):
                if entry is probe:
                    return done_ns
        raise AssertionError("a transfer that nothing cancels is done")

    def figures(self) -> TransferFigures:
        """Return the counts since the beginning."""
        network = self._network
        waiting = [
            (network.under_way[transfer_id].transfer, network.flows.left_bytes(flow, self.now_ns))
            for transfer_id, flow in network.flow_of.items()
        ]
        return self._counts.figures(
            waiting, tuple(round(link_bytes) for link_bytes in self._link_bytes.tolist())
        )

    def _entry(self, transfer: Transfer, order: int) -> _UnderWay:
        way = self._ways.way(transfer.src, transfer.dst)
        assert way is not None
        return _UnderWay(transfer, way, self.now_ns, order)

    def _count(self, entry: _UnderWay, done_ns: int) -> None:
        self._counts.count_done(entry.transfer, entry.slowdown(done_ns))
        self._link_bytes[entry.way.links] += entry.transfer.transfer_bytes * entry.way.parts
