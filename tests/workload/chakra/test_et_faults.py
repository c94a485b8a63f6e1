"""What the decoder tolerates because real files have it, and every refusal with its text and place."""

from __future__ import annotations

from typing import Any, Final

import pytest

from etloop.workload._et import EtDecoder, EtFaultKind
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
from etloop.workload.trace.trace import NodeKind
from tests.support.traces.chakra_schema import decode, fault

NODE: Final = encode_node(EtNode(4, "n", NodeKind.COMP, (1,)))
TOLERATED: list[tuple[str, bytes, list[int]]] = [
    ("an empty GlobalMetadata", frame_message(b"") + frame_message(NODE), [4]),
    ("no GlobalMetadata: the file begins with a node", frame_message(NODE) + frame_message(NODE), [4, 4]),
    (
        "a leading node of id 0, which begins like metadata",
        frame_message(encode_node(EtNode(0, "n", NodeKind.COMP))),
        [0],
    ),
    (
        "a leading node of id 0 and type INVALID",
        frame_message(length_delimited(2, b"name") + length_delimited(10, length_delimited(1, b"x"))),
        [0],
    ),
    (
        "metadata with attributes and without a version",
        frame_message(encode_metadata("")[:0] + length_delimited(2, length_delimited(1, b"a"))),
        [],
    ),
    (
        "metadata whose attributes are field 1",
        frame_message(length_delimited(1, length_delimited(1, b"a") + varint(9 << 3) + b"\x05")),
        [],
    ),
    (
        "a metadata field of tomorrow",
        frame_message(length_delimited(1, b"2.0.0") + length_delimited(7, b"new")) + frame_message(NODE),
        [4],
    ),
    (
        "dependencies that are not packed",
        frame_message(b"") + frame_message(b"\x08\x09\x18\x04\x28\x01\x28\x02\x20\x03"),
        [9],
    ),
    (
        "a storage node",
        frame_message(b"")
        + frame_message(b"\x08\x09\x18\x08" + length_delimited(11, b"\x08\x01\x52\x02\x08\x03")),
        [9],
    ),
    ("a data operation", frame_message(b"") + frame_message(b"\x08\x09\x18\x09\x60\x01"), [9]),
    ("a node of the proposed type 10", frame_message(b"") + frame_message(b"\x08\x09\x18\x0a"), [9]),
    (
        "node fields of tomorrow",
        frame_message(b"") + frame_message(NODE + length_delimited(900, b"?") + varint(901 << 3) + b"\x01"),
        [4],
    ),
    ("a length longer than it need be", frame_message(b"") + bytes([len(NODE) | 0x80, 0]) + NODE, [4]),
    (
        "an attribute whose name comes last",
        frame_message(b"")
        + frame_message(b"\x18\x04" + length_delimited(10, b"\x48\x05" + length_delimited(1, b"num_ops"))),
        [0],
    ),
]


@pytest.mark.parametrize(
    ("sentence", "raw", "node_ids"), TOLERATED, ids=[sentence for sentence, *_ in TOLERATED]
)
def test_oddities_of_real_files_are_read(sentence: str, raw: bytes, node_ids: list[int]) -> None:
    del sentence
    for piece_bytes in (1, 1 << 20):
        assert decode(raw, piece_bytes).node_id.tolist() == node_ids


def test_unpacked_dependencies_keep_their_order() -> None:
    columns = decode(frame_message(b"") + frame_message(b"\x08\x09\x28\x01\x2a\x02\x03\x01\x28\x02\x20\x07"))
    assert columns.data_deps.tolist() == [1, 3, 1, 2]
    assert columns.ctrl_deps.tolist() == [7]


GROUP_NAMES: list[tuple[str, ValueCase, Any, str]] = [
    ("pg_name", ValueCase.STRING, "5", "5"),
    ("pg_name", ValueCase.STRING, "", ""),
    ("pg_name", ValueCase.INT64, 12, "12"),
    ("comm_group", ValueCase.INT32, 3, "3"),
    ("comm_group", ValueCase.UINT64, 3, "3"),
    ("pg_name", ValueCase.STRING, "d3b07384", "d3b07384"),
]


@pytest.mark.parametrize(("name", "case", "value", "group"), GROUP_NAMES)
def test_a_group_is_named_by_text_or_number(name: str, case: ValueCase, value: Any, group: str) -> None:
    node = EtNode(1, "", NodeKind.COMM_COLL, attributes=(EtAttribute(name, case, value),))
    columns = decode(b"".join(encode_trace([node, node])))
    assert columns.pg_names == [group]
    assert columns.pg_name.tolist() == [0, 0]


def one(*attributes: EtAttribute) -> bytes:
    return frame_message(b"") + frame_message(
        encode_node(EtNode(77, "n", NodeKind.COMM_COLL, attributes=attributes))
    )


VALUE, DAMAGED, OLD, LIMIT, TRUNCATED = (
    EtFaultKind.BAD_VALUE,
    EtFaultKind.DAMAGED,
    EtFaultKind.OLD_GENERATION,
    EtFaultKind.LIMIT,
    EtFaultKind.TRUNCATED,
)
SIZE: Final = "comm_size"
V002: Final = length_delimited(1, b"comm_size") + b"\x10\x01\x28\x05"
V003: Final = length_delimited(1, b"comm_size") + b"\x10\x02\x30\x05"
V003_LATE: Final = length_delimited(1, b"comm_size") + b"\x10\x03\x38\x05"
REFUSED: list[tuple[str, bytes, EtFaultKind, str, int | None, int | None]] = [
    ("nothing", b"", EtFaultKind.EMPTY, "has no bytes", None, None),
    (
        "a size as text",
        one(EtAttribute(SIZE, ValueCase.STRING, "1")),
        VALUE,
        "comm_size is a string_val, not a number",
        0,
        77,
    ),
    (
        "a size as list",
        one(EtAttribute(SIZE, ValueCase.INT64, (1,))),
        VALUE,
        "comm_size is a int64_list, not a number",
        0,
        77,
    ),
    (
        "a size without value",
        one(EtAttribute(SIZE, ValueCase.INT64, None)),
        VALUE,
        "comm_size has no value",
        0,
        77,
    ),
    (
        "a size that does not fit",
        one(EtAttribute(SIZE, ValueCase.UINT64, 1 << 63)),
        VALUE,
        "comm_size is 9223372036854775808, more than a signed 64-bit number holds",
        0,
        77,
    ),
    (
        "the one number that means absent",
        one(EtAttribute(SIZE, ValueCase.INT64, -1 << 63)),
        VALUE,
        "comm_size is -2^63, which no producer can mean",
        0,
        77,
    ),
    (
        "two sizes",
        one(EtAttribute(SIZE, ValueCase.INT64, 1), EtAttribute(SIZE, ValueCase.UINT64, 2)),
        VALUE,
        "comm_size is given twice with different values",
        0,
        77,
    ),
    (
        "two groups",
        one(EtAttribute("pg_name", ValueCase.STRING, "1"), EtAttribute("comm_group", ValueCase.INT32, 2)),
        VALUE,
        "comm_group disagrees with an earlier group attribute of the node",
        0,
        77,
    ),
    (
        "a group that is not text",
        frame_message(b"")
        + frame_message(
            b"\x08\x4d"
            + length_delimited(10, length_delimited(1, b"pg_name") + length_delimited(29, b"\xff"))
        ),
        VALUE,
        "pg_name is not UTF-8 text",
        0,
        77,
    ),
    (
        "a group name too long",
        one(EtAttribute("pg_name", ValueCase.STRING, "x" * 4097)),
        VALUE,
        "pg_name is a name of 4097 bytes, the limit is 4096",
        0,
        77,
    ),
    (
        "a group of bytes",
        one(EtAttribute("pg_name", ValueCase.BYTES, b"1")),
        VALUE,
        "pg_name is a bytes_val, neither a string nor a number",
        0,
        77,
    ),
    (
        "a value of another wire type",
        frame_message(b"")
        + frame_message(
            b"\x08\x4d" + length_delimited(10, length_delimited(1, b"comm_size") + length_delimited(9, b"1"))
        ),
        VALUE,
        "comm_size is a int64_val of another wire type than the schema gives it",
        0,
        77,
    ),
    (
        "an unknown node type",
        frame_message(b"") + frame_message(b"\x08\x05\x18\x0b"),
        DAMAGED,
        "node type 11 is unknown, the schema ends at 10",
        0,
        5,
    ),
    (
        "an id as text",
        frame_message(b"") + frame_message(length_delimited(1, b"5")),
        DAMAGED,
        "field 1 (id) has wire type 2, which the schema does not give it",
        0,
        None,
    ),
    (
        "a group field of proto2",
        frame_message(b"") + frame_message(b"\x08\x05\x0b"),
        DAMAGED,
        "the node has a field of a wire type that proto3 does not have",
        0,
        5,
    ),
    (
        "field number 0",
        frame_message(b"") + frame_message(b"\x08\x05\x00\x01"),
        DAMAGED,
        "the node has a field tag that no schema can have",
        0,
        5,
    ),
    (
        "a name that overruns its node",
        frame_message(b"") + frame_message(b"\x08\x05\x12\x7fab"),
        DAMAGED,
        "the node has a length that exceeds its message",
        0,
        5,
    ),
    (
        "a number cut off by its node",
        frame_message(b"") + frame_message(b"\x08\x05\x18\x84"),
        DAMAGED,
        "the node has a varint cut off by the end of its message",
        0,
        5,
    ),
    (
        "a number of 70 bits",
        frame_message(b"") + frame_message(b"\x08" + b"\xff" * 9 + b"\x7f"),
        DAMAGED,
        "the node has a varint longer than 64 bits",
        0,
        None,
    ),
    (
        "a dependency cut off",
        frame_message(b"") + frame_message(b"\x08\x05" + length_delimited(5, b"\x80")),
        DAMAGED,
        "a dependency list has a varint cut off by the end of its message",
        0,
        5,
    ),
    (
        "an attribute cut off",
        frame_message(b"") + frame_message(b"\x08\x05" + length_delimited(10, b"\x0a\x09x")),
        DAMAGED,
        "an attribute has a length that exceeds its message",
        0,
        5,
    ),
    (
        "an attribute named by a number",
        frame_message(b"") + frame_message(b"\x08\x05" + length_delimited(10, b"\x08\x09")),
        DAMAGED,
        "an attribute has an attribute whose name is not a string",
        0,
        5,
    ),
    (
        "a message without content",
        frame_message(b"") * 2,
        DAMAGED,
        "a message of 0 bytes where a node should be",
        0,
        None,
    ),
    (
        "a length of gigabytes",
        frame_message(b"") + b"\xff\xff\xff\x7f",
        LIMIT,
        "a message of 268435455 bytes, the limit is 67108864",
        0,
        None,
    ),
    (
        "a length that is no length",
        frame_message(b"") + b"\xff" * 9,
        DAMAGED,
        "no message length is this long",
        0,
        None,
    ),
    (
        "a version that is no text",
        frame_message(length_delimited(1, b"\xff")),
        DAMAGED,
        "the metadata's version is not a short text",
        None,
        None,
    ),
    (
        "metadata cut off inside itself",
        frame_message(b"\x0a\x50abc"),
        DAMAGED,
        "the metadata has a length that exceeds its message",
        None,
        None,
    ),
    (
        "an end inside a length",
        frame_message(b"") + b"\x80",
        TRUNCATED,
        "ends inside the length of a message",
        0,
        None,
    ),
    (
        "an end inside a node",
        frame_message(b"") + frame_message(b"\x08\x05\x12\x03abc")[:-2],
        TRUNCATED,
        "ends after 5 of the 7 bytes of a message",
        0,
        5,
    ),
    (
        "an end inside the metadata",
        frame_message(length_delimited(1, b"1.0.0"))[:-2],
        TRUNCATED,
        "ends after 5 of the 7 bytes of a message",
        None,
        None,
    ),
    (
        "v0.0.1: sizes in the node",
        frame_message(b"\x08\x01\x12\x01c\x18\x06\x68\x01\x90\x01\x40"),
        OLD,
        "v0.0.1",
        0,
        1,
    ),
    (
        "v0.0.1: a compute node",
        frame_message(b"\x08\x01\x12\x01c\x18\x03\x28\x01\x30\x40\x38\x05\x60\x09"),
        OLD,
        "v0.0.1",
        0,
        1,
    ),
    (
        "v0.0.1: tensor places",
        frame_message(b"\x08\x01\x12\x01c\x18\x01\x40\x01\x48\x10"),
        OLD,
        "v0.0.1",
        0,
        1,
    ),
    (
        "v0.0.2: an int is type 1",
        frame_message(b"\x08\x01\x12\x01c\x18\x06" + length_delimited(11, V002)),
        OLD,
        "v0.0.2",
        0,
        1,
    ),
    (
        "v0.0.2: a documented int",
        frame_message(
            b"\x08\x01\x12\x01c\x18\x06"
            + length_delimited(
                11, length_delimited(1, b"n") + b"\x10\x01" + length_delimited(3, b"why") + b"\x28\x07"
            )
        ),
        OLD,
        "v0.0.2",
        0,
        1,
    ),
    (
        "v0.0.3: an int is type 2",
        frame_message(b"\x08\x01\x12\x01c\x18\x07" + length_delimited(11, V003)),
        OLD,
        "v0.0.3",
        0,
        1,
    ),
    (
        "v0.0.3: metadata",
        frame_message(length_delimited(1, V003_LATE)),
        OLD,
        "v0.0.3 of August 2023 or later",
        None,
        None,
    ),
    (
        "v0.0.3: an int is type 3",
        frame_message(b"") + frame_message(b"\x08\x01" + length_delimited(11, V003_LATE)),
        OLD,
        "v0.0.3 of August 2023 or later",
        0,
        1,
    ),
    (
        "v0.0.2 or 3: shapes as text",
        frame_message(
            b"\x08\x01\x12\x01c\x18\x04" + length_delimited(5, b"[1]") + length_delimited(6, b"[[2]]")
        ),
        OLD,
        "v0.0.2 or v0.0.3",
        0,
        1,
    ),
]


@pytest.mark.parametrize(
    ("sentence", "raw", "kind", "what", "index", "node_id"),
    REFUSED,
    ids=[sentence for sentence, *_ in REFUSED],
)
def test_each_fault_is_told_with_its_node(
    sentence: str, raw: bytes, kind: EtFaultKind, what: str, index: int | None, node_id: int | None
) -> None:
    del sentence
    for piece_bytes in (1, 3, 1 << 20):
        found = fault(raw, piece_bytes)
        assert (found.kind, found.what) == (kind, what)
        assert (found.node_index, found.node_id) == (index, node_id)
        assert 0 <= found.byte_offset <= len(raw)


def test_the_offset_points_at_the_field() -> None:
    raw = (
        frame_message(b"")
        + frame_message(NODE)
        + frame_message(b"\x08\x05\x12\x01n\x18\x0b\x08\x06\x0a\x01x")
    )
    assert raw[fault(raw).byte_offset :] == b"\x0a\x01x"


def test_more_nodes_than_the_limit_are_refused() -> None:
    decoder = EtDecoder(max_nodes=2)
    assert not decoder.feed(frame_message(b"") + frame_message(NODE) * 3)
    assert decoder.fault is not None
    assert (decoder.fault.kind, decoder.fault.what) == (LIMIT, "more than 2 nodes")


def test_columns_are_given_out_only_when_they_are_complete() -> None:
    decoder = EtDecoder()
    decoder.feed(frame_message(b"") + frame_message(NODE))
    with pytest.raises(ValueError, match="once finish"):
        _ = decoder.columns
    assert decoder.finish()
    assert not decoder.feed(frame_message(NODE)), "the file has ended"
    kept = decoder.columns.node_id
    del decoder
    assert kept.tolist() == [4], "an array keeps its columns alive"


def test_a_fault_stops_the_decoder_for_good() -> None:
    decoder = EtDecoder()
    assert not decoder.feed(frame_message(b"") * 2)
    first = decoder.fault
    assert not decoder.feed(frame_message(NODE))
    assert not decoder.finish()
    assert first is not None
    assert decoder.fault is not None
    assert decoder.fault.what == first.what
