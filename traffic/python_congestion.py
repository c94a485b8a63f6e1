"""Congestion control written in Python, for the twin: slow, but the shortest way from an idea to a plot.

A class declares its parameters and reacts to events. The engine calls it through the table of
traffic/native/cc/etloop_cc.h, as it calls compiled algorithms, so both can be compared. This module decides how values
cross that border. After an exception in the class its callbacks do nothing; the exception is raised again after the
run, with the class and the event named.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_double, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any, ClassVar, Final

from etloop.contract.base.errors import EtloopError
from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic import _native
from etloop.traffic.congestion import Algorithm, Need, Parameter, Unit, of_library

NEVER_NS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class CongestionPath:
    """Path properties of a queue pair; see `etloop_cc_path`."""

    parameters: dict[str, float]
    line_rate_bps: int
    most_window_bytes: int
    base_rtt_ns: int
    """-1: not measured."""
    mtu_bytes: int
    packet_bytes: int


@dataclass(frozen=True, slots=True)
class CongestionAck:
    """An ACK that advanced the oldest unacknowledged packet; see `etloop_cc_ack`."""

    now_ns: int
    rtt_ns: int
    """-1: no sample."""
    acked_bytes: int
    acked_total_bytes: int
    sent_total_bytes: int
    in_flight_bytes: int
    ecn_marked: bool


@dataclass(frozen=True, slots=True)
class CongestionSignal:
    """A CNP, a NAK or a timeout; see `etloop_cc_signal`."""

    now_ns: int
    acked_total_bytes: int
    sent_total_bytes: int
    in_flight_bytes: int


@dataclass(frozen=True, slots=True)
class CongestionSent:
    """Packets handed to the port together; see `etloop_cc_sent`."""

    now_ns: int
    wire_bytes: int
    sent_total_bytes: int
    in_flight_bytes: int


class CongestionControl:
    """Congestion control of one queue pair. Derive a class from it and pass that class to `run_twin`.

    One object is made for every queue pair that sends data. It decides by setting `rate_bps` (link rate including all
    headers; 0: not paced) and `window_bytes` (counted in path MTUs; 0: no window), in `__init__` and in any event
    method that it defines: `on_ack`, `on_cnp`, `on_nak`, `on_timeout`, `on_sent`, and `on_timer` at `next_timer_ns`.
    """

    needs: ClassVar[Need] = Need(0)
    """Signals it depends on; the plan warns if the run does not provide one of them."""
    parameters: ClassVar[dict[str, float]] = {}
    """Name -> default value, used unless the scenario sets it; plain numbers."""

    rate_bps: int = 0
    window_bytes: int = 0
    next_timer_ns: int = NEVER_NS

    def __init__(self, path: CongestionPath, now_ns: int) -> None:
        self.path = path

    def on_ack(self, ack: CongestionAck) -> None:
        """React to an ACK."""

    def on_cnp(self, cnp: CongestionSignal) -> None:
        """React to a congestion notification packet."""

    def on_nak(self, nak: CongestionSignal) -> None:
        """React to a NAK for a sequence error."""

    def on_timeout(self, timeout: CongestionSignal) -> None:
        """React to a retransmission timeout."""

    def on_sent(self, sent: CongestionSent) -> None:
        """React to packets that were sent."""

    def on_timer(self, now_ns: int) -> None:
        """React to the time `next_timer_ns`; set the next one here."""


class CongestionFailed(EtloopError):
    """A Python congestion control raised an exception, which is the cause of this one."""


@dataclass(frozen=True, slots=True, eq=False)
class RegisteredCongestion:
    """A congestion control class registered with the engine."""

    library: str
    """Name that the engine accepts in place of a compiled plugin's path."""
    algorithm: Algorithm
    _failures: list[CongestionFailed]

    def refuse_failures(self) -> None:
        """Raise the first exception that the class raised during the run, if any."""
        if self._failures:
            raise self._failures[0]


# The structs of etloop_cc.h, in the same order; `_native` rejects a table of another size.
class _Parameter(ctypes.Structure):
    _fields_: ClassVar = [
        ("name", c_char_p),
        ("unit", c_uint32),
        ("reserved", c_uint32),
        ("initial", c_double),
        ("least", c_double),
        ("most", c_double),
        ("meaning", c_char_p),
    ]


class _Path(ctypes.Structure):
    _fields_: ClassVar = [
        ("parameters", POINTER(c_double)),
        ("line_rate_bps", c_uint64),
        ("most_window_bytes", c_uint64),
        ("base_rtt_ns", c_int64),
        ("mtu_bytes", c_uint32),
        ("packet_bytes", c_uint32),
    ]


class _Decision(ctypes.Structure):
    _fields_: ClassVar = [("rate_bps", c_uint64), ("window_bytes", c_uint64)]


class _Ack(ctypes.Structure):
    _fields_: ClassVar = [
        ("now_ns", c_int64),
        ("rtt_ns", c_int64),
        ("acked_bytes", c_uint64),
        ("acked_total_bytes", c_uint64),
        ("sent_total_bytes", c_uint64),
        ("in_flight_bytes", c_uint64),
        ("ecn_marked", c_uint32),
        ("hop_count", c_uint32),
        ("hops", c_void_p),
    ]


class _Signal(ctypes.Structure):
    _fields_: ClassVar = [
        ("now_ns", c_int64),
        ("acked_total_bytes", c_uint64),
        ("sent_total_bytes", c_uint64),
        ("in_flight_bytes", c_uint64),
    ]


class _Sent(ctypes.Structure):
    _fields_: ClassVar = [
        ("now_ns", c_int64),
        ("wire_bytes", c_uint64),
        ("sent_total_bytes", c_uint64),
        ("in_flight_bytes", c_uint64),
    ]


_State = POINTER(c_uint64)
_Check = CFUNCTYPE(c_char_p, POINTER(c_double))
_Init = CFUNCTYPE(None, _State, POINTER(_Path), c_int64, POINTER(_Decision))
_OnAck = CFUNCTYPE(None, _State, POINTER(_Path), POINTER(_Ack), POINTER(_Decision))
_OnSignal = CFUNCTYPE(None, _State, POINTER(_Path), POINTER(_Signal), POINTER(_Decision))
_OnSent = CFUNCTYPE(None, _State, POINTER(_Path), POINTER(_Sent), POINTER(_Decision))
_OnTimer = CFUNCTYPE(None, _State, POINTER(_Path), c_int64, POINTER(_Decision))
_NextTimer = CFUNCTYPE(c_int64, _State)


class _Table(ctypes.Structure):
    _fields_: ClassVar = [
        ("abi_version", c_uint32),
        ("table_bytes", c_uint32),
        ("name", c_char_p),
        ("meaning", c_char_p),
        ("needs", c_uint32),
        ("state_bytes", c_uint32),
        ("parameters", POINTER(_Parameter)),
        ("profiles", c_void_p),
        ("parameter_count", c_uint32),
        ("profile_count", c_uint32),
        ("check", _Check),
        ("init", _Init),
        ("on_ack", _OnAck),
        ("on_cnp", _OnSignal),
        ("on_nak", _OnSignal),
        ("on_timeout", _OnSignal),
        ("on_sent", _OnSent),
        ("on_timer", _OnTimer),
        ("next_timer_ns", _NextTimer),
    ]


def _ack_of(raw: Any) -> CongestionAck:
    return CongestionAck(
        raw.now_ns,
        raw.rtt_ns,
        raw.acked_bytes,
        raw.acked_total_bytes,
        raw.sent_total_bytes,
        raw.in_flight_bytes,
        bool(raw.ecn_marked),
    )


def _signal_of(raw: Any) -> CongestionSignal:
    return CongestionSignal(raw.now_ns, raw.acked_total_bytes, raw.sent_total_bytes, raw.in_flight_bytes)


def _sent_of(raw: Any) -> CongestionSent:
    return CongestionSent(raw.now_ns, raw.wire_bytes, raw.sent_total_bytes, raw.in_flight_bytes)


_EVENTS: Final[dict[str, tuple[Any, Callable[[Any], Any]]]] = {
    "on_ack": (_OnAck, _ack_of),
    "on_cnp": (_OnSignal, _signal_of),
    "on_nak": (_OnSignal, _signal_of),
    "on_timeout": (_OnSignal, _signal_of),
    "on_sent": (_OnSent, _sent_of),
}


class _Calls:
    """Callbacks of one table. The state blob of a queue pair holds the number of its `CongestionControl` object."""

    def __init__(self, kind: type[CongestionControl]) -> None:
        self.kind = kind
        self.failures: list[CongestionFailed] = []
        self._objects: list[CongestionControl | None] = [None]

    def init(self, state: Any, path: Any, now_ns: int, decision: Any) -> None:
        """Create the control of a queue pair, store its number in the state blob and write its first decision."""
        raw = path.contents
        names = tuple(self.kind.parameters)
        path_values = CongestionPath(
            {name: raw.parameters[number] for number, name in enumerate(names)},
            raw.line_rate_bps,
            raw.most_window_bytes,
            raw.base_rtt_ns,
            raw.mtu_bytes,
            raw.packet_bytes,
        )
        with self._record_failure("__init__"):
            self._objects.append(self.kind(path_values, now_ns))
            state[0] = len(self._objects) - 1
            self._decide(state, decision)

    def event(self, name: str, value_of: Callable[[Any], Any]) -> Callable[..., None]:
        """Return the callback of an event; `value_of` converts the event's C struct to its dataclass."""

        def call(state: Any, _: Any, raw: Any, decision: Any) -> None:
            self._call(name, state, decision, value_of(raw.contents))

        return call

    def on_timer(self, state: Any, _: Any, now_ns: int, decision: Any) -> None:
        """Forward a timer event to the control of a queue pair."""
        self._call("on_timer", state, decision, now_ns)

    def next_timer_ns(self, state: Any) -> int:
        """Return when the control of a queue pair wants its next timer event; `NEVER_NS` after any failure."""
        control = self._objects[state[0]]
        if control is None or self.failures:
            return NEVER_NS
        with self._record_failure("next_timer_ns"):
            return min(NEVER_NS, int(control.next_timer_ns))
        return NEVER_NS

    def _call(self, name: str, state: Any, decision: Any, value: Any) -> None:
        control = self._objects[state[0]]
        if control is None or self.failures:
            return
        with self._record_failure(name):
            getattr(control, name)(value)
            self._decide(state, decision)

    def _decide(self, state: Any, decision: Any) -> None:
        """Write rate and window of a control into `decision`. Raises ValueError if one is out of range."""
        control = self._objects[state[0]]
        assert control is not None
        for name in ("rate_bps", "window_bytes"):
            value = getattr(control, name)
            if not 0 <= value < 1 << 63:
                message = f"{name} is {value!r}, expected 0 to 2**63 - 1"
                raise ValueError(message)
            setattr(decision.contents, name, int(value))

    @contextmanager
    def _record_failure(self, event: str) -> Iterator[None]:
        """Record an exception of the class as `CongestionFailed`; it cannot propagate through native code."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  # whatever a user's class raises
            failed = CongestionFailed(f"{self.kind.__name__}.{event}: {type(error).__name__}: {error}")
            failed.__cause__ = error
            self.failures.append(failed)


def _is_own(kind: type[CongestionControl], name: str) -> bool:
    return getattr(kind, name) is not getattr(CongestionControl, name)


def word_of(kind: type[CongestionControl]) -> str:
    """Return the algorithm name of a class: letters and digits of its name in lower case ("MyControl": "mycontrol")."""
    return (
        "".join(letter for letter in kind.__name__.lower() if letter.isascii() and letter.isalnum()) or "own"
    )


@contextmanager
def register_class(kind: type[CongestionControl]) -> Iterator[RegisteredCongestion]:
    """Register a class with the engine for the duration of the block. Raises `CongestionFailed` if it cannot be used."""
    calls = _Calls(kind)
    rows = (_Parameter * max(len(kind.parameters), 1))()
    for row, (name, initial) in zip(rows, kind.parameters.items(), strict=False):
        row.name, row.unit, row.initial = name.encode(), Unit.RATIO, initial
        row.least, row.most, row.meaning = -1e18, 1e18, b"of a class in Python"
    table = _Table(
        abi_version=_native.CC_ABI_VERSION,
        table_bytes=ctypes.sizeof(_Table),
        name=word_of(kind).encode(),
        meaning=(kind.__doc__ or "in Python").partition("\n")[0].encode(),
        needs=int(kind.needs),
        state_bytes=ctypes.sizeof(c_uint64),
        parameters=rows,
        parameter_count=len(kind.parameters),
        init=_Init(calls.init),
    )
    for name, (form, value_of) in _EVENTS.items():
        if _is_own(kind, name):
            setattr(table, name, form(calls.event(name, value_of)))
    if _is_own(kind, "on_timer"):
        table.on_timer, table.next_timer_ns = _OnTimer(calls.on_timer), _NextTimer(calls.next_timer_ns)
    try:
        library = _native.cc_register(ctypes.addressof(table))
    except ValueError as error:
        raise CongestionFailed(f"{kind.__name__}: {error}") from None
    try:
        yield RegisteredCongestion(library, of_library(library), calls.failures)
    finally:
        _native.cc_forget(library)


__all__ = [
    "CongestionAck",
    "CongestionControl",
    "CongestionFailed",
    "CongestionPath",
    "CongestionSent",
    "CongestionSignal",
    "Need",
    "Parameter",
    "RegisteredCongestion",
    "register_class",
    "word_of",
]
