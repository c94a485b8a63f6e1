"""The evidence that the figures of a run give about its network, as columns that the rules read.

Decides how known objects are listed: every port and lane of the topology, or of the device's counters, has a row, and a
counter that its source has but that never moved is 0. A counter that the source does not have is NaN: missing evidence is
never zero. Rows of samples are sorted by lane, then by time. `build` fills these values from the tables of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.contract.model.topology import Topology
    from etloop.results.kpis.input import KpiInput
    from etloop.results.schema.network_needs import Needs

    Floats = NDArray[np.float64]
    Rows = NDArray[np.int64]


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


@dataclass(frozen=True, slots=True, eq=False)
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
    way_port: Rows
    """Rows in `Ports`. A flow that is spread over several links lists all of them."""

    @property
    def has_ways(self) -> bool:
        """Return whether the path of every flow is known."""
        return len(self.way_port) > 0

    def missing_packets(self) -> Floats:
        """Return data packets sent and not received, by flow."""
        sent = _column(self.sent, "tx_packets", len(self.src_rank))
        return sent - _column(self.received, "rx_packets", len(self.src_rank))


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
    way_port: Rows
    way_choice: Rows
    """By row of `way_port`: row in `Evidence.choices`; -1: there is no other port."""
    way_share: Floats
    """By row of `way_port`: share of the stream's bytes that crosses the port."""

    @property
    def way_stream(self) -> Rows:
        """Return the stream of each row of `way_port`."""
        return np.repeat(np.arange(len(self.ports)), np.diff(self.way_first))


_NO_ROWS: Final = np.empty(0, np.int64)
_NO_VALUES: Final = np.empty(0)
NO_STREAMS: Final = Streams(
    *(_NO_ROWS,) * 7, *(_NO_VALUES,) * 3, np.zeros(1, np.int64), _NO_ROWS, _NO_ROWS, _NO_VALUES
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
