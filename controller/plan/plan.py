"""Scenario, rig and job -> the plan: placement, connections, assignments, and the tables that results are compared with.

Decides only the order of the steps: demand, placement, connections, partition. Reads no file and no clock; the same inputs
give the same plan, byte for byte.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import Assignment, ConnectionColumns, Path
from etloop.contract.model.run import PlannedConnections, PlannedJobs, PlannedOps, PlanTables
from etloop.controller.inputs.scenario.faults import refuse_idle_faults, resolve_communicators
from etloop.controller.inputs.scenario.multipath import UET_UDP_PORT
from etloop.controller.inputs.scenario.scenario import Scenario
from etloop.controller.plan.choices import excluded_notes, planned_choices, shaping_words
from etloop.controller.plan.connections import PlacedConnections, connect
from etloop.controller.plan.demand import Demand, OpColumns, PairColumns, demand_of
from etloop.controller.plan.job_set import JobSet, only
from etloop.controller.plan.partition import OpBytes, PlanParts, op_bytes, partition, whole_job
from etloop.controller.plan.places.cards import plane_notes, refuse_odd_planes
from etloop.controller.plan.places.job_placement import place_jobs
from etloop.controller.plan.places.order_warning import order_warnings
from etloop.controller.plan.places.placement import Placement
from etloop.controller.plan.places.port_transports import PortTransports, port_transports, transport_notes
from etloop.controller.plan.port_settings import (
    arbitration_notes,
    fault_notes,
    multipath_notes,
    queue_notes,
    refuse_one_sided,
    refuse_shared_contexts,
    trimming_notes,
)
from etloop.controller.plan.rounding import rounding_notes
from etloop.controller.plan.run_numbers import PLAN_ID, run_nonce, with_first_psn
from etloop.controller.plan.segments import segment_notes, segment_settings
from etloop.controller.plan.udp_streams import plan_streams, refuse_taken_ports
from etloop.workload.trace.program import Job

if TYPE_CHECKING:
    from etloop.contract.model.topology import Topology
    from etloop.controller.inputs.rig import Rig
    from etloop.controller.inputs.scenario.transport import Transport

MOST_KEPT_ROWS: Final = 1 << 18
"""Operations and connections of a plan that stays in memory with its derived values."""
_WHOLES_KEPT: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A job laid out on a rig."""

    assignments: dict[str, Assignment]
    """Assignments by agent name; agents without ranks have none."""
    connection_rows: dict[str, NDArray[np.int32]]
    """Row in `tables.connections` of each connection in the assignment of an agent, by agent name."""
    tables: PlanTables
    placement: Placement
    parts: PlanParts

    def whole(self) -> Assignment:
        """Return the job as one assignment for virtual time; a large one is built anew by every call."""
        return _kept_whole(self) if self.is_small else whole_job(self.parts, self.placement)

    @property
    def is_small(self) -> bool:
        """Return whether what is derived from the plan may stay in memory: some tens of megabytes."""
        return len(self.tables.ops.rank) + len(self.tables.connections.src_rank) <= MOST_KEPT_ROWS

    @property
    def port_names(self) -> dict[str, tuple[str, ...]]:
        """Return by agent the names of its ports in the order of its assignment."""
        return {
            agent: tuple(port.name for port in assignment.ports)
            for agent, assignment in self.assignments.items()
        }


# Cached because the run of a plan asks for it at six places, and the points of a sweep share a plan.
@lru_cache(maxsize=_WHOLES_KEPT)
def _kept_whole(plan: Plan) -> Assignment:
    return whole_job(plan.parts, plan.placement)


def make_plan(scenario: Scenario, rig: Rig, job: Job, run_id: str = PLAN_ID) -> Plan:
    """Lay one job out on a rig. Raises `PlanError` with a remedy if it does not fit."""
    (entry, *_) = scenario.jobs
    job_set = only(job, scenario.mapping, scenario.collectives.settings, entry.transport)
    return plan_jobs(scenario, rig, job_set, run_id)


def plan_jobs(
    scenario: Scenario,
    rig: Rig,
    jobs: JobSet,
    run_id: str = PLAN_ID,
    topology: Topology | None = None,
    *,
    drawn_nonce: int = 0,
) -> Plan:
    """Lay all jobs of a set out on a rig. Raises as `make_plan`.

    `topology`, if known, gives the segments for SRv6. `drawn_nonce`: random number of this run (`run_numbers.run_nonce`).
    """
    job = jobs.job
    refuse_odd_jobs(job)
    demand = demand_of(jobs)
    placement = place_jobs(jobs, (demand.pairs,), rig)
    _refuse_unfit_transports(port_transports(scenario, jobs, placement), jobs, demand, placement)
    nonce = run_nonce(scenario.transport, run_id, drawn_nonce)
    scenario = scenario.with_transports(lambda transport: with_first_psn(transport, nonce))
    transport = scenario.transport
    connections = connect(
        demand.pairs, placement, transport.qps_per_connection, scenario.seed, transport.source_ports, nonce
    )
    names = tuple(group.name for group in job.communicators)
    scenario = scenario.with_transports(partial(_with_communicators, names=names))
    transports = port_transports(scenario, jobs, placement)
    refuse_idle_faults(
        scenario.transport.faults,
        connections.columns,
        lambda rule: transports.have_rule(rule, connections.src_port),
    )
    bytes_of_ops = op_bytes(job, demand, placement)
    streams = plan_streams(scenario.streams, rig, {place.agent for place in placement.ports})
    refuse_taken_ports(streams, scenario.streams, transports.labels_on(UET_UDP_PORT, placement))
    segments = segment_settings(transports, topology, placement, connections)
    parts = PlanParts(run_id, scenario, jobs, demand, connections, streams, segments, transports)
    assignments, rows = partition(parts, rig, placement)
    tables = replace(_tables(parts, placement, bytes_of_ops), run_nonce=nonce)
    tables = replace(tables, notes=(*tables.notes, *segment_notes(transports, placement, segments)))
    return Plan(assignments, rows, tables, placement, parts)


def _refuse_unfit_transports(
    spoken: PortTransports, jobs: JobSet, demand: Demand, placement: Placement
) -> None:
    part_of_op = jobs.part_of_rank()[demand.ops.rank]
    for number, (transport, ports) in enumerate(spoken.with_ports(placement)):
        part_indices = [index for index, part in enumerate(jobs.parts) if part.name in spoken.jobs[number]]
        schedules = np.unique(demand.ops.schedule[np.isin(part_of_op, part_indices)]).tolist()
        refuse_one_sided(transport, [demand.schedules[schedule] for schedule in schedules])
        refuse_shared_contexts(transport, ports)
        refuse_odd_planes(transport, ports)


def _with_communicators(transport: Transport, names: tuple[str, ...]) -> Transport:
    return replace(
        transport, faults=resolve_communicators(transport.faults, transport.fault_communicators, names)
    )


def refuse_odd_jobs(job: Job) -> None:
    """Raise `PlanError` for a job without ranks."""
    if not job.ranks:
        raise PlanError(Problem(job.source, "the job has no ranks", "use a trace with at least one rank"))
    assert [rank.rank for rank in job.ranks] == list(range(len(job.ranks)))


def _algorithms(demand: Demand) -> tuple[tuple[str, ...], NDArray[np.int16]]:
    """Return the distinct algorithm names, and for each schedule the index of its name (int16)."""
    names = [schedule.algorithm for schedule in demand.schedules]
    distinct = tuple(dict.fromkeys(names))
    return distinct, np.array([distinct.index(name) for name in names], np.int16)


def _planned_jobs(jobs: JobSet, ops: OpColumns) -> PlannedJobs | None:
    if not jobs.jobs:
        return None
    program = np.array([rank.program for rank in jobs.job.ranks], np.int64)[ops.rank]
    turn = np.empty(len(ops.rank), np.int32)
    for index in np.unique(program).tolist():
        rows = program == index
        turn[rows] = jobs.turns[index][ops.op[rows]]
    return PlannedJobs(jobs.jobs, jobs.phases, turn)


def _planned_connections(columns: ConnectionColumns, pairs: PairColumns) -> PlannedConnections:
    return PlannedConnections(
        communicator=columns.communicator,
        channel=columns.channel,
        src_rank=columns.src_rank,
        dst_rank=columns.dst_rank,
        path=columns.path,
        src_ip=columns.src_ip,
        dst_ip=columns.dst_ip,
        qp_offsets=columns.qp_offsets,
        src_qpn=columns.src_qpn,
        dst_qpn=columns.dst_qpn,
        src_udp_port=columns.src_udp_port,
        dst_udp_port=columns.dst_udp_port,
        payload_bytes=pairs.payload_bytes,
    )


def _tables(parts: PlanParts, placement: Placement, moved: OpBytes) -> PlanTables:
    scenario, jobs, demand, connections = parts.scenario, parts.jobs, parts.demand, parts.connections
    job = jobs.job
    ports = [placement.ports[port] for port in placement.port]
    algorithms, algorithm_of_schedule = _algorithms(demand)
    ops = demand.ops
    return PlanTables(
        source=job.source,
        iterations=scenario.plan_iterations,
        rank_agent=tuple(port.agent for port in ports),
        rank_host=placement.host,
        rank_port=tuple(port.port.name for port in ports),
        rank_transport=tuple(parts.transports.transport_of(port).kind_name for port in placement.port),
        communicators=tuple((group.name, group.members) for group in job.communicators),
        algorithms=algorithms,
        op_names=job.op_names,
        ops=PlannedOps(
            rank=ops.rank,
            op=ops.op,
            node_id=ops.node_id,
            name=ops.name,
            kind=ops.kind,
            collective=ops.collective,
            communicator=ops.communicator,
            peer=ops.peer,
            sequence=ops.sequence,
            message_bytes=ops.message_bytes,
            trace_bytes=ops.trace_bytes,
            wire_tx_bytes=moved.wire_tx,
            wire_rx_bytes=moved.wire_rx,
            local_tx_bytes=moved.local_tx,
            local_rx_bytes=moved.local_rx,
            algorithm=algorithm_of_schedule[ops.schedule],
        ),
        connections=_planned_connections(connections.columns, demand.pairs),
        bytes_scale=scenario.bytes_scale_text,
        time_scale=scenario.time_scale_text,
        policy=job.policy,
        edges=dict(job.edges),
        baselines=job.baselines,
        shaping=", ".join(dict.fromkeys(shaping_words(part.settings) for part in jobs.parts)),
        choices=planned_choices(demand),
        several=_planned_jobs(jobs, ops),
        notes=(
            *order_warnings(jobs, (demand.pairs,)),
            *job.notes,
            *scenario.notes,
            *transport_notes(scenario),
            *placement.notes,
            *excluded_notes(demand.chosen),
            *rounding_notes(ops, scenario.bytes_scale_text),
            *_traffic_notes(connections, demand.pairs, placement),
            *fault_notes(scenario.transport.faults, placement),
            *arbitration_notes(scenario.transport.arbitration, placement),
            *trimming_notes(scenario.transport.recovery.trimming, placement),
            *multipath_notes(parts.transports, placement),
            *queue_notes(placement),
            *(
                note
                for transport, ports in parts.transports.with_ports(placement)
                for note in plane_notes(transport, ports)
            ),
        ),
    )


def _traffic_notes(connections: PlacedConnections, pairs: PairColumns, placement: Placement) -> list[str]:
    path = connections.columns.path
    wire = path == Path.WIRE
    if len(pairs) and not wire.any():
        return ["no traffic crosses the device under test: all communicating ranks share a port or a host"]
    notes = []
    agent = np.array(
        [
            list(dict.fromkeys(place.agent for place in placement.ports)).index(place.agent)
            for place in placement.ports
        ]
    )
    within_agent = int((wire & (agent[connections.src_port] == agent[connections.dst_port])).sum())
    if within_agent:
        notes.append(
            f"{within_agent} of {len(pairs)} connections join two ports of one agent; Linux delivers such packets inside the "
            "machine, and they reach the device only if they are routed outside on purpose"
        )
    if (path == Path.HAIRPIN).any():
        count = int((path == Path.HAIRPIN).sum())
        note = (
            f"{count} of {len(pairs)} connections join two hosts on one port; a switch would not send them back, "
            "so the engine carries them at the port's rate and the results count them as local"
        )
        notes.append(note)
    return notes
