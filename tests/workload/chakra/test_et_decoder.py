"""Our encoder and decoder against protocol buffers' own: each reads what the other writes, in any chunking."""

from __future__ import annotations

import struct
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.workload._et import EtColumns
from etloop.workload.chakra.encoder import (
    EtAttribute,
    EtNode,
    ValueCase,
    encode_metadata,
    encode_node,
    encode_trace,
    frame_message,
    length_delimited,
    varint,
)
from etloop.workload.trace.trace import ABSENT, NodeKind
from tests.support.traces.chakra_schema import OfficialMetadata, OfficialNode, decode, fault, official

INT64_MAX: Final = (1 << 63) - 1
NUMERIC: Final = (
    "comm_type",
    "comm_size",
    "comm_src",
    "comm_dst",
    "comm_tag",
    "is_cpu_op",
    "num_ops",
    "tensor_size",
    "stream",
)


INTEGERS: Final = {
    ValueCase.INT32: (-(1 << 31), (1 << 31) - 1),
    ValueCase.INT64: (-INT64_MAX, INT64_MAX),
    ValueCase.UINT32: (0, (1 << 32) - 1),
    ValueCase.UINT64: (0, INT64_MAX),
    ValueCase.SINT32: (-(1 << 31), (1 << 31) - 1),
    ValueCase.SINT64: (-INT64_MAX, INT64_MAX),
    ValueCase.FIXED32: (0, (1 << 32) - 1),
    ValueCase.FIXED64: (0, INT64_MAX),
    ValueCase.SFIXED32: (-(1 << 31), (1 << 31) - 1),
    ValueCase.SFIXED64: (-INT64_MAX, INT64_MAX),
}
texts = st.text(st.characters(codec="utf-8"), max_size=12)
ids = st.integers(0, (1 << 64) - 1)
scalars: Final[dict[ValueCase, st.SearchStrategy[Any]]] = {
    **{case: st.integers(least, most) for case, (least, most) in INTEGERS.items()},
    ValueCase.BOOL: st.booleans(),
    ValueCase.DOUBLE: st.floats(allow_nan=False),
    ValueCase.FLOAT: st.floats(width=32, allow_nan=False),
    ValueCase.STRING: texts,
    ValueCase.BYTES: st.binary(max_size=12),
}


@st.composite
def other_attributes(draw: st.DrawFn) -> EtAttribute:
    case = draw(st.sampled_from(ValueCase))
    value = draw(st.none() | scalars[case] | st.lists(scalars[case], max_size=4).map(tuple))
    return EtAttribute("x" + draw(texts), case, value)


@st.composite
def numeric_attributes(draw: st.DrawFn) -> tuple[EtAttribute, ...]:
    chosen = draw(st.lists(st.sampled_from(NUMERIC), unique=True))
    cases = st.sampled_from([*INTEGERS, ValueCase.BOOL])
    return tuple(EtAttribute(name, case, draw(scalars[case])) for name in chosen for case in [draw(cases)])


@st.composite
def nodes(draw: st.DrawFn) -> EtNode:
    known = draw(numeric_attributes())
    group = draw(st.none() | texts.filter(lambda text: len(text.encode()) <= 40))
    named = () if group is None else (EtAttribute("pg_name", ValueCase.STRING, group),)
    others = draw(st.lists(other_attributes(), max_size=3))
    return EtNode(
        draw(ids),
        draw(texts),
        draw(st.sampled_from(NodeKind)),
        tuple(draw(st.lists(ids, max_size=5))),
        tuple(draw(st.lists(ids, max_size=5))),
        draw(ids),
        draw(ids),
        tuple(draw(st.permutations([*known, *named, *others]))),
    )


not_empty_nodes: Final = nodes().filter(encode_node)
"""Without the node that is all default, which is 0 bytes: the decoder takes those for a file filled with zeros."""


def assert_columns_hold(columns: EtColumns, written: list[EtNode]) -> None:
    assert columns.node_id.tolist() == [node.node_id for node in written]
    assert columns.kind.tolist() == [node.kind for node in written]
    assert columns.start_us.tolist() == [node.start_us for node in written]
    assert columns.duration_us.tolist() == [node.duration_us for node in written]
    for i, node in enumerate(written):
        data = columns.data_deps[columns.data_dep_offsets[i] : columns.data_dep_offsets[i + 1]]
        ctrl = columns.ctrl_deps[columns.ctrl_dep_offsets[i] : columns.ctrl_dep_offsets[i + 1]]
        name = columns.name_bytes[columns.name_offsets[i] : columns.name_offsets[i + 1]]
        assert (tuple(data), tuple(ctrl), name) == (node.data_deps, node.ctrl_deps, node.name.encode())
        values = {attribute.name: attribute.value for attribute in node.attributes}
        for name_ in NUMERIC:
            assert getattr(columns, name_)[i] == values.get(name_, ABSENT)
        group = columns.pg_name[i]
        assert (None if group < 0 else columns.pg_names[group]) == values.get("pg_name")


@given(st.lists(not_empty_nodes, max_size=6), st.integers(1, 40))
def test_what_we_write_is_what_we_read_in_any_chunking(written: list[EtNode], piece_bytes: int) -> None:
    raw = b"".join(encode_trace(written))
    columns = decode(raw, piece_bytes)
    assert_columns_hold(columns, written)
    assert columns.version == "1.0.0"
    for offset, node in zip(columns.byte_offset.tolist(), written, strict=True):
        assert raw[offset:].startswith(frame_message(encode_node(node)))


@given(nodes())
def test_protocol_buffers_read_what_we_write(node: EtNode) -> None:
    assert OfficialNode.FromString(encode_node(node)) == official(node)


@given(st.lists(not_empty_nodes, max_size=4))
def test_we_read_what_protocol_buffers_write(written: list[EtNode]) -> None:
    metadata = OfficialMetadata(version="0.0.4")
    metadata.attr.add(name="schema", string_val="1.1.0-chakra.0.0.4")
    raw = b"".join(
        frame_message(message.SerializeToString()) for message in [metadata, *map(official, written)]
    )
    columns = decode(raw)
    assert_columns_hold(columns, written)
    assert (columns.version, columns.schema) == ("0.0.4", "1.1.0-chakra.0.0.4")


@given(texts, st.lists(other_attributes(), max_size=4))
def test_protocol_buffers_read_our_metadata(version: str, attributes: list[EtAttribute]) -> None:
    expected = OfficialMetadata(version=version)
    for attribute in official(EtNode(0, "", NodeKind.INVALID, attributes=tuple(attributes))).attr:
        expected.attr.append(attribute)
    assert OfficialMetadata.FromString(encode_metadata(version, attributes)) == expected


@given(st.floats(width=32), st.sampled_from([ValueCase.FLOAT, ValueCase.DOUBLE]))
def test_a_real_number_is_taken_if_it_is_an_integer(value: float, case: ValueCase) -> None:
    raw = frame_message(b"") + frame_message(
        encode_node(EtNode(1, "", NodeKind.COMP, attributes=(EtAttribute("num_ops", case, value),)))
    )
    if value.is_integer() and abs(value) < 1 << 63:
        assert decode(raw).num_ops.tolist() == [int(value)]
    else:
        assert "not an integer of 64 bits" in fault(raw).what


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, (1 << 32) - 1, (1 << 64) - 1, -1])
def test_varints_are_those_of_protocol_buffers(value: int) -> None:
    encoded = varint(value)
    assert len(encoded) == max(1, -(-(value & (1 << 64) - 1).bit_length() // 7))
    assert OfficialNode.FromString(b"\x08" + encoded).id == value & (1 << 64) - 1


def test_integers_of_32_bits_lose_the_bits_that_protocol_buffers_drop() -> None:
    body = length_delimited(1, b"comm_tag") + varint(ValueCase.INT32 << 3) + varint((5 << 32) - 2)
    assert decode(frame_message(b"") + frame_message(length_delimited(10, body))).comm_tag.tolist() == [-2]
    assert struct.pack("<q", -2)[:4] == struct.pack("<i", -2)
