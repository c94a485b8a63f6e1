"""Encodes Chakra messages into the bytes of a trace file, exactly as protocol buffers serialise them.

Decides the encoding only (field numbers of mlcommons/chakra:schema/protobuf/et_def.proto, v0.0.4 to 1.0.0). Leaves
the choice of nodes to the callers (`synthetic`, nodes.py), writing files to readers/et_writer.py, and reading to the
native decoder (workload/native).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NewType

from etloop.workload.trace.trace import NodeKind

SCHEMA_VERSION: Final = "1.0.0"

_MASK_64: Final = (1 << 64) - 1


class ValueCase(IntEnum):
    """A member of `AttributeProto.value`, by its field number. The list of a case has the next even field number."""

    DOUBLE = 3
    FLOAT = 5
    INT32 = 7
    INT64 = 9
    UINT32 = 11
    UINT64 = 13
    SINT32 = 15
    SINT64 = 17
    FIXED32 = 19
    FIXED64 = 21
    SFIXED32 = 23
    SFIXED64 = 25
    BOOL = 27
    STRING = 29
    BYTES = 31


Scalar = bool | int | float | str | bytes
Framed = NewType("Framed", bytes)
"""Encoded messages, each with its length in front, as a trace file holds them."""

_FIXED_FORMATS: Final = {
    ValueCase.DOUBLE: "<d",
    ValueCase.FLOAT: "<f",
    ValueCase.FIXED32: "<I",
    ValueCase.FIXED64: "<Q",
    ValueCase.SFIXED32: "<i",
    ValueCase.SFIXED64: "<q",
}
_ZIGZAG_CASES: Final = (ValueCase.SINT32, ValueCase.SINT64)
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class EtAttribute:
    """One `AttributeProto`. A tuple is written as the list of its case; None is written as a name without a value."""

    name: str
    case: ValueCase
    value: Scalar | tuple[Scalar, ...] | None


@dataclass(frozen=True, slots=True)
class EtNode:
    """One `Node`. Dependencies are ids of nodes of the same rank."""

    node_id: int
    name: str
    kind: NodeKind
    data_deps: tuple[int, ...] = ()
    ctrl_deps: tuple[int, ...] = ()
    start_us: int = 0
    duration_us: int = 0
    attributes: tuple[EtAttribute, ...] = ()
    moved_bytes: int | None = None
    """Bytes that a storage node moves, written as `size_bytes` of its FsOp; None for other nodes."""


def varint(value: int) -> bytes:
    """Encode `value` as a base-128 varint; a negative value as its 64-bit two's complement, as int32 and int64 do."""
    remaining = value & _MASK_64
    encoded = bytearray()
    while remaining >= 0x80:
        encoded.append(remaining & 0x7F | 0x80)
        remaining >>= 7
    encoded.append(remaining)
    return bytes(encoded)


def length_delimited(field: int, body: bytes) -> bytes:
    """Encode a length-delimited field: tag, length, `body`."""
    return varint(field << 3 | _BYTES) + varint(len(body)) + body


def frame_message(message: bytes) -> Framed:
    """Return a message with its length in front."""
    return Framed(varint(len(message)) + message)


def encode_attribute(attribute: EtAttribute) -> bytes:
    """Encode one `AttributeProto`. A value set in a oneof is written even if it is zero."""
    name = length_delimited(1, attribute.name.encode())
    if attribute.value is None:
        return name
    if not isinstance(attribute.value, tuple):
        return name + _scalar_field(attribute.case, attribute.case, attribute.value)
    return name + length_delimited(attribute.case + 1, _list_message(attribute.case, attribute.value))


def encode_metadata(version: str = SCHEMA_VERSION, attributes: Iterable[EtAttribute] = ()) -> bytes:
    """Encode the `GlobalMetadata` at the start of a file. An empty `version` is omitted."""
    head = length_delimited(1, version.encode()) if version else b""
    return head + b"".join(length_delimited(2, encode_attribute(attribute)) for attribute in attributes)


def encode_node(node: EtNode) -> bytes:
    """Encode one `Node`. As in proto3, zero numbers and empty lists are omitted and dependencies are packed."""
    return b"".join(
        (
            _number_field(1, node.node_id),
            length_delimited(2, node.name.encode()) if node.name else b"",
            _number_field(3, node.kind),
            _packed_field(4, node.ctrl_deps),
            _packed_field(5, node.data_deps),
            _number_field(6, node.start_us),
            _number_field(7, node.duration_us),
            encode_node_attributes(node.attributes),
            _storage_field(node.moved_bytes),
        )
    )


def encode_node_attributes(attributes: Iterable[EtAttribute]) -> bytes:
    """Encode attributes as fields of a `Node`. After those of `encode_node` they are further attributes of that node."""
    return b"".join(length_delimited(10, encode_attribute(attribute)) for attribute in attributes)


def encode_trace(nodes: Iterable[EtNode | Framed], metadata: bytes | None = None) -> Iterator[Framed]:
    """Yield the messages of one rank's file, in order. `metadata` is an encoded `GlobalMetadata`; None writes the default."""
    yield frame_message(encode_metadata() if metadata is None else metadata)
    for node in nodes:
        yield frame_message(encode_node(node)) if isinstance(node, EtNode) else node


def _number_field(field: int, value: int) -> bytes:
    return varint(field << 3 | _VARINT) + varint(value) if value else b""


def _storage_field(moved_bytes: int | None) -> bytes:
    """Encode StorageInfo with the size_bytes of an FsOp. A size of 0 is written, because it differs from an absent
    size."""
    return (
        b""
        if moved_bytes is None
        else length_delimited(11, length_delimited(10, varint(5 << 3) + varint(moved_bytes)))
    )


def _packed_field(field: int, values: tuple[int, ...]) -> bytes:
    return length_delimited(field, b"".join(varint(value) for value in values)) if values else b""


def _list_message(case: ValueCase, values: tuple[Scalar, ...]) -> bytes:
    if not values:
        return b""
    if case in (ValueCase.STRING, ValueCase.BYTES):
        return b"".join(_scalar_field(1, case, value) for value in values)
    return length_delimited(1, b"".join(_number(case, value) for value in values))


def _scalar_field(field: int, case: ValueCase, value: Scalar) -> bytes:
    if isinstance(value, str):
        return length_delimited(field, value.encode())
    if isinstance(value, bytes):
        return length_delimited(field, value)
    return varint(field << 3 | _wire_type(case)) + _number(case, value)


def _wire_type(case: ValueCase) -> int:
    if case not in _FIXED_FORMATS:
        return _VARINT
    return _FIXED64 if struct.calcsize(_FIXED_FORMATS[case]) == 8 else _FIXED32


def _number(case: ValueCase, value: Scalar) -> bytes:
    if case in _FIXED_FORMATS:
        return struct.pack(_FIXED_FORMATS[case], value)
    number = int(value)
    return varint(number << 1 ^ number >> 63 if case in _ZIGZAG_CASES else number)
