"""Counters by their common names: the table of all, the objects that have them, and the form of one reading of a device.

`COUNTERS` is the one table, of the engine's queue pairs and ports and of devices. From it follow the layout of the
engine's records (records.py, switch_counters.py and the native header), the columns of Parquet, `transport` and
`dut.counters` of summary.json with their schema, the lines of totals and the rows of docs/metrics.md. Names are SAI's where
SAI has them (opencompute/SAI:inc) and mlx5's for counters of a NIC's transport. Readers (counters/readers/) map the names of
their source to these and leave out counters without one. A counter with a different meaning gets a name of its own. Other
modules decide how often a device is read, and interpret increases.
"""

from __future__ import annotations

from enum import Flag, StrEnum, auto
from functools import lru_cache
from typing import Final, NamedTuple

from etloop.contract.base.late_dataclass import dataclass

MOST_READINGS: Final = 200_000
"""Most readings of one batch: 512 ports with all their queues and groups, twice."""
MOST_NAME_CHARACTERS: Final = 128
"""Longest name of an object."""
MOST_NUMBER: Final = 63
"""Largest number of a queue, a priority or a priority group."""


class AgentObject(StrEnum):
    """Objects of an agent that have counters."""

    QUEUE_PAIR = "queue_pair"
    """One end of a queue pair."""
    PORT = "agent_port"


class CounterObject(StrEnum):
    """Objects of a device that have counters."""

    PORT = "port"
    PRIORITY = "priority"
    QUEUE = "queue"
    GROUP = "group"
    POOL = "pool"


Owner = AgentObject | CounterObject


class CounterNature(StrEnum):
    """Meaning of the difference between two values of a counter."""

    CUMULATIVE = "cumulative"
    """Only increases, until its device clears it."""
    GAUGE = "gauge"
    """The present value."""
    WATERMARK = "watermark"
    """Largest value since the last reset of the watermark; a reading may reset it."""


class CounterUse(Flag):
    """Places where a counter is reported, in addition to the tables with all counters of its object."""

    SUMMED = auto()
    """The sum over a run is in summary.json: `transport` for agents, `dut.counters` for devices."""
    MODELLED = auto()
    """The model of a switch counts it, and so do the twin's and the lab's switches."""
    DISCARD = auto()
    """A reason for which an end discarded an arriving packet, without acting on it."""


NO_USE: Final = CounterUse(0)


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter of one kind of object, or of several that count the same."""

    owners: tuple[Owner, ...]
    name: str
    unit: str
    nature: CounterNature
    meaning: str
    uses: CounterUse = NO_USE
    words: str = ""
    """Words for it in a line of totals; "" if no line lists it."""


class CountedObject(NamedTuple):
    """One object with counters, by the device's own name. A tuple: thousands are made and looked up in every batch."""

    kind: CounterObject
    name: str
    """Name of the port that it belongs to, such as "Ethernet0"; a pool has its own name."""
    number: int = -1
    """Number of the priority, queue or group; -1 for ports and pools."""

    def __str__(self) -> str:
        match self.kind:
            case CounterObject.PORT:
                return self.name
            case CounterObject.POOL:
                return f"pool {self.name}"
            case _:
                return f"{self.name} {self.kind} {self.number}"


class CounterReading(NamedTuple):
    """One value of a counter. A tuple, as `CountedObject`."""

    object: CountedObject
    counter: str
    """A name of `COUNTERS` for that kind of object."""
    value: int
    """0 to 2^width_bits - 1, in the counter's unit."""
    width_bits: int = 64
    """A cumulative counter wraps at 2^width_bits: 32 for most SNMP counters, 64 for all others."""


@dataclass(frozen=True, slots=True)
class CounterBatch:
    """Result of one reading of a device.

    Times are of the reader's monotonic clock; the values were taken at some moment between them.
    """

    begun_ns: int
    ended_ns: int
    readings: tuple[CounterReading, ...]
    complaints: tuple[str, ...] = ()
    """Values that the device reported and this batch had to leave out, a sentence each; at most a few."""

    @property
    def at_ns(self) -> int:
        """Return the middle of the reading; its error is at most `error_ns`."""
        return (self.begun_ns + self.ended_ns) // 2

    @property
    def error_ns(self) -> int:
        """Return half of the duration of the reading, rounded up."""
        return (self.ended_ns - self.begun_ns + 1) // 2


class FailureKind(StrEnum):
    """Why a device's counters could not be read."""

    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    """The device was reached and refused: credentials, rights, or the requested object does not exist."""
    LATE = "late"
    """No answer in time."""
    NONSENSE = "nonsense"
    """An answer that cannot be parsed, or is larger than a valid one can be."""
    ENDED = "ended"
    """The source answered before, and the connection is lost."""


@dataclass(frozen=True, slots=True)
class CounterFailure:
    """A failed reading: a value and not an exception, because a run continues without it."""

    kind: FailureKind
    text: str
    """One sentence that describes the failure, without secrets."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


_QP, _AP = ((owner,) for owner in AgentObject)
_P, _R, _Q, _G, _L = ((owner,) for owner in CounterObject)
_TRANSPORT = _QP + _P
_C, _A, _W = CounterNature
_SUM, _SIM = CounterUse.SUMMED, CounterUse.MODELLED
_BOTH = _SUM | _SIM
_DISCARD = _SUM | CounterUse.DISCARD

COUNTERS: Final = (
    # One end of a queue pair. The order is that of the columns of flows.parquet.
    Counter(_QP, "tx_messages", "messages", _C, "messages sent; by a receiver of data its clear-to-send writes"),
    Counter(_QP, "rx_messages", "messages", _C, "messages received; by a sender of data the clear-to-send writes"),
    Counter(_QP, "tx_payload_bytes", "bytes", _C, "payload sent, retransmissions not counted"),
    Counter(_QP, "rx_payload_bytes", "bytes", _C, "payload received in order, once"),
    Counter(_QP, "tx_packets", "packets", _C, "data packets sent, retransmissions included", _SUM),
    Counter(_QP, "retransmitted_packets", "packets", _C, "data packets sent again", _SUM),
    Counter(_QP, "rx_packets", "packets", _C, "data packets received"),
    Counter(_QP, "acks_tx", "packets", _C, "acknowledgements sent"),
    Counter(_QP, "acks_rx", "packets", _C, "acknowledgements received"),
    Counter(_QP, "naks_tx", "packets", _C, "negative acknowledgements sent", _SUM),
    Counter(_QP, "naks_rx", "packets", _C, "negative acknowledgements received", _SUM),
    # Transport as mlx5 names and counts it (Linux: hw_counters of a port): of one queue pair, and of a NIC's port.
    Counter(_TRANSPORT, "out_of_sequence", "packets", _C, "requests received ahead of a missing one", _SUM),
    Counter(_TRANSPORT, "duplicate_request", "packets", _C, "requests received again", _SUM),
    Counter(_TRANSPORT, "packet_seq_err", "packets", _C, "NAKs of a sequence error that caused a retransmission", _SUM),
    Counter(_TRANSPORT, "implied_nak_seq_err", "events", _C,
            "READ or atomic responses skipped, and requested again", _SUM),
    Counter(_TRANSPORT, "rnr_nak_retry_err", "packets", _C, "receiver-not-ready NAKs that delayed the sender", _SUM),
    Counter(_TRANSPORT, "out_of_buffer", "messages", _C, "messages that arrived when no receive was posted", _SUM),
    Counter(_TRANSPORT, "local_ack_timeout_err", "events", _C, "retransmission timeouts", _SUM),
    Counter(_TRANSPORT, "roce_adp_retrans", "events", _C,
            "retransmission timeouts below the queue pair's own: the adaptive one", _SUM),
    Counter(_TRANSPORT, "roce_adp_retrans_to", "events", _C,
            "retransmission timeouts at the queue pair's own, adaptive or not", _SUM),
    Counter(_TRANSPORT, "np_ecn_marked_roce_packets", "packets", _C,
            "requests received with Congestion Experienced", _SUM),
    Counter(_TRANSPORT, "np_cnp_sent", "packets", _C, "congestion notifications sent", _SUM),
    Counter(_TRANSPORT, "rp_cnp_handled", "packets", _C, "congestion notifications received that changed a rate", _SUM),
    Counter(_TRANSPORT, "rp_cnp_ignored", "packets", _C,
            "congestion notifications received where no rate is controlled", _SUM),
    Counter(_TRANSPORT, "rx_write_requests", "requests", _C, "RDMA writes carried out for the peer, once each"),
    Counter(_TRANSPORT, "rx_read_requests", "requests", _C, "RDMA reads carried out for the peer, once each"),
    Counter(_TRANSPORT, "rx_atomic_requests", "requests", _C, "RDMA atomics carried out for the peer, once each"),
    Counter(_QP, "read_response_bytes", "bytes", _C, "payload received by this end's READs"),
    Counter(_QP, "tail_probes", "events", _C, "silent ends that selective repeat probed", _SUM),
    Counter(_QP, "trimmed_received", "packets", _C, "packets that arrived cut down by a switch", _SUM),
    Counter(_QP, "trimmed_answered", "packets", _C, "answers to packets that arrived cut down", _SUM),
    Counter(_QP, "trimmed_resent", "packets", _C,
            "packets sent again because the other end reported them trimmed (selective repeat)", _SUM),
    Counter(_QP, "out_of_window", "packets", _C,
            "requests discarded because their number is beyond the window (MRC, UET)", _DISCARD,
            "beyond the window"),
    Counter(_QP, "stale_answers", "packets", _C,
            "answers discarded because no packet or message that they name is under way", _DISCARD,
            "answers to nothing under way"),
    Counter(_QP, "refused_requests", "packets", _C,
            "requests discarded and answered with an error: wrong key, job, context, operation or length", _DISCARD, "refused"),
    Counter(_QP, "came_after_failure", "packets", _C,
            "packets discarded because their queue pair had failed", _DISCARD, "after a queue pair had failed"),
    Counter(_QP, "injected_faults", "packets", _C, "packets on which the scenario's fault rules acted at this end"),
    # A port of an agent. The order is that of the columns of ports.parquet.
    Counter(_AP, "tx_datagrams", "datagrams", _C, "RoCEv2 packets sent as UDP datagrams"),
    Counter(_AP, "rx_datagrams", "datagrams", _C, "RoCEv2 packets received as UDP datagrams"),
    Counter(_AP, "tx_bytes", "bytes", _C, "UDP payload sent: transport headers and ICRC included"),
    Counter(_AP, "rx_bytes", "bytes", _C, "UDP payload received: transport headers and ICRC included"),
    Counter(_AP, "tx_padding_bytes", "bytes", _C,
            "padding of frames sent with less than 60 bytes, on ports that write frames (UET over IPv4)"),
    Counter(_AP, "rx_padding_bytes", "bytes", _C, "the same of frames received"),
    Counter(_AP, "tx_calls", "calls", _C, "system calls that sent, for datagrams per call"),
    Counter(_AP, "rx_calls", "calls", _C, "system calls that received"),
    Counter(_AP, "would_block", "calls", _C, "system calls that found the socket's buffer full", _SUM),
    Counter(_AP, "injected_drops", "datagrams", _C, "datagrams dropped on receipt, on purpose", _SUM),
    Counter(_AP, "foreign_datagrams", "datagrams", _C,
            "datagrams discarded because they are not packets of this run: the sum of the `foreign_` counters that follow", _SUM),
    Counter(_AP, "foreign_bad_frame", "datagrams", _C,
            "frames whose IP or UDP lengths are wrong, or fragments", _DISCARD, "in a wrong or cut frame"),
    Counter(_AP, "foreign_wrong_address", "datagrams", _C,
            "for an address, VLAN or outer header that is not this port's", _DISCARD, "for another address"),
    Counter(_AP, "foreign_too_short", "datagrams", _C, "shorter than their headers", _DISCARD, "too short"),
    Counter(_AP, "foreign_bad_length", "datagrams", _C,
            "whose length, pad or ends of a message do not fit their opcode", _DISCARD, "of a wrong length"),
    Counter(_AP, "foreign_bad_version", "datagrams", _C,
            "of another version of the transport", _DISCARD, "of another version"),
    Counter(_AP, "foreign_unknown_opcode", "datagrams", _C,
            "of an opcode, packet type, following header or NACK reason that the transport does not have",
            _DISCARD, "of an unknown opcode"),
    Counter(_AP, "foreign_reserved_bits", "datagrams", _C,
            "with reserved bits set where the transport forbids it (UET)", _DISCARD, "with reserved bits"),
    Counter(_AP, "foreign_wrong_p_key", "datagrams", _C,
            "of another partition than 0x7FFF (RoCEv2, MRC)", _DISCARD, "with a wrong P_Key"),
    Counter(_AP, "foreign_unknown_qp", "datagrams", _C,
            "of no queue pair or packet delivery context here", _DISCARD, "of an unknown queue pair"),
    Counter(_AP, "foreign_wrong_peer", "datagrams", _C,
            "of a queue pair here, from another address than its peer's", _DISCARD, "from a wrong peer"),
    Counter(_AP, "foreign_unasked", "datagrams", _C,
            "well formed, but not accepted by this end: such as unreliable or idempotent delivery, "
            "a request without its message, or endpoint packets beyond those that can wait", _DISCARD, "not requested"),
    Counter(_AP, "foreign_cut_off", "datagrams", _C,
            "trimmed so that their destination cannot be read or their data cannot be requested again",
            _DISCARD, "cut too short to be answered"),
    Counter(_AP, "unclaimed_requests", "datagrams", _C,
            "requests that a peer of this run sent to a packet delivery context that is closed (UET); these and the "
            "next four arrived, belong to the run and are not among `foreign_datagrams`", _DISCARD,
            "requests to a closed context"),
    Counter(_AP, "unclaimed_acks", "datagrams", _C,
            "acknowledgements likewise, such as the second answer to a repeated close command", _DISCARD,
            "acknowledgements to a closed context"),
    Counter(_AP, "unclaimed_naks", "datagrams", _C, "negative acknowledgements likewise", _DISCARD,
            "NAKs to a closed context"),
    Counter(_AP, "unclaimed_controls", "datagrams", _C,
            "other packets likewise: close commands, probes, credit and requests for it, and port status updates "
            "beyond those that can wait for their answer (MRC)", _DISCARD, "control packets to a closed context"),
    Counter(_AP, "unclaimed_trimmed", "datagrams", _C,
            "packets of a peer of this run that arrived cut by a switch, and were not asked for again: their context "
            "is closed, they were answers, or too little was left of them", _DISCARD, "cut, and not asked for again"),
    Counter(_AP, "rx_icrc_encapsulated", "datagrams", _C,
            "RoCEv2 packets with a wrong ICRC, dropped; on `udp` ports, which "
            "cannot check it (docs/ports.md), datagrams that the kernel dropped for a wrong UDP checksum",
            _DISCARD, "with a wrong ICRC"),
    Counter(_AP, "trimmed_datagrams", "datagrams", _C,
            "RoCEv2 packets that arrived cut down by a switch, where transport.trimming names their DSCP", _SUM),
    Counter(_AP, "misdirected_datagrams", "datagrams", _C,
            "datagrams that came to another queue of the port than their queue pair's, which was handed them: "
            "more work, no loss (docs/ports.md)", _SUM),
    Counter(_AP, "receive_overflows", "datagrams", _C,
            "datagrams that the kernel dropped because the port's receive buffer was full: the emulator's "
            "loss, not the device's (for a `udp` port, from /proc/net/snmp of its network namespace)", _SUM),
    Counter(_AP, "receive_buffer_bytes", "bytes", _A,
            "receive buffer that the kernel granted, the least over the port's sockets"),
    Counter(_AP, "loop_turns", "turns", _C, "turns of the engine's loop"),
    Counter(_AP, "idle_turns", "turns", _C, "turns of the engine's loop without work"),
    Counter(_AP, "blocked_ns", "ns", _C, "time that the engine's loop slept instead of spinning"),
    Counter(_AP, "rx_pause_frames", "frames", _C, "priority flow control received, where the port sees it"),
    Counter(_AP, "tx_pause_frames", "frames", _C, "pause frames sent, which only a scenario asks for", _SUM),
    Counter(_AP, "paused_ns", "ns", _C, "time that priorities were paused, added up"),
    Counter(_AP, "injected_losses", "packets", _C, "packets that the scenario's faults lost", _SUM, "lost"),
    Counter(_AP, "injected_duplicates", "packets", _C,
            "packets that the scenario's faults sent twice", _SUM, "repeated"),
    Counter(_AP, "injected_reorders", "packets", _C,
            "packets that the scenario's faults put behind others", _SUM, "put behind others"),
    Counter(_AP, "injected_delays", "packets", _C, "packets that the scenario's faults delayed", _SUM, "delayed"),
    Counter(_AP, "injected_bad_icrcs", "packets", _C,
            "packets that the scenario's faults sent with a wrong ICRC", _SUM, "sent with a wrong ICRC"),
    Counter(_AP, "injected_marks", "packets", _C,
            "packets that the scenario's faults marked with Congestion Experienced", _SUM, "marked"),
    Counter(_AP, "injected_naks", "packets", _C,
            "NAKs sent only because of a rule of the scenario", _SUM, "NAKs sent"),
    Counter(_AP, "injected_rnr_naks", "packets", _C,
            "receiver-not-ready NAKs sent only because of a rule of the scenario", _SUM, "receiver-not-ready NAKs sent"),
    Counter(_AP, "injected_cnps", "packets", _C,
            "congestion notifications sent only because of a rule of the scenario", _SUM, "CNPs sent"),
    Counter(_AP, "injected_trims", "packets", _C,
            "received packets that the scenario's faults cut down to their headers", _SUM, "trimmed"),
    Counter(_AP, "scheduled_datagrams", "datagrams", _C,
            "sent with a departure time that the kernel kept (docs/ports.md)"),
    Counter(_AP, "stamped_messages", "messages", _C,
            "received with an arrival stamp; datagrams that the kernel joined share one"),
    Counter(_AP, "card_stamped_messages", "messages", _C, "received with an arrival stamp of the network card"),
    # Frames of a device's port. `_bytes` include the check sequence, as SAI, IF-MIB and OpenConfig count; Linux leaves it out.
    Counter(_P, "rx_packets", "packets", _C, "received, of every kind", _SIM),
    Counter(_P, "rx_bytes", "bytes", _C, "received, frames from destination address to check sequence", _SIM),
    Counter(_P, "tx_packets", "packets", _C, "sent, of every kind", _SIM),
    Counter(_P, "tx_bytes", "bytes", _C, "sent, the same", _SIM),
    Counter(_P, "rx_bytes_without_fcs", "bytes", _C, "received, frames without their check sequence"),
    Counter(_P, "tx_bytes_without_fcs", "bytes", _C, "sent, the same"),
    Counter(_P, "rx_unicast_packets", "packets", _C, "received for one address"),
    Counter(_P, "rx_multicast_packets", "packets", _C, "received for groups"),
    Counter(_P, "rx_broadcast_packets", "packets", _C, "received for all"),
    Counter(_P, "tx_unicast_packets", "packets", _C, "sent to one address"),
    Counter(_P, "tx_multicast_packets", "packets", _C, "sent to groups"),
    Counter(_P, "tx_broadcast_packets", "packets", _C, "sent to all"),
    Counter(_P, "rx_dropped_packets", "packets", _C, "received whole and dropped", _SUM, "dropped on arrival"),
    Counter(_P, "tx_dropped_packets", "packets", _C, "dropped instead of sent", _SUM, "dropped"),
    Counter(_P, "rx_error_packets", "packets", _C, "received damaged", _SUM, "damaged"),
    Counter(_P, "tx_error_packets", "packets", _C, "not sent because of an error"),
    Counter(_P, "rx_pause_frames", "frames", _C, "pauses received, of IEEE 802.3x and of all priorities together"),
    Counter(_P, "tx_pause_frames", "frames", _C, "pauses sent, the same"),
    Counter(_P, "ecn_marked_packets", "packets", _C,
            "sent with a Congestion Experienced that this port set", _SUM, "marked"),
    Counter(_P, "trimmed_packets", "packets", _C, "cut down instead of dropped"),
    Counter(_P, "link_dropped_packets", "packets", _C,
            "dropped because the link is down", _BOTH, "lost at a link that was down"),
    Counter(_P, "fault_dropped_packets", "packets", _C,
            "dropped on purpose by a rule", _BOTH, "dropped by faults of the topology"),
    Counter(_P, "fault_corrupted_packets", "packets", _C, "received and damaged on purpose by a rule", _BOTH,
            "corrupted by faults of the topology"),
    Counter(_P, "no_route_packets", "packets", _C, "dropped because of no route", _BOTH, "without a route"),
    Counter(_P, "overload_frames", "frames", _C, "lost by the soft switch because its host could not keep up", _SUM,
            "LOST BY THE SOFT SWITCH ITSELF"),
    Counter(_P, "late_frames", "frames", _C, "handed over late by the soft switch"),
    Counter(_P, "roce_rx_packets", "packets", _C, "RDMA packets received"),
    Counter(_P, "roce_tx_packets", "packets", _C, "RDMA packets sent"),
    Counter(_P, "roce_rx_bytes", "bytes", _C, "of RDMA packets received"),
    Counter(_P, "roce_tx_bytes", "bytes", _C, "of RDMA packets sent"),
    Counter(_P, "rx_icrc_encapsulated", "packets", _C, "received with a wrong ICRC"),
    # One PFC priority of a port.
    Counter(_R, "pfc_rx", "frames", _C,
            "pauses received for it (SAI_PORT_STAT_PFC_n_RX_PKTS)", _BOTH, "pauses received"),
    Counter(_R, "pfc_tx", "frames", _C, "pauses sent for it (SAI_PORT_STAT_PFC_n_TX_PKTS)", _BOTH, "pauses sent"),
    Counter(_R, "pfc_rx_paused_ns", "ns", _C, "during which received pauses stopped it"),
    Counter(_R, "pfc_tx_paused_ns", "ns", _C, "during which it asked the other end to stop"),
    Counter(_R, "rx_packets", "packets", _C, "received"),
    Counter(_R, "tx_packets", "packets", _C, "sent"),
    Counter(_R, "rx_bytes", "bytes", _C, "received, with check sequence"),
    Counter(_R, "tx_bytes", "bytes", _C, "sent, with check sequence"),
    Counter(_R, "rx_dropped_packets", "packets", _C, "received and dropped"),
    Counter(_R, "ecn_marked_packets", "packets", _C, "received and marked by the NIC itself because its buffer filled"),
    # One egress queue of a port: SAI_QUEUE_STAT_*.
    Counter(_Q, "packets", "packets", _C, "sent", _SIM),
    Counter(_Q, "bytes", "bytes", _C, "sent, with check sequence", _SIM),
    Counter(_Q, "dropped_packets", "packets", _C, "dropped for want of buffer", _BOTH, "dropped"),
    Counter(_Q, "dropped_bytes", "bytes", _C, "dropped for want of buffer", _SIM),
    Counter(_Q, "ecn_marked_packets", "packets", _C, "marked with Congestion Experienced", _BOTH, "marked"),
    Counter(_Q, "ecn_marked_bytes", "bytes", _C, "marked with Congestion Experienced", _SIM),
    Counter(_Q, "trimmed_packets", "packets", _C,
            "found no room, and were to go on cut down (SAI_QUEUE_STAT_TRIM_PACKETS)", _BOTH, "trimmed"),
    Counter(_Q, "trim_sent_packets", "packets", _C,
            "sent cut down, by the queue that they left by (SAI_QUEUE_STAT_TX_TRIM_PACKETS)", _SIM),
    Counter(_Q, "trim_dropped_packets", "packets", _C,
            "found no room cut down either, and were dropped (SAI_QUEUE_STAT_DROPPED_TRIM_PACKETS)", _BOTH,
            "trimmed and then dropped"),
    Counter(_Q, "current_bytes", "bytes", _A, "waiting", _SIM),
    Counter(_Q, "watermark_bytes", "bytes", _W, "most that waited", _SIM),
    Counter(_Q, "paused_ns", "ns", _C, "during which a pause held it", _BOTH),
    Counter(_Q, "watchdog_storms", "count", _C, "pause storms that the watchdog found", _BOTH, "pause storms"),
    Counter(_Q, "watchdog_dropped_packets", "packets", _C, "dropped by the watchdog", _BOTH, "dropped by the watchdog"),
    # One ingress priority group of a port: SAI_INGRESS_PRIORITY_GROUP_STAT_*.
    Counter(_G, "packets", "packets", _C, "received into it"),
    Counter(_G, "bytes", "bytes", _C, "received into it, with check sequence"),
    Counter(_G, "dropped_packets", "packets", _C,
            "dropped for want of buffer or headroom", _BOTH, "dropped on arrival"),
    Counter(_G, "dropped_bytes", "bytes", _C, "dropped for want of buffer or headroom", _SIM),
    Counter(_G, "current_bytes", "bytes", _A, "accounted to it", _SIM),
    Counter(_G, "shared_watermark_bytes", "bytes", _W, "most that it used of the shared buffer", _SIM),
    Counter(_G, "headroom_bytes", "bytes", _A, "in its headroom", _SIM),
    Counter(_G, "headroom_watermark_bytes", "bytes", _W, "most that was in its headroom", _SIM),
    # The shared buffer: SAI_BUFFER_POOL_STAT_*.
    Counter(_L, "current_bytes", "bytes", _A, "in use"),
    Counter(_L, "watermark_bytes", "bytes", _W, "most that was in use"),
    Counter(_L, "dropped_packets", "packets", _C, "dropped for want of it"),
)  # fmt: skip
"""The one table. A counter of queue pairs or agents' ports that is added here becomes a field of the engine's record, a column
of Parquet, and, if it is summed, a key of summary.json with its schema; tools/write_counters.py writes the native header."""


def counters_of(
    owner: Owner, uses: CounterUse = NO_USE, table: tuple[Counter, ...] = COUNTERS
) -> tuple[Counter, ...]:
    """Return the counters of a kind of object that have all of `uses`, in the table's order."""
    return tuple(counter for counter in table if owner in counter.owners and uses in counter.uses)


BY_OBJECT_AND_NAME: Final = {
    (owner, counter.name): counter for owner in CounterObject for counter in counters_of(owner)
}
"""Counters of devices, which readers return."""


def counter_of(reading: CounterReading) -> Counter | None:
    """Return the counter of a reading; None if its object has no such counter, which is a mistake of the reader."""
    return BY_OBJECT_AND_NAME.get((reading.object.kind, reading.counter))


def reading_mistake(reading: CounterReading) -> str:
    """Return why a reading is impossible; "" if it is valid. Callers of readers drop and report an invalid reading."""
    counted, counter, value, width_bits = reading
    if mistake := _name_mistake(counted, counter):
        return mistake
    if width_bits not in (32, 64) or not 0 <= value < 1 << width_bits:
        return f"{counted}: {counter} is {value}, not a value of {width_bits} bits"
    return ""


@lru_cache(maxsize=1 << 17)
def _name_mistake(counted: CountedObject, counter: str) -> str:
    """Return why an object cannot be, or not have this counter; "" if it can. Cached: every batch has the same ones."""
    numbered = counted.kind in (CounterObject.PRIORITY, CounterObject.QUEUE, CounterObject.GROUP)
    if (counted.kind, counter) not in BY_OBJECT_AND_NAME:
        return f'"{counter[:64]}" is not a counter of a {counted.kind}'
    if not 0 < len(counted.name) <= MOST_NAME_CHARACTERS or not counted.name.isprintable():
        return "an object's name is empty, too long or not printable"
    if numbered != (counted.number >= 0) or counted.number > MOST_NUMBER:
        return f"{counted.name}: {counted.kind} {counted.number} cannot be"
    return ""


FOREIGN_REASONS: Final = tuple(
    counter.name
    for counter in counters_of(AgentObject.PORT, CounterUse.DISCARD)
    if counter.name.startswith("foreign_")
)
"""Reasons why a datagram does not belong to this run, in the engine's order; `foreign_datagrams` is their sum."""
UNCLAIMED_REASONS: Final = tuple(
    counter.name
    for counter in counters_of(AgentObject.PORT, CounterUse.DISCARD)
    if counter.name.startswith("unclaimed_")
)
"""Reasons why a datagram of this run is discarded, in the engine's order, after `FOREIGN_REASONS`."""
DISCARD_REASONS: Final = (*FOREIGN_REASONS, *UNCLAIMED_REASONS)
"""Reasons why a port discards a datagram, in the engine's order."""
