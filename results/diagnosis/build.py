"""Builds the evidence from the tables of a run: the device's counters, their samples over time, the ports of the agents and the
queue pairs.

Decides which table is the source of a column: `counters` for totals, `queues` (twin) or `dut` (all others) for samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import MOST_NUMBER, AgentObject, CounterNature, CounterObject, counters_of
from etloop.contract.model.switch_counters import SAMPLED
from etloop.results.diagnosis.evidence import Evidence, Flows, Hosts, Lanes, LaneSamples, Ports
from etloop.results.diagnosis.ways import WayRows, choices_of, streams_of, ways_of
from etloop.results.schema.summary import VIRTUAL_TIME

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.contract.model.topology import Topology
    from etloop.results.kpis.input import KpiInput
    from etloop.results.schema.kpis import KpiBasis, KpiSet

    Floats = NDArray[np.float64]
    Rows = NDArray[np.int64]

_PREFIX: Final = {CounterObject.QUEUE: "queue_", CounterObject.GROUP: "group_", CounterObject.PRIORITY: ""}
_LANE_KINDS: Final = {kind.value: prefix for kind, prefix in _PREFIX.items()}
_CUMULATIVE: Final = CounterNature.CUMULATIVE.value
_NAMES_OF_MODEL: Final = frozenset({"twin", "soft_switch"})
"""Sources whose port names already have the name of the switch."""


def evidence_of(inputs: KpiInput, basis: KpiBasis, kpis: KpiSet, topology: Topology | None) -> Evidence:
    """Return the evidence of a run from its tables, the rig's rates in `basis` and its key figures."""
    names = _Names(inputs)
    counts = _read_counts(inputs, names)
    ports = _ports(counts, topology, basis)
    row_of_port = {name: row for row, name in enumerate(ports.names)}
    lanes = _lanes(counts, row_of_port)
    hosts = _hosts(inputs, ports, basis)
    ways = ways_of(basis.ways, row_of_port)
    return Evidence(
        run=inputs,
        ports=ports,
        lanes=lanes,
        samples=_samples(inputs, names, row_of_port, lanes),
        hosts=hosts,
        flows=_flows(inputs, hosts, ways),
        streams=streams_of(inputs, hosts.names, ways),
        choices=choices_of(basis.ways, row_of_port, topology),
        needs=basis.needs,
        topology=topology,
        duration_ns=inputs.summary.job.jct_ns or 0,
        figures={kpi.name: kpi.value for kpi in kpis.figures if kpi.value is not None},
        is_virtual=inputs.summary.started_at == VIRTUAL_TIME,
    )


class _Names:
    """Names of device ports across sources: "SWITCH/PORT"."""

    def __init__(self, inputs: KpiInput) -> None:
        sources = inputs.summary.dut.sources if inputs.summary.dut is not None else ()
        self._plain = _NAMES_OF_MODEL | {
            source.name for source in sources if source.reader in _NAMES_OF_MODEL
        }
        self.host_side = {source.name for source in sources if source.is_host_side}

    def of(self, source: str, port: str) -> str:
        """Return the name of a port of a source."""
        return port if source in self._plain else f"{source}/{port}"

    def of_rows(self, sources: NDArray[np.generic], ports: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return the name of each port of its source."""
        if self._plain.issuperset(sources.tolist()):
            return ports
        return np.array(
            [self.of(*pair) for pair in zip(sources.tolist(), ports.tolist(), strict=True)], object
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Counts:
    """Rows of counters.parquet of device ports, without those read at the rig's own interfaces."""

    port: NDArray[np.generic]
    """Name of the port."""
    kind: NDArray[np.generic]
    number: Rows
    peer: NDArray[np.generic]
    """None: not known."""
    counter: NDArray[np.generic]
    value: Floats
    """Increase over the run, or the greatest value of a gauge or watermark; NaN if not known."""

    def of_kind(self, kind: str) -> _Counts:
        """Return the rows of a kind of object."""
        rows = self.kind == kind
        columns = (self.port, self.kind, self.number, self.peer, self.counter, self.value)
        return _Counts(*(column[rows] for column in columns))

    def by_counter(self, place: Rows, count: int) -> dict[str, Floats]:
        """Return a column of `count` rows for each counter: the value of the first row at each place, NaN without one."""
        counters = self.counter.tolist()
        number = {counter: index for index, counter in enumerate(dict.fromkeys(counters))}
        number_of_row = np.array([number[counter] for counter in counters], np.int64)
        by_number = np.argsort(number_of_row, kind="stable")
        ends = np.searchsorted(number_of_row[by_number], np.arange(len(number)), "right").tolist()
        columns: dict[str, Floats] = {}
        for counter, begin, end in zip(number, [0, *ends], ends, strict=False):
            rows = by_number[begin:end][::-1]
            columns[counter] = np.full(count, np.nan)
            columns[counter][place[rows]] = self.value[rows]
        return columns


def _read_counts(inputs: KpiInput, names: _Names) -> _Counts:
    frame = inputs.frames.get("counters")
    if frame is None:
        nothing = np.empty(0, object)
        return _Counts(nothing, nothing, np.empty(0, np.int64), nothing, nothing, np.empty(0))
    columns = frame.columns
    rows = np.flatnonzero([source not in names.host_side for source in columns["source"].tolist()])
    is_total = columns["nature"][rows] == _CUMULATIVE
    return _Counts(
        port=names.of_rows(columns["source"][rows], columns["port"][rows]),
        kind=columns["kind"][rows],
        number=columns["number"][rows].astype(np.int64),
        peer=columns["peer"][rows],
        counter=columns["counter"][rows],
        value=np.where(is_total, columns["increase"][rows], columns["most"][rows]).astype(np.float64),
    )


def _ports(counts: _Counts, topology: Topology | None, basis: KpiBasis) -> Ports:
    peers: dict[str, str] = {}
    rates: dict[str, float] = {}
    if topology is not None:
        peers |= dict(topology.cables())
        peers |= {
            topology.port_name(attachment.end): attachment.rig_port for attachment in topology.attachments
        }
        rates = {
            f"{switch.name}/{port.name}": float(port.rate_bps)
            for switch in topology.switches
            for port in switch.ports
        }
    of_ports = counts.of_kind(CounterObject.PORT.value)
    counted = of_ports.port.tolist()
    for name, peer in zip(counted, of_ports.peer.tolist(), strict=True):
        if peer:
            peers.setdefault(name, peer)
    ordered = tuple(dict.fromkeys([*rates, *counted]))
    number = {name: row for row, name in enumerate(ordered)}
    host_number = {name: row for row, name in enumerate(basis.port_bps)}
    peer_names = tuple(peers.get(name, "") for name in ordered)
    place = np.array([number[name] for name in counted], np.int64)
    return Ports(
        names=ordered,
        switch=tuple(name.rpartition("/")[0] for name in ordered),
        peers=peer_names,
        peer_row=np.array([number.get(peer, -1) for peer in peer_names], np.int64),
        host=np.array([host_number.get(peer, -1) for peer in peer_names], np.int64),
        described_bps=np.array([rates.get(name, np.nan) for name in ordered]),
        counters=of_ports.by_counter(place, len(ordered)),
    )


def _lanes(counts: _Counts, row_of_port: Mapping[str, int]) -> Lanes:
    """Return a lane for each number of each port of which any queue, group or priority is counted."""
    width = MOST_NUMBER + 1
    of_kinds = {prefix: counts.of_kind(kind) for kind, prefix in _LANE_KINDS.items()}
    keys_of = {}
    for prefix, rows in of_kinds.items():
        port = np.array([row_of_port.get(name, -1) for name in rows.port.tolist()], np.int64)
        keys_of[prefix] = np.where(port >= 0, port * width + rows.number, -1)
    keys = np.unique(np.concatenate([*keys_of.values(), np.array([-1])]))[1:]
    columns: dict[str, Floats] = {}
    for prefix, rows in of_kinds.items():
        # The last row of each column is for ports that are not known.
        place = np.where(keys_of[prefix] < 0, len(keys), np.searchsorted(keys, keys_of[prefix]))
        values = rows.by_counter(place, len(keys) + 1)
        columns |= {prefix + name: column[:-1] for name, column in values.items()}
    port, number = np.divmod(keys, width)
    return Lanes(port=port, number=number, counters=columns)


def _samples(inputs: KpiInput, names: _Names, row_of_port: Mapping[str, int], lanes: Lanes) -> LaneSamples:
    lane_of = np.full((len(row_of_port) or 1, MOST_NUMBER + 1), -1, np.int64)
    lane_of[lanes.port, lanes.number] = np.arange(len(lanes.port))
    queues, readings = inputs.frames.get("queues"), inputs.frames.get("dut")
    if queues is not None:
        text = _join_names(queues.columns["switch"], queues.columns["port"])
        port = np.array([row_of_port.get(name, -1) for name in text.tolist()], np.int64)
        lane = np.where(port >= 0, lane_of[port, queues.columns["cos"].astype(np.int64)], -1)
        values = {name: queues.columns[name].astype(np.float64) for name in SAMPLED}
        return _sorted_samples(lane, queues.columns["time_ns"].astype(np.int64), values)
    if readings is None:
        return LaneSamples(np.empty(0, np.int64), np.empty(0, np.int64), {})
    fields = {(kind.value, counter): name for name, (kind, counter) in SAMPLED.items()}
    cells: dict[tuple[int, int], dict[str, float]] = {}
    columns = (
        readings.columns[name].tolist()
        for name in ("source", "kind", "port", "number", "counter", "time_ns", "value", "phase")
    )
    for source, kind, port_name, number, counter, time_ns, value, _ in zip(*columns, strict=True):
        name = fields.get((kind, counter))
        row = row_of_port.get(names.of(source, port_name), -1)
        if name is None or row < 0 or source in names.host_side:
            continue
        cells.setdefault((int(lane_of[row, int(number)]), int(time_ns)), {})[name] = float(value)
    keys = sorted(cells)
    present = dict.fromkeys(name for key in keys for name in cells[key])
    filled = {name: np.array([cells[key].get(name, np.nan) for key in keys]) for name in present}
    lane, time_ns = (np.array(part, np.int64) for part in (zip(*keys, strict=True) if keys else ((), ())))
    return LaneSamples(lane, time_ns, {name: _hold(column, lane) for name, column in filled.items()})


def _hold(column: Floats, lane: Rows) -> Floats:
    """Return a column of readings with every gap filled by the value before it of the same lane: a run of equal values is
    stored by its ends."""
    rows = np.arange(len(column))
    known = np.where(np.isnan(column), -1, rows)
    starts = np.flatnonzero(np.r_[True, lane[1:] != lane[:-1]]) if len(lane) else np.empty(0, np.int64)
    start_of = np.repeat(starts, np.diff(np.r_[starts, len(lane)]))
    last = np.maximum.accumulate(known) if len(known) else known
    return np.where(last >= start_of, column[np.maximum(last, 0)], np.nan)


def _join_names(switch: NDArray[np.generic], port: NDArray[np.generic]) -> NDArray[np.object_]:
    return np.array(
        [f"{name}/{number}" for name, number in zip(switch.tolist(), port.tolist(), strict=True)], object
    )


def _sorted_samples(lane: Rows, time_ns: Rows, values: Mapping[str, Floats]) -> LaneSamples:
    chosen = np.flatnonzero(lane >= 0)
    order = chosen[np.lexsort((time_ns[chosen], lane[chosen]))]
    return LaneSamples(lane[order], time_ns[order], {name: column[order] for name, column in values.items()})


def _hosts(inputs: KpiInput, ports: Ports, basis: KpiBasis) -> Hosts:
    frame = inputs.frames["ports"]
    names = tuple(basis.port_bps)
    row_of = {name: row for row, name in enumerate(names)}
    labels = [
        port if port and "/" in port else f"{agent}/{port}"
        for agent, port in zip(frame.columns["agent"].tolist(), frame.columns["port"].tolist(), strict=True)
    ]
    rows = np.array([row_of.get(label, -1) for label in labels], np.int64)
    device_port = {peer: row for row, peer in enumerate(ports.peers) if peer in row_of}
    return Hosts(
        names=names,
        agent=tuple(name.partition("/")[0] for name in names),
        link_bps=np.array([float(rate) or np.nan for rate in basis.port_bps.values()]),
        port=np.array([device_port.get(name, -1) for name in names], np.int64),
        counters={
            counter.name: _place(frame.columns[counter.name].astype(np.float64), rows, len(names))
            for counter in counters_of(AgentObject.PORT)
            if counter.name in frame.columns
        },
    )


def _place(values: Floats, rows: Rows, count: int) -> Floats:
    """Return values at their rows, summed where several share one; NaN in rows without any."""
    chosen = rows >= 0
    sums = np.bincount(rows[chosen], values[chosen], count)
    return np.where(np.bincount(rows[chosen], minlength=count) > 0, sums, np.nan)


class _FlowCounters(Mapping[str, "Floats"]):
    """Counters of one end of all connections, summed over queue pairs.

    A column is computed at each use: a run of a million connections has 30 of them, and the rules read few.
    """

    def __init__(self, frame: Mapping[str, NDArray[np.generic]], rows: Rows, place: Rows, count: int) -> None:
        self._frame, self._rows, self._place, self._count = frame, rows, place, count
        self._names = [
            counter.name for counter in counters_of(AgentObject.QUEUE_PAIR) if counter.name in frame
        ]

    def __getitem__(self, name: str) -> Floats:
        if name not in self._names:
            raise KeyError(name)
        return _place(self._frame[name][self._rows].astype(np.float64), self._place, self._count)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _flows(inputs: KpiInput, hosts: Hosts, ways: WayRows) -> Flows:
    """Return the direction in which each connection carries data."""
    frame = inputs.frames["flows"].columns
    connection = frame["connection"].astype(np.int64)
    is_sender = np.asarray(frame["role"] == "sender", bool)
    sends, receives = np.flatnonzero(is_sender), np.flatnonzero(~is_sender)
    rows, first, place = np.unique(connection[sends], return_index=True, return_inverse=True)
    at_receiver = np.searchsorted(rows, connection[receives])
    is_known = np.r_[rows, -1][at_receiver] == connection[receives]
    at_receiver = np.where(is_known, at_receiver, -1)
    ranks = [frame[name][sends][first].astype(np.int64) for name in ("src_rank", "dst_rank")]
    host_of = {name: row for row, name in enumerate(hosts.names)}
    port_of_rank = np.array([host_of.get(name, -1) for name in inputs.plan.port_names], np.int64)
    planned = np.bincount(place, frame["planned_connection_bytes"][sends].astype(np.float64), len(rows))
    way_first, way_port = ways.of_connections(rows, inputs.plan.connections.qp_offsets)
    return Flows(
        src_rank=ranks[0],
        dst_rank=ranks[1],
        src_host=port_of_rank[ranks[0]],
        dst_host=port_of_rank[ranks[1]],
        sent=_FlowCounters(frame, sends, place, len(rows)),
        received=_FlowCounters(frame, receives, at_receiver, len(rows)),
        payload_bytes=planned.astype(np.float64),
        way_first=way_first,
        way_port=way_port,
    )
