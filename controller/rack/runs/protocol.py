"""What the daemon and the process of one run say to each other over a socket pair, as values and as bytes.

Daemon to run: `Begin`, then `FromAgent` and `Stop`. Run to daemon: `Prepared` or `Unprepared`, `ToAgent`, `LogLine`,
`Moved`, and at last `Ended`. Bodies of agents' messages pass unread: only the run decodes them. A frame is its length in
four bytes, big-endian, and the msgpack array [name, fields by name]; both ends are ours, and still everything is bounded
and typed, so that a broken run cannot hurt the daemon.
"""

from __future__ import annotations

import struct
import types
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, get_args

import msgpack  # type: ignore[import-untyped]  # ships no types
from etloop.contract.base.errors import ProtocolError
from etloop.contract.protocol.messages import MAX_TO_AGENT_BYTES

MAX_FRAME_BYTES: Final = MAX_TO_AGENT_BYTES + (1 << 16)
_LENGTH: Final = struct.Struct(">I")


# ---- daemon to run


@dataclass(frozen=True, slots=True)
class Begin:
    """The first frame: what to run and where to leave it."""

    run_id: str
    scenario_text: str
    scenario_root: str
    """Paths of the scenario are relative to this directory and stay below it."""
    rig_text: str
    rig_root: str
    ports: list[str]
    """"agent/port" of every port that is leased to the run; the rest of the rig does not exist for it."""
    out_dir: str
    allowed_code: list[str]
    """Of `AllowedCode`: the names of what is true."""
    host_threads: str
    """Engine threads of other runs by host, as JSON {host: threads}: this run's take the cores after them."""


@dataclass(frozen=True, slots=True)
class FromAgent:
    """A message of an agent whose slot the run has leased."""

    identity: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Stop:
    """Wind up: stop the traffic, collect, store, end."""

    reason: str


# ---- run to daemon


@dataclass(frozen=True, slots=True)
class Prepared:
    """The plan stands; these agents are wanted."""

    agents: list[str]


@dataclass(frozen=True, slots=True)
class ToAgent:
    """A message to an agent."""

    identity: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line for people."""

    text: str


@dataclass(frozen=True, slots=True)
class Moved:
    """How far the run is; a few times a second."""

    state: str
    """Name of a `RunState`."""
    ops_done: int
    ops_total: int
    wire_tx_bytes: int
    wire_rx_bytes: int


@dataclass(frozen=True, slots=True)
class TrafficEnded:
    """The agents are dismissed; results are being written."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The last frame: how it ended. What is in `out_dir` is not whole if `stored` is false."""

    exit_code: int
    reason: str
    stored: bool
    summary: str
    """summary.json, "" if not stored."""


DaemonFrame = Begin | FromAgent | Stop
RunFrame = Prepared | ToAgent | LogLine | Moved | TrafficEnded | Ended

_KINDS: Final[dict[str, type[Any]]] = {
    kind.__name__: kind for union in (DaemonFrame, RunFrame) for kind in get_args(union)
}
_TYPES: Final[dict[str, type[Any]]] = {
    "str": str,
    "int": int,
    "bytes": bytes,
    "bool": bool,
    "list[str]": list,
}


def pack(frame: DaemonFrame | RunFrame) -> bytes:
    """The bytes of a frame, its length included."""
    body: bytes = msgpack.packb([type(frame).__name__, asdict(frame)], use_bin_type=True)
    assert len(body) <= MAX_FRAME_BYTES
    return _LENGTH.pack(len(body)) + body


class Unpacker:
    """Cuts a stream of bytes into frames of the expected kinds; raises `ProtocolError` at anything else."""

    def __init__(self, expected: types.UnionType) -> None:
        self._expected = frozenset(kind.__name__ for kind in get_args(expected))
        self._held = bytearray()

    def feed(self, received: bytes) -> Iterator[Any]:
        """The frames that are complete with `received`."""
        self._held += received
        while len(self._held) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._held)
            if length > MAX_FRAME_BYTES:
                raise ProtocolError(f"a frame of {length} bytes; at most {MAX_FRAME_BYTES} are allowed")
            if len(self._held) < _LENGTH.size + length:
                return
            body = bytes(self._held[_LENGTH.size : _LENGTH.size + length])
            del self._held[: _LENGTH.size + length]
            yield self._frame(body)

    def _frame(self, body: bytes) -> Any:
        try:
            name, values = msgpack.unpackb(body, raw=False, strict_map_key=True, max_ext_len=0)
            if name not in self._expected:
                raise ProtocolError(f"an unexpected frame: {name!r:.40}")
            kind = _KINDS[name]
            wanted = {field.name: _TYPES[str(field.type)] for field in fields(kind)}
            if values.keys() != wanted.keys() or any(type(values[key]) is not wanted[key] for key in wanted):
                raise ProtocolError(f"{name} with other fields than it has")
            return kind(**values)
        except (ValueError, TypeError, AttributeError, RecursionError, msgpack.UnpackException) as error:
            raise ProtocolError(f"no frame: {error or type(error).__name__}") from None
