"""The evidence that the figures of a run give about its network, as columns that the rules read.

Decides how known objects are listed: every port and lane of the topology, or of the device's counters, has a row, and a
counter that its source has but that never moved is 0. A counter that the source does not have is NaN: missing evidence is
never zero. Rows of samples are sorted by lane, then by time. `build` fills these values from the tables of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.contract.model.topology import Topology
    from etloop.results.kpis.input import KpiInput
    from etloop.results.schema.network_needs import Needs

    Floats = NDArray[np.float64]
    Rows = NDArray[np.int64]
    Numbers = NDArray[np.integer[Any]]

_Integer = TypeVar("_Integer", bound=np.integer[Any])


@dataclass(frozen=True, slots=True, eq=False)
class Ports:
    """Ports of the device, one row each."""

    names: tuple[str, ...]
    """Such as "leaf0/3"."""
    switch: tuple[str, ...]
    """Name of the switch of each port."""
    peers: tuple[str, ...]
    """The other end of the cable: a port of the device, or of the rig ("agent/port"); "" if not known."""
    peer_row: Rows
    """Row of the peer in this table; -1: it is a port of the rig, or not known."""
    host: Rows
    """Row of the peer in `Hosts`; -1: it is a port of the device, or not known."""
    described_bps: Floats
    """Rate by the topology or the profile of the device; NaN if none states it."""
    counters: Mapping[str, Floats]
    """Increase over the run by counter of a port (contract.model.counters), such as "tx_bytes"."""

    def counter(self, name: str) -> Floats:
        """Return the column of a counter; all NaN if the source does not have it."""
        return _column(self.counters, name, len(self.names))


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """Queue, priority group and PFC priority of the same number of a port, one row each."""

    port: Rows
    """Row in `Ports`."""
    number: Rows
    counters: Mapping[str, Floats]
    """By column of switches.parquet: "queue_packets", "group_dropped_packets", "pfc_rx" and so on; watermarks are the
    greatest values of the run."""

    def counter(self, name: str) -> Floats:
        """Return the column of a counter; all NaN if the source does not have it."""
        return _column(self.counters, name, len(self.port))


@dataclass(frozen=True, slots=True, eq=False)
class LaneSamples:
    """Readings of lanes over time, sorted by (lane, time)."""

    lane: Rows
    """Row in `Lanes`."""
    time_ns: Rows
    """Since the start of the job."""
    values: Mapping[str, Floats]
    """By column of queues.parquet: "queued_bytes", "tx_bytes", "marked_packets", "paused_ns" and so on. Packets, bytes
    and times of pause are totals since the begin; NaN where a reading lacks the value."""

    def value(self, name: str) -> Floats:
        """Return the column of a value; all NaN if the source does not have it."""
        return _column(self.values, name, len(self.lane))


@dataclass(frozen=True, slots=True, eq=False)
class Hosts:
    """Ports of the rig, one row each."""

    names: tuple[str, ...]
    """ "agent/port"."""
    agent: tuple[str, ...]
    link_bps: Floats
    """Rate that the rig states; NaN if not known."""
    port: Rows
    """Row in `Ports` of the device's port on its cable; -1: not known."""
    counters: Mapping[str, Floats]
    """By counter of an agent's port, such as "rx_pause_frames"."""

    def counter(self, name: str) -> Floats:
        """Return the column of a counter; all NaN if it was not counted."""
        return _column(self.counters, name, len(self.names))


class RowIndex:
    """Rows of a table by the value of a column, which is -1 or more."""

    def __init__(self, values: Numbers, rows: Rows) -> None:
        self._rows = rows[np.argsort(values, kind="stable")].astype(np.int32)
        self._first = np.r_[0, np.cumsum(np.bincount(values + 1, minlength=1))]

    def rows_of(self, values: Rows) -> Rows:
        """Return the rows that have one of `values`, ascending and without repetition (int64)."""
        present = values[values + 2 < len(self._first)]
        first = self._first[present + 1]
        rows = expand(first, self._first[present + 2] - first)
        return distinct(self._rows[rows]).astype(np.int64)


def distinct(values: NDArray[_Integer]) -> NDArray[_Integer]:
    """Return values ascending and without repetition: by sorting, many times as fast as `numpy.unique` for a million."""
    ordered = np.sort(values)
    return ordered[np.r_[True, ordered[1:] != ordered[:-1]]] if len(ordered) else ordered


def expand(first: Rows, counts: Rows) -> Rows:
    """Return the rows first[i], first[i] + 1, ... of `counts[i]` rows, for one i after the other (int64)."""
    before = np.cumsum(counts) - counts
    rows: Rows = np.repeat(first - before, counts) + np.arange(int(counts.sum()))
    return rows


@dataclass(frozen=True, eq=False)
class Flows:
    """Directions of connections through the device, one row each."""

    src_rank: Rows
    dst_rank: Rows
    src_host: Rows
    """Row in `Hosts`."""
    dst_host: Rows
    sent: Mapping[str, Floats]
    """Counters of the sending end, by name of a queue pair's counter, summed over queue pairs."""
    received: Mapping[str, Floats]
    """Counters of the receiving end; NaN if it did not report."""
    payload_bytes: Floats
    """Planned payload of the whole run."""
    way_first: Rows
    """Flow i crosses the egress ports `way_port[way_first[i]:way_first[i + 1]]`; all equal if ways are not known."""
    way_port: Numbers
    """Rows in `Ports`. A flow that is spread over several links lists all of them."""

    @property
    def has_ways(self) -> bool:
        """Return whether the path of every flow is known."""
        return len(self.way_port) > 0

    def missing_packets(self) -> Floats:
        """Return data packets sent and not received, by flow."""
        sent = _column(self.sent, "tx_packets", len(self.src_rank))
        return sent - _column(self.received, "rx_packets", len(self.src_rank))

    @cached_property
    def of_port(self) -> RowIndex:
        """Return the flows by the egress ports that they cross; none if ways are not known."""
        return RowIndex(self.way_port, np.repeat(np.arange(len(self.src_rank)), np.diff(self.way_first)))

    @cached_property
    def of_src_host(self) -> RowIndex:
        """Return the flows by the host that sends them."""
        return RowIndex(self.src_host, np.arange(len(self.src_host)))

    @cached_property
    def of_dst_host(self) -> RowIndex:
        """Return the flows by the host that receives them."""
        return RowIndex(self.dst_host, np.arange(len(self.dst_host)))

    def ports_of(self, flows: Rows) -> Numbers:
        """Return the egress ports that some flows cross, ascending and without repetition (int64)."""
        first = self.way_first[flows]
        return distinct(self.way_port[expand(first, self.way_first[flows + 1] - first)])


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Ports among which a switch chooses for a packet."""

    switch: str
    ports: Rows
    """Rows in `Ports`."""
    weights: Floats
    """Share of the load that each port should have; they sum to 1."""
    is_hashed: bool
    """Whether headers select the port: all packets of a stream use the same one."""


@dataclass(frozen=True, slots=True, eq=False)
class Streams:
    """Packets with equal addresses and UDP source port, which a hash sends one way: one row for each, or one for all source
    ports of a pair of addresses between which a transport sprays."""

    src_host: Rows
    """Row in `Hosts`; -1: not known."""
    dst_host: Rows
    src_address: Rows
    """Number of the address among those of the run."""
    dst_address: Rows
    source_port: Rows
    queue_pair: Rows
    """Queue pair number at the receiver; -1: several."""
    ports: Rows
    """Number of source ports over which the bytes are spread."""
    payload_bytes: Floats
    """Sent in the run."""
    sent_packets: Floats
    lost_packets: Floats
    """Data packets sent and not received; NaN if an end did not report."""
    way_first: Rows
    """As `Flows.way_first`."""
    way_port: Numbers
    way_choice: Numbers
    """By row of `way_port`: row in `Evidence.choices`; -1: there is no other port."""
    way_share: NDArray[np.floating[Any]]
    """By row of `way_port`: share of the stream's bytes that crosses the port."""

    @property
    def way_stream(self) -> Rows:
        """Return the stream of each row of `way_port`."""
        return np.repeat(np.arange(len(self.ports)), np.diff(self.way_first))


_NO_ROWS: Final = np.empty(0, np.int64)
_NO_NUMBERS: Final = np.empty(0, np.int32)
_NO_VALUES: Final = np.empty(0)
NO_STREAMS: Final = Streams(
    *(_NO_ROWS,) * 7, *(_NO_VALUES,) * 3, np.zeros(1, np.int64), _NO_NUMBERS, _NO_NUMBERS, _NO_VALUES
)


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """All that the rules may read. Rules do not change it."""

    run: KpiInput
    """The tables and figures of the run."""
    ports: Ports
    lanes: Lanes
    samples: LaneSamples
    hosts: Hosts
    flows: Flows
    needs: Needs
    topology: Topology | None
    """The configuration of the device as the topology describes it; None without one."""
    duration_ns: int
    """From the start of the job to its end; 0 if nothing completed."""
    streams: Streams = field(default_factory=lambda: NO_STREAMS)
    choices: tuple[Choice, ...] = ()
    """All choices of the device; () if the ways of streams are not known."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Key figures of the run that exist (kpis.json), such as "slip_share"."""
    is_virtual: bool = False
    """Whether the run is in virtual time, so that the emulator cannot be late."""

    def lanes_of_port(self, port: int) -> Rows:
        """Return the rows of the lanes of a port, by number (int64)."""
        return np.flatnonzero(self.lanes.port == port)

    def samples_of_lane(self, lane: int) -> slice:
        """Return the rows of the samples of a lane."""
        first, end = np.searchsorted(self.samples.lane, [lane, lane + 1])
        return slice(int(first), int(end))


def _column(columns: Mapping[str, Floats], name: str, rows: int) -> Floats:
    column = columns.get(name)
    return np.full(rows, np.nan) if column is None else column
