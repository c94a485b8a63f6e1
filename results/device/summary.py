"""Everything in a run directory that comes from the device's own counters: tables, and `dut` of summary.json. Pure.

Decides how sampling gaps and counter resets are reported together, and which of the agents' counters the device's are
compared with (`reconcile`, `class_queues`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import CounterObject, CounterUse, counters_of
from etloop.contract.model.device_counts import CountedDevice
from etloop.results.device.class_queues import ExpectedClass, PacketKind, ReceivedClasses, class_queues
from etloop.results.device.cos import device_cos_table, device_samples_table
from etloop.results.device.index import IndexedSource, device_ports, index_device
from etloop.results.device.reconcile import AgentPort, PlainDatagrams, reconcile
from etloop.results.device.tables import counters_table, dut_table
from etloop.results.schema.columns import Column, ColumnType, columns_of
from etloop.results.schema.device import Agreement, DeviceGap, DeviceSource, DeviceSummary
from etloop.results.tables.arrow_tables import arrow_schema
from etloop.results.verdict.evaluation import Frame

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from etloop.contract.model.run import PlanTables

MOST_GAPS: Final = 256
RECONCILIATION: Final = (
    *columns_of(ColumnType.TEXT, "name", "port", "source", "device_port", "direction"),
    *columns_of(
        ColumnType.INT64, "frames", "agent_frames", "device_frames", "difference_frames", nullable=True
    ),
    *columns_of(ColumnType.INT64, "bytes", "agent_bytes", "device_bytes", "difference_bytes", nullable=True),
    Column("difference_share", ColumnType.FLOAT64, "ratio", nullable=True),
    *columns_of(ColumnType.TEXT, "name", "agreement", "why"),
)
"""Columns of reconciliation.parquet."""
CLASSES: Final = (
    *columns_of(ColumnType.TEXT, "name", "port", "device_port", "source"),
    Column("dscp", ColumnType.INT32, "id"),
    Column("carries", ColumnType.TEXT, "name"),
    Column("expected_queue", ColumnType.INT32, "id"),
    Column("agent_packets", ColumnType.INT64, "packets"),
    *columns_of(ColumnType.INT64, "packets", "queue_packets", "missing_packets", nullable=True),
    Column("missing_share", ColumnType.FLOAT64, "ratio", nullable=True),
    Column("found_queue", ColumnType.INT32, "id", nullable=True),
    Column("found_packets", ColumnType.INT64, "packets", nullable=True),
)
"""Columns of classes.parquet."""


@dataclass(frozen=True, slots=True)
class RigPortFacts:
    """Properties of one port of the rig."""

    ip_version: int
    """0 if it has addresses of both versions."""
    counts_packets: bool
    """Whether its agent sees packets; False for NICs that send by themselves."""
    sees_damaged: bool = True
    """Whether the packets that its agent counts as received include those with a wrong checksum; False for kernel sockets."""
    added_bytes: int | None = 0
    """Bytes of the VLAN tag and the outer IPv6 header on each packet, both ways; None if not known for all packets."""
    is_plane: bool = False
    """Whether it is one of several ports of a card."""


@dataclass(frozen=True, slots=True)
class DeviceBasis:
    """Inputs in addition to the counts."""

    start_ns: int
    """Start of the job on the controller's clock; 0 if it did not start."""
    ports: dict[str, RigPortFacts]
    """By AGENT/PORT."""
    classes: tuple[ExpectedClass, ...]
    """Queues that the profile's maps assign to the job's packets; () if it has no maps."""
    plain: dict[str, PlainDatagrams] = field(default_factory=dict)
    """By AGENT/PORT, for ports with background of plain UDP."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceResults:
    """The device's part of the summary and its tables."""

    summary: DeviceSummary
    tables: dict[str, Any]
    """Arrow tables by name."""


def device_results(
    counted: CountedDevice, basis: DeviceBasis, plan: PlanTables, frames: Mapping[str, Frame]
) -> DeviceResults:
    """Return the summary and tables of a device; `frames` are the run's own, at least ports and flows."""
    sources = index_device(counted)
    start_ns = basis.start_ns or min(
        (
            int(indexed_source.source.row_time_ns[0])
            for indexed_source in sources
            if len(indexed_source.source.row_time_ns)
        ),
        default=0,
    )
    reported = _agent_ports(frames["ports"], basis)
    # The agents have no counts of ports that the plan leaves unused, so these are not compared.
    used = (frozenset(plan.port_names) | {port.port for port in reported}) & basis.ports.keys()
    ports = device_ports(sources, used)
    rows = reconcile(reported, ports, counted.tolerance_per_million)
    marked_kinds = {expected.kind for expected in basis.classes} - {PacketKind.DATA}
    received = _received_classes(frames, plan, marked_kinds)
    if not marked_kinds <= {PacketKind.NOTIFICATIONS}:
        # Queue pairs send over all planes of a card and count packets by kind for all planes together.
        received = tuple(port for port in received if not _port_facts(basis, port.port).is_plane)
    classes = class_queues(received, sources, basis.classes)
    tables = {
        "dut": dut_table(sources, start_ns),
        "counters": counters_table(sources),
        "switches": device_cos_table(sources),
        "queues": device_samples_table(sources, start_ns),
        "reconciliation": _rows_table(RECONCILIATION, rows),
        "classes": _rows_table(CLASSES, classes),
    }
    gaps = _gaps(sources, start_ns)
    summary = DeviceSummary(
        profile=counted.profile,
        tolerance_per_million=counted.tolerance_per_million,
        sources=tuple(_source(indexed_source) for indexed_source in sources),
        gaps=gaps[:MOST_GAPS],
        gaps_total=len(gaps),
        counters=_totals(sources),
        reconciliation=rows,
        notes=_notes(sources, rows, used),
    )
    return DeviceResults(summary, {name: table for name, table in tables.items() if table is not None})


def _rows_table(columns: tuple[Column, ...], rows: Sequence[DataclassInstance]) -> pa.Table | None:
    return pa.Table.from_pylist([asdict(row) for row in rows], schema=arrow_schema(columns)) if rows else None


def _count(frame: Frame, column: str, row: int) -> int:
    return int(frame.columns[column][row].item())


def _port_facts(basis: DeviceBasis, port: str) -> RigPortFacts:
    return basis.ports.get(port, RigPortFacts(0, counts_packets=True))


def _agent_ports(ports: Frame, basis: DeviceBasis) -> tuple[AgentPort, ...]:
    """Return the agents' counts of every named port."""
    columns = ports.columns
    counted_ports = []
    for row in range(ports.rows):
        if columns["port"][row] is None:
            continue
        name = f"{columns['agent'][row]}/{columns['port'][row]}"
        facts = _port_facts(basis, name)
        counted_ports.append(
            AgentPort(
                port=name,
                tx_datagrams=_count(ports, "tx_datagrams", row),
                tx_bytes=_count(ports, "tx_bytes", row),
                rx_datagrams=_count(ports, "rx_datagrams", row),
                rx_bytes=_count(ports, "rx_bytes", row),
                tx_padding_bytes=_count(ports, "tx_padding_bytes", row),
                rx_padding_bytes=_count(ports, "rx_padding_bytes", row),
                own_lost_datagrams=_count(ports, "receive_overflows", row),
                ip_version=facts.ip_version,
                counts_packets=facts.counts_packets,
                damaged_datagrams=0 if facts.sees_damaged else _count(ports, "rx_icrc_encapsulated", row),
                added_bytes=facts.added_bytes,
                plain=basis.plain.get(name, PlainDatagrams()),
            )
        )
    return tuple(counted_ports)


def _received_classes(
    frames: Mapping[str, Frame], plan: PlanTables, apart: AbstractSet[PacketKind]
) -> tuple[ReceivedClasses, ...]:
    """Return the packets that every port received, by kind. Kinds that are not `apart` count as data.

    If answers or grants are apart, packets that no queue pair accepted are left out, because their kind is not known.
    """
    ports, columns = frames["ports"], frames["ports"].columns
    of_kind = _packets_by_kind(frames["flows"], plan)
    received_classes = []
    for row in range(ports.rows):
        name = f"{columns['agent'][row]}/{columns['port'][row]}"
        received_packets = _count(ports, "rx_datagrams", row) + _count(ports, "receive_overflows", row)
        packets = {kind: of_kind[kind].get(name, 0) for kind in PacketKind}
        if apart <= {PacketKind.NOTIFICATIONS}:
            packets[PacketKind.DATA] = max(received_packets - packets[PacketKind.NOTIFICATIONS], 0)
        else:
            data_kinds = (kind for kind in PacketKind if kind not in apart)
            packets[PacketKind.DATA] = sum(packets[kind] for kind in data_kinds)
        received_classes.append(ReceivedClasses(name, packets))
    return tuple(received_classes)


def _packets_by_kind(flows: Frame, plan: PlanTables) -> dict[PacketKind, dict[str, int]]:
    """Return the packets that queue pairs received, by kind and AGENT/PORT."""
    columns = flows.columns
    is_sender = columns["role"] == "sender"
    local = np.where(is_sender, columns["src_rank"], columns["dst_rank"]).astype(np.int64)

    def sum_columns(*names: str) -> NDArray[np.float64]:
        total: NDArray[np.float64] = np.sum([columns[name].astype(np.float64) for name in names], axis=0)
        return total

    requests = sum_columns("rx_packets")
    counts = {
        PacketKind.DATA: np.where(is_sender, 0, requests),
        PacketKind.ANSWERS: sum_columns("acks_rx", "naks_rx"),
        # A sender of data receives no other requests than clear-to-send writes.
        PacketKind.GRANTS: np.where(is_sender, requests, 0),
        PacketKind.NOTIFICATIONS: sum_columns("rp_cnp_handled", "rp_cnp_ignored"),
    }
    packets_by_kind: dict[PacketKind, dict[str, int]] = {}
    for kind, by_flow in counts.items():
        by_port = packets_by_kind.setdefault(kind, {})
        for rank, count in zip(local.tolist(), by_flow.tolist(), strict=True):
            name = plan.port_names[rank]
            by_port[name] = by_port.get(name, 0) + int(count)
    return packets_by_kind


def _source(indexed: IndexedSource) -> DeviceSource:
    source = indexed.source
    return DeviceSource(
        name=source.name,
        reader=source.reader,
        interval_ns=source.interval_ns,
        readings=source.readings,
        series=len(source.series),
        whole=bool(len(source.series)) and bool(indexed.increases.whole.all()),
        at_rest=source.at_rest,
        is_host_side=source.is_host_side,
        error_ns=int(source.row_error_ns.max(initial=0)),
        notes=source.notes,
    )


def _gaps(sources: tuple[IndexedSource, ...], start_ns: int) -> tuple[DeviceGap, ...]:
    """Return the sampling gaps and counter resets of all sources by time, in nanoseconds since `start_ns`."""
    gaps = [gap for source in sources for gap in (*source.source.gaps, *source.increases.set_back)]
    gaps.sort(key=lambda gap: (gap.begin_ns, gap.end_ns, gap.source))
    return tuple(
        DeviceGap(gap.source, gap.begin_ns - start_ns, gap.end_ns - start_ns, gap.why) for gap in gaps
    )


def _totals(sources: tuple[IndexedSource, ...]) -> dict[str, int]:
    """Return sums such as `queue_dropped_packets`, with every object counted once, by the first source that reports it.

    A total with an unknown part is left out: not counted is not zero.
    """
    totals: dict[str, int] = {}
    for kind in CounterObject:
        for counter in counters_of(kind, CounterUse.SUMMED):
            increase_by_place: dict[tuple[object, ...], int | None] = {}
            for source in sources:
                for counted_object, name in source.numbers:
                    if (counted_object.kind, name) == (kind, counter.name):
                        increase_by_place.setdefault(
                            (*source.place(counted_object.name), counted_object.number),
                            source.increase(counted_object, name),
                        )
            known_values = [value for value in increase_by_place.values() if value is not None]
            if increase_by_place and len(known_values) == len(increase_by_place):
                totals[f"{kind}_{counter.name}"] = sum(known_values)
    return totals


def _notes(sources: tuple[IndexedSource, ...], rows: Sequence[Any], used: frozenset[str]) -> tuple[str, ...]:
    """Return notes on the sources, and on ports and counts that could not be compared."""
    notes = [f"{source.source.name}: {note}" for source in sources for note in source.source.notes]
    compared_ports = {row.port for row in rows}
    unmapped_ports = sorted(used - compared_ports)
    if unmapped_ports and rows:
        notes.append(
            f"no source of counters says which port of the device is connected to {', '.join(unmapped_ports)}"
        )
    if not rows and any(source.source.series for source in sources):
        notes.append(
            "device and agents are not compared: no `ports:` in the rig's dut.counters names the peers of the device's ports"
        )
    moving = [
        source.source.name for source in sources if source.source.readings and not source.source.at_rest
    ]
    if moving:
        notes.append(f"counters of {', '.join(moving)} still moved when the last reading was made")
    if any(row.agreement is Agreement.BEYOND for row in rows):
        notes.append("device and agents count differently by more than the tolerance of the profile")
    return tuple(notes)
