"""A whole run in virtual time without packets: messages of the engine's own lanes as flows that share links fairly.

Decides what an *ideal* network is: every port sends and receives at its rate, and nothing in between is ever in the way.
What a described network looks like is decided by `traffic.flow_network`; how rates come about by
traffic/native/virtual/fair_shares and flow_level. docs/flow_level.md says what is approximated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from etloop.contract.model.assignment import Path
from etloop.contract.model.records import OP_RECORD, WAIT_RECORD
from etloop.traffic import _native
from etloop.traffic.engine import rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etloop.contract.model.assignment import Assignment, PlannedStream, UdpStream
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
    """By way, from the last bit sent to the last bit received; grants and acknowledgements take it too."""


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
    return FlowLevelOutcome(
        ops=rows(outcome["records"], OP_RECORD),
        waits=rows(outcome["waits"], WAIT_RECORD),
        link_bytes=np.frombuffer(outcome["link_bytes"], np.int64),
        failure=outcome["failure"],
        too_many_messages=outcome["too_many_messages"],
        end_ns=outcome["end_ns"],
        messages=outcome["messages"],
        most_live_flows=outcome["most_live_flows"],
        settlings=outcome["settlings"],
        looks=outcome["looks"],
        loosened=outcome["loosened"],
    )


def ideal_network(assignment: Assignment, latency_ns: int = 0) -> FlowNetwork:
    """Only the rates of the endpoints' own ports, each way, and of the scale-up links inside hosts.

    `latency_ns` is that of every way through the device.
    """
    ports = len(assignment.ports)
    connections = assignment.connections
    path = connections.path
    src_port, dst_port = ports_of_connections(assignment)
    qps = np.diff(connections.qp_offsets).astype(np.int64)
    wire, scale_up, hairpin = (path == which for which in (Path.WIRE, Path.SCALE_UP, Path.HAIRPIN))
    local = EndpointLinks.of(assignment)
    first = np.select(
        [wire, scale_up, hairpin], [src_port, local.of_rank(connections.src_rank), local.hairpin + src_port]
    )
    parts = np.where(wire, 2, np.where(scale_up, int(assignment.scale_up_bps > 0), 1))
    ways = np.where(wire, qps, 1)
    counts = np.repeat(parts, ways)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    link = np.empty(int(offsets[-1]), np.int32)
    has_first, has_second = counts > 0, counts > 1
    link[offsets[:-1][has_first]] = np.repeat(first, ways)[has_first]
    link[offsets[:-1][has_second] + 1] = np.repeat(ports + dst_port, ways)[has_second]
    latency = np.select([wire, scale_up], [latency_ns, assignment.scale_up_latency_ns], 0)
    return FlowNetwork(
        link_names=local.names,
        link_bps=local.link_bps,
        way_offsets=offsets,
        part_link=link,
        part_share=np.ones(len(link), np.float32),
        latency_ns=np.repeat(latency, ways).astype(np.int64),
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
        port_bps = [port.link_bps for port in assignment.ports]
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
