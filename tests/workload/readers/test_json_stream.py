"""JSON in pieces of any size is the same JSON; what is none, too deep, too long or out of range is refused with its place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.workload.readers import json_stream
from etloop.workload.readers.amd_workload_graph import read_workload_graph
from etloop.workload.readers.chakra_jsonizer import read_jsonizer
from etloop.workload.readers.json_stream import JsonFault, as_int, as_ns, documents, members
from etloop.workload.readers.pytorch.execution_trace import read_host_trace
from etloop.workload.readers.pytorch.kineto import read_kineto
from tests.support.traces.json_traces_by_hand import kernel, kineto

TEXT = b'\xef\xbb\xbf {"a": 1, "n": [ {"x": [1, 2]}, -12, "\xc3\xa9]}" ], "b": {"n": [3]}, "e": []} \n'

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def read(text: bytes, piece_bytes: int = 1 << 20, bare: str = "") -> list[tuple[str, int, Any]]:
    pieces = [text[at : at + piece_bytes] for at in range(0, len(text), piece_bytes)]
    return [(item.key, item.index, item.value) for item in members(pieces, frozenset({"n", "e"}), bare)]


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 7, 1000])
def test_pieces_of_any_size_are_one_document(piece_bytes: int) -> None:
    assert read(TEXT, piece_bytes) == [
        ("a", -1, 1),
        ("n", 0, {"x": [1, 2]}),
        ("n", 1, -12),
        ("n", 2, "é]}"),
        ("b", -1, {"n": [3]}),
        ("e", -1, []),
    ]


@given(st.lists(VALUES, max_size=4), VALUES, st.integers(1, 9))
def test_any_document_comes_back(elements: list[Any], other: Any, piece_bytes: int) -> None:
    text = json.dumps({"n": elements, "b": other}).encode()
    streamed = [("n", i, one) for i, one in enumerate(elements)] or [("n", -1, [])]
    assert read(text, piece_bytes) == [*streamed, ("b", -1, other)]


@given(st.lists(VALUES, max_size=4), st.integers(1, 9))
def test_values_behind_each_other_come_back(values: list[Any], piece_bytes: int) -> None:
    text = "\n".join(map(json.dumps, values)).encode()
    pieces = [text[at : at + piece_bytes] for at in range(0, len(text), piece_bytes)]
    assert [item.value for item in documents(pieces)] == values


def test_an_array_may_stand_for_the_object_around_it() -> None:
    assert read(b"[1, [2]]", bare="n") == [("n", 0, 1), ("n", 1, [2])]


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 7, 1000])
def test_values_that_are_no_number_are_texts(piece_bytes: int) -> None:
    text = b'{"n": [{"GB/s": inf, "name": "inf, nan"}, -inf, nan, NaN, -Infinity], "b": 1}'
    assert read(text, piece_bytes) == [
        *(("n", 0, {"GB/s": "i", "name": "inf, nan"}), ("n", 1, "-i"), ("n", 2, "n"), ("n", 3, "NaN")),
        *(("n", 4, "-Infinity"), ("b", -1, 1)),
    ]


BROKEN = [
    ("nothing at all", b"", "expected { at character 0, found the end of the text"),
    ("an array where an object belongs", b"[]", 'expected { at character 0, found "["'),
    (
        "a text that is cut off inside an element",
        b'{"n": [1, {"x": ',
        "n[1]: is not JSON: Expecting value at character 16",
    ),
    (
        "a text that is cut off between elements",
        b'{"n": [1,',
        "n[1]: expected a value at character 9, found the end of the text",
    ),
    ("an element without a comma", b'{"n": [1 2]}', 'n[0]: expected , or ] at character 9, found "2"'),
    ("a key without a value", b'{"a"}', 'a: expected : at character 4, found "}"'),
    ("infinity and more", b'{"a": info}', "a: is not JSON: Expecting value at character 6"),
    (
        "a number of very many digits",
        b'{"a": ' + b"9" * 5000 + b"}",
        "a: has a number that cannot be read (too many digits)",
    ),
    ("lists in lists without end", b'{"a": ' + b"[" * 100_000, "a: is nested too deeply"),
    ("the nodes given twice", b'{"n": [], "n": []}', "n: is a duplicate key"),
    ("something behind the end", b"{} {}", "has more text after its end at character 3"),
]


@pytest.mark.parametrize(("sentence", "text", "message"), BROKEN, ids=[one for one, *_ in BROKEN])
def test_what_is_no_document_is_refused_with_its_place(sentence: str, text: bytes, message: str) -> None:
    del sentence
    with pytest.raises(JsonFault) as raised:
        read(text)
    assert str(raised.value).startswith(message)


def test_limits_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "MAX_ELEMENTS", 2)
    monkeypatch.setattr(json_stream, "MAX_VALUE", 10)
    monkeypatch.setattr(json_stream, "MAX_TEXT", 400)
    assert len(read(b'{"n": [1, 2]}')) == 2
    for text, message in (
        (b'{"n": [1, 2, 3]}', "n: has more than 2 elements"),
        (b'{"n": [1, 2], "e": [3]}', "e: has more than 2 elements"),
        (b'{"a": "' + b"x" * 300, "a: is not JSON, or longer than 0 Mi characters"),
        (b'{"a": 1' + b" " * 500, "is over the limit of 0 Gi characters"),
    ):
        with pytest.raises(JsonFault, match=message):
            read(text, 20)
    with pytest.raises(JsonFault, match="more than 2 values"):
        list(documents([b"1 2 3"]))


def test_a_rank_has_only_so_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "MAX_KEPT", 1)
    node = b'{"id": 1, "name": "x"}'
    for read_one, text in (
        (read_host_trace, b'{"nodes": [' + node + b"," + node + b"]}"),
        (read_workload_graph, b'{"workload_graph": [' + b'{"Id": 1, "NodeType": 4},' * 2 + b"0]}"),
        (read_jsonizer, b"{}" + node * 2),
        (read_kineto, kineto(*[kernel("x", 1, 1)] * 3)),
    ):
        with pytest.raises(JsonFault, match="is over the limit of 1 nodes of one rank"):
            read_one([text])


def test_numbers_are_of_their_range() -> None:
    assert as_int("-12", "x") == -12
    assert as_ns(1.5, "x") == 1500
    assert as_ns(1694128201429795, "x") == 1694128201429795000
    for value in (True, 1.0, None, "1e3", "9" * 30, 1 << 63, [1], "\uff11"):
        with pytest.raises(JsonFault, match="expected an integer"):
            as_int(value, "x")
    for value in (True, "1", None, float("inf"), 1e300, 1 << 62):
        with pytest.raises(JsonFault, match="expected a time"):
            as_ns(value, "x")
