"""Messages <-> bytes: one codec per type, derived once from the annotations of contract/protocol/messages.py.

A body is the msgpack array [major, minor, message name, fields by name]. numpy columns travel as [type name, shape,
bytes], little-endian, of the closed set `_ARRAY_NAMES`. Decoding trusts nothing: another version, an unknown message,
an unknown or missing field, a wrong type, array type, shape or size raises `ProtocolError` naming message and field,
and no other exception leaves this module. Whether the values make sense together is for those who use them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]  # ships no types
import numpy as np
from etloop.contract.base.errors import ProtocolError
from etloop.contract.base.evolution import (
    has_default,
    is_default,
    is_droppable,
    laid_out,
    layout_at,
    message_since,
    since_of,
)
from etloop.contract.base.ip_address import IP_ADDRESS
from etloop.contract.model.records import (
    CC_RECORD,
    FLOW_RECORD,
    OP_RECORD,
    PORT_RECORD,
    RECORD_COLUMNS_SINCE,
    WAIT_RECORD,
)
from etloop.contract.protocol.messages import (
    MAX_TEXT_CHARS,
    MAX_TO_AGENT_BYTES,
    MAX_TO_CONTROLLER_BYTES,
    OLDEST_MINOR,
    PROTOCOL_VERSION,
    AgentMessage,
    ControllerMessage,
    Hello,
    ProtocolVersion,
)
from numpy.typing import NDArray

_MAX_ITEMS: Final = 1 << 20
"""Most elements of one tuple (not of a numpy column): a million communicator slots."""
_MAX_FIELDS: Final = 64
"""Most entries of one map; no message has as many fields."""
_ENVELOPE_ITEMS: Final = 4

_ARRAY_NAMES: Final[Mapping[str, np.dtype[Any]]] = {
    "u1": np.dtype("u1"),
    "i1": np.dtype("i1"),
    "u2": np.dtype("<u2"),
    "i2": np.dtype("<i2"),
    "u4": np.dtype("<u4"),
    "i4": np.dtype("<i4"),
    "u8": np.dtype("<u8"),
    "i8": np.dtype("<i8"),
    "ip address": IP_ADDRESS,
    "op record": OP_RECORD,
    "flow record": FLOW_RECORD,
    "rate record": CC_RECORD,
    "port record": PORT_RECORD,
    "wait record": WAIT_RECORD,
}


class VersionMismatch(ProtocolError):
    """The peer speaks another version of the protocol."""

    def __init__(self, theirs: ProtocolVersion) -> None:
        oldest = ProtocolVersion(PROTOCOL_VERSION.major, OLDEST_MINOR)
        spoken = f"{oldest} to {PROTOCOL_VERSION}" if oldest != PROTOCOL_VERSION else str(PROTOCOL_VERSION)
        super().__init__(
            f"the peer speaks protocol {theirs}, this side {spoken}; "
            "install the same etloop on the controller and on every agent"
        )
        self.theirs = theirs


class MessageTooLarge(ProtocolError):
    """A message of ours exceeds what its direction allows."""


class PeerTooOld(ProtocolError):
    """A message of ours means something that the peer's minor version cannot be told."""


class Unsayable(Exception):
    """A field that an older peer does not know has a value that it must know."""

    def __init__(self, field: str, minor: int) -> None:
        super().__init__(field)
        self.field = field
        self.minor = minor


class Misfit(Exception):
    """A value that does not fit its annotation; each level on the way out adds its part of the path."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path = ""

    def under(self, part: str) -> Misfit:
        self.path = part + self.path
        return self


@dataclass(frozen=True, slots=True)
class _Codec:
    pack: Callable[[Any], object]
    unpack: Callable[[object], Any]


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a codec is made for: the fields of a minor version, strangers among them refused or passed over."""

    minor: int
    passes_over: bool = False


def encode(message: AgentMessage | ControllerMessage, minor: int | None = None) -> bytes:
    """The bytes of `message` for a peer of that minor version; without one, for a peer of our own.

    Raises `ProtocolError` if a field breaks its own annotation, `MessageTooLarge` above the limit, `PeerTooOld` if the
    peer would not know what is meant.
    """
    minor = PROTOCOL_VERSION.minor if minor is None else minor
    kind = type(message)
    name = kind.__name__
    if message_since(kind) > minor:
        raise _too_old(name, message_since(kind), minor)
    try:
        fields = _codecs(Dialect(minor))[name].pack(message)
    except Misfit as misfit:
        raise ProtocolError(f"{name}{misfit.path}: {misfit.what}") from None
    except Unsayable as unsayable:
        raise _too_old(unsayable.field, unsayable.minor, minor) from None
    limit = MAX_TO_CONTROLLER_BYTES if name in _AGENT_NAMES else MAX_TO_AGENT_BYTES
    body = msgpack.packb([PROTOCOL_VERSION.major, minor, name, fields], use_bin_type=True)
    if len(body) > limit:
        raise MessageTooLarge(f"{name}: {len(body)} bytes; a message of this direction has at most {limit}")
    return typing.cast("bytes", body)


def _too_old(what: str, needed: int, minor: int) -> PeerTooOld:
    major = PROTOCOL_VERSION.major
    return PeerTooOld(
        f"the peer speaks protocol {ProtocolVersion(major, minor)}, and {what} needs "
        f"{ProtocolVersion(major, needed)}; upgrade etloop there"
    )


def decode_from_agent(body: bytes) -> AgentMessage:
    """The message an agent sent. Raises `ProtocolError`, or `VersionMismatch` before anything else is looked at."""
    return read_from_agent(body)[0]


def decode_from_controller(body: bytes) -> ControllerMessage:
    """The message a controller sent. Raises as `decode_from_agent`."""
    return read_from_controller(body)[0]


def read_from_agent(body: bytes) -> tuple[AgentMessage, int]:
    """The message an agent sent, and the minor version to answer it in. Raises as `decode_from_agent`.

    The Hello of a newer agent is read as far as it is known here: told this side's version by the answer, the agent
    goes on in it.
    """
    message, minor = _decode(body, _AGENT_NAMES, "an agent", MAX_TO_CONTROLLER_BYTES)
    return typing.cast("AgentMessage", message), minor


def read_from_controller(body: bytes) -> tuple[ControllerMessage, int]:
    """The message a controller sent, and the minor version to answer it in. Raises as `decode_from_agent`."""
    message, minor = _decode(body, _CONTROLLER_NAMES, "a controller", MAX_TO_AGENT_BYTES)
    return typing.cast("ControllerMessage", message), minor


def _decode(body: bytes, names: frozenset[str], sender: str, limit: int) -> tuple[object, int]:
    if len(body) > limit:
        raise ProtocolError(f"message of {len(body)} bytes; {sender} sends at most {limit}")
    envelope = _unpacked(body)
    if not isinstance(envelope, list) or len(envelope) != _ENVELOPE_ITEMS:
        raise ProtocolError("not a message: expected an array of version, version, name and fields")
    major, minor, name, fields = envelope
    if type(major) is not int or type(minor) is not int:
        raise ProtocolError("not a message: the protocol version is not two integers")
    newer = minor > PROTOCOL_VERSION.minor
    greeting = newer and name == Hello.__name__ and name in names
    if major != PROTOCOL_VERSION.major or minor < OLDEST_MINOR or (newer and not greeting):
        raise VersionMismatch(ProtocolVersion(major, minor))
    if type(name) is not str:
        raise ProtocolError(f"not a message: its name is {_kind(name)}, expected text")
    dialect = Dialect(min(minor, PROTOCOL_VERSION.minor), passes_over=greeting)
    if name not in names or message_since(_KINDS[name]) > dialect.minor:
        raise ProtocolError(f"{_quoted(name)} is no message that {sender} sends")
    try:
        return _codecs(dialect)[name].unpack(fields), dialect.minor
    except Misfit as misfit:
        raise ProtocolError(f"{name}{misfit.path}: {misfit.what}") from None


def _unpacked(body: bytes) -> object:
    try:
        return msgpack.unpackb(
            body,
            raw=False,
            strict_map_key=True,
            max_str_len=4 * MAX_TEXT_CHARS,
            max_bin_len=len(body),
            max_array_len=_MAX_ITEMS,
            max_map_len=_MAX_FIELDS,
            max_ext_len=0,
            object_pairs_hook=_without_repeats,
        )
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise ProtocolError(f"not a message: {str(error) or type(error).__name__}") from None


def _without_repeats(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field stands twice")
    return fields


def _kind(value: object) -> str:
    names = {dict: "a map", list: "an array", str: "text", bytes: "binary", type(None): "nothing"}
    return names.get(type(value), type(value).__name__)


def _quoted(text: str) -> str:
    return ascii(text if len(text) <= 40 else text[:40] + "...")


# ---- codecs by annotation


def codec_of(annotation: Any, dialect: Dialect) -> _Codec:
    """The codec of an annotation; a type that has none is our own mistake and fails at import."""
    scalar = _SCALARS.get(annotation)
    if scalar is not None:
        return scalar
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _array_codec(arguments[1], dialect)
    if origin is np.ndarray:
        return _array_codec(np.dtype(typing.get_args(arguments[1])[0]), dialect)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _tuple_codec(codec_of(arguments[0], dialect))
    if origin is dict and arguments == (str, str):
        return _text_map_codec()
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _enum_codec(annotation)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return _dataclass_codec(annotation, dialect)
    raise AssertionError(f"no codec for {annotation}")


def _checked_int(value: object) -> int:
    if type(value) is not int:
        raise Misfit(f"expected an integer, got {_kind(value)}")
    if not -(1 << 63) <= value < 1 << 63:
        raise Misfit(f"{value} does not fit in 64 bits with sign")
    return value


def _checked_bool(value: object) -> bool:
    if type(value) is not bool:
        raise Misfit(f"expected true or false, got {_kind(value)}")
    return value


def _checked_text(value: object) -> str:
    if type(value) is not str:
        raise Misfit(f"expected text, got {_kind(value)}")
    if len(value) > MAX_TEXT_CHARS:
        raise Misfit(f"text of {len(value)} characters; at most {MAX_TEXT_CHARS} are allowed")
    return value


def _checked_float(value: object) -> float:
    if type(value) is not float:
        raise Misfit(f"expected a number with a fraction, got {_kind(value)}")
    if not math.isfinite(value):
        raise Misfit(f"{value} is no finite number")
    return value


_SCALARS: Final[Mapping[Any, _Codec]] = {
    int: _Codec(_checked_int, _checked_int),
    bool: _Codec(_checked_bool, _checked_bool),
    float: _Codec(_checked_float, _checked_float),
    str: _Codec(_checked_text, _checked_text),
}


def _enum_codec(kind: type[Enum]) -> _Codec:
    def unpack(value: object) -> Enum:
        name = _checked_text(value)
        try:
            return kind[name]
        except KeyError:
            raise Misfit(f"{_quoted(name)} is none of {', '.join(kind.__members__)}") from None

    return _Codec(lambda value: value.name, unpack)


def _each(items: typing.Sequence[object], convert: Callable[[Any], object]) -> list[Any]:
    if len(items) > _MAX_ITEMS:
        raise Misfit(f"{len(items)} items; at most {_MAX_ITEMS} are allowed")
    converted: list[Any] = []
    try:
        converted.extend(convert(item) for item in items)
    except Misfit as misfit:
        raise misfit.under(f"[{len(converted)}]") from None
    return converted


def _tuple_codec(item: _Codec) -> _Codec:
    def pack(value: tuple[object, ...]) -> object:
        return _each(value, item.pack)

    def unpack(value: object) -> tuple[Any, ...]:
        if type(value) is not list:
            raise Misfit(f"expected an array, got {_kind(value)}")
        return tuple(_each(value, item.unpack))

    return _Codec(pack, unpack)


def _text_map_codec() -> _Codec:
    def check(value: object) -> dict[str, str]:
        if type(value) is not dict or len(value) > _MAX_FIELDS:
            raise Misfit(f"expected a map of at most {_MAX_FIELDS} texts, got {_kind(value)}")
        return {_checked_text(key): _checked_text(text) for key, text in value.items()}

    return _Codec(check, check)


def _array_codec(dtype: np.dtype[Any], dialect: Dialect) -> _Codec:
    name = next(name for name, known in _ARRAY_NAMES.items() if known == dtype)
    ours = _ARRAY_NAMES[name]
    theirs = layout_at(ours, RECORD_COLUMNS_SINCE.get(name, {}), dialect.minor)

    def pack(value: object) -> object:
        if not isinstance(value, np.ndarray) or value.dtype != dtype or value.ndim != 1:
            found = f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else _kind(value)
            raise Misfit(f"expected a column of {name}, got {found}")
        return [name, [len(value)], laid_out(value.astype(ours, copy=False), theirs).tobytes()]

    def unpack(value: object) -> NDArray[Any]:
        return laid_out(_array_from(value, name, theirs), ours)

    return _Codec(pack, unpack)


def _array_from(value: object, name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    if type(value) is not list or len(value) != 3:
        raise Misfit(f"expected a column as type name, shape and bytes, got {_kind(value)}")
    found, shape, content = value
    if type(found) is not str or found != name:
        raise Misfit(
            f"expected a column of {name}, got {_quoted(found) if type(found) is str else _kind(found)}"
        )
    if type(shape) is not list or len(shape) != 1 or type(shape[0]) is not int or shape[0] < 0:
        raise Misfit("expected a shape of one length")
    if type(content) is not bytes:
        raise Misfit(f"expected the column's bytes as binary, got {_kind(content)}")
    if len(content) != shape[0] * dtype.itemsize:
        raise Misfit(f"{shape[0]} x {name} take {shape[0] * dtype.itemsize} bytes, got {len(content)}")
    return np.frombuffer(content, dtype=dtype)


def _dataclass_codec(kind: type[Any], dialect: Dialect) -> _Codec:
    # Modules import numpy for type checkers only, so its names are handed in.
    hints = typing.get_type_hints(kind, localns={"np": np, "NDArray": NDArray}, include_extras=True)
    fields = dataclasses.fields(kind)
    assert all(has_default(field) for field in fields if since_of(field)), f"{kind}: since without a default"
    codecs = {
        field.name: codec_of(hints[field.name], dialect)
        for field in fields
        if since_of(field) <= dialect.minor
    }
    unknown_there = tuple(
        field for field in fields if since_of(field) > dialect.minor and not is_droppable(field)
    )
    names = frozenset(codecs)

    def pack(value: object) -> object:
        if type(value) is not kind:
            raise Misfit(f"expected {kind.__name__}, got {_kind(value)}")
        for field in unknown_there:
            if not is_default(field, getattr(value, field.name)):
                raise Unsayable(f"{kind.__name__}.{field.name}", since_of(field))
        return _by_field(codecs, lambda field, codec: codec.pack(getattr(value, field)))

    def unpack(value: object) -> Any:
        if type(value) is not dict:
            raise Misfit(f"expected the fields of {kind.__name__} as a map, got {_kind(value)}")
        if not names <= value.keys() or (value.keys() != names and not dialect.passes_over):
            _refuse_fields(names, value)
        return kind(**_by_field(codecs, lambda field, codec: codec.unpack(value[field])))

    return _Codec(pack, unpack)


def _by_field(codecs: Mapping[str, _Codec], convert: Callable[[str, _Codec], object]) -> dict[str, Any]:
    converted: dict[str, Any] = {}
    for field, codec in codecs.items():
        try:
            converted[field] = convert(field, codec)
        except Misfit as misfit:
            raise misfit.under(f".{field}") from None
    return converted


def _refuse_fields(names: frozenset[str], value: Mapping[Any, object]) -> None:
    unknown = sorted(_quoted(str(key)) for key in value if key not in names)
    missing = sorted(names - value.keys())
    mistakes = [f"unknown field {', '.join(unknown)}"] if unknown else []
    mistakes += [f"missing field {', '.join(missing)}"] if missing else []
    raise Misfit("; ".join(mistakes))


def _kinds(union: Any) -> dict[str, type[Any]]:
    assert isinstance(union, types.UnionType)
    return {kind.__name__: kind for kind in union.__args__}


_AGENT_KINDS: Final = _kinds(AgentMessage)
_CONTROLLER_KINDS: Final = _kinds(ControllerMessage)
_KINDS: Final = _AGENT_KINDS | _CONTROLLER_KINDS
_AGENT_NAMES: Final = frozenset(_AGENT_KINDS)
_CONTROLLER_NAMES: Final = frozenset(_CONTROLLER_KINDS)


@functools.cache
def _codecs(dialect: Dialect) -> Mapping[str, _Codec]:
    """The codec of every message in one dialect; there are few."""
    return {name: codec_of(kind, dialect) for name, kind in _KINDS.items()}


_codecs(Dialect(PROTOCOL_VERSION.minor))  # A type without a codec fails at import.
