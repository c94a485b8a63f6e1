"""The twin: the engine's own cores in virtual time, through the switches that a topology describes. Same seed, same bytes.

Decides which attachment each port of the assignment is on, and what a caller is told; what happens to packets is decided
natively (traffic/native/virtual/twin). The assignment must hold every rank and every port of the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Final

import numpy as np
from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import Assignment, Path, PlannedStream, UdpStream
from etloop.contract.model.counters import DISCARD_REASONS
from etloop.contract.model.records import StreamCount
from etloop.contract.model.switch_counters import CARD_COUNTERS, LANE_SAMPLE, SWITCH_PORT_COUNTERS, rows
from etloop.contract.model.topology import SwitchEnd, Topology
from etloop.contract.model.transport import FaultAction
from etloop.traffic import _native
from etloop.traffic.cc_library import libraries_for
from etloop.traffic.outcome import outcome_of
from etloop.traffic.threads.port_queues import whole_ports
from etloop.traffic.topology.routes import Routes, routes
from numpy.typing import NDArray

SAMPLE_INTERVAL_NS: Final = 10_000
MOST_SAMPLES: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class LinkChange:
    """A link that goes down or comes up; both of its ends do."""

    end: SwitchEnd
    up: bool
    at_ns: int
    """After the ranks began."""


class LinkNews(IntEnum):
    """What became of a link. Numbers as in traffic/native/switch/soft_fabric.h."""

    DOWN = 0
    NOTICED = 1
    """Its ends know that it is down."""
    ROUTED_AROUND = 2
    """All switches know."""
    UP = 3
    USED_AGAIN = 4
    """All switches know; only of a link that they had routed around."""


@dataclass(frozen=True, slots=True)
class LinkStep:
    """What became of a link, and when."""

    end: SwitchEnd
    """One of its two."""
    news: LinkNews
    at_ns: int
    """After the ranks began."""


@dataclass(frozen=True, slots=True)
class TwinSettings:
    """What of a run the topology does not say."""

    seed: int | None = None
    """Replaces the seeds of all switches by it and what follows it; None: as the topology has them."""
    receive_buffer_bytes: int = 64 << 20
    """Of a port's sockets: what bounds the windows that its queue pairs offer where the scenario sets none."""
    probe_first: bool = True
    """Whether every queue pair is probed before the job, as in a run: the probe measures round-trip times."""
    limit_ns: int = 3_600_000_000_000
    """Virtual time after which the run is given up."""
    sample_interval_ns: int = 0
    """Of the series; 0: none. It doubles whenever the rows become more than `most_samples`."""
    most_samples: int = MOST_SAMPLES
    most_packets: int = 0
    """Packets after which the run is given up; 0: none."""
    cc_library: str = ""
    """Compiled congestion control plugin of the assignment, for every transport that names one."""
    link_changes: tuple[LinkChange, ...] = ()
    """Links that go down or come up while the job runs."""
    streams: tuple[PlannedStream, ...] = ()
    """Plain UDP beside the job, at the rates and in the bursts in which agents send it."""


@dataclass(frozen=True, slots=True)
class StreamPath:
    """A stream, and the attachments that it goes from and to."""

    stream: UdpStream
    src_attachment: int
    dst_attachment: int


@dataclass(frozen=True, slots=True, eq=False)
class TwinOutcome:
    """What happened. Times are virtual nanoseconds; the job began at `start_ns`, after the probe."""

    ops: NDArray[np.void]
    """OP_RECORD rows."""
    flows: NDArray[np.void]
    waits: NDArray[np.void]
    """Of a run that did not finish, else empty."""
    rates: NDArray[np.void]
    """CC_RECORD rows, if the assignment asks for them."""
    failure: str
    """"" if every rank finished."""
    failed_connection: int
    too_many_packets: bool
    """It failed because of `TwinSettings.most_packets`."""
    start_ns: int
    end_ns: int
    packets: int
    """That network cards sent."""
    hops: int
    """Links that packets were put on, by cards and by switches."""
    trimmed_packets: NDArray[np.int64]
    """By port: arrived cut, and were known for it."""
    damaged_packets: NDArray[np.int64]
    """By port of the assignment, since the ranks began: arrived corrupted, cut or spoiled, so that an ICRC check fails."""
    switch_ports: tuple[NDArray[np.void], ...]
    """By switch: SWITCH_PORT_COUNTERS rows, one a port."""
    pool_watermark_bytes: tuple[int, ...]
    """By switch: the most that its buffer held."""
    cards: NDArray[np.void]
    """CARD_COUNTERS rows, by attachment."""
    faults: NDArray[np.int64]
    """What endpoints did on purpose: a row a port of the assignment, a column a `FaultAction`."""
    discards: NDArray[np.int64]
    """What endpoints did not act on: a row likewise, a column a name of `DISCARD_REASONS`."""
    sample_interval_ns: int
    samples: NDArray[np.void]
    """LANE_SAMPLE rows in order of time; only lanes that had been used."""
    streams: tuple[tuple[StreamCount, StreamCount], ...]
    """By stream, what its sender and its receiver counted; what was under way at the end has arrived."""
    link_steps: tuple[LinkStep, ...]
    """What became of links, in order of time; outages of the topology and changes of the settings alike."""

    @property
    def bad_packets(self) -> int:
        """Return how many packets arrived damaged, at all ports together."""
        return int(self.damaged_packets.sum())


def twin(
    assignment: Assignment, rig_ports: tuple[str, ...], topology: Topology, settings: TwinSettings
) -> TwinOutcome:
    """Runs the assignment to its end, a failure or a limit.

    `rig_ports[i]` names port i of the assignment as the topology's attachments do, "agent/port". Raises `PlanError` if
    ports, also those of streams, are not attached or cannot reach each other, ValueError if the assignment does not
    hold together.
    """
    topology = seeded(topology, settings.seed)
    table = routes(topology)
    attachments = attachments_of(assignment, rig_ports, topology, table)
    paths = stream_paths(settings.streams, topology, table)
    libraries = libraries_for(assignment, settings.cc_library)
    found = _native.twin(whole_ports(assignment), topology, table, attachments, paths, settings, libraries)
    switch_ports = tuple(rows(raw, SWITCH_PORT_COUNTERS) for raw in found["switch_ports"])
    failure = found["failure"]
    if failure and (dropped := dropped_without_route(topology, switch_ports)):
        failure = f"{failure}; {dropped}"
    return outcome_of(
        TwinOutcome,
        found,
        failure=failure,
        switch_ports=switch_ports,
        pool_watermark_bytes=tuple(found["pool_watermark_bytes"]),
        cards=rows(found["cards"], CARD_COUNTERS),
        trimmed_packets=np.frombuffer(found["trimmed_packets"], np.int64),
        damaged_packets=np.frombuffer(found["damaged_packets"], np.int64),
        faults=np.frombuffer(found["faults"], np.int64).reshape(-1, len(FaultAction)),
        discards=np.frombuffer(found["discards"], np.int64).reshape(-1, len(DISCARD_REASONS)),
        samples=rows(found["samples"], LANE_SAMPLE),
        streams=tuple(
            _stream_counts(path.stream, *counted)
            for path, counted in zip(paths, found["streams"], strict=True)
        ),
        link_steps=tuple(
            LinkStep(SwitchEnd(switch, port), LinkNews(news), at_ns - found["start_ns"])
            for switch, port, news, at_ns in found["link_steps"]
        ),
    )


def dropped_without_route(
    topology: Topology, switch_ports: Sequence[NDArray[np.void]], most_switches: int = 4
) -> str:
    """Return how many packets were dropped because a switch knew no way for them, and where; "" for none."""
    counts = [int(ports["no_route_packets"].sum()) for ports in switch_ports]
    total = sum(counts)
    if not total:
        return ""
    largest = sorted((-count, number) for number, count in enumerate(counts) if count)
    named = [f"{-count} at {topology.switches[number].name}" for count, number in largest[:most_switches]]
    more = f" and at {len(largest) - most_switches} more switches" if len(largest) > most_switches else ""
    return f"no route: {total} packets were dropped where no way was known ({', '.join(named)}{more})"


def _stream_counts(stream: UdpStream, sent: int, left_out: int, lost: int) -> tuple[StreamCount, StreamCount]:
    size, received = stream.datagram_bytes, sent - lost
    return (
        StreamCount(stream.name, True, sent, sent * size, left_out, stream.form),
        StreamCount(stream.name, False, received, received * size, 0, stream.form),
    )


def seeded(topology: Topology, seed: int | None) -> Topology:
    """The topology with switch i at seed `seed` + i; as it is without a seed."""
    if seed is None:
        return topology
    switches = tuple(replace(switch, seed=seed + index) for index, switch in enumerate(topology.switches))
    return replace(topology, switches=switches)


def attachments_of(
    assignment: Assignment, rig_ports: tuple[str, ...], topology: Topology, table: Routes
) -> list[int]:
    """By port of the assignment, the attachment it is on. Raises `PlanError` for what is missing, all of it together."""
    number = {attachment.rig_port: index for index, attachment in enumerate(topology.attachments)}
    _refuse_missing(rig_ports, number)
    attachments = [number[port] for port in rig_ports]
    port_of = np.full(max((rank.rank for rank in assignment.ranks), default=-1) + 1, -1, np.int64)
    for rank in assignment.ranks:
        port_of[rank.rank] = rank.port
    connections = assignment.connections
    wire = connections.path == Path.WIRE
    both = port_of[connections.src_rank[wire]] * len(rig_ports) + port_of[connections.dst_rank[wire]]
    cards = [divmod(pair, len(rig_ports)) for pair in np.unique(both).tolist()]
    pairs = [(a + k, b + k) for a, b in cards for k in range(assignment.ports[a].planes)]
    apart = sorted(
        pair
        for pair in pairs
        for a, b in (pair, pair[::-1])
        if not table[topology.attachments[attachments[a]].end.switch][attachments[b]]
    )
    if apart:
        a, b = apart[0]
        more = f" (and {len(apart) - 1} more pairs)" if len(apart) > 1 else ""
        raise PlanError(_no_way(rig_ports[a], rig_ports[b], more))
    return attachments


def stream_paths(streams: Sequence[PlannedStream], topology: Topology, table: Routes) -> list[StreamPath]:
    """Streams with their attachments. Raises `PlanError` for ports that are not attached or cannot reach each other."""
    number = {attachment.rig_port: index for index, attachment in enumerate(topology.attachments)}
    _refuse_missing([port for one in streams for port in (one.from_port, one.to_port)], number)
    paths = [StreamPath(one.stream, number[one.from_port], number[one.to_port]) for one in streams]
    for path, one in zip(paths, streams, strict=True):
        if not table[topology.attachments[path.src_attachment].end.switch][path.dst_attachment]:
            raise PlanError(_no_way(one.from_port, one.to_port, ""))
    return paths


def _refuse_missing(ports: Sequence[str], number: Mapping[str, int]) -> None:
    known = ", ".join(list(number)[:8])
    missing = [port for port in dict.fromkeys(ports) if port not in number]
    if missing:
        raise PlanError(
            *(
                Problem(
                    f"topology: {port}",
                    "the plan uses this port and it is attached to no switch",
                    f"attach it; attached are {known}",
                )
                for port in missing[:20]
            )
        )


def _no_way(source: str, target: str, more: str) -> Problem:
    what = f"the plan sends from {source} to {target}, and the topology has no way there{more}"
    return Problem("topology", what, "add links that join their switches, such as spines over the rails")
