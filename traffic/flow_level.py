"""A whole run in virtual time without packets: messages of the engine's own lanes as flows that share links fairly.

This module defines the *ideal* network: every port sends and receives at its rate, and the device in between adds no
limit. A described network is built by `traffic.flow_network`; rates are computed by traffic/native/virtual/fair_shares
and flow_level. docs/flow_level.md lists the approximations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import Assignment, Path, PlannedStream, UdpStream
from etloop.contract.model.transfer_source import TransferSource
from etloop.traffic import _native
from etloop.traffic.outcome import outcome_of

LINK_BYTES_PER_DATAGRAM = 66
"""Bytes of an IPv4 datagram on a link around its payload: preamble, Ethernet, IPv4, UDP, FCS and inter-packet gap."""
LINK_BYTES_PER_DATAGRAM_V6 = 86
TOLERANCE = 1e-3
"""Relative error of a link's share up to which its neighbours' shares are not recomputed."""


@dataclass(frozen=True, slots=True, eq=False)
class FlowNetwork:
    """Links, and the links that each connection of an assignment takes.

    A connection on the wire has one way per queue pair, any other connection has one; ways are in connection order. Way
    w takes the parts [way_offsets[w], way_offsets[w + 1]); a way without parts is never limited.
    """

    link_names: tuple[str, ...]
    link_bps: NDArray[np.int64]
    way_offsets: NDArray[np.int64]
    part_link: NDArray[np.int32]
    part_share: NDArray[np.float32]
    """Share of the flow that takes the link: below 1 if the flow is spread over several."""
    latency_ns: NDArray[np.int64]
    """By way: time from the last bit sent to the last bit received, without store-and-forward; grants and ACKs take it
    too."""
    store_ns_per_bit: NDArray[np.float64]
    """By way: additional time per bit of a packet, because switches store the whole packet before they forward it."""
    notes: tuple[str, ...] = ()
    """Simplifications, a phrase each."""


@dataclass(frozen=True, slots=True, eq=False)
class Between:
    """Use of the links between the ports that queue pairs leave from and arrive at.

    One row of `queue_pair`, `link` and `share` is a part of a queue pair's flow; the other columns are by queue pair.
    """

    queue_pair: NDArray[np.int64]
    link: NDArray[np.int64]
    share: NDArray[np.float32]
    latency_ns: NDArray[np.int64]
    store_ns_per_bit: NDArray[np.float64]
    names: tuple[str, ...] = ()
    """Names of the links."""
    link_bps: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class FlowLevelSettings:
    """Accuracy and limits of a flow-level run."""

    tolerance: float = TOLERANCE
    most_messages: int = 0
    """A run with more messages, of the ranks that are run, ends unfinished with `too_many_messages`; 0: unlimited."""
    limit_ns: int = 3_600_000_000_000
    folds: bool = True
    """Run one of the ranks that do the same at the same times for all of them, in a job of 64 ranks or more
    (traffic/native/virtual/alike_ranks.h)."""


@dataclass(frozen=True, slots=True, eq=False)
class FlowLevelOutcome:
    """Result of a flow-level run. Times are virtual nanoseconds from 0."""

    ops: NDArray[np.void]
    waits: NDArray[np.void]
    """WAIT_RECORD rows of a run that did not finish, else empty."""
    link_bytes: NDArray[np.int64]
    """Bytes carried by each link of the network, headers included."""
    failure: str
    too_many_messages: bool
    end_ns: int
    ranks_run: int
    """Fewer than the assignment has if one rank was run for several (`FlowLevelSettings.folds`)."""
    messages: int
    """Messages of the ranks that were run."""
    most_live_flows: int
    """Largest number of flows at a time, of the ranks that were run."""
    settlings: int
    """Times at which rates were recomputed."""
    looks: int
    """Links visited while recomputing rates."""
    loosened: int
    """Times that recomputing visited so many links that the tolerance was doubled for the rest of it."""


def flow_level(
    assignment: Assignment,
    network: FlowNetwork,
    settings: FlowLevelSettings | None = None,
    source: TransferSource | None = None,
) -> FlowLevelOutcome:
    """Run an assignment, which holds every rank and port of the job, to its end, a failure or a limit.

    The transfers of a `source` take place in addition; it gets the arrivals, and the outcome has the ops of other ranks alone.
    Raises ValueError if the assignment or the network is inconsistent.
    """
    outcome = _native.flow_level(assignment, network, settings or FlowLevelSettings(), source)
    return outcome_of(FlowLevelOutcome, outcome, link_bytes=np.frombuffer(outcome["link_bytes"], np.int64))


def ideal_network(assignment: Assignment, latency_ns: int = 0) -> FlowNetwork:
    """Return the network of the endpoints' own links alone: ports in each direction, and scale-up links inside hosts.

    `latency_ns` is the latency of every way through the device.
    """

    def nothing_between(src: NDArray[np.int32], _: NDArray[np.int32]) -> Between:
        empty = np.zeros(0, np.int64)
        latency = np.full(len(src), latency_ns, np.int64)
        return Between(empty, empty, np.zeros(0, np.float32), latency, np.zeros(len(src)))

    return network_with(assignment, nothing_between)


def network_with(
    assignment: Assignment,
    between: Callable[[NDArray[np.int32], NDArray[np.int32]], Between],
) -> FlowNetwork:
    """Build the network of the endpoints' links and of the links between them.

    `between(src_port, dst_port)` returns the latter for the source and destination port of every queue pair on the
    wire.
    """
    connections = assignment.connections
    endpoint = EndpointLinks.of(assignment)
    src_port, dst_port = ports_of_connections(assignment)
    wire, scale_up, hairpin = (connections.path == kind for kind in (Path.WIRE, Path.SCALE_UP, Path.HAIRPIN))
    qps = np.diff(connections.qp_offsets).astype(np.int64)
    ways = np.where(wire, qps, 1)
    first_way = np.concatenate([[0], np.cumsum(ways)])
    within = np.arange(int(qps[wire].sum())) - np.repeat(np.cumsum(qps[wire]) - qps[wire], qps[wire])
    wire_way = np.repeat(first_way[:-1][wire], qps[wire]) + within
    wire_src, wire_dst = np.repeat(src_port[wire], qps[wire]), np.repeat(dst_port[wire], qps[wire])
    latency = np.repeat(np.where(scale_up, assignment.scale_up_latency_ns, 0), ways)
    middle = between(wire_src, wire_dst)
    latency[wire_way] = middle.latency_ns
    store = np.zeros(int(first_way[-1]), np.float64)
    store[wire_way] = middle.store_ns_per_bit
    shared = scale_up if assignment.scale_up_bps > 0 else np.zeros_like(scale_up)
    way = np.concatenate(
        [wire_way, wire_way[middle.queue_pair], wire_way, first_way[:-1][shared], first_way[:-1][hairpin]]
    )
    link = np.concatenate(
        [
            wire_src,
            len(endpoint.names) + middle.link,
            endpoint.ports + wire_dst,
            endpoint.of_rank(connections.src_rank[shared]),
            endpoint.hairpin + src_port[hairpin],
        ]
    )
    share = np.ones(len(way), np.float32)
    share[len(wire_way) : len(wire_way) + len(middle.share)] = middle.share
    order = np.argsort(way, kind="stable")
    counts = np.bincount(way, minlength=int(first_way[-1]))
    return FlowNetwork(
        link_names=(*endpoint.names, *middle.names),
        link_bps=np.concatenate([endpoint.link_bps, middle.link_bps]),
        way_offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        part_link=link[order].astype(np.int32),
        part_share=share[order],
        latency_ns=latency.astype(np.int64),
        store_ns_per_bit=store,
    )


def lasts(stream: UdpStream) -> bool:
    """Return whether a plain UDP stream runs for the whole run, without a start or stop time."""
    return not stream.start_ns and not stream.stop_ns


def less_streams(network: FlowNetwork, streams: Sequence[PlannedStream]) -> FlowNetwork:
    """Return the network without the rate that plain UDP streams use at their source and destination port all the time.

    UDP does not yield, so its rate on the line is subtracted; but a port that serves both fairly leaves the job at
    least half. Streams with a start or stop time are ignored, because links of a network have one rate.
    """
    link_number = {name: row for row, name in enumerate(network.link_names)}
    used_bps = np.zeros(len(network.link_bps), np.int64)
    for planned in streams:
        overhead_bytes = (
            LINK_BYTES_PER_DATAGRAM_V6 if ":" in planned.stream.src_ip else LINK_BYTES_PER_DATAGRAM
        )
        payload_bytes = planned.stream.datagram_bytes
        for link in (f"{planned.from_port} out", f"{planned.to_port} in"):
            if lasts(planned.stream) and link in link_number:
                used_bps[link_number[link]] += (
                    planned.stream.rate_bps * (payload_bytes + overhead_bytes) // payload_bytes
                )
    left_bps = np.maximum(network.link_bps - used_bps, network.link_bps // 2)
    return replace(network, link_bps=np.where(used_bps > 0, left_bps, network.link_bps))


def ports_of_connections(assignment: Assignment) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the ports of the source and of the destination rank, by connection."""
    port = np.full(max((rank.rank for rank in assignment.ranks), default=-1) + 1, -1, np.int32)
    for rank in assignment.ranks:
        port[rank.rank] = rank.port
    connections = assignment.connections
    return port[connections.src_rank], port[connections.dst_rank]


@dataclass(frozen=True, slots=True, eq=False)
class EndpointLinks:
    """The links that every network begins with: egress, ingress and hairpin of ports, scale-up links of ranks."""

    names: tuple[str, ...]
    link_bps: NDArray[np.int64]
    ports: int
    first_rank_link: int
    rank_row: NDArray[np.int32]

    @staticmethod
    def of(assignment: Assignment) -> EndpointLinks:
        """Build the endpoint links of an assignment."""
        ports = [port.name for port in assignment.ports]
        # Ranks of a NIC with several planes are on its first port, which gets the rate of all planes.
        port_bps = [port.link_bps * (1 if port.plane else port.planes) for port in assignment.ports]
        ranks = [rank.rank for rank in assignment.ranks]
        row = np.zeros(max(ranks, default=-1) + 1, np.int32)
        row[ranks] = np.arange(len(ranks), dtype=np.int32)
        names = [
            *(f"{port} out" for port in ports),
            *(f"{port} in" for port in ports),
            *(f"{port} hairpin" for port in ports),
            *(f"rank {rank} scale-up" for rank in ranks),
        ]
        # Without a rate the scale-up model has no bandwidth to share, and no way uses its link.
        scale_up = [max(assignment.scale_up_bps, 1)] * len(ranks)
        link_bps = np.array([*port_bps * 3, *scale_up], np.int64)
        return EndpointLinks(tuple(names), link_bps, len(ports), 3 * len(ports), row)

    @property
    def hairpin(self) -> int:
        """Return the number of the hairpin link of the first port."""
        return 2 * self.ports

    def of_rank(self, rank: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the numbers of the scale-up links of ranks."""
        return (self.first_rank_link + self.rank_row[rank]).astype(np.int32)
