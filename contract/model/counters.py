"""Counters of devices as everybody agrees on them: which there are, what has them, and what one reading of a device is.

The one list of canonical names (`COUNTERS`), after SAI where SAI has them (opencompute/SAI:inc) and after mlx5 for what a
NIC's transport counts. Readers (controller/counters/) map the names of their source to these and leave out what has none;
what a device counts differently has a name of its own, never somebody else's. How often is read, and what increases mean,
is decided elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MOST_READINGS: Final = 200_000
"""Of one batch: 512 ports with all their queues and groups, twice."""
MOST_NAME_CHARACTERS: Final = 128
"""Of an object's name."""
MOST_NUMBER: Final = 63
"""Of a queue, a priority or a priority group."""


class CounterObject(StrEnum):
    """What has counters."""

    PORT = "port"
    PRIORITY = "priority"
    QUEUE = "queue"
    GROUP = "group"
    POOL = "pool"


class CounterNature(StrEnum):
    """How values of a counter at two moments compare."""

    CUMULATIVE = "cumulative"
    """Only goes up, until its device forgets it."""
    GAUGE = "gauge"
    """What is there at this moment."""
    WATERMARK = "watermark"
    """The most that was there since the device began to watch, which reading may begin anew."""


@dataclass(frozen=True, slots=True)
class Counter:
    """One canonical counter of one kind of object."""

    object: CounterObject
    name: str
    unit: str
    nature: CounterNature
    meaning: str


@dataclass(frozen=True, slots=True, order=True)
class CountedObject:
    """One thing that has counters, by the device's own name."""

    kind: CounterObject
    name: str
    """Of the port that it belongs to, such as "Ethernet0"; of a pool, its own."""
    number: int = -1
    """Of the priority, queue or group; -1 for ports and pools."""

    def __str__(self) -> str:
        match self.kind:
            case CounterObject.PORT:
                return self.name
            case CounterObject.POOL:
                return f"pool {self.name}"
            case _:
                return f"{self.name} {self.kind} {self.number}"


@dataclass(frozen=True, slots=True)
class CounterReading:
    """One value."""

    object: CountedObject
    counter: str
    """A name of `COUNTERS` for that kind of object."""
    value: int
    """0 to 2^width_bits - 1, in the counter's unit."""
    width_bits: int = 64
    """A cumulative counter begins anew at 2^width_bits: 32 of most of SNMP's, 64 of all else."""


@dataclass(frozen=True, slots=True)
class CounterBatch:
    """What one reading of a device gave.

    Times are of the reading side's monotonic clock; the values are of some moment between.
    """

    begun_ns: int
    ended_ns: int
    readings: tuple[CounterReading, ...]
    complaints: tuple[str, ...] = ()
    """What the device said and this batch had to leave out, a sentence each; at most a few."""

    @property
    def at_ns(self) -> int:
        """The middle of the reading: off by no more than `error_ns`."""
        return (self.begun_ns + self.ended_ns) // 2

    @property
    def error_ns(self) -> int:
        """Half of the time that the reading took, rounded up."""
        return (self.ended_ns - self.begun_ns + 1) // 2


class FailureKind(StrEnum):
    """Why a device's counters could not be read."""

    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    """Reached, and it does not let us: credentials, rights, or what was asked for does not exist."""
    LATE = "late"
    """No answer in time."""
    NONSENSE = "nonsense"
    """An answer that is none, or larger than any honest one."""
    ENDED = "ended"
    """It answered before, and the connection is gone."""


@dataclass(frozen=True, slots=True)
class CounterFailure:
    """A reading that did not come about: a value, because a run goes on without it."""

    kind: FailureKind
    what: str
    """One sentence for people, without secrets."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


_P, _R, _Q, _G, _L = CounterObject
_C, _A, _W = CounterNature

COUNTERS: Final = (
    # Frames of a port. `_bytes` include the check sequence, as SAI, IF-MIB and OpenConfig count; Linux leaves it out.
    Counter(_P, "rx_packets", "packets", _C, "received, of every kind"),
    Counter(_P, "tx_packets", "packets", _C, "sent, of every kind"),
    Counter(_P, "rx_bytes", "bytes", _C, "received, frames from destination address to check sequence"),
    Counter(_P, "tx_bytes", "bytes", _C, "sent, the same"),
    Counter(_P, "rx_bytes_without_fcs", "bytes", _C, "received, frames without their check sequence"),
    Counter(_P, "tx_bytes_without_fcs", "bytes", _C, "sent, the same"),
    Counter(_P, "rx_unicast_packets", "packets", _C, "received for one address"),
    Counter(_P, "rx_multicast_packets", "packets", _C, "received for groups"),
    Counter(_P, "rx_broadcast_packets", "packets", _C, "received for all"),
    Counter(_P, "tx_unicast_packets", "packets", _C, "sent to one address"),
    Counter(_P, "tx_multicast_packets", "packets", _C, "sent to groups"),
    Counter(_P, "tx_broadcast_packets", "packets", _C, "sent to all"),
    Counter(_P, "rx_dropped_packets", "packets", _C, "received whole and dropped"),
    Counter(_P, "tx_dropped_packets", "packets", _C, "dropped instead of sent"),
    Counter(_P, "rx_error_packets", "packets", _C, "received damaged"),
    Counter(_P, "tx_error_packets", "packets", _C, "not sent because of an error"),
    Counter(_P, "rx_pause_frames", "frames", _C, "pauses received, of IEEE 802.3x and of all priorities together"),
    Counter(_P, "tx_pause_frames", "frames", _C, "pauses sent, the same"),
    Counter(_P, "ecn_marked_packets", "packets", _C, "sent with a Congestion Experienced that this port set"),
    Counter(_P, "trimmed_packets", "packets", _C, "cut down instead of dropped"),
    Counter(_P, "link_dropped_packets", "packets", _C, "dropped because the link is down"),
    Counter(_P, "fault_dropped_packets", "packets", _C, "dropped on purpose by a rule"),
    Counter(_P, "fault_corrupted_packets", "packets", _C, "received and damaged on purpose by a rule"),
    Counter(_P, "no_route_packets", "packets", _C, "dropped because no way is known"),
    Counter(_P, "overload_frames", "frames", _C, "lost by the soft switch because its host could not keep up"),
    Counter(_P, "late_frames", "frames", _C, "handed over late by the soft switch"),
    # A NIC's transport, as mlx5 names it (Linux: hw_counters) and the agents' queue pairs count it, too.
    Counter(_P, "roce_rx_packets", "packets", _C, "RDMA packets received"),
    Counter(_P, "roce_tx_packets", "packets", _C, "RDMA packets sent"),
    Counter(_P, "roce_rx_bytes", "bytes", _C, "of RDMA packets received"),
    Counter(_P, "roce_tx_bytes", "bytes", _C, "of RDMA packets sent"),
    Counter(_P, "out_of_sequence", "packets", _C, "received ahead of a missing one"),
    Counter(_P, "duplicate_request", "packets", _C, "requests received again"),
    Counter(_P, "packet_seq_err", "packets", _C, "NAKs for a missing packet received"),
    Counter(_P, "implied_nak_seq_err", "events", _C, "responses that showed that one before is missing"),
    Counter(_P, "local_ack_timeout_err", "events", _C, "retransmission timeouts"),
    Counter(_P, "rnr_nak_retry_err", "packets", _C, "receiver-not-ready NAKs received"),
    Counter(_P, "out_of_buffer", "messages", _C, "came when no receive was posted"),
    Counter(_P, "roce_adp_retrans", "events", _C, "adaptive retransmissions"),
    Counter(_P, "roce_adp_retrans_to", "events", _C, "adaptive retransmissions after a timeout"),
    Counter(_P, "np_ecn_marked_roce_packets", "packets", _C, "received with Congestion Experienced"),
    Counter(_P, "np_cnp_sent", "packets", _C, "congestion notifications sent"),
    Counter(_P, "rp_cnp_handled", "packets", _C, "congestion notifications received and obeyed"),
    Counter(_P, "rp_cnp_ignored", "packets", _C, "congestion notifications received and not obeyed"),
    Counter(_P, "rx_icrc_encapsulated", "packets", _C, "received with a wrong ICRC"),
    Counter(_P, "rx_write_requests", "requests", _C, "RDMA writes received"),
    Counter(_P, "rx_read_requests", "requests", _C, "RDMA reads received"),
    Counter(_P, "rx_atomic_requests", "requests", _C, "RDMA atomics received"),
    # One PFC priority of a port.
    Counter(_R, "pfc_rx", "frames", _C, "pauses received for it (SAI_PORT_STAT_PFC_n_RX_PKTS)"),
    Counter(_R, "pfc_tx", "frames", _C, "pauses sent for it (SAI_PORT_STAT_PFC_n_TX_PKTS)"),
    Counter(_R, "pfc_rx_paused_ns", "ns", _C, "during which received pauses stopped it"),
    Counter(_R, "pfc_tx_paused_ns", "ns", _C, "during which it asked the other end to stop"),
    Counter(_R, "rx_packets", "packets", _C, "received"),
    Counter(_R, "tx_packets", "packets", _C, "sent"),
    Counter(_R, "rx_bytes", "bytes", _C, "received, with check sequence"),
    Counter(_R, "tx_bytes", "bytes", _C, "sent, with check sequence"),
    Counter(_R, "rx_dropped_packets", "packets", _C, "received and dropped"),
    Counter(_R, "ecn_marked_packets", "packets", _C, "received and marked by the NIC itself because its buffer filled"),
    # One egress queue of a port: SAI_QUEUE_STAT_*, contract/model/switch_counters.py.
    Counter(_Q, "packets", "packets", _C, "sent"),
    Counter(_Q, "bytes", "bytes", _C, "sent, with check sequence"),
    Counter(_Q, "dropped_packets", "packets", _C, "dropped for want of buffer"),
    Counter(_Q, "dropped_bytes", "bytes", _C, "dropped for want of buffer"),
    Counter(_Q, "ecn_marked_packets", "packets", _C, "marked with Congestion Experienced"),
    Counter(_Q, "ecn_marked_bytes", "bytes", _C, "marked with Congestion Experienced"),
    Counter(_Q, "trimmed_packets", "packets", _C, "cut down instead of dropped"),
    Counter(_Q, "current_bytes", "bytes", _A, "waiting"),
    Counter(_Q, "watermark_bytes", "bytes", _W, "most that waited"),
    Counter(_Q, "paused_ns", "ns", _C, "during which a pause held it"),
    Counter(_Q, "watchdog_storms", "count", _C, "pause storms that the watchdog found"),
    Counter(_Q, "watchdog_dropped_packets", "packets", _C, "dropped by the watchdog"),
    # One ingress priority group of a port: SAI_INGRESS_PRIORITY_GROUP_STAT_*.
    Counter(_G, "packets", "packets", _C, "received into it"),
    Counter(_G, "bytes", "bytes", _C, "received into it, with check sequence"),
    Counter(_G, "dropped_packets", "packets", _C, "dropped for want of buffer or headroom"),
    Counter(_G, "dropped_bytes", "bytes", _C, "dropped for want of buffer or headroom"),
    Counter(_G, "current_bytes", "bytes", _A, "accounted to it"),
    Counter(_G, "shared_watermark_bytes", "bytes", _W, "most that it used of the shared buffer"),
    Counter(_G, "headroom_bytes", "bytes", _A, "in its headroom"),
    Counter(_G, "headroom_watermark_bytes", "bytes", _W, "most that was in its headroom"),
    # The shared buffer: SAI_BUFFER_POOL_STAT_*.
    Counter(_L, "current_bytes", "bytes", _A, "in use"),
    Counter(_L, "watermark_bytes", "bytes", _W, "most that was in use"),
    Counter(_L, "dropped_packets", "packets", _C, "dropped for want of it"),
)  # fmt: skip
BY_OBJECT_AND_NAME: Final = {(counter.object, counter.name): counter for counter in COUNTERS}


def counter_of(reading: CounterReading) -> Counter | None:
    """What a reading is a value of; None if there is no such counter of such an object, which no reader may give."""
    return BY_OBJECT_AND_NAME.get((reading.object.kind, reading.counter))


def reading_mistake(reading: CounterReading) -> str:
    """Why a reading cannot be one; "" if it can. Readers' callers drop and tell what has a mistake."""
    one = reading.object
    numbered = one.kind in (CounterObject.PRIORITY, CounterObject.QUEUE, CounterObject.GROUP)
    if counter_of(reading) is None:
        return f'"{reading.counter[:64]}" is no counter of a {one.kind}'
    if not 0 < len(one.name) <= MOST_NAME_CHARACTERS or not one.name.isprintable():
        return "an object's name is empty, too long or not printable"
    if numbered != (one.number >= 0) or one.number > MOST_NUMBER:
        return f"{one.name}: {one.kind} {one.number} cannot be"
    if reading.width_bits not in (32, 64) or not 0 <= reading.value < 1 << reading.width_bits:
        return f"{one}: {reading.counter} is {reading.value}, not a value of {reading.width_bits} bits"
    return ""
