"""The twin: the engine's own cores in virtual time, through the switches of a topology. The same seed gives the same
bytes.

This module decides the attachment of each port of the assignment, and the form of the outcome; packets are handled
natively (traffic/native/virtual/twin). The assignment must hold every rank and every port of the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import Assignment, Path, PlannedStream, UdpStream
from etloop.contract.model.counters import DISCARD_REASONS
from etloop.contract.model.fault_rules import FaultAction
from etloop.contract.model.records import StreamCount
from etloop.contract.model.switch_counters import CARD_COUNTERS, LANE_SAMPLE, SWITCH_PORT_COUNTERS, rows
from etloop.contract.model.topology import SwitchEnd, Topology
from etloop.contract.model.transfer_source import TransferSource
from etloop.traffic import _native
from etloop.traffic.cc_library import libraries_for
from etloop.traffic.outcome import outcome_of
from etloop.traffic.threads.port_queues import whole_ports
from etloop.traffic.topology.routes import Routes, routes

SAMPLE_INTERVAL_NS: Final = 10_000
MOST_SAMPLES: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class LinkChange:
    """A link that goes down or comes up, at both ends."""

    end: SwitchEnd
    up: bool
    at_ns: int
    """Time after the start of the ranks."""


class LinkNews(IntEnum):
    """State change of a link. Numbers as in traffic/native/switch/soft_fabric.h."""

    DOWN = 0
    NOTICED = 1
    """The switches at its ends have detected that it is down."""
    ROUTED_AROUND = 2
    """All switches have updated their routes."""
    UP = 3
    USED_AGAIN = 4
    """All switches use it again; only for a link that they had routed around."""


@dataclass(frozen=True, slots=True)
class LinkStep:
    """State change of a link at one time."""

    end: SwitchEnd
    """One of its two ends."""
    news: LinkNews
    at_ns: int
    """Time after the start of the ranks."""


@dataclass(frozen=True, slots=True)
class TwinSettings:
    """Settings of a run that are not part of the topology."""

    seed: int | None = None
    """Replaces the seed of switch i by `seed` + i; None: keep the topology's seeds."""
    receive_buffer_bytes: int = 64 << 20
    """Receive buffer of a port's sockets; it limits the windows that its queue pairs offer if the scenario sets none."""
    probe_first: bool = True
    """Whether every queue pair is probed before the job, as in a run: the probe measures round-trip times."""
    limit_ns: int = 3_600_000_000_000
    """Virtual time after which the run is abandoned."""
    sample_interval_ns: int = 0
    """Interval of the series; 0: no series. It doubles whenever there are more than `most_samples` rows."""
    most_samples: int = MOST_SAMPLES
    most_packets: int = 0
    """Packets after which the run is abandoned; 0: unlimited."""
    cc_library: str = ""
    """Compiled congestion control plugin, used for every transport that names a plugin."""
    link_changes: tuple[LinkChange, ...] = ()
    """Links that go down or come up while the job runs."""
    streams: tuple[PlannedStream, ...] = ()
    """Plain UDP next to the job, with the rates and bursts of the agents' senders."""


@dataclass(frozen=True, slots=True)
class StreamPath:
    """A stream, and its source and destination attachment."""

    stream: UdpStream
    src_attachment: int
    dst_attachment: int


@dataclass(frozen=True, slots=True, eq=False)
class TwinOutcome:
    """Result of a twin run. Times are virtual nanoseconds; the job began at `start_ns`, after the probe."""

    ops: NDArray[np.void]
    """OP_RECORD rows."""
    flows: NDArray[np.void]
    waits: NDArray[np.void]
    """WAIT_RECORD rows of a run that did not finish, else empty."""
    rates: NDArray[np.void]
    """CC_RECORD rows, if the assignment asks for them."""
    failure: str
    """"" if every rank finished."""
    failed_connection: int
    too_many_packets: bool
    """Whether the run failed because of `TwinSettings.most_packets`."""
    start_ns: int
    end_ns: int
    packets: int
    """Packets sent by NICs."""
    hops: int
    """Packet transmissions on links, by NICs and switches."""
    trimmed_packets: NDArray[np.int64]
    """By port: packets that arrived trimmed and were recognised as trimmed."""
    damaged_packets: NDArray[np.int64]
    """By port of the assignment, since the ranks began: packets that arrived corrupted or cut and fail the ICRC check."""
    switch_ports: tuple[NDArray[np.void], ...]
    """By switch: SWITCH_PORT_COUNTERS rows, one per port."""
    pool_watermark_bytes: tuple[int, ...]
    """By switch: maximum buffer occupancy."""
    cards: NDArray[np.void]
    """CARD_COUNTERS rows, by attachment."""
    faults: NDArray[np.int64]
    """Injected endpoint faults: one row per port of the assignment, one column per `FaultAction`."""
    discards: NDArray[np.int64]
    """Packets that endpoints discarded: one row per port of the assignment, one column per name in `DISCARD_REASONS`."""
    sample_interval_ns: int
    samples: NDArray[np.void]
    """LANE_SAMPLE rows in time order, of lanes that carried traffic only."""
    streams: tuple[tuple[StreamCount, StreamCount], ...]
    """By stream: counts of its sender and of its receiver; datagrams in flight at the end count as received."""
    link_steps: tuple[LinkStep, ...]
    """State changes of links in time order, from outages of the topology and from `TwinSettings.link_changes`."""

    @property
    def bad_packets(self) -> int:
        """Return the number of packets that arrived damaged, over all ports."""
        return int(self.damaged_packets.sum())


def twin(
    assignment: Assignment,
    rig_ports: tuple[str, ...],
    topology: Topology,
    settings: TwinSettings,
    source: TransferSource | None = None,
) -> TwinOutcome:
    """Run the assignment to its end, a failure or a limit.

    `rig_ports[i]` names port i of the assignment as the topology's attachments do, "agent/port". The transfers of a `source`
    take place in addition; the iteration of their records is their number, -1 at the sender. Raises `PlanError` if
    ports, those of streams included, are not attached or cannot reach each other, ValueError if the assignment is
    inconsistent.
    """
    topology = with_seed(topology, settings.seed)
    table = routes(topology)
    attachments = attachments_of(assignment, rig_ports, topology, table)
    paths = stream_paths(settings.streams, topology, table)
    libraries = libraries_for(assignment, settings.cc_library)
    raw_outcome = _native.twin(
        whole_ports(assignment), topology, table, attachments, paths, settings, libraries, source
    )
    switch_ports = tuple(rows(raw, SWITCH_PORT_COUNTERS) for raw in raw_outcome["switch_ports"])
    failure = raw_outcome["failure"]
    if failure and (dropped := dropped_without_route(topology, switch_ports)):
        failure = f"{failure}; {dropped}"
    return outcome_of(
        TwinOutcome,
        raw_outcome,
        failure=failure,
        switch_ports=switch_ports,
        pool_watermark_bytes=tuple(raw_outcome["pool_watermark_bytes"]),
        cards=rows(raw_outcome["cards"], CARD_COUNTERS),
        trimmed_packets=np.frombuffer(raw_outcome["trimmed_packets"], np.int64),
        damaged_packets=np.frombuffer(raw_outcome["damaged_packets"], np.int64),
        faults=np.frombuffer(raw_outcome["faults"], np.int64).reshape(-1, len(FaultAction)),
        discards=np.frombuffer(raw_outcome["discards"], np.int64).reshape(-1, len(DISCARD_REASONS)),
        samples=rows(raw_outcome["samples"], LANE_SAMPLE),
        streams=tuple(
            _stream_counts(path.stream, *counts)
            for path, counts in zip(paths, raw_outcome["streams"], strict=True)
        ),
        link_steps=tuple(
            LinkStep(SwitchEnd(switch, port), LinkNews(news), at_ns - raw_outcome["start_ns"])
            for switch, port, news, at_ns in raw_outcome["link_steps"]
        ),
    )


def dropped_without_route(
    topology: Topology, switch_ports: Sequence[NDArray[np.void]], most_switches: int = 4
) -> str:
    """Return how many packets switches dropped for lack of a route, and where, as text; "" if none."""
    counts = [int(ports["no_route_packets"].sum()) for ports in switch_ports]
    total = sum(counts)
    if not total:
        return ""
    largest = sorted((-count, number) for number, count in enumerate(counts) if count)
    listed = [f"{-count} at {topology.switches[number].name}" for count, number in largest[:most_switches]]
    more = f" and at {len(largest) - most_switches} more switches" if len(largest) > most_switches else ""
    return f"no route: {total} packets were dropped by switches without a route ({', '.join(listed)}{more})"


def _stream_counts(stream: UdpStream, sent: int, left_out: int, lost: int) -> tuple[StreamCount, StreamCount]:
    """Return the counts of a stream's sender and receiver."""
    size, received = stream.datagram_bytes, sent - lost
    return (
        StreamCount(stream.name, True, sent, sent * size, left_out, form=stream.form),
        StreamCount(stream.name, False, received, received * size, 0, form=stream.form),
    )


def with_seed(topology: Topology, seed: int | None) -> Topology:
    """Return the topology with seed `seed` + i at switch i; unchanged if `seed` is None."""
    if seed is None:
        return topology
    switches = tuple(replace(switch, seed=seed + index) for index, switch in enumerate(topology.switches))
    return replace(topology, switches=switches)


def attachments_of(
    assignment: Assignment, rig_ports: tuple[str, ...], topology: Topology, table: Routes
) -> list[int]:
    """Return the attachment of each port of the assignment.

    Raises `PlanError` for all ports that are not attached, or for ports with traffic between them that cannot reach
    each other.
    """
    number_by_port = {attachment.rig_port: index for index, attachment in enumerate(topology.attachments)}
    _refuse_missing(rig_ports, number_by_port)
    attachments = [number_by_port[port] for port in rig_ports]
    port_of = np.full(max((rank.rank for rank in assignment.ranks), default=-1) + 1, -1, np.int64)
    for rank in assignment.ranks:
        port_of[rank.rank] = rank.port
    connections = assignment.connections
    wire = connections.path == Path.WIRE
    pair_keys = port_of[connections.src_rank[wire]] * len(rig_ports) + port_of[connections.dst_rank[wire]]
    port_pairs = [divmod(pair, len(rig_ports)) for pair in np.unique(pair_keys).tolist()]
    pairs = [(a + k, b + k) for a, b in port_pairs for k in range(assignment.ports[a].planes)]
    unreachable = sorted(
        pair
        for pair in pairs
        for a, b in (pair, pair[::-1])
        if not table[topology.attachments[attachments[a]].end.switch][attachments[b]]
    )
    if unreachable:
        a, b = unreachable[0]
        more = f" (and {len(unreachable) - 1} more pairs)" if len(unreachable) > 1 else ""
        raise PlanError(_no_way(rig_ports[a], rig_ports[b], more))
    return attachments


def stream_paths(streams: Sequence[PlannedStream], topology: Topology, table: Routes) -> list[StreamPath]:
    """Return streams with their attachments. Raises `PlanError` for unattached or unreachable ports."""
    number_by_port = {attachment.rig_port: index for index, attachment in enumerate(topology.attachments)}
    _refuse_missing(
        [port for planned in streams for port in (planned.from_port, planned.to_port)], number_by_port
    )
    paths = [
        StreamPath(planned.stream, number_by_port[planned.from_port], number_by_port[planned.to_port])
        for planned in streams
    ]
    for path, planned in zip(paths, streams, strict=True):
        if not table[topology.attachments[path.src_attachment].end.switch][path.dst_attachment]:
            raise PlanError(_no_way(planned.from_port, planned.to_port, ""))
    return paths


def _refuse_missing(ports: Sequence[str], number: Mapping[str, int]) -> None:
    """Raise `PlanError` for ports that no switch has attached, at most 20."""
    known_names = ", ".join(list(number)[:8])
    missing = [port for port in dict.fromkeys(ports) if port not in number]
    if missing:
        raise PlanError(
            *(
                Problem(
                    f"topology: {port}",
                    "the plan uses this port, but it is attached to no switch",
                    f"attach it; attached are {known_names}",
                )
                for port in missing[:20]
            )
        )


def _no_way(source: str, target: str, more: str) -> Problem:
    """Build the problem of two ports between which the topology has no way."""
    problem = f"the plan sends from {source} to {target}, but the topology has no path there{more}"
    return Problem("topology", problem, "add links that join their switches, such as spines over the rails")
