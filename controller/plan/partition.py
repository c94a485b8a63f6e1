"""The placed job -> one assignment per agent, and the analytic bytes of every op. Pure.

Decides what each agent receives: its ranks, the program variants they run, their step tables, every communicator, and
the connections with an end on one of its ports. Row numbers of schedules and communicators are the same for all
agents; those of programs, ports and connections are the agent's own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import (
    Assignment,
    HostThreads,
    PlannedStream,
    PortSettings,
    ProgramColumns,
    RankAssignment,
    ScheduleTables,
    SegmentSettings,
)
from etloop.contract.model.transport import CaptureSettings, PauseRule, TransportSettings
from etloop.controller.plan.connections import PlacedConnections, select_connections
from etloop.controller.plan.places.cards import plane_addresses
from etloop.controller.plan.port_settings import captures_of, pauses_of
from etloop.controller.plan.udp_streams import streams_of_agents
from etloop.traffic.collectives.core.columns import select_tables
from etloop.workload.trace.program import Job, OpKind
from numpy.typing import NDArray

if TYPE_CHECKING:
    from etloop.controller.inputs.rig import Rig
    from etloop.controller.inputs.scenario.scenario import Scenario
    from etloop.controller.plan.demand import Demand, ProgramVariant
    from etloop.controller.plan.job_set import JobSet
    from etloop.controller.plan.places.placement import Placement
    from etloop.controller.plan.places.port_transports import PortTransports


@dataclass(frozen=True, slots=True, eq=False)
class OpBytes:
    """Analytic payload bytes of every row of `OpColumns`: through the device under test, and kept in host or port."""

    wire_tx: NDArray[np.int64]
    wire_rx: NDArray[np.int64]
    local_tx: NDArray[np.int64]
    local_rx: NDArray[np.int64]


def op_bytes(job: Job, demand: Demand, placement: Placement) -> OpBytes:
    """What every op of every rank sends and receives in one iteration under a placement."""
    ops, port, host = demand.ops, np.array(placement.port, np.int32), np.array(placement.host, np.int32)

    def crossing(src: NDArray[np.int64], dst: NDArray[np.int64]) -> NDArray[np.bool_]:
        apart: NDArray[np.bool_] = (port[src] != port[dst]) & (host[src] != host[dst])
        return apart

    # Columns: wire tx, wire rx, local tx, local rx.
    table = np.zeros((len(ops.rank), 4), np.int64)
    sizes = [len(job.communicators[shape.communicator].members) for shape in demand.shapes]
    first_row = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    by_position = np.zeros((int(first_row[-1]), 4), np.int64)
    for shape, first in zip(demand.shapes, first_row.tolist(), strict=False):
        members = np.array(job.communicators[shape.communicator].members, np.int64)
        crosses = crossing(members[shape.src_position], members[shape.dst_position])
        kept = np.where(crosses, 0, 2)
        np.add.at(by_position, (first + shape.src_position, kept), shape.payload_bytes)
        np.add.at(by_position, (first + shape.dst_position, kept + 1), shape.payload_bytes)
    grouped = ops.shape >= 0
    table[grouped] = by_position[first_row[ops.shape[grouped]] + ops.position[grouped]]
    for kind, receives in ((OpKind.SEND, 0), (OpKind.RECV, 1)):
        rows = np.flatnonzero(ops.kind == kind)
        crosses = crossing(ops.rank[rows].astype(np.int64), ops.peer[rows].astype(np.int64))
        table[rows, np.where(crosses, 0, 2) + receives] = ops.message_bytes[rows]
    return OpBytes(*(np.ascontiguousarray(table[:, column]) for column in range(4)))


@dataclass(frozen=True, slots=True, eq=False)
class PlanParts:
    """What a plan was made of."""

    run_id: str
    scenario: Scenario
    """With communicators in fault rules looked up."""
    jobs: JobSet
    demand: Demand
    connections: PlacedConnections
    streams: tuple[PlannedStream, ...]
    """Plain UDP beside the jobs."""
    segments: tuple[SegmentSettings | None, ...]
    """By port of the placement, how SRv6 leads its packets."""
    transports: PortTransports
    """With communicators in fault rules looked up, as the scenario's."""

    @property
    def job(self) -> Job:
        """All jobs as one."""
        return self.jobs.job


def partition(
    parts: PlanParts, rig: Rig, placement: Placement
) -> tuple[dict[str, Assignment], dict[str, NDArray[np.int32]]]:
    """Per agent that has ranks: its assignment, and the row of the whole job's connections behind each of its own."""
    scenario, jobs, demand, connections = parts.scenario, parts.jobs, parts.demand, parts.connections
    job = jobs.job
    threads: dict[str, int] = {}
    for place in placement.ports:
        # One thread polls all planes of a card.
        own = 0 if place.plane else place.port.most_threads
        threads[place.agent] = threads.get(place.agent, 0) + own
    host_ports: dict[str, int] = {}
    first_thread: dict[str, int] = {}
    for agent in rig.agents:
        first_thread[agent.name] = host_ports.get(agent.host, 0)
        host_ports[agent.host] = first_thread[agent.name] + threads.get(agent.name, 0)
    members = [group.members for group in job.communicators]
    member_offsets = np.concatenate([[0], np.cumsum([len(group) for group in members])]).astype(np.int32)
    all_members = np.array([rank for group in members for rank in group], np.int32)
    assignments: dict[str, Assignment] = {}
    rows: dict[str, NDArray[np.int32]] = {}
    streams = streams_of_agents(parts.streams)
    captures = captures_of(scenario.transport.capture, placement)
    pauses = pauses_of(scenario.transport.pauses, placement)
    for agent in rig.agents:
        ports = [index for index, place in enumerate(placement.ports) if place.agent == agent.name]
        if not ports:
            continue
        here = np.isin(connections.src_port, ports) | np.isin(connections.dst_port, ports)
        rows[agent.name] = np.flatnonzero(here).astype(np.int32)
        reached = np.union1d(connections.src_port[rows[agent.name]], connections.dst_port[rows[agent.name]])
        programs, ranks = _ranks(jobs, demand, placement, ports)
        spoken = sorted({parts.transports.of_port[index] for index in ports})
        offloads = all(port.segmentation_offload for port in agent.ports)
        transport, *others = (_transport(parts, number, offloads) for number in spoken)
        assignments[agent.name] = Assignment(
            run_id=parts.run_id,
            agent=agent.name,
            iterations=scenario.plan_iterations,
            ports=tuple(
                replace(
                    _port_settings(parts, placement, index, pauses),
                    transport=spoken.index(parts.transports.of_port[index]),
                )
                for index in ports
            ),
            transport=transport,
            scale_up_bps=scenario.scale_up_bps,
            scale_up_latency_ns=scenario.scale_up_latency_ns,
            threads=HostThreads(first_thread[agent.name], host_ports[agent.host]),
            schedules=_tables_of(demand, [rank.rank for rank in ranks]),
            programs=programs,
            ranks=ranks,
            communicator_offsets=member_offsets,
            communicator_members=all_members,
            connections=select_connections(connections.columns, rows[agent.name]),
            capture=captures.get(agent.name, CaptureSettings()),
            streams=streams.get(agent.name, ()),
            planes=plane_addresses(placement, frozenset((*ports, *reached.tolist()))),
            other_transports=tuple(others),
        )
    return assignments, rows


def whole_job(parts: PlanParts, placement: Placement) -> Assignment:
    """All agents' parts as one assignment, for virtual time: ports are called "agent/port", connections are all of them."""
    scenario, jobs, demand, connections = parts.scenario, parts.jobs, parts.demand, parts.connections
    job = jobs.job
    ports = range(len(placement.ports))
    programs, ranks = _ranks(jobs, demand, placement, list(ports))
    members = [group.members for group in job.communicators]
    pauses = pauses_of(scenario.transport.pauses, placement)
    settings = (_port_settings(parts, placement, index, pauses) for index in ports)
    numbers = range(len(parts.transports.transports))
    transport, *others = (_transport(parts, number, segmentation_offload=True) for number in numbers)
    return Assignment(
        run_id=parts.run_id,
        agent="",
        iterations=scenario.plan_iterations,
        ports=tuple(
            # Virtual time has no threads: what a port's queues share out among them is the port's.
            replace(port, name=f"{place.agent}/{port.name}", queues=1)
            for place, port in zip(placement.ports, settings, strict=True)
        ),
        transport=transport,
        scale_up_bps=scenario.scale_up_bps,
        scale_up_latency_ns=scenario.scale_up_latency_ns,
        threads=HostThreads(0, len(ports)),
        schedules=_tables_of(demand, [rank.rank for rank in ranks]),
        programs=programs,
        ranks=ranks,
        communicator_offsets=np.concatenate([[0], np.cumsum([len(group) for group in members])]).astype(
            np.int32
        ),
        communicator_members=np.array([rank for group in members for rank in group], np.int32),
        connections=connections.columns,
        planes=plane_addresses(placement),
        other_transports=tuple(others),
    )


def _ranks(
    jobs: JobSet, demand: Demand, placement: Placement, ports: list[int]
) -> tuple[tuple[ProgramColumns, ...], tuple[RankAssignment, ...]]:
    own_port = {port: own for own, port in enumerate(ports)}
    part_of_rank = jobs.part_of_rank().tolist()
    own_program: dict[int, int] = {}
    ranks = []
    for rank in jobs.job.ranks:
        port = placement.port[rank.rank]
        if port not in own_port:
            continue
        variant = demand.variant_of_rank[rank.rank]
        part = jobs.parts[part_of_rank[rank.rank]]
        ranks.append(
            RankAssignment(
                rank=rank.rank,
                program=own_program.setdefault(variant, len(own_program)),
                port=own_port[port],
                address=placement.address[rank.rank],
                communicators=rank.communicators,
                peers=rank.peers,
                background=part.background,
                traffic_class=part.traffic_class,
            )
        )
    return tuple(_program(demand.variants[variant]) for variant in own_program), tuple(ranks)


def _tables_of(demand: Demand, ranks: list[int]) -> ScheduleTables:
    """The step tables that some ranks run: those of their positions, in all schedules."""
    ops = demand.ops
    here = np.isin(ops.rank, ranks)
    # Of a send/recv schedule, position 0 sends and position 1 receives.
    position = np.where(ops.kind == OpKind.COLLECTIVE, ops.position, ops.kind == OpKind.RECV)
    return select_tables(demand.tables, ops.schedule[here], position[here].astype(np.int32))


def _program(variant: ProgramVariant) -> ProgramColumns:
    program = variant.program
    return ProgramColumns(
        kind=program.kind,
        schedule=variant.schedule,
        slot=program.slot,
        sequence=program.sequence,
        message_bytes=program.message_bytes,
        delay_ns=program.delay_ns,
        dep_offsets=program.dep_offsets,
        deps=program.deps,
    )


def _port_settings(
    parts: PlanParts, placement: Placement, index: int, pauses: dict[str, tuple[PauseRule, ...]]
) -> PortSettings:
    place = placement.ports[index]
    connections, transport = parts.connections, parts.transports.transport_of(index)
    return PortSettings(
        name=place.port.name,
        # Addresses beyond the port's ranks carry nothing and need not exist.
        addresses=place.port.addresses[: len(placement.ports[index - place.plane].ranks)],
        udp_port=transport.endpoint.udp_port if transport.sprays else place.port.udp_port,
        link_bps=place.port.link_bps,
        qpn_base=connections.qpn_base[index],
        qpn_count=connections.qpn_count[index],
        backend=place.port.backend,
        interface=place.port.interface,
        queues=place.port.queues,
        planes=place.planes,
        plane=place.plane,
        busy_poll_us=place.port.busy_poll_us,
        receive_ring=place.port.receive_ring,
        pauses=pauses.get(f"{place.agent}/{place.port.name}", ()),
        device=place.port.device,
        gid_index=place.port.gid_index,
        segments=parts.segments[index],
        transport=parts.transports.of_port[index],
    )


def _transport(parts: PlanParts, number: int, segmentation_offload: bool) -> TransportSettings:
    scenario, transport = parts.scenario, parts.transports.transports[number]
    return transport.settings(
        segmentation_offload=segmentation_offload,
        drop_per_million=scenario.drop_per_million,
        drop_seed=scenario.drop_seed,
    )
