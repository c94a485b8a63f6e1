"""The attribute `in_split_bytes`, which the schema does not have: read by us, in either encoding, and refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from etloop.workload._et import EtFaultKind
from etloop.workload.chakra.encoder import (
    EtAttribute,
    EtNode,
    ValueCase,
    encode_metadata,
    encode_node,
    frame_message,
    length_delimited,
    varint,
)
from etloop.workload.chakra.nodes import SPLIT_ATTRIBUTE
from etloop.workload.readers.et_writer import write_trace
from etloop.workload.readers.files import read_trace
from etloop.workload.trace.trace import NodeKind
from tests.support.traces.chakra_schema import decode, fault


def node(*attributes: EtAttribute, node_id: int = 1) -> EtNode:
    return EtNode(node_id, "a2a", NodeKind.COMM_COLL, attributes=attributes)


def file_of(*bodies: bytes) -> bytes:
    return frame_message(encode_metadata()) + b"".join(frame_message(body) for body in bodies)


def splits(*entries: int) -> EtAttribute:
    return EtAttribute(SPLIT_ATTRIBUTE, ValueCase.INT64, entries)


def test_entries_stand_in_rows_of_their_nodes() -> None:
    columns = decode(
        file_of(*(encode_node(one) for one in (node(), node(splits(3, 0, 5)), node(), node(splits(7)))))
    )
    assert columns.split_offsets.tolist() == [0, 0, 3, 3, 4]
    assert columns.send_split_bytes.tolist() == [3, 0, 5, 7]


def test_entries_that_are_not_packed_are_read_alike() -> None:
    loose = b"".join(varint(1 << 3) + varint(entry) for entry in (9, 300))
    attribute = length_delimited(1, SPLIT_ATTRIBUTE.encode()) + length_delimited(10, loose)
    columns = decode(file_of(encode_node(node()) + length_delimited(10, attribute)))
    assert columns.send_split_bytes.tolist() == [9, 300]


def test_a_trace_without_splits_has_no_column(tmp_path: Path) -> None:
    write_trace(tmp_path / "a", [[node()]])
    write_trace(tmp_path / "b", [[node(splits(1, 2))]])
    assert read_trace(tmp_path / "a").ranks[0].send_splits is None
    entries = read_trace(tmp_path / "b").ranks[0].send_splits
    assert entries is not None
    assert entries.values.tolist() == [1, 2]


WRONG = [
    (
        "another case",
        node(EtAttribute(SPLIT_ATTRIBUTE, ValueCase.INT64, 5)),
        "is a int64_val, not an int64_list",
    ),
    (
        "a list of text",
        node(EtAttribute(SPLIT_ATTRIBUTE, ValueCase.STRING, ("5",))),
        "is a string_list, not an int64_list",
    ),
    ("no value", node(EtAttribute(SPLIT_ATTRIBUTE, ValueCase.INT64, None)), "has no value"),
    ("twice", node(splits(1), splits(1)), "is given twice"),
]


@pytest.mark.parametrize(("wrong", "what"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_what_is_no_list_of_sizes_is_refused(wrong: EtNode, what: str) -> None:
    found = fault(file_of(encode_node(wrong)))
    assert (found.kind, found.what) == (EtFaultKind.BAD_VALUE, f"{SPLIT_ATTRIBUTE} {what}")


@pytest.mark.parametrize(
    "body", [length_delimited(1, b"\xff"), varint(1 << 3 | 5) + b"\0\0\0\0", b"\x0a\x05\x01"]
)
def test_a_damaged_list_is_refused(body: bytes) -> None:
    attribute = length_delimited(1, SPLIT_ATTRIBUTE.encode()) + length_delimited(10, body)
    assert fault(file_of(encode_node(node()) + length_delimited(10, attribute))).kind is EtFaultKind.BAD_VALUE
