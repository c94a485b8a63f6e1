"""All that a run directory gets of the device's own counters: tables, and `dut` of summary.json. Pure.

Decides how gaps of sampling and counters that were set back are told together, and what of the agents' counters the device's
are held against (`reconcile`, `class_queues`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import CounterObject, CounterUse, counters_of
from etloop.contract.model.device_counts import CountedDevice
from etloop.results.device.class_queues import ExpectedClass, PacketKind, ReceivedClasses, class_queues
from etloop.results.device.cos import device_cos_table, device_samples_table
from etloop.results.device.index import IndexedSource, device_ports, indexed
from etloop.results.device.reconcile import AgentPort, PlainDatagrams, reconcile
from etloop.results.device.tables import counters_table, dut_table
from etloop.results.schema.columns import Column, ColumnType, columns_of
from etloop.results.schema.device import Agreement, DeviceGap, DeviceSource, DeviceSummary
from etloop.results.tables.arrow_tables import arrow_schema
from etloop.results.verdict.evaluation import Frame
from numpy.typing import NDArray

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
"""reconciliation.parquet."""
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
"""classes.parquet."""


@dataclass(frozen=True, slots=True)
class RigPortFacts:
    """What the rig says of one of its ports."""

    ip_version: int
    """0: it has addresses of both."""
    counts_packets: bool
    """Whether its agent sees packets; False of network cards that send by themselves."""
    sees_damaged: bool = True
    """Whether packets with a wrong check are among those that its agent counts as received; not those of kernel sockets."""
    added_bytes: int | None = 0
    """Of the VLAN tag and the outer IPv6 header on all packets it sends and gets; None: not known of all."""
    is_plane: bool = False
    """Whether it is one of several ports of a card."""


@dataclass(frozen=True, slots=True)
class DeviceBasis:
    """What is needed beside the counts."""

    start_ns: int
    """Begin of the job on the controller's clock; 0: it did not begin."""
    ports: dict[str, RigPortFacts]
    """By AGENT/PORT."""
    classes: tuple[ExpectedClass, ...]
    """Where the profile's maps put the job's packets; () where it has none."""
    plain: dict[str, PlainDatagrams] = field(default_factory=dict)
    """By AGENT/PORT; of those with background of plain UDP."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceResults:
    """What is stored."""

    summary: DeviceSummary
    tables: dict[str, Any]
    """By name."""


def device_results(
    counted: CountedDevice, basis: DeviceBasis, plan: PlanTables, frames: Mapping[str, Frame]
) -> DeviceResults:
    """Everything of a device; `frames` are the run's own, at least ports and flows."""
    sources = indexed(counted)
    start_ns = basis.start_ns or min(
        (int(one.source.row_time_ns[0]) for one in sources if len(one.source.row_time_ns)), default=0
    )
    reported = _agent_ports(frames["ports"], basis)
    # Of a port that the plan leaves unused, nobody counts anything that could be held against the device's.
    used = (frozenset(plan.port_names) | {one.port for one in reported}) & basis.ports.keys()
    ports = device_ports(sources, used)
    rows = reconcile(reported, ports, counted.tolerance_per_million)
    apart = {one.kind for one in basis.classes} - {PacketKind.DATA}
    received = _received(frames, plan, apart)
    if not apart <= {PacketKind.NOTIFICATIONS}:
        # Queue pairs send over all planes of a card, and count packets of a kind for all together.
        received = tuple(one for one in received if not _facts(basis, one.port).is_plane)
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
        sources=tuple(_source(one) for one in sources),
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


def _facts(basis: DeviceBasis, port: str) -> RigPortFacts:
    return basis.ports.get(port, RigPortFacts(0, counts_packets=True))


def _agent_ports(ports: Frame, basis: DeviceBasis) -> tuple[AgentPort, ...]:
    columns = ports.columns
    found = []
    for row in range(ports.rows):
        if columns["port"][row] is None:
            continue
        name = f"{columns['agent'][row]}/{columns['port'][row]}"
        facts = _facts(basis, name)
        found.append(
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
    return tuple(found)


def _received(
    frames: Mapping[str, Frame], plan: PlanTables, apart: AbstractSet[PacketKind]
) -> tuple[ReceivedClasses, ...]:
    """What came to every port of each kind of packet. Those that are not `apart` are data.

    Where answers or grants are apart, packets that no queue pair took are left out: what they were is not known.
    """
    ports, columns = frames["ports"], frames["ports"].columns
    of_kind = _of_kinds(frames["flows"], plan)
    found = []
    for row in range(ports.rows):
        name = f"{columns['agent'][row]}/{columns['port'][row]}"
        came = _count(ports, "rx_datagrams", row) + _count(ports, "receive_overflows", row)
        packets = {kind: of_kind[kind].get(name, 0) for kind in PacketKind}
        if apart <= {PacketKind.NOTIFICATIONS}:
            packets[PacketKind.DATA] = max(came - packets[PacketKind.NOTIFICATIONS], 0)
        else:
            own = (kind for kind in PacketKind if kind not in apart)
            packets[PacketKind.DATA] = sum(packets[kind] for kind in own)
        found.append(ReceivedClasses(name, packets))
    return tuple(found)


def _of_kinds(flows: Frame, plan: PlanTables) -> dict[PacketKind, dict[str, int]]:
    """Packets that queue pairs received, by kind and port."""
    columns = flows.columns
    is_sender = columns["role"] == "sender"
    local = np.where(is_sender, columns["src_rank"], columns["dst_rank"]).astype(np.int64)

    def counted(*names: str) -> NDArray[np.float64]:
        total: NDArray[np.float64] = np.sum([columns[name].astype(np.float64) for name in names], axis=0)
        return total

    requests = counted("rx_packets")
    counts = {
        PacketKind.DATA: np.where(is_sender, 0, requests),
        PacketKind.ANSWERS: counted("acks_rx", "naks_rx"),
        # To a sender of data nothing else is written.
        PacketKind.GRANTS: np.where(is_sender, requests, 0),
        PacketKind.NOTIFICATIONS: counted("rp_cnp_handled", "rp_cnp_ignored"),
    }
    found: dict[PacketKind, dict[str, int]] = {}
    for kind, by_flow in counts.items():
        by_port = found.setdefault(kind, {})
        for rank, count in zip(local.tolist(), by_flow.tolist(), strict=True):
            name = plan.port_names[rank]
            by_port[name] = by_port.get(name, 0) + int(count)
    return found


def _source(one: IndexedSource) -> DeviceSource:
    source = one.source
    return DeviceSource(
        name=source.name,
        reader=source.reader,
        interval_ns=source.interval_ns,
        readings=source.readings,
        series=len(source.series),
        whole=bool(len(source.series)) and bool(one.increases.whole.all()),
        at_rest=source.at_rest,
        is_host_side=source.is_host_side,
        error_ns=int(source.row_error_ns.max(initial=0)),
        notes=source.notes,
    )


def _gaps(sources: tuple[IndexedSource, ...], start_ns: int) -> tuple[DeviceGap, ...]:
    gaps = [gap for one in sources for gap in (*one.source.gaps, *one.increases.set_back)]
    gaps.sort(key=lambda gap: (gap.begin_ns, gap.end_ns, gap.source))
    return tuple(
        DeviceGap(gap.source, gap.begin_ns - start_ns, gap.end_ns - start_ns, gap.why) for gap in gaps
    )


def _totals(sources: tuple[IndexedSource, ...]) -> dict[str, int]:
    """Return `queue_dropped_packets` and so on: of every object once, by the first source that reports it.

    A total of which a part is not known is left out: not counted is not zero.
    """
    found: dict[str, int] = {}
    for kind in CounterObject:
        for counter in counters_of(kind, CounterUse.SUMMED):
            seen: dict[tuple[object, ...], int | None] = {}
            for one in sources:
                for at, name in one.numbers:
                    if (at.kind, name) == (kind, counter.name):
                        seen.setdefault((*one.place(at.name), at.number), one.increase(at, name))
            known = [value for value in seen.values() if value is not None]
            if seen and len(known) == len(seen):
                found[f"{kind}_{counter.name}"] = sum(known)
    return found


def _notes(sources: tuple[IndexedSource, ...], rows: Sequence[Any], used: frozenset[str]) -> tuple[str, ...]:
    notes = [f"{one.source.name}: {note}" for one in sources for note in one.source.notes]
    led = {row.port for row in rows}
    lost = sorted(used - led)
    if lost and rows:
        notes.append(f"no source of counters says which port of the device leads to {', '.join(lost)}")
    if not rows and any(one.source.series for one in sources):
        notes.append(
            "nothing is held against the agents' counts: no `ports:` in the rig's dut.counters says which port leads where"
        )
    moving = [one.source.name for one in sources if one.source.readings and not one.source.at_rest]
    if moving:
        notes.append(f"counters of {', '.join(moving)} still moved when the last reading was made")
    if any(row.agreement is Agreement.BEYOND for row in rows):
        notes.append("device and agents count differently by more than the tolerance of the profile")
    return tuple(notes)
