"""Orders of a bench to its two worker processes, and their replies, as types and as bytes.

They are sent as frames. `worker` and `workers` read and write the pipes.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import Assignment
from etloop.contract.protocol.message_set import MessageSet, Protocol
from etloop.contract.protocol.typed_form import Rules

MAX_FRAME_BYTES: Final = 64 << 20
MAX_VALUES: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class Load:
    """Open an engine. Answered by `Opened`."""

    assignment: Assignment
    realtime: bool = False
    """Make the engine's threads real-time if permitted."""
    cores: tuple[int, ...] = ()
    """Cores of its threads; (): all that the process may use."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Probe every queue pair of the engine. Answered by `Done` if all were reached."""


@dataclass(frozen=True, slots=True)
class Start:
    """Run to the end from `start_ns` of the monotonic clock, which all processes of a machine share.
    Answered by `Done`; the engine goes on answering its peer."""

    start_ns: int


@dataclass(frozen=True, slots=True)
class Collect:
    """Stop the engine. Answered by `Ran`, after which the engine is gone."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Let a thread only read the clock on a core, for this long, without an engine. Answered by `Watched`."""

    core: int
    duration_ns: int


@dataclass(frozen=True, slots=True)
class Watched:
    """Delays of the thread, as in `Ran`."""

    late: bytes


@dataclass(frozen=True, slots=True)
class BlastSend:
    """Send bare datagrams. Answered by `Counted`."""

    src_ip: str
    dst_ip: str
    udp_port: int
    duration_ns: int
    backend: int = 0
    """`PortBackend` whose kind of socket is used."""
    message_packets: int = 0
    """UDP: use the system calls of messages of this many packets; 0: all calls are equal."""


@dataclass(frozen=True, slots=True)
class BlastReceive:
    """Receive them. Answered by `Counted`."""

    ip: str
    udp_port: int
    duration_ns: int
    backend: int = 0


@dataclass(frozen=True, slots=True)
class BlastExchange:
    """Send and receive bare datagrams in turn, as the other end does. Answered by `Counted` with the received ones."""

    src_ip: str
    dst_ip: str
    udp_port: int
    duration_ns: int
    datagram_bytes: int


@dataclass(frozen=True, slots=True)
class TakeSteps:
    """Carry out bare dependent operations like the other end, busy-polling. Answered by `StepTimes`."""

    src_ip: str
    dst_ip: str
    udp_port: int
    datagram_bytes: int
    operations: int
    steps: int
    """Steps of an operation: 1 for an exchange, 2 for a ring over two ranks."""
    waits_acknowledged: bool
    """True if an operation ends with an acknowledgement that is awaited."""
    realtime: bool = False
    cores: tuple[int, ...] = ()
    """Cores to run on; (): all that the process may use."""


@dataclass(frozen=True, slots=True)
class SendPings:
    """Ping, busy-polling. Answered by `RoundTrips`."""

    src_ip: str
    dst_ip: str
    udp_port: int
    count: int
    message_bytes: int


@dataclass(frozen=True, slots=True)
class EchoPings:
    """Answer them. Answered by `Done`."""

    ip: str
    udp_port: int
    count: int


@dataclass(frozen=True, slots=True)
class Opened:
    """The engine is open."""

    degraded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The order was carried out; there is no result."""


@dataclass(frozen=True, slots=True)
class PortCalls:
    """System calls of a port that sent, received or polled for packets, since its opening; and the packets that they moved."""

    sending: int = 0
    sent_packets: int = 0
    receiving: int = 0
    received_packets: int = 0


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of times by bucket, each named by its least nanoseconds."""

    least_ns: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Ran:
    """Measurements of one end. Turnarounds are a histogram: least nanoseconds of a bucket, count."""

    ops: int
    first_issued_ns: int
    last_completed_ns: int
    wire_tx_bytes: int
    packets: int
    """Packets that it sent: requests, acknowledgements and NAKs."""
    retransmitted_packets: int
    turnaround_least_ns: tuple[int, ...]
    turnaround_counts: tuple[int, ...]
    received_ns: bytes
    """Completion times of the receives, by iteration and op: little-endian int64."""
    sent: bytes = b""
    """Series of the queue pair that sent the most, if requested: pairs of time and packets sent until then, little-endian
    int64."""
    realtime: bool = False
    """True if all threads were real-time."""
    processor_ns: int = 0
    """CPU time of its process from the start of the run to its end."""
    slip_ns: bytes = b""
    """Slip of each op of the ranks that the run waits for: little-endian int64."""
    carried_bytes: int = 0
    """Payload of the background ranks."""
    misdirected_datagrams: int = 0
    """Datagrams that arrived at another queue than their queue pair's."""
    kernel_ns: int = 0
    """Part of `processor_ns` that was spent inside the kernel."""
    calls: PortCalls = PortCalls()
    op_ns: bytes = b""
    """By iteration the longest time from issue to completion of an op that `ops` counts: little-endian int64."""
    acknowledgements: int = 0
    """Acknowledgements of data that it sent."""
    timeouts: int = 0
    """Timeouts of its queue pairs."""
    lost_packets: int = 0
    """Packets that it missed: datagrams dropped for lack of receive buffer, and packets ahead of a missing one."""
    parts: tuple[Histogram, ...] = ()
    """Parts of the turnarounds, in the order of `TurnaroundPart`."""
    late: bytes = b""
    """Intended and actual times of delayed turns of threads: pairs of little-endian int64."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Datagrams and bytes that a blast moved."""

    datagrams: int
    payload_bytes: int
    duration_ns: int


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """Percentiles of the round-trip times."""

    p50_ns: int
    p99_ns: int


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Time of each bare operation."""

    times_ns: bytes
    """Little-endian int64."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The order could not be carried out."""

    reason: str


Order: TypeAlias = (
    Load
    | Probe
    | Start
    | Collect
    | Watch
    | BlastSend
    | BlastReceive
    | BlastExchange
    | TakeSteps
    | SendPings
    | EchoPings
)
WorkerReply: TypeAlias = Opened | Done | Ran | Watched | Counted | RoundTrips | StepTimes | Failed

_RULES: Final = Rules(text_chars=1 << 20, items=1 << 20, binary=True)
_PROTOCOL: Final = Protocol(1, "start the bench and its workers from one etloop", _RULES)
ORDERS: Final = MessageSet[Order](
    _PROTOCOL, Order, "a bench", max_bytes=MAX_FRAME_BYTES, max_values=MAX_VALUES
)
REPLIES: Final = MessageSet[WorkerReply](
    _PROTOCOL, WorkerReply, "a worker", max_bytes=MAX_FRAME_BYTES, max_values=MAX_VALUES
)
