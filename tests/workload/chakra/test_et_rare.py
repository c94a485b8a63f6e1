"""What few nodes have: flags of dimensions and the bytes of storage operations, read in any encoding or refused by name."""

from __future__ import annotations

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
from etloop.workload.readers.node_rows import dimension_flags
from etloop.workload.trace.trace import ABSENT, NodeKind
from tests.support.traces.chakra_schema import decode, fault

PLAIN = encode_node(EtNode(9, "c", NodeKind.COMP))


def file_of(*bodies: bytes) -> bytes:
    return frame_message(encode_metadata()) + b"".join(frame_message(body) for body in bodies)


def having(name: str, case: ValueCase, value: int | bool | tuple[bool, ...] | tuple[int, ...]) -> bytes:
    return encode_node(EtNode(1, "r", NodeKind.COMM_COLL, attributes=(EtAttribute(name, case, value),)))


FLAGS: list[tuple[bytes, int, str]] = [
    (having("involved_dim", ValueCase.BOOL, (True, False)), dimension_flags([True, False]), "a list"),
    (having("involved_dim", ValueCase.BOOL, False), dimension_flags([False]), "one flag"),
    (having("involved_dim", ValueCase.BOOL, ()), ABSENT, "an empty list says nothing"),
    (
        encode_node(EtNode(1, "r", NodeKind.COMM_COLL))
        + length_delimited(
            10, length_delimited(1, b"involved_dim") + length_delimited(28, b"\x08\x00\x08\x01")
        ),
        dimension_flags([False, True]),
        "a list that is not packed",
    ),
    (having("involved_dim", ValueCase.BOOL, (True,) * 32), dimension_flags([True] * 32), "32 dimensions"),
]


@pytest.mark.parametrize(("body", "expected", "why"), FLAGS, ids=[row[2] for row in FLAGS])
def test_flags_of_dimensions(body: bytes, expected: int, why: str) -> None:
    dims = decode(file_of(PLAIN, body, PLAIN)).involved_dims.tolist()
    assert dims == ([] if expected == ABSENT else [ABSENT, expected, ABSENT]), why


BAD_FLAGS = [
    (having("involved_dim", ValueCase.INT64, (1, 0)), "involved_dim is a int64_list, not a bool_list"),
    (having("involved_dim", ValueCase.BOOL, (True,) * 33), "involved_dim has 33 dimensions, the limit is 32"),
    (
        encode_node(EtNode(1, "r", NodeKind.COMM_COLL))
        + length_delimited(
            10, length_delimited(1, b"involved_dim") + length_delimited(28, b"\x0d\x00\x00\x00\x00")
        ),
        "involved_dim has entries that are not flags",
    ),
]


@pytest.mark.parametrize(("body", "text"), BAD_FLAGS, ids=["numbers", "too-many", "not-flags"])
def test_flags_that_are_none(body: bytes, text: str) -> None:
    found = fault(file_of(body))
    assert (found.kind, found.what) == (EtFaultKind.BAD_VALUE, text)


def storage(detail: int, field: int, value: int, kind: NodeKind = NodeKind.STORAGE) -> bytes:
    """A node whose StorageInfo has one operation with one field."""
    operation = varint(1 << 3) + varint(3) + varint(field << 3) + varint(value)
    return encode_node(EtNode(1, "s", kind)) + length_delimited(
        11, b"\x08\x01" + length_delimited(detail, operation)
    )


MOVED = [
    (storage(10, 5, 64 << 20), 64 << 20, "bytes of a file"),
    (storage(11, 4, 3), 3 * 4096, "pages"),
    (storage(12, 5, 8), 8 * 512, "sectors of a block device"),
    (storage(10, 4, 99), ABSENT, "an offset is no size"),
    (storage(10, 5, 64, NodeKind.COMP), ABSENT, "only of storage nodes"),
]


@pytest.mark.parametrize(("body", "expected", "why"), MOVED, ids=[row[2] for row in MOVED])
def test_bytes_that_a_storage_operation_moves(body: bytes, expected: int, why: str) -> None:
    moved = decode(file_of(PLAIN, body)).moved_bytes.tolist()
    assert moved == ([] if expected == ABSENT else [ABSENT, expected]), why


def test_more_bytes_than_a_number_holds() -> None:
    found = fault(file_of(storage(12, 5, 1 << 60)))
    assert found.what == "storage moves more bytes than a signed 64-bit number holds"


def test_a_column_that_no_node_has_is_empty() -> None:
    columns = decode(file_of(PLAIN))
    for name in ("start_nanos", "duration_nanos", "involved_dims", "moved_bytes"):
        assert not len(getattr(columns, name))
