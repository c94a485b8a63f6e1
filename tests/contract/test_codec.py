"""The codec of frozen values: what it knows survives both ways, all else is refused with every mistake by its path."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from etloop.contract.base.errors import Problem
from etloop.contract.protocol.codec import codec_of, plain
from etloop.contract.protocol.typed_form import FILE_RULES, JSON_RULES, MAX_PROBLEMS, Misfit, Rules, field

ROW = np.dtype([("count", "<i8"), ("lanes", "<u2", 2), ("queues", [("bytes", "<i8")], 2)])
BINARY = Rules(binary=True)


class Colour(StrEnum):
    """By value."""

    RED = "dark red"
    BLUE = "blue"


class Level(Enum):
    """By name."""

    LOW = 1
    HIGH = 2


class Code(IntEnum):
    """An integer to whom a field says so."""

    NONE = 0
    FAILED = 30


@dataclass(frozen=True, slots=True)
class Inner:
    """Part of the value."""

    name: str = field("What it is called.", max_length=8)
    number: int = field("How many.", minimum=1, maximum=5)


@dataclass(frozen=True, slots=True)
class Outer:
    """One of everything but columns."""

    inner: Inner
    others: tuple[Inner, ...] = ()
    ratio: float = 1.0
    on: bool = False
    colour: Colour = Colour.RED
    level: Level = Level.LOW
    pair: tuple[str, int] = ("a", 1)
    numbers: tuple[int, ...] = ()
    words: tuple[str, ...] = field("At most two.", max_length=2, default=())
    labels: dict[str, tuple[int, ...]] = field("At most two.", max_length=2, default_factory=dict)
    maybe: Inner | None = None
    anything: Any = None


WHOLE = Outer(
    Inner("x", 1),
    (Inner("y", 2), Inner("z", 5)),
    0.5,
    True,
    Colour.BLUE,
    Level.HIGH,
    ("b", 2),
    (1, -(1 << 63)),
    ("p", "q"),
    {"k": (1, 2)},
    Inner("m", 3),
    {"free": [1, None]},
)
PLAIN: dict[str, Any] = {
    "inner": {"name": "x", "number": 1},
    "others": [{"name": "y", "number": 2}, {"name": "z", "number": 5}],
    "ratio": 0.5,
    "on": True,
    "colour": "blue",
    "level": "HIGH",
    "pair": ["b", 2],
    "numbers": [1, -(1 << 63)],
    "words": ["p", "q"],
    "labels": {"k": [1, 2]},
    "maybe": {"name": "m", "number": 3},
    "anything": {"free": [1, None]},
}


def problems_of(
    value: object, kind: type[Any] = Outer, rules: Rules = JSON_RULES, where: str = ""
) -> list[str]:
    with pytest.raises(Misfit) as caught:
        codec_of(kind, rules).read(value, where)
    return [f"{each.where}: {each.what}" for each in caught.value.problems]


def test_a_value_survives_both_ways() -> None:
    assert plain(WHOLE) == PLAIN
    assert codec_of(Outer, JSON_RULES).read(PLAIN) == WHOLE
    assert codec_of(Outer, JSON_RULES) is codec_of(Outer, JSON_RULES), "it is made once"


def test_what_has_a_default_may_be_left_out() -> None:
    assert codec_of(Outer, JSON_RULES).read({"inner": {"name": "x", "number": 1}}) == Outer(Inner("x", 1))


REFUSED: dict[str, tuple[dict[Any, Any], str]] = {
    "a list for an object": ({"inner": []}, "inner: expected an object, got a list of 0"),
    "null for an object": ({"inner": None}, "inner: expected an object, got null"),
    "a number too large": (
        {"inner": {"name": "", "number": 9}},
        "inner.number: expected an integer of 1 to 5, got 9",
    ),
    "a fraction for an integer": (
        {"inner": {"name": "", "number": 1.0}},
        "inner.number: expected an integer, got 1.0",
    ),
    "true for an integer": ({"numbers": [1, True]}, "numbers[1]: expected an integer, got true"),
    "an integer beyond 64 bits": ({"numbers": [1 << 63]}, "numbers[0]: expected an integer of -922"),
    "an integer beyond all floats": ({"ratio": 10**400}, "ratio: expected an integer of -922"),
    "text for a number": ({"ratio": "1"}, 'ratio: expected a number, got "1"'),
    "infinity": ({"ratio": float("inf")}, "ratio: expected a finite number, got inf"),
    "no number at all": ({"ratio": float("nan")}, "ratio: expected a finite number, got nan"),
    "a number for true": ({"on": 1}, "on: expected true or false, got 1"),
    "a name for a value": ({"colour": "RED"}, 'colour: expected one of dark red, blue, got "RED"'),
    "a value for a name": ({"level": 1}, "level: expected one of LOW, HIGH, got 1"),
    "a row too short": ({"pair": ["a"]}, "pair: expected a list of 2, got a list of 1"),
    "another type in a row": ({"pair": ["a", "b"]}, 'pair[1]: expected an integer, got "b"'),
    "a text too long": (
        {"inner": {"name": "x" * 9, "number": 1}},
        "inner.name: expected at most 8 characters, got 9",
    ),
    "a list too long": ({"words": ["a", "b", "c"]}, "words: expected at most 2 items, got 3"),
    "text for a list": ({"words": "ab"}, 'words: expected a list, got "ab"'),
    "a map too large": ({"labels": {"a": [], "b": [], "c": []}}, "labels: expected at most 2 entries, got 3"),
    "a key too long": (
        {"labels": {"k" * 5000: []}},
        "labels: expected at most 4096 characters of a key, got 5000",
    ),
    "keys that are no text": ({"labels": {1: []}}, "labels: expected an object, got an object of 1 keys"),
    "a mistake in a map": ({"labels": {"k\n": [None]}}, "labels.k\\n[0]: expected an integer, got null"),
    "bytes": ({"anything": 1, "words": [b"abc"]}, "words[0]: expected text, got 3 bytes"),
    "a stranger": ({"odd": 1}, "odd: is not a key here"),
    "a stranger that is no text": ({7: 1}, "7: is not a key here"),
}


@pytest.mark.parametrize(("change", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_fit_is_refused_by_its_path(change: dict[Any, Any], expected: str) -> None:
    (found,) = problems_of(PLAIN | change)
    assert found.startswith(expected)


def test_all_mistakes_are_reported_with_where_the_whole_came_from() -> None:
    value = {"inner": {"name": 1}, "odd": 1, "others": [{"name": "a", "number": 0}, 5]}
    assert problems_of(value, where="file.json") == [
        "file.json.odd: is not a key here",
        "file.json.inner.name: expected text, got 1",
        "file.json.inner.number: is missing",
        "file.json.others[0].number: expected an integer of 1 to 5, got 0",
        "file.json.others[1]: expected an object, got 5",
    ]
    assert problems_of(3) == ["the message: expected an object, got 3"]
    assert problems_of(3, where="file.json") == ["file.json: expected an object, got 3"]


def test_remedies_say_what_may_stand_there() -> None:
    with pytest.raises(Misfit) as caught:
        codec_of(Inner, JSON_RULES).read({"nam": "x", "number": "1"})
    assert caught.value.problems == (
        Problem("nam", "is not a key here", "the keys are name, number"),
        Problem("name", "is missing", "What it is called."),
        Problem("number", 'expected an integer, got "1"', "write an integer"),
    )


def test_of_many_mistakes_the_first_are_reported() -> None:
    assert len(problems_of(PLAIN | {"numbers": [None] * 100_000}, rules=FILE_RULES)) == MAX_PROBLEMS
    assert len(problems_of({f"k{number}": 1 for number in range(100_000)})) == MAX_PROBLEMS


def test_who_may_be_newer_may_say_more() -> None:
    newer = PLAIN | {"later": 1, "inner": {"name": "x", "number": 1, "later": 2}}
    assert codec_of(Outer, Rules(skip_unknown=True)).read(newer) == WHOLE


def test_whole_numbers_are_numbers() -> None:
    read = codec_of(Outer, JSON_RULES).read(PLAIN | {"ratio": 2})
    assert type(read.ratio) is float


@dataclass(frozen=True, slots=True)
class Ours:
    """What we write ourselves."""

    text: str
    number: int
    words: tuple[str, ...]


def test_writing_checks_types_and_no_bounds() -> None:
    assert plain(Inner("x" * 99, 99)) == {"name": "x" * 99, "number": 99}
    assert plain(Ours(Colour.BLUE, Code.FAILED, ("a",))) == {"text": "blue", "number": 30, "words": ["a"]}
    with pytest.raises(Misfit, match=r"words\[0\]: expected text, got 1"):
        plain(Ours("", 1, (1,)))  # type: ignore[arg-type]
    with pytest.raises(
        Misfit, match="number: expected an integer of 64 bits with sign, got 9223372036854775808"
    ):
        plain(Ours("", 1 << 63, ()))


# ---- columns


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Columns and a row."""

    small: NDArray[np.uint8]
    large: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """A row of counters."""

    row: Annotated[np.void, ROW]


def test_columns_are_lists_in_json_and_bytes_in_msgpack() -> None:
    value = Columns(np.array([1, 255], np.uint8), np.arange(20_000, dtype=np.int64))
    assert plain(value)["small"] == [1, 255]
    name, length, content = plain(value, BINARY)["large"]
    assert (name, length, len(content)) == ("i8", 20_000, 160_000)
    for rules in (JSON_RULES, BINARY):
        written = plain(value, rules)
        if rules is BINARY:
            written = {key: [*column[:2], bytes(column[2])] for key, column in written.items()}
        read = codec_of(Columns, rules).read(written)
        assert read.small.dtype == np.uint8
        assert read.small.tolist() == [1, 255]
        assert np.array_equal(read.large, value.large)
    assert plain(Columns(np.zeros(0, np.uint8), np.arange(6)[::2]), BINARY)["large"][1] == 3


COLUMNS_REFUSED = {
    "a number too large": (
        {"small": [0, 256], "large": []},
        "small[1]: expected an integer of 0 to 255, got 256",
    ),
    "a negative one": ({"small": [-1], "large": []}, "small[0]: expected an integer of 0 to 255, got -1"),
    "a fraction": ({"small": [], "large": [1, 1.5]}, "large[1]: expected an integer, got 1.5"),
    "true": ({"small": [True], "large": []}, "small[0]: expected an integer, got true"),
    "no list": ({"small": {}, "large": []}, "small: expected a list, got an object of 0 keys"),
}


@pytest.mark.parametrize(("value", "expected"), COLUMNS_REFUSED.values(), ids=COLUMNS_REFUSED.keys())
def test_a_column_of_something_else_is_refused(value: dict[str, Any], expected: str) -> None:
    assert problems_of(value, Columns) == [expected]


def test_a_row_is_an_object_by_its_fields() -> None:
    rows = np.zeros(2, ROW)
    rows["count"], rows["lanes"], rows["queues"]["bytes"] = 7, [1, 2], [3, 4]
    written = {"row": {"count": 7, "lanes": [1, 2], "queues": [{"bytes": 3}, {"bytes": 4}]}}
    assert plain(Counted(rows[1])) == written
    assert codec_of(Counted, JSON_RULES).read(written).row.tobytes() == rows[1].tobytes()
    written["row"] |= {"lanes": [1, 70_000], "queues": [{}, {"bytes": 1, "more": 2}], "count": None}
    assert problems_of(written, Counted) == [
        "row.count: expected an integer of -9223372036854775808 to 9223372036854775807, got null",
        "row.lanes[1]: expected an integer of 0 to 65535, got 70000",
        "row.queues[0].bytes: is missing",
        "row.queues[1].more: is not a key here",
    ]


JSONISH = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=4)
    ),
    max_leaves=15,
)


@given(st.sampled_from(sorted(PLAIN)), JSONISH)
def test_any_value_of_a_key_is_read_or_refused(key: str, value: object) -> None:
    try:
        read = codec_of(Outer, JSON_RULES).read(PLAIN | {key: value})
    except Misfit:
        return
    assert plain(read) == PLAIN | {key: value}


def test_a_type_that_has_no_codec_is_our_own_mistake() -> None:
    @dataclass(frozen=True)
    class Odd:
        values: set[int]

    with pytest.raises(AssertionError, match="no codec for set"):
        codec_of(Odd, JSON_RULES)
