"""What a bench tells its two worker processes and what they answer, as types and as bytes.

An order or answer travels as the msgpack array [name, field, ...]; a frame is a length of four bytes, big-endian, and
that body. Decoding refuses whatever is not exactly one of the types below. Reading and writing pipes is left to others.
"""

from __future__ import annotations

import dataclasses
import struct
import typing
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgpack  # type: ignore[import-untyped]  # ships no types
from etloop.contract.base.errors import ProtocolError

MAX_FRAME_BYTES: Final = 64 << 20
MAX_ITEMS: Final = 1 << 20
LENGTH: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Load:
    """Open an engine. Answered by `Opened`."""

    assign: bytes
    """An `Assign` as contract/protocol/codec.py encodes it."""
    realtime: bool = False
    """Its threads are real-time where that is permitted."""
    cores: tuple[int, ...] = ()
    """Of its threads; none: all that the process may use."""


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
    """Let a thread do nothing but look at the clock on a core, for so long, with no engine there. Answered by `Watched`."""

    core: int
    duration_ns: int


@dataclass(frozen=True, slots=True)
class Watched:
    """When it was late, as in `Ran`."""

    late: bytes


@dataclass(frozen=True, slots=True)
class BlastSend:
    """Send bare datagrams. Answered by `Counted`."""

    src_ip: str
    dst_ip: str
    udp_port: int
    duration_ns: int
    backend: int = 0
    """`PortBackend`: over the same kind of socket."""


@dataclass(frozen=True, slots=True)
class BlastReceive:
    """Receive them. Answered by `Counted`."""

    ip: str
    udp_port: int
    duration_ns: int
    backend: int = 0


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
    """It was done, and there is nothing to tell."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What one end measured. Turnarounds are a histogram: least nanoseconds of a bucket, count."""

    ops: int
    first_issued_ns: int
    last_completed_ns: int
    wire_tx_bytes: int
    retransmitted_packets: int
    turnaround_least_ns: tuple[int, ...]
    turnaround_counts: tuple[int, ...]
    received_ns: bytes
    """When each receive completed, by iteration and op: little-endian int64."""
    sent: bytes = b""
    """Of the queue pair that sent the most, where a series was asked for: pairs of time and packets sent until then,
    little-endian int64."""
    realtime: bool = False
    """Whether all threads were."""
    late: bytes = b""
    """When a thread would have taken a turn and did not, and when it did: pairs of little-endian int64."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What a blast moved."""

    datagrams: int
    payload_bytes: int
    duration_ns: int


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """Percentiles of the round-trip times."""

    p50_ns: int
    p99_ns: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The order could not be carried out."""

    reason: str


Order: TypeAlias = Load | Probe | Start | Collect | Watch | BlastSend | BlastReceive | SendPings | EchoPings
WorkerReply: TypeAlias = Opened | Done | Ran | Watched | Counted | RoundTrips | Failed

_TYPES: Final[dict[str, type[Any]]] = {
    kind.__name__: kind for kind in (*typing.get_args(Order), *typing.get_args(WorkerReply))
}
_FIELDS: Final[dict[str, tuple[Any, ...]]] = {
    name: tuple(typing.get_type_hints(kind)[field.name] for field in dataclasses.fields(kind))
    for name, kind in _TYPES.items()
}


def frame_of(value: Order | WorkerReply) -> bytes:
    """The bytes of a frame."""
    fields = [getattr(value, field.name) for field in dataclasses.fields(value)]
    body = typing.cast("bytes", msgpack.packb([type(value).__name__, *fields], use_bin_type=True))
    assert len(body) <= MAX_FRAME_BYTES
    return LENGTH.pack(len(body)) + body


def body_bytes(length: bytes) -> int:
    """How many bytes the body after a frame's length has. Raises `ProtocolError` beyond what a frame may have."""
    size: int = LENGTH.unpack(length)[0]
    if size > MAX_FRAME_BYTES:
        raise ProtocolError(f"a frame of {size} bytes; at most {MAX_FRAME_BYTES} are allowed")
    return size


def decode(body: bytes) -> Order | WorkerReply:
    """The order or answer of a body. Raises `ProtocolError` for anything else."""
    try:
        parts = msgpack.unpackb(
            body,
            raw=False,
            use_list=False,
            max_bin_len=len(body),
            max_str_len=len(body),
            max_array_len=MAX_ITEMS,
            max_map_len=0,
            max_ext_len=0,
        )
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise ProtocolError(f"not an order or answer: {str(error) or type(error).__name__}") from None
    if type(parts) is not tuple or not parts or type(parts[0]) is not str or parts[0] not in _TYPES:
        raise ProtocolError("not an order or answer: its name is none of ours")
    name, *values = parts
    expected = _FIELDS[name]
    if len(values) != len(expected) or not all(map(_fits, values, expected)):
        raise ProtocolError(f"{name}: fields of another number or type")
    return typing.cast("Order | WorkerReply", _TYPES[name](*values))


def _fits(value: object, annotation: Any) -> bool:
    if typing.get_origin(annotation) is tuple:
        return type(value) is tuple and all(type(item) is typing.get_args(annotation)[0] for item in value)
    return type(value) is annotation
