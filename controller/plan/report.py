"""The figures of a plan: where ranks are, what each kind of collective moves, how loaded every port is.

Pure; one frozen value that `plan_text` prints and `etloop plan --json` writes. All bytes are payload of one iteration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import NS_PER_S
from etloop.contract.model.assignment import Path
from etloop.contract.model.run import PlannedChoice, PlanTables
from etloop.results.schema.kinds import CONVENTIONS, SEND_RECV
from etloop.traffic.collectives.algorithms.alltoall import UNEVEN
from etloop.workload.trace.findings import Check
from etloop.workload.trace.program import OpKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from etloop.controller.plan.plan import Plan
from etloop.controller.plan.places.order_warning import order_warnings

PLAN_REPORT_SCHEMA: Final = "etloop-plan-report/1"


@dataclass(frozen=True, slots=True)
class RankPlace:
    """The place of one rank."""

    rank: int
    host: int
    agent: str
    port: str
    address: str
    nic: int | None
    """Index of its NIC in the host, which is its rail; None without rails."""


@dataclass(frozen=True, slots=True)
class CommunicatorUse:
    """One communicator and the traffic within it."""

    name: str
    members: tuple[int, ...]
    operations: int
    payload_bytes: int
    """Payload between its members in one iteration."""
    fabric_bytes: int
    """The part of `payload_bytes` that crosses the device under test."""


@dataclass(frozen=True, slots=True)
class KindTraffic:
    """All operations of one kind, algorithm and group size. `message_bytes` is the sum of the contributions of all ranks."""

    kind: str
    algorithm: str
    ranks: int
    operations: int
    message_bytes: int
    wire_bytes: int
    local_bytes: int


@dataclass(frozen=True, slots=True)
class UnevenExchange:
    """All uneven all-to-alls of one communicator together: the busiest sender and receiver next to the total."""

    communicator: str
    ranks: int
    operations: int
    payload_bytes: int
    """Between different ranks; the part that a rank keeps for itself is not included."""
    busiest_sender: int
    sender_bytes: int
    busiest_receiver: int
    receiver_bytes: int


@dataclass(frozen=True, slots=True)
class PortLoad:
    """The load of one port in one iteration, and the least time its link needs for it."""

    agent: str
    port: str
    link_bps: int
    ranks: tuple[int, ...]
    queue_pairs: int
    """Queue pair ends on this port; for a plane, all ends of its card, as each sends over every plane."""
    tx_bytes: int
    rx_bytes: int
    hairpin_bytes: int
    """Payload between hosts of this port, which the engine carries and the link does not."""
    link_time_ns: int
    """Time of the busier direction at the link rate, rounded up, without headers and acknowledgements."""


@dataclass(frozen=True, slots=True)
class PlanReport:
    """A plan in figures."""

    schema: str
    source: str
    iterations: int
    bytes_scale: str
    time_scale: str
    policy: str
    edges: dict[str, int]
    """Number of the trace's dependencies by how the plan treats them (contract/model/edges.py)."""
    shaping: str
    """Library whose traffic is modelled, such as "nccl 2.30.7"."""
    choices: tuple[PlannedChoice, ...]
    """The algorithm, protocol and channels of every collective, with the reason."""
    operations: int
    """Network ops of all ranks in one iteration."""
    connections: dict[str, int]
    """Number of connections by path: wire, scale_up, hairpin."""
    payload_bytes: int
    """S: all payload between ranks."""
    fabric_bytes: int
    """S_fabric: the part of S that crosses the device under test."""
    same_rail_bytes: int | None
    """The part of S_fabric between NICs of the same number; None without rails."""
    ideal_ns: int
    """Lower bound of an iteration: the largest `link_time_ns`, without dependencies and compute."""
    ranks: tuple[RankPlace, ...]
    communicators: tuple[CommunicatorUse, ...]
    kinds: tuple[KindTraffic, ...]
    uneven: tuple[UnevenExchange, ...]
    ports: tuple[PortLoad, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    """Notes that a reader must know first."""

    def __repr__(self) -> str:
        """Return the source, and the bytes that cross the device."""
        return f"<PlanReport of {self.source!r}: {len(self.ranks)} ranks, {self.fabric_bytes} bytes through the device>"


def report_plan(plan: Plan) -> PlanReport:
    """Return the figures of a plan."""
    tables, placement = plan.tables, plan.placement
    wire = tables.connections.path == Path.WIRE
    payload = tables.connections.payload_bytes
    ports = _ports(plan)
    return PlanReport(
        schema=PLAN_REPORT_SCHEMA,
        source=tables.source,
        iterations=tables.iterations,
        bytes_scale=tables.bytes_scale,
        time_scale=tables.time_scale,
        policy=tables.policy,
        edges=dict(tables.edges),
        shaping=tables.shaping,
        choices=tables.choices,
        operations=len(tables.ops.rank),
        connections={path.name.lower(): int((tables.connections.path == path).sum()) for path in Path},
        payload_bytes=int(payload.sum()),
        fabric_bytes=int(payload[wire].sum()),
        same_rail_bytes=_same_rail_bytes(plan),
        ideal_ns=max(port.link_time_ns for port in ports),
        ranks=tuple(
            RankPlace(
                rank,
                host,
                tables.rank_agent[rank],
                tables.rank_port[rank],
                placement.address_of(rank),
                placement.nic[rank] if placement.nic else None,
            )
            for rank, host in enumerate(placement.host)
        ),
        communicators=_communicators(tables),
        kinds=_kinds(tables),
        uneven=_uneven(tables),
        ports=ports,
        notes=tables.notes,
        warnings=(
            *stand_in_notes(tables.notes),
            *order_warnings(plan.parts.jobs, (plan.parts.demand.pairs,)),
        ),
    )


def stand_in_notes(notes: Iterable[str]) -> tuple[str, ...]:
    """Return those notes of a job or plan that report ranks which were not recorded."""
    return tuple(note for note in notes if note.startswith(f"{Check.RANKS_REPLICATED}: "))


def _same_rail_bytes(plan: Plan) -> int | None:
    if not plan.placement.nic:
        return None
    connections, nic = plan.tables.connections, np.array(plan.placement.nic)
    same_rail = (connections.path == Path.WIRE) & (nic[connections.src_rank] == nic[connections.dst_rank])
    return int(connections.payload_bytes[same_rail].sum())


def _communicators(tables: PlanTables) -> tuple[CommunicatorUse, ...]:
    count = len(tables.communicators)
    communicator_of_ops = tables.ops.communicator[tables.ops.communicator >= 0]
    member_ops = np.bincount(communicator_of_ops, minlength=count).tolist()
    connections = tables.connections
    in_communicator = connections.communicator >= 0
    payload, fabric = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(payload, connections.communicator[in_communicator], connections.payload_bytes[in_communicator])
    crosses = in_communicator & (connections.path == Path.WIRE)
    np.add.at(fabric, connections.communicator[crosses], connections.payload_bytes[crosses])
    return tuple(
        CommunicatorUse(name, members, ops // len(members), int(payload[number]), int(fabric[number]))
        for number, ((name, members), ops) in enumerate(zip(tables.communicators, member_ops, strict=True))
    )


def _kinds(tables: PlanTables) -> tuple[KindTraffic, ...]:
    ops = tables.ops
    sizes = np.array([*(len(members) for _, members in tables.communicators), 2], np.int64)
    # A send/receive pair counts as one operation of 2 ranks; only the send has message bytes.
    kind = np.where(ops.kind == OpKind.COLLECTIVE, ops.collective, SEND_RECV).astype(np.int64)
    size = np.where(ops.kind == OpKind.COLLECTIVE, sizes[ops.communicator], 2)
    keys = np.stack([kind, ops.algorithm.astype(np.int64), size], axis=1)
    unique, inverse = np.unique(keys, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    message = np.where(ops.kind == OpKind.RECV, 0, ops.message_bytes)

    def total(column: NDArray[np.int64]) -> list[int]:
        sums = np.zeros(len(unique), np.int64)
        np.add.at(sums, inverse, column)
        return [int(value) for value in sums]

    rows = zip(
        unique.tolist(),
        total(np.ones(len(inverse), np.int64)),
        total(message),
        total(ops.wire_tx_bytes),
        total(ops.local_tx_bytes),
        strict=True,
    )
    return tuple(
        KindTraffic(
            kind=CONVENTIONS[number].name,
            algorithm=tables.algorithms[algorithm],
            ranks=members,
            operations=count // members,
            message_bytes=contributed_bytes,
            wire_bytes=wire,
            local_bytes=local,
        )
        for (number, algorithm, members), count, contributed_bytes, wire, local in rows
    )


def _uneven(tables: PlanTables) -> tuple[UnevenExchange, ...]:
    ops = tables.ops
    if UNEVEN not in tables.algorithms:
        return ()
    rows = np.flatnonzero(ops.algorithm == tables.algorithms.index(UNEVEN))
    exchanges = []
    for communicator in np.unique(ops.communicator[rows]).tolist():
        group_rows = rows[ops.communicator[rows] == communicator]
        name, members = tables.communicators[communicator]
        sent_bytes, received_bytes = (
            np.zeros(len(tables.rank_host), np.int64),
            np.zeros(len(tables.rank_host), np.int64),
        )
        np.add.at(
            sent_bytes, ops.rank[group_rows], ops.wire_tx_bytes[group_rows] + ops.local_tx_bytes[group_rows]
        )
        np.add.at(
            received_bytes,
            ops.rank[group_rows],
            ops.wire_rx_bytes[group_rows] + ops.local_rx_bytes[group_rows],
        )
        sender, receiver = int(sent_bytes.argmax()), int(received_bytes.argmax())
        exchanges.append(
            UnevenExchange(
                communicator=name,
                ranks=len(members),
                operations=len(group_rows) // len(members),
                payload_bytes=int(sent_bytes.sum()),
                busiest_sender=sender,
                sender_bytes=int(sent_bytes[sender]),
                busiest_receiver=receiver,
                receiver_bytes=int(received_bytes[receiver]),
            )
        )
    return tuple(exchanges)


def _ports(plan: Plan) -> tuple[PortLoad, ...]:
    connections, placement = plan.tables.connections, plan.placement
    port = np.array(placement.port)
    src, dst = port[connections.src_rank], port[connections.dst_rank]
    wire, hairpin = connections.path == Path.WIRE, connections.path == Path.HAIRPIN
    queue_pairs = np.diff(connections.qp_offsets)
    loads = []
    for index, place in enumerate(placement.ports):
        first = index - place.plane
        tx_bytes = place.share_of(int(connections.payload_bytes[wire & (src == first)].sum()))
        rx_bytes = place.share_of(int(connections.payload_bytes[wire & (dst == first)].sum()))
        loads.append(
            PortLoad(
                agent=place.agent,
                port=place.port.name,
                link_bps=place.port.link_bps,
                ranks=place.ranks,
                queue_pairs=int(queue_pairs[src == first].sum() + queue_pairs[dst == first].sum()),
                tx_bytes=tx_bytes,
                rx_bytes=rx_bytes,
                hairpin_bytes=int(connections.payload_bytes[hairpin & (src == index)].sum()),
                link_time_ns=-(-max(tx_bytes, rx_bytes) * 8 * NS_PER_S // place.port.link_bps),
            )
        )
    return tuple(loads)
