"""The placed job -> one assignment per agent, and the analytic bytes of every op. Pure.

Decides the content of each agent's assignment: its ranks, the program variants they run, their step tables, every
communicator, and the connections with an end on one of its ports. Row numbers of schedules and communicators are the same for
all agents; those of programs, ports and connections are specific to the agent.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

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
from etloop.contract.model.fault_rules import PauseRule
from etloop.contract.model.transport import CaptureSettings, TransportSettings
from etloop.controller.plan.connections import PlacedConnections, select_connections
from etloop.controller.plan.places.cards import plane_addresses
from etloop.controller.plan.port_settings import captures_of, pauses_of
from etloop.controller.plan.udp_streams import streams_of_agents
from etloop.traffic.collectives.core.columns import select_tables
from etloop.workload.trace.program import Job, OpKind

if TYPE_CHECKING:
    from etloop.controller.inputs.rig import Rig
    from etloop.controller.inputs.scenario.scenario import Scenario
    from etloop.controller.plan.demand import Demand, ProgramVariant
    from etloop.controller.plan.job_set import JobSet
    from etloop.controller.plan.places.placement import Placement
    from etloop.controller.plan.places.port_transports import PortTransports


@dataclass(frozen=True, slots=True, eq=False)
class OpBytes:
    """Payload bytes by row of `OpColumns`, one int64 array per direction and path.

    `wire` bytes cross the device under test; `local` bytes stay in a host or port.
    """

    wire_tx: NDArray[np.int64]
    wire_rx: NDArray[np.int64]
    local_tx: NDArray[np.int64]
    local_rx: NDArray[np.int64]


def op_bytes(job: Job, demand: Demand, placement: Placement) -> OpBytes:
    """Return the bytes that each op of each rank sends and receives in one iteration under a placement."""
    ops, port, host = demand.ops, np.array(placement.port, np.int32), np.array(placement.host, np.int32)

    def crossing(src: NDArray[np.int64], dst: NDArray[np.int64]) -> NDArray[np.bool_]:
        crosses_device: NDArray[np.bool_] = (port[src] != port[dst]) & (host[src] != host[dst])
        return crosses_device

    # Columns: wire tx, wire rx, local tx, local rx.
    table = np.zeros((len(ops.rank), 4), np.int64)
    sizes = [len(job.communicators[shape.communicator].members) for shape in demand.shapes]
    first_row = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    by_position = np.zeros((int(first_row[-1]), 4), np.int64)
    for shape, first in zip(demand.shapes, first_row.tolist(), strict=False):
        members = np.array(job.communicators[shape.communicator].members, np.int64)
        crosses = crossing(members[shape.src_position], members[shape.dst_position])
        tx_column = np.where(crosses, 0, 2)
        np.add.at(by_position, (first + shape.src_position, tx_column), shape.payload_bytes)
        np.add.at(by_position, (first + shape.dst_position, tx_column + 1), shape.payload_bytes)
    is_collective = ops.shape >= 0
    table[is_collective] = by_position[first_row[ops.shape[is_collective]] + ops.position[is_collective]]
    for kind, receives in ((OpKind.SEND, 0), (OpKind.RECV, 1)):
        rows = np.flatnonzero(ops.kind == kind)
        crosses = crossing(ops.rank[rows].astype(np.int64), ops.peer[rows].astype(np.int64))
        table[rows, np.where(crosses, 0, 2) + receives] = ops.message_bytes[rows]
    return OpBytes(*(np.ascontiguousarray(table[:, column]) for column in range(4)))


@dataclass(frozen=True, slots=True, eq=False)
class PlanParts:
    """The values that a plan is made of."""

    run_id: str
    scenario: Scenario
    """With the communicators of its fault rules resolved to numbers."""
    jobs: JobSet
    demand: Demand
    connections: PlacedConnections
    streams: tuple[PlannedStream, ...]
    """Streams of plain UDP in addition to the jobs."""
    segments: tuple[SegmentSettings | None, ...]
    """SRv6 segments of each port of the placement; None for ports whose packets have no outer header."""
    transports: PortTransports
    """With the communicators of fault rules resolved, as in `scenario`."""

    @property
    def job(self) -> Job:
        """Return all jobs merged into one."""
        return self.jobs.job


def partition(
    parts: PlanParts, rig: Rig, placement: Placement
) -> tuple[dict[str, Assignment], dict[str, NDArray[np.int32]]]:
    """Return by agent its assignment, and the row of each of its connections among those of the whole job (int32).

    Agents without ranks have neither.
    """
    scenario, jobs, demand, connections = parts.scenario, parts.jobs, parts.demand, parts.connections
    job = jobs.job
    threads: dict[str, int] = {}
    for place in placement.ports:
        # One thread polls all planes of a card.
        place_threads = 0 if place.plane else place.port.most_threads
        threads[place.agent] = threads.get(place.agent, 0) + place_threads
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
        is_local = np.isin(connections.src_port, ports) | np.isin(connections.dst_port, ports)
        rows[agent.name] = np.flatnonzero(is_local).astype(np.int32)
        reached_ports = np.union1d(
            connections.src_port[rows[agent.name]], connections.dst_port[rows[agent.name]]
        )
        programs, ranks = _assign_ranks(jobs, demand, placement, ports)
        transport_numbers = sorted({parts.transports.of_port[index] for index in ports})
        all_offload = all(port.segmentation_offload for port in agent.ports)
        transport, *other_transports = (
            _transport(parts, number, all_offload) for number in transport_numbers
        )
        assignments[agent.name] = Assignment(
            run_id=parts.run_id,
            agent=agent.name,
            iterations=scenario.plan_iterations,
            ports=tuple(
                replace(
                    _port_settings(parts, placement, index, pauses),
                    transport=transport_numbers.index(parts.transports.of_port[index]),
                )
                for index in ports
            ),
            transport=transport,
            scale_up_bps=scenario.scale_up.bandwidth_bps,
            scale_up_latency_ns=scenario.scale_up.latency_ns,
            threads=HostThreads(first_thread[agent.name], host_ports[agent.host]),
            schedules=_tables_of(demand, [rank.rank for rank in ranks]),
            programs=programs,
            ranks=ranks,
            communicator_offsets=member_offsets,
            communicator_members=all_members,
            connections=select_connections(connections.columns, rows[agent.name]),
            capture=captures.get(agent.name, CaptureSettings()),
            streams=streams.get(agent.name, ()),
            planes=plane_addresses(placement, frozenset((*ports, *reached_ports.tolist()))),
            other_transports=tuple(other_transports),
        )
    return assignments, rows


def whole_job(parts: PlanParts, placement: Placement) -> Assignment:
    """Return one assignment of all ranks for virtual time.

    Ports are named "agent/port"; connections are those of the whole job.
    """
    scenario, jobs, demand, connections = parts.scenario, parts.jobs, parts.demand, parts.connections
    job = jobs.job
    ports = range(len(placement.ports))
    programs, ranks = _assign_ranks(jobs, demand, placement, list(ports))
    members = [group.members for group in job.communicators]
    pauses = pauses_of(scenario.transport.pauses, placement)
    settings = (_port_settings(parts, placement, index, pauses) for index in ports)
    numbers = range(len(parts.transports.transports))
    transport, *other_transports = (
        _transport(parts, number, segmentation_offload=True) for number in numbers
    )
    return Assignment(
        run_id=parts.run_id,
        agent="",
        iterations=scenario.plan_iterations,
        ports=tuple(
            # Virtual time has no threads, so a port has a single queue.
            replace(port, name=f"{place.agent}/{port.name}", queues=1)
            for place, port in zip(placement.ports, settings, strict=True)
        ),
        transport=transport,
        scale_up_bps=scenario.scale_up.bandwidth_bps,
        scale_up_latency_ns=scenario.scale_up.latency_ns,
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
        other_transports=tuple(other_transports),
    )


def _assign_ranks(
    jobs: JobSet, demand: Demand, placement: Placement, ports: list[int]
) -> tuple[tuple[ProgramColumns, ...], tuple[RankAssignment, ...]]:
    port_row = {port: row for row, port in enumerate(ports)}
    part_of_rank = jobs.part_of_rank().tolist()
    program_row: dict[int, int] = {}
    ranks = []
    for rank in jobs.job.ranks:
        port = placement.port[rank.rank]
        if port not in port_row:
            continue
        variant = demand.variant_of_rank[rank.rank]
        part = jobs.parts[part_of_rank[rank.rank]]
        ranks.append(
            RankAssignment(
                rank=rank.rank,
                program=program_row.setdefault(variant, len(program_row)),
                port=port_row[port],
                address=placement.address[rank.rank],
                communicators=rank.communicators,
                peers=rank.peers,
                background=part.background,
                traffic_class=part.traffic_class,
            )
        )
    return tuple(_program_columns(demand.variants[variant]) for variant in program_row), tuple(ranks)


def _tables_of(demand: Demand, ranks: list[int]) -> ScheduleTables:
    """Return the step tables that some ranks need: those of their positions, in all schedules."""
    ops = demand.ops
    is_local = np.isin(ops.rank, ranks)
    # In a send/receive schedule, position 0 sends and position 1 receives.
    position = np.where(ops.kind == OpKind.COLLECTIVE, ops.position, ops.kind == OpKind.RECV)
    return select_tables(demand.tables, ops.schedule[is_local], position[is_local].astype(np.int32))


def _program_columns(variant: ProgramVariant) -> ProgramColumns:
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
        # Addresses beyond the port's ranks are unused and need not exist on the host.
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
        drop_per_million=scenario.loss.drop_per_million,
        drop_seed=scenario.loss.seed,
    )
