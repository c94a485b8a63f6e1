"""Reads the ways of queue pairs through the device, and groups their packets into the streams that a hash keeps together.

Decides what a stream is: a UDP source port between two addresses. All queue pairs of a transport that sprays share the source
ports of a pair of addresses, so they are one row.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.diagnosis.evidence import Choice, Streams, expand
from etloop.results.schema.network_needs import unpack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from etloop.contract.model.topology import Topology
    from etloop.results.kpis.input import KpiInput
    from etloop.results.schema.network_needs import FlowWays

    Floats = NDArray[np.float64]
    Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class WayRows:
    """Ways of the plan's queue pairs: queue pair i crosses rows first[i] to first[i + 1] of the other columns."""

    values: Rows
    """By queue pair: number of UDP source ports; 0: its way is not known."""
    first: Rows
    port: NDArray[np.int32]
    """Row in `Ports`; -1: not among them."""
    choice: NDArray[np.int32]
    share: NDArray[np.float32]

    def of_connections(
        self, connections: Rows, qp_offsets: NDArray[np.int32]
    ) -> tuple[Rows, NDArray[np.int32]]:
        """Return the ports of connections, without repetition: the first row of each, and the ports."""
        if not len(self.values):
            return np.zeros(len(connections) + 1, np.int64), np.empty(0, np.int32)
        begin = self.first[qp_offsets[connections]]
        counts = self.first[qp_offsets[connections + 1]] - begin
        owner = np.repeat(np.arange(len(connections)), counts)
        rows = expand(begin, counts)
        if (np.diff(qp_offsets) <= 1).all() and (self.values <= 1).all():  # no way crosses a port twice
            return np.r_[0, np.cumsum(counts)], self.port[rows]
        ports = max(int(self.port.max(initial=0)) + 1, 1)
        keys, at = np.unique(owner * ports + self.port[rows], return_index=True)
        order = np.argsort(at)  # in the order of the way
        owner, port = keys[order] // ports, keys[order] % ports
        return np.searchsorted(owner, np.arange(len(connections) + 1)), port.astype(np.int32)


def ways_of(ways: FlowWays | None, row_of_port: Mapping[str, int]) -> WayRows:
    """Return the ways that a run stored; no rows if there are none, or if their columns are damaged."""
    none, share = np.empty(0, np.int64), np.empty(0, np.float32)
    unknown = WayRows(none, np.zeros(1, np.int64), none.astype(np.int32), none.astype(np.int32), share)
    if ways is None:
        return unknown
    try:
        values, lengths, port, choice, per_million = (
            unpack(text) for text in (ways.values, ways.lengths, ways.port, ways.choice, ways.share)
        )
        row = np.array([row_of_port[name] for name in ways.ports], np.int64)
        first = np.r_[0, np.cumsum(lengths)]
        return WayRows(
            values,
            first,
            row.astype(np.int32)[port],
            (choice - 1).astype(np.int32),
            (per_million / 1e6).astype(np.float32),
        )
    except (ValueError, KeyError, IndexError, zlib.error):
        return unknown


def choices_of(
    ways: FlowWays | None, row_of_port: Mapping[str, int], topology: Topology | None
) -> tuple[Choice, ...]:
    """Return the sets of ports among which switches choose."""
    if ways is None or topology is None:
        return ()
    weight = {
        f"{switch.name}/{port.name}": float(port.weight)
        for switch in topology.switches
        for port in switch.ports
    }
    choices = []
    for members, is_hashed in zip(ways.choices, ways.is_hashed, strict=True):
        names = [ways.ports[member] for member in members]
        weights = np.array([weight.get(name, 1.0) for name in names])
        rows = np.array([row_of_port.get(name, -1) for name in names], np.int64)
        choices.append(Choice(names[0].rpartition("/")[0], rows, weights / weights.sum(), is_hashed))
    return tuple(choices)


def streams_of(inputs: KpiInput, hosts: tuple[str, ...], ways: WayRows) -> Streams:
    """Return the streams of all queue pairs that sent data."""
    frame = inputs.frames["flows"].columns
    sends = np.flatnonzero(np.asarray(frame["role"] == "sender", bool))
    number_of: dict[str, int] = {}
    src, dst = (
        np.array([number_of.setdefault(ip, len(number_of)) for ip in frame[name][sends].tolist()], np.int64)
        for name in ("src_ip", "dst_ip")
    )
    port = frame["udp_source_port"][sends].astype(np.int64)
    queue_pair = _planned_row(inputs, frame["connection"][sends], frame["local_qpn"][sends])
    values = np.ones(len(sends), np.int64)
    if len(ways.values):
        values = ways.values[queue_pair]
    shared = values > 1
    key = (src * (int(dst.max(initial=0)) + 1) + dst) * (1 << 17) + np.where(shared, 1 << 16, port)
    _, first, stream = np.unique(key, return_index=True, return_inverse=True)
    stream = stream.reshape(-1)
    count = np.bincount(stream, minlength=len(first))
    host_of = {name: row for row, name in enumerate(hosts)}
    host = np.array([host_of.get(name, -1) for name in inputs.plan.port_names], np.int64)
    sent = frame["tx_packets"][sends].astype(np.float64)
    lost = sent - _received_packets(inputs, sends)
    begin = ways.first[queue_pair[first]] if len(ways.values) else np.zeros(len(first), np.int64)
    lengths = ways.first[queue_pair[first] + 1] - begin if len(ways.values) else begin
    way_first = np.r_[0, np.cumsum(lengths)]
    rows = expand(begin, lengths)
    return Streams(
        src_host=host[frame["src_rank"][sends][first].astype(np.int64)],
        dst_host=host[frame["dst_rank"][sends][first].astype(np.int64)],
        src_address=src[first],
        dst_address=dst[first],
        source_port=port[first],
        queue_pair=np.where(count == 1, frame["remote_qpn"][sends][first].astype(np.int64), -1),
        ports=np.maximum(values[first], 1),
        payload_bytes=np.bincount(
            stream, frame["tx_payload_bytes"][sends].astype(np.float64), len(first)
        ).astype(np.float64),
        sent_packets=np.bincount(stream, sent, len(first)).astype(np.float64),
        lost_packets=np.bincount(stream, lost, len(first)).astype(np.float64),
        way_first=way_first,
        way_port=ways.port[rows],
        way_choice=ways.choice[rows],
        way_share=ways.share[rows],
    )


def _received_packets(inputs: KpiInput, sends: Rows) -> Floats:
    """Return the data packets that the receiver of each sending queue pair counted; NaN if it did not report."""
    frame = inputs.frames["flows"].columns
    receives = np.flatnonzero(np.asarray(frame["role"] == "receiver", bool))
    width = 1 << 32
    numbers = frame["connection"].astype(np.int64) * width
    keys = numbers[receives] + frame["remote_qpn"][receives].astype(np.int64)
    order = np.argsort(keys)
    asked = numbers[sends] + frame["local_qpn"][sends].astype(np.int64)
    if not len(keys):
        return np.full(len(sends), np.nan)
    place = order[np.minimum(np.searchsorted(keys[order], asked), len(keys) - 1)]
    packets = frame["rx_packets"][receives][place].astype(np.float64)
    return np.where(keys[place] == asked, packets, np.nan)


def _planned_row(inputs: KpiInput, connection: NDArray[np.generic], number: NDArray[np.generic]) -> Rows:
    """Return the row of each queue pair in the columns of the plan, by its connection and its number at the sender."""
    planned = inputs.plan.connections
    owner = np.repeat(np.arange(len(planned.qp_offsets) - 1), np.diff(planned.qp_offsets))
    width = int(planned.src_qpn.max(initial=0)) + 1
    keys = owner * width + planned.src_qpn.astype(np.int64)
    order = np.argsort(keys)
    asked = connection.astype(np.int64) * width + number.astype(np.int64)
    place = np.searchsorted(keys[order], asked)
    rows: Rows = order[np.minimum(place, len(order) - 1)]
    return rows
