"""A whole run in virtual time without packets: messages of the engine's own lanes as flows that share links fairly.

Decides what an *ideal* network is: every port sends and receives at its rate, and nothing in between is ever in the way.
What a described network looks like is decided by `traffic.flow_network`; how rates come about by
traffic/native/virtual/fair_shares and flow_level. docs/flow_level.md says what is approximated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace

import numpy as np
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import Assignment, Path, PlannedStream, UdpStream
from etloop.traffic import _native
from etloop.traffic.outcome import outcome_of
from numpy.typing import NDArray

LINK_BYTES_PER_DATAGRAM = 66
"""Around the payload of a datagram on a link: preamble, Ethernet, IPv4, UDP, check sequence and gap."""
LINK_BYTES_PER_DATAGRAM_V6 = 86
TOLERANCE = 1e-3
"""How far a link's share may be off before its neighbours' are worked out anew."""


@dataclass(frozen=True, slots=True, eq=False)
class FlowNetwork:
    """Links, and which of them the connections of an assignment take.

    A connection on the wire has a way for every queue pair, any other connection has one; ways come in the order of the
    connections. Way w takes the parts [way_offsets[w], way_offsets[w + 1]); one without parts is never held up.
    """

    link_names: tuple[str, ...]
    link_bps: NDArray[np.int64]
    way_offsets: NDArray[np.int64]
    part_link: NDArray[np.int32]
    part_share: NDArray[np.float32]
    """The part of the flow that takes the link: below 1 where it is spread over several."""
    latency_ns: NDArray[np.int64]
    """By way, from the last bit sent to the last bit received, beside what stores take; grants and answers take it too."""
    store_ns_per_bit: NDArray[np.float64]
    """By way: what each bit of a packet takes more, since switches on it have all of the packet before they send it on."""
    notes: tuple[str, ...] = ()
    """What was simplified, a phrase each."""


@dataclass(frozen=True, slots=True, eq=False)
class Between:
    """What queue pairs take of the links between the ports that they leave and reach.

    One row of `queue_pair`, `link` and `share` is a part of a queue pair's flow; the other columns are by queue pair.
    """

    queue_pair: NDArray[np.int64]
    link: NDArray[np.int64]
    share: NDArray[np.float32]
    latency_ns: NDArray[np.int64]
    store_ns_per_bit: NDArray[np.float64]
    names: tuple[str, ...] = ()
    """Of the links."""
    link_bps: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class FlowLevelSettings:
    """How exactly, and how far."""

    tolerance: float = TOLERANCE
    most_messages: int = 0
    """A run that carries more ends unfinished, `too_many_messages`; 0: any number."""
    limit_ns: int = 3_600_000_000_000


@dataclass(frozen=True, slots=True, eq=False)
class FlowLevelOutcome:
    """What happened. Times are virtual nanoseconds from 0."""

    ops: NDArray[np.void]
    waits: NDArray[np.void]
    """Of a run that did not finish, else empty."""
    link_bytes: NDArray[np.int64]
    """By link of the network, with headers."""
    failure: str
    too_many_messages: bool
    end_ns: int
    messages: int
    most_live_flows: int
    settlings: int
    """Moments at which rates were worked out."""
    looks: int
    """Links looked at for that."""
    loosened: int
    """Times that it took so long that the tolerance was doubled for the moment."""


def flow_level(
    assignment: Assignment, network: FlowNetwork, settings: FlowLevelSettings | None = None
) -> FlowLevelOutcome:
    """Runs an assignment, which holds every rank and port of the job, to its end, a failure or a limit.

    Raises ValueError if assignment or network do not hold together.
    """
    outcome = _native.flow_level(assignment, network, settings or FlowLevelSettings())
    return outcome_of(FlowLevelOutcome, outcome, link_bytes=np.frombuffer(outcome["link_bytes"], np.int64))


def ideal_network(assignment: Assignment, latency_ns: int = 0) -> FlowNetwork:
    """Only the rates of the endpoints' own ports, each way, and of the scale-up links inside hosts.

    `latency_ns` is that of every way through the device.
    """

    def nothing_between(src: NDArray[np.int32], _: NDArray[np.int32]) -> Between:
        none = np.zeros(0, np.int64)
        latency = np.full(len(src), latency_ns, np.int64)
        return Between(none, none, np.zeros(0, np.float32), latency, np.zeros(len(src)))

    return network_with(assignment, nothing_between)


def network_with(
    assignment: Assignment,
    between: Callable[[NDArray[np.int32], NDArray[np.int32]], Between],
) -> FlowNetwork:
    """Build the network of the endpoints' links and of those between.

    `between` returns these, of the ports that every queue pair on the wire goes from and to.
    """
    connections = assignment.connections
    endpoint = EndpointLinks.of(assignment)
    src_port, dst_port = ports_of_connections(assignment)
    wire, scale_up, hairpin = (
        connections.path == which for which in (Path.WIRE, Path.SCALE_UP, Path.HAIRPIN)
    )
    qps = np.diff(connections.qp_offsets).astype(np.int64)
    ways = np.where(wire, qps, 1)
    first_way = np.concatenate([[0], np.cumsum(ways)])
    within = np.arange(int(qps[wire].sum())) - np.repeat(np.cumsum(qps[wire]) - qps[wire], qps[wire])
    wire_way = np.repeat(first_way[:-1][wire], qps[wire]) + within
    wire_src, wire_dst = np.repeat(src_port[wire], qps[wire]), np.repeat(dst_port[wire], qps[wire])
    latency = np.repeat(np.where(scale_up, assignment.scale_up_latency_ns, 0), ways)
    crossed = between(wire_src, wire_dst)
    latency[wire_way] = crossed.latency_ns
    store = np.zeros(int(first_way[-1]), np.float64)
    store[wire_way] = crossed.store_ns_per_bit
    shared = scale_up if assignment.scale_up_bps > 0 else np.zeros_like(scale_up)
    way = np.concatenate(
        [wire_way, wire_way[crossed.queue_pair], wire_way, first_way[:-1][shared], first_way[:-1][hairpin]]
    )
    link = np.concatenate(
        [
            wire_src,
            len(endpoint.names) + crossed.link,
            endpoint.ports + wire_dst,
            endpoint.of_rank(connections.src_rank[shared]),
            endpoint.hairpin + src_port[hairpin],
        ]
    )
    share = np.ones(len(way), np.float32)
    share[len(wire_way) : len(wire_way) + len(crossed.share)] = crossed.share
    order = np.argsort(way, kind="stable")
    counts = np.bincount(way, minlength=int(first_way[-1]))
    return FlowNetwork(
        link_names=(*endpoint.names, *crossed.names),
        link_bps=np.concatenate([endpoint.link_bps, crossed.link_bps]),
        way_offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        part_link=link[order].astype(np.int32),
        part_share=share[order],
        latency_ns=latency.astype(np.int64),
        store_ns_per_bit=store,
    )


def lasts(stream: UdpStream) -> bool:
    """Whether a stream of plain UDP is there for the whole run, and not only from or until a time."""
    return not stream.start_ns and not stream.stop_ns


def less_streams(network: FlowNetwork, streams: Sequence[PlannedStream]) -> FlowNetwork:
    """The network without what plain UDP beside the job takes of the ports that it leaves and reaches, all the time.

    UDP does not yield, so its rate on the line is gone; but a port that serves both fairly leaves the job half. Streams with a
    begin or an end are left out: links of a network have one rate.
    """
    number = {name: row for row, name in enumerate(network.link_names)}
    taken_bps = np.zeros(len(network.link_bps), np.int64)
    for one in streams:
        around = LINK_BYTES_PER_DATAGRAM_V6 if ":" in one.stream.src_ip else LINK_BYTES_PER_DATAGRAM
        size = one.stream.datagram_bytes
        for link in (f"{one.from_port} out", f"{one.to_port} in"):
            if lasts(one.stream) and link in number:
                taken_bps[number[link]] += one.stream.rate_bps * (size + around) // size
    left_bps = np.maximum(network.link_bps - taken_bps, network.link_bps // 2)
    return replace(network, link_bps=np.where(taken_bps > 0, left_bps, network.link_bps))


def ports_of_connections(assignment: Assignment) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """By connection, the ports of its source and its destination rank."""
    port = np.full(max((rank.rank for rank in assignment.ranks), default=-1) + 1, -1, np.int32)
    for rank in assignment.ranks:
        port[rank.rank] = rank.port
    connections = assignment.connections
    return port[connections.src_rank], port[connections.dst_rank]


@dataclass(frozen=True, slots=True, eq=False)
class EndpointLinks:
    """The links that every network begins with: ports sending, ports receiving, hairpins, scale-up links of ranks."""

    names: tuple[str, ...]
    link_bps: NDArray[np.int64]
    ports: int
    first_rank_link: int
    rank_row: NDArray[np.int32]

    @staticmethod
    def of(assignment: Assignment) -> EndpointLinks:
        """Those of an assignment."""
        ports = [port.name for port in assignment.ports]
        # Ranks of a card with several planes are on its first one.
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
        # Without a rate the scale-up model has no bandwidth to share; its link then is on no way.
        scale_up = [max(assignment.scale_up_bps, 1)] * len(ranks)
        link_bps = np.array([*port_bps * 3, *scale_up], np.int64)
        return EndpointLinks(tuple(names), link_bps, len(ports), 3 * len(ports), row)

    @property
    def hairpin(self) -> int:
        """The hairpin link of the first port."""
        return 2 * self.ports

    def of_rank(self, rank: NDArray[np.int32]) -> NDArray[np.int32]:
        """The scale-up links of ranks."""
        return (self.first_rank_link + self.rank_row[rank]).astype(np.int32)
