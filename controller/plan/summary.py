"""The totals of a job of any size: connections counted but not numbered, bytes by communicator, host and port.

Places ranks and chooses schedules as a plan does, but processes the pairs of one communicator at a time, so that memory holds
those of the largest communicator and never those of the whole job. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import NS_PER_S
from etloop.contract.model.assignment import Path
from etloop.controller.plan.choices import excluded_notes, shaping_words
from etloop.controller.plan.connections import QPN_ENDS, paths_of
from etloop.controller.plan.demand import POINT_TO_POINT, Asked, PairColumns, asked_of, pair_chunks
from etloop.controller.plan.places.job_placement import place_jobs
from etloop.controller.plan.places.order_warning import order_warnings
from etloop.controller.plan.places.port_transports import port_transports, transport_notes
from etloop.controller.plan.plan import refuse_odd_jobs
from etloop.controller.plan.report import stand_in_notes
from etloop.workload.trace.program import Job, OpKind

if TYPE_CHECKING:
    from etloop.controller.inputs.rig import Rig
    from etloop.controller.inputs.scenario.scenario import Scenario
    from etloop.controller.plan.job_set import JobSet
    from etloop.controller.plan.places.placement import Placement

PLAN_SUMMARY_SCHEMA: Final = "etloop-plan-summary/1"


@dataclass(frozen=True, slots=True)
class CommunicatorTotal:
    """Payload between the members of one communicator in one iteration."""

    name: str
    point_to_point: bool
    """Whether the row is for the job's sends and receives, which have no communicator."""
    ranks: int
    first_rank: int
    operations: int
    connections: int
    payload_bytes: int
    fabric_bytes: int
    """The part of `payload_bytes` that crosses the device under test."""


@dataclass(frozen=True, slots=True)
class HostTotal:
    """Payload that the ranks of one host send to, and receive from, other hosts in one iteration."""

    host: int
    ranks: int
    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True, slots=True)
class PortTotal:
    """Payload of one port in one iteration, and the number of queue pair ends on it."""

    agent: str
    port: str
    link_bps: int
    ranks: int
    queue_pairs: int
    tx_bytes: int
    rx_bytes: int
    link_time_ns: int
    """Time of the busier direction at the link rate, rounded up."""


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """The totals of a job. All bytes are payload of one iteration."""

    schema: str
    source: str
    iterations: int
    bytes_scale: str
    time_scale: str
    policy: str
    shaping: str
    ranks: int
    operations: int
    """Network ops of all ranks in one iteration."""
    connections: dict[str, int]
    """Number of connections by path: wire, scale_up, hairpin."""
    queue_pair_ends: int
    most_queue_pair_ends: int
    """Limit of queue pair ends; a job that needs more can be summarised but not run."""
    payload_bytes: int
    fabric_bytes: int
    ideal_ns: int
    """Lower bound of an iteration: the largest `link_time_ns`, without dependencies and compute."""
    communicators: tuple[CommunicatorTotal, ...]
    hosts: tuple[HostTotal, ...]
    ports: tuple[PortTotal, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Chunks:
    """The pairs of a job, generated anew by every iteration over it."""

    job: Job
    asked: Asked

    def __iter__(self) -> Iterator[PairColumns]:
        return pair_chunks(self.job, self.asked)


@dataclass(slots=True)
class _Totals:
    """Sums over all pairs: int64 arrays by port, by host and by path."""

    queue_pairs: NDArray[np.int64]
    tx_bytes: NDArray[np.int64]
    rx_bytes: NDArray[np.int64]
    host_sent: NDArray[np.int64]
    host_received: NDArray[np.int64]
    paths: NDArray[np.int64]


def summarise(scenario: Scenario, rig: Rig, jobs: JobSet) -> PlanSummary:
    """Sum up the traffic of all jobs of a set on a rig. Raises `PlanError` as `plan_jobs`, but not for too many connections."""
    job = jobs.job
    refuse_odd_jobs(job)
    traffic = asked_of(jobs)
    chunks = _Chunks(job, traffic)
    placement = place_jobs(jobs, chunks, rig)
    port_transports(scenario, jobs, placement)
    totals, communicators = _sum_pairs(job, traffic, chunks, placement, scenario.transport.qps_per_connection)
    ports = _port_totals(placement, totals)
    ends, recording_notes = int(totals.queue_pairs.sum()), stand_in_notes(job.notes)
    return PlanSummary(
        schema=PLAN_SUMMARY_SCHEMA,
        source=job.source,
        iterations=scenario.plan_iterations,
        bytes_scale=scenario.bytes_scale_text,
        time_scale=scenario.time_scale_text,
        policy=job.policy,
        shaping=", ".join(dict.fromkeys(shaping_words(part.settings) for part in jobs.parts)),
        ranks=len(job.ranks),
        operations=len(traffic.ops.rank),
        connections={path.name.lower(): int(totals.paths[path]) for path in Path},
        queue_pair_ends=ends,
        most_queue_pair_ends=QPN_ENDS,
        payload_bytes=sum(row.payload_bytes for row in communicators),
        fabric_bytes=int(totals.tx_bytes.sum()),
        ideal_ns=max(port.link_time_ns for port in ports),
        communicators=communicators,
        hosts=_host_totals(placement, totals),
        ports=ports,
        warnings=(*_limit_warnings(ends), *recording_notes, *order_warnings(jobs, chunks)),
        notes=(
            *(note for note in job.notes if note not in recording_notes),
            *scenario.notes,
            *transport_notes(scenario),
            *placement.notes,
            *excluded_notes(traffic.chosen),
        ),
    )


def _limit_warnings(ends: int) -> tuple[str, ...]:
    if ends <= QPN_ENDS:
        return ()
    return (f"it cannot be run: it needs {ends} queue pair ends, but only {QPN_ENDS} numbers are available",)


def _sum_pairs(
    job: Job, asked: Asked, chunks: _Chunks, placement: Placement, qps_per_connection: int
) -> tuple[_Totals, tuple[CommunicatorTotal, ...]]:
    port, host = np.array(placement.port, np.int32), np.array(placement.host, np.int64)
    ports, hosts = len(placement.ports), int(host.max()) + 1
    totals = _Totals(*(np.zeros(size, np.int64) for size in (ports, ports, ports, hosts, hosts, len(Path))))
    operations = _count_operations(job, asked)
    rows = []
    for pairs in chunks:
        src_port, dst_port = port[pairs.src_rank], port[pairs.dst_rank]
        src_host, dst_host = host[pairs.src_rank], host[pairs.dst_rank]
        path, payload = paths_of(src_host, dst_host, src_port, dst_port), pairs.payload_bytes
        wire, leaves = path == Path.WIRE, src_host != dst_host
        totals.paths += np.bincount(path, minlength=len(Path))
        for ends in (src_port[wire], dst_port[wire]):
            totals.queue_pairs += qps_per_connection * np.bincount(ends, minlength=ports)
        np.add.at(totals.tx_bytes, src_port[wire], payload[wire])
        np.add.at(totals.rx_bytes, dst_port[wire], payload[wire])
        np.add.at(totals.host_sent, src_host[leaves], payload[leaves])
        np.add.at(totals.host_received, dst_host[leaves], payload[leaves])
        number = int(pairs.communicator[0])
        group = None if number == POINT_TO_POINT else job.communicators[number]
        rows.append(
            CommunicatorTotal(
                name="" if group is None else group.name,
                point_to_point=group is None,
                ranks=len(job.ranks) if group is None else len(group.members),
                first_rank=0 if group is None else group.members[0],
                operations=operations[number],
                connections=len(pairs),
                payload_bytes=int(payload.sum()),
                fabric_bytes=int(payload[wire].sum()),
            )
        )
    return totals, tuple(rows)


def _count_operations(job: Job, asked: Asked) -> dict[int, int]:
    """Return the number of collectives by communicator; for sends and receives the number of sends."""
    ops = asked.ops
    member_ops = np.bincount(ops.communicator[ops.communicator >= 0], minlength=len(job.communicators))
    collectives = {
        number: int(count) // max(1, len(group.members))
        for number, (count, group) in enumerate(zip(member_ops.tolist(), job.communicators, strict=True))
    }
    return collectives | {POINT_TO_POINT: int((ops.kind == OpKind.SEND).sum())}


def _host_totals(placement: Placement, totals: _Totals) -> tuple[HostTotal, ...]:
    ranks = np.bincount(np.array(placement.host), minlength=len(totals.host_sent))
    rows = zip(ranks.tolist(), totals.host_sent.tolist(), totals.host_received.tolist(), strict=True)
    return tuple(HostTotal(host, *row) for host, row in enumerate(rows))


def _port_totals(placement: Placement, totals: _Totals) -> tuple[PortTotal, ...]:
    port_totals = []
    for index, place in enumerate(placement.ports):
        first = index - place.plane
        tx_bytes = place.share_of(int(totals.tx_bytes[first]))
        rx_bytes = place.share_of(int(totals.rx_bytes[first]))
        port_totals.append(
            PortTotal(
                agent=place.agent,
                port=place.port.name,
                link_bps=place.port.link_bps,
                ranks=len(place.ranks),
                queue_pairs=int(totals.queue_pairs[first]),
                tx_bytes=tx_bytes,
                rx_bytes=rx_bytes,
                link_time_ns=-(-max(tx_bytes, rx_bytes) * 8 * NS_PER_S // place.port.link_bps),
            )
        )
    return tuple(port_totals)
