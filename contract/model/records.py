"""Schemas of measured records: the rows an engine writes and an agent streams, as numpy record types.

Times are nanoseconds of the agent's monotonic clock until the controller maps them to the run's clock. The layouts
equal the C++ structs of traffic/native/plan/records.h, whose counters come from the same table (counters.py); tests
compare them byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import AgentObject, Counter, counters_of


def counter_fields(counters: Iterable[Counter]) -> list[tuple[str, str]]:
    """Return the numpy fields of a record that holds these counters: 64-bit integers in this order."""
    return [(counter.name, "<i8") for counter in counters]


OP_RECORD: Final = np.dtype(
    [
        ("intended_ns", "<i8"),  # last dependency met (plus the op's delay)
        ("issued_ns", "<i8"),  # the engine began it
        ("first_tx_ns", "<i8"),  # its first data packet was handed to the port; 0: it sent none
        (
            "completed_ns",
            "<i8",
        ),  # all its bytes arrived, and its own messages were acknowledged or left (`Completion`)
        ("acknowledged_ns", "<i8"),  # the last acknowledgement of its messages arrived; 0: it sent none
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
"""One op of one iteration on one rank; DELAY ops are not recorded. 96 bytes."""

FLOW_RECORD: Final = np.dtype(
    [
        ("local_qpn", "<u4"),
        ("remote_qpn", "<u4"),
        ("connection", "<i4"),  # row of Assignment.connections
        ("sends_data", "<i4"),  # 1 at the data sender's end, 0 at the receiver's (which sends CTS)
        *counter_fields(counters_of(AgentObject.QUEUE_PAIR)),
    ]
)
"""One queue pair end at the end of a run."""

PORT_RECORD: Final = np.dtype(counter_fields(counters_of(AgentObject.PORT)))
"""Totals of one port at the end of a run."""

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
    """Causes for which an unfinished op waits; numbers as in traffic/native/plan/records.h."""

    DEPENDENCY: Final = 0
    DELAY: Final = 1
    CLEAR_TO_SEND: Final = 2
    DATA: Final = 3
    ACKNOWLEDGEMENT: Final = 4
    LANE: Final = 5
    """Another lane of the same op, which receives the message that this lane forwards."""

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
        ("psn", "<u4"),  # ACKNOWLEDGEMENT: oldest unacknowledged packet, or NO_PSN
    ]
)
"""One thing that one unfinished op waits for. 40 bytes."""
NO_PSN: Final = 0xFFFFFFFF
"""`psn` of a wait for acknowledgements where every packet that was sent is acknowledged. A real number has 24 bits."""


PROBE_RECORD: Final = np.dtype(
    [
        ("connection", "<i4"),  # row of Assignment.connections
        ("round_trip_ns", "<i8"),  # the least of all probes of the connection's queue pairs
    ]
)
"""One connection that was probed before the load: a full-size packet there, 8 bytes of payload back. 12 bytes."""


POST_RECORD: Final = np.dtype(
    [
        ("rank", "<i4"),
        ("op", "<i4"),  # index of a SEND or RECV in the rank's program
        ("message_bytes", "<i8"),
        ("number", "<i4"),  # of the message; `iteration` of its op records
    ]
)
"""One end of a message that begins while the run lasts: one more use of an op that the program describes. 20 bytes."""


class StreamForm(IntEnum):
    """Form of the datagrams of a background stream."""

    UDP = 0
    """Plain UDP."""
    UUD = 1
    """UET's unreliable delivery: a packet delivery header and a DATAGRAM request before the payload."""


UUD_HEADER_BYTES: Final = 48
"""Header of unreliable delivery and a standard request."""
STREAM_PROBE_BYTES: Final = 26
"""Payload of a stream's probe of its receiver before the run, and of the answer."""


@dataclass(frozen=True, slots=True)
class StreamCount:
    """Counters of one end of a stream of datagrams."""

    name: str
    sends: bool
    datagrams: int
    payload_bytes: int
    left_out: int
    """Sender: datagrams that were not sent in time; receiver: datagrams that did not belong to the stream."""
    probes_sent: int = 0
    """Sender: probes sent before the run to reach the other end; receiver: answers to the probes that arrived."""
    probes_received: int = 0
    form: StreamForm = StreamForm.UDP
