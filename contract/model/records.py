"""Schemas of what is measured: the rows an engine writes and an agent streams, as numpy record types.

Times are nanoseconds of the agent's monotonic clock until the controller maps them to the run's clock. The layouts
equal the C++ structs of traffic/native/plan/records.h (static asserts there, a size test here).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

OP_RECORD: Final = np.dtype(
    [
        ("intended_ns", "<i8"),  # last dependency met (plus the op's delay)
        ("issued_ns", "<i8"),  # the engine began it
        ("first_tx_ns", "<i8"),  # its first data packet was handed to the port; 0: it sent none
        ("completed_ns", "<i8"),  # all its bytes arrived and all it sent was acknowledged
        ("wire_tx_bytes", "<i8"),  # payload sent through the device under test, without retransmissions
        ("wire_rx_bytes", "<i8"),
        ("local_tx_bytes", "<i8"),  # payload that stayed inside the host or the port
        ("local_rx_bytes", "<i8"),
        ("rank", "<i4"),
        ("op", "<i4"),  # index into the rank's program
        ("iteration", "<i4"),
        ("tx_messages", "<i4"),
        ("rx_messages", "<i4"),
        ("reserved", "<i4"),
    ]
)
"""One op of one iteration on one rank; DELAY ops are not recorded. 88 bytes."""

FLOW_RECORD: Final = np.dtype(
    [
        ("local_qpn", "<u4"),
        ("remote_qpn", "<u4"),
        ("connection", "<i4"),  # row of Assignment.connections
        ("sends_data", "<i4"),  # 1 at the data sender's end, 0 at the receiver's (which sends CTS)
        ("tx_messages", "<i8"),
        ("tx_payload_bytes", "<i8"),  # first transmissions
        ("tx_packets", "<i8"),  # all data packets, retransmissions included
        ("retransmitted_packets", "<i8"),
        ("rx_messages", "<i8"),
        ("rx_payload_bytes", "<i8"),  # in order, once
        ("rx_packets", "<i8"),
        ("acks_tx", "<i8"),
        ("acks_rx", "<i8"),
        ("naks_tx", "<i8"),
        ("naks_rx", "<i8"),
        # From here on as mlx5 names and counts them (Linux: sysfs hw_counters), but for one queue pair.
        ("out_of_sequence", "<i8"),  # requests that came ahead of a missing one
        ("duplicate_request", "<i8"),  # requests that had come before
        ("packet_seq_err", "<i8"),  # NAKs of a sequence error that were heeded
        ("implied_nak_seq_err", "<i8"),  # READ or atomic responses that were passed over
        ("rnr_nak_retry_err", "<i8"),  # receiver-not-ready NAKs that were waited for
        ("out_of_buffer", "<i8"),  # messages that found no receive posted
        ("local_ack_timeout_err", "<i8"),
        ("roce_adp_retrans", "<i8"),  # timeouts below the queue pair's own: the adaptive one
        ("roce_adp_retrans_to", "<i8"),  # timeouts at the queue pair's own, adaptive or not
        ("np_ecn_marked_roce_packets", "<i8"),
        ("np_cnp_sent", "<i8"),
        ("rp_cnp_handled", "<i8"),
        ("rp_cnp_ignored", "<i8"),  # received where nothing controls the rate
        ("rx_write_requests", "<i8"),
        ("rx_read_requests", "<i8"),
        ("rx_atomic_requests", "<i8"),
        ("read_response_bytes", "<i8"),  # payload that our READs brought
        ("injected_faults", "<i8"),  # packets of this end that fault rules acted on
    ]
)
"""One queue pair end at the end of a run. 248 bytes."""

PORT_RECORD: Final = np.dtype(
    [
        ("tx_datagrams", "<i8"),
        ("tx_bytes", "<i8"),  # UDP payload
        ("rx_datagrams", "<i8"),
        ("rx_bytes", "<i8"),
        ("tx_calls", "<i8"),
        ("rx_calls", "<i8"),
        ("would_block", "<i8"),
        ("injected_drops", "<i8"),
        ("foreign_datagrams", "<i8"),  # not RoCEv2, unknown queue pair or wrong peer
        (
            "rx_icrc_encapsulated",
            "<i8",
        ),  # RoCEv2 packets with a wrong ICRC, dropped; 0 where a port cannot check
        ("receive_overflows", "<i8"),  # datagrams the kernel dropped because our receive buffer was full
        ("receive_buffer_bytes", "<i8"),
        ("loop_turns", "<i8"),
        ("idle_turns", "<i8"),
        ("blocked_ns", "<i8"),
        ("rx_pause_frames", "<i8"),  # priority flow control; seen by ports that write frames
        ("tx_pause_frames", "<i8"),
        ("paused_ns", "<i8"),  # time that priorities were paused, added up
        # What the scenario's faults did, by action.
        ("injected_losses", "<i8"),
        ("injected_duplicates", "<i8"),
        ("injected_reorders", "<i8"),
        ("injected_delays", "<i8"),
        ("injected_bad_icrcs", "<i8"),
        ("injected_marks", "<i8"),
        ("injected_naks", "<i8"),
        ("injected_rnr_naks", "<i8"),
        ("injected_cnps", "<i8"),
        ("scheduled_datagrams", "<i8"),  # sent with a departure time that the kernel kept
        ("stamped_messages", "<i8"),  # received with a stamp of kernel or card; joined datagrams share one
        ("card_stamped_messages", "<i8"),  # of these, with one of the network card
    ]
)
"""Totals of one port at the end of a run. 240 bytes."""


CC_RECORD: Final = np.dtype(
    [
        ("time_ns", "<i8"),
        ("rate_bps", "<i8"),  # 0: not paced
        ("window_bytes", "<i8"),  # 0: none of the algorithm's
        ("in_flight_bytes", "<i8"),  # payload, in whole packets
        ("acked_bytes", "<i8"),  # since the begin, in whole packets
        ("tx_packets", "<i8"),
        ("rtt_ns", "<i8"),  # the last one measured; -1: none
        ("connection", "<i4"),  # row of Assignment.connections
        ("local_qpn", "<u4"),
    ]
)
"""The rate control of one queue pair at one moment. 64 bytes."""


class WaitKind:
    """What an unfinished op waits for; numbers as in traffic/native/plan/records.h."""

    DEPENDENCY: Final = 0
    DELAY: Final = 1
    CLEAR_TO_SEND: Final = 2
    DATA: Final = 3
    ACKNOWLEDGEMENT: Final = 4
    LANE: Final = 5
    """Another lane of the same op: a message that this one passes on, received on another connection."""

    NAMES: Final = ("dependency", "delay", "clear-to-send", "data", "acknowledgement", "a message to pass on")


WAIT_RECORD: Final = np.dtype(
    [
        ("rank", "<i4"),
        ("op", "<i4"),
        ("iteration", "<i4"),
        ("kind", "<i4"),
        ("peer_rank", "<i4"),  # -1: none
        ("blocking_op", "<i4"),  # DEPENDENCY: one unfinished op it waits for, else -1
        ("connection", "<i4"),  # row of Assignment.connections, else -1
        ("messages_done", "<i4"),
        ("messages_total", "<i4"),
        ("psn", "<u4"),  # ACKNOWLEDGEMENT: oldest unacknowledged packet
    ]
)
"""One thing that one unfinished op waits for. 40 bytes."""


@dataclass(frozen=True, slots=True)
class StreamCount:
    """What one end of a stream of plain UDP counted."""

    name: str
    sends: bool
    datagrams: int
    payload_bytes: int
    left_out: int
    """Sending: datagrams that were not sent in time; receiving: such that were not of the stream."""
