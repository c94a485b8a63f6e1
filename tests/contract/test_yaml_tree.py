"""YAML texts changed at key paths: what becomes of them, what stays, and what is refused."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.errors import ConfigError
from etloop.contract.base.units import QuantityError
from etloop.contract.base.yaml_tree import Change, changed_text, parse_path, value_text, values_by_path

TEXT = b"""\
trace: job   # a comment
scale: {bytes: 1/4, "time": "1"}
ports: [a/p0, b/p0]
empty:
"""


def node_of(text: str) -> yaml.Node:
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    assert node is not None
    return node


def changed(path: str, value: str) -> dict[str, str]:
    """Values by path after one change of TEXT."""
    text = changed_text(TEXT, "t", (Change(parse_path(path), node_of(value)),))
    return values_by_path(text.encode(), "t")


BEFORE = values_by_path(TEXT, "t")


def test_values_by_path() -> None:
    assert BEFORE == {
        "trace": "job",
        "scale.bytes": "1/4",
        "scale.time": "1",
        "ports.0": "a/p0",
        "ports.1": "b/p0",
        "empty": "",
    }


CHANGES: tuple[tuple[str, str, str, dict[str, str | None]], ...] = (
    ("a value is replaced", "trace", "other", {"trace": "other"}),
    ("one within a section", "scale.bytes", "1/8", {"scale.bytes": "1/8"}),
    ("an item of a list", "ports.1", "c/p0", {"ports.1": "c/p0"}),
    (
        "what is not there is made, sections too",
        "transport.cc.preset",
        "paper",
        {"transport.cc.preset": "paper"},
    ),
    ("also where a key stands empty", "empty.key", "1", {"empty.key": "1", "empty": None}),
    ("a section is a value", "new", "{a: 1, b: [x]}", {"new.a": "1", "new.b.0": "x"}),
    ("null takes a key away", "scale.time", "~", {"scale.time": None}),
    ("or an item", "ports.0", "~", {"ports.0": "b/p0", "ports.1": None}),
    ("or nothing where there is none", "transport.cc", "~", {}),
)


@pytest.mark.parametrize(
    ("path", "value", "expected"), [row[1:] for row in CHANGES], ids=[row[0] for row in CHANGES]
)
def test_a_change_changes_what_it_names(path: str, value: str, expected: dict[str, str | None]) -> None:
    wanted = {key: text for key, text in (BEFORE | expected).items() if text is not None}
    assert changed(path, value) == wanted


def test_later_changes_see_earlier_ones_and_values_may_be_used_again() -> None:
    section = node_of("{algorithm: swift}")
    number = node_of("5")
    changes = (Change(("a",), section), Change(("b",), section), Change(("a", "beta"), number))
    text = changed_text(b"x: 1\n", "t", changes)
    assert "&" not in text, "anchors are not read again"
    assert values_by_path(text.encode(), "t") == {
        "x": "1",
        "a.algorithm": "swift",
        "a.beta": "5",
        "b.algorithm": "swift",
    }


REFUSED = (
    (
        "trace.key",
        '"trace.key" goes below a single value; name the key itself, or give the section as the value',
    ),
    ("ports.2", '"ports.2" is not an item of a list of 2; number its items from 0'),
    ("ports.first", '"ports.first" is not an item of a list of 2; number its items from 0'),
    ("a..b", '"a..b" is not a key path; write keys with dots, such as transport.cc.preset'),
    ("a b", '"a b" is not a key path; write keys with dots, such as transport.cc.preset'),
)


@pytest.mark.parametrize(("path", "reported"), REFUSED)
def test_refusals(path: str, reported: str) -> None:
    with pytest.raises(QuantityError) as refused:
        changed(path, "1")
    assert f"{refused.value.what}; {refused.value.remedy}" == reported


def test_texts_that_no_file_may_have_are_refused_here_too() -> None:
    with pytest.raises(ConfigError, match="anchors and aliases"):
        changed_text(b"a: &x 1\nb: *x\n", "t", ())


plain = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=12)


@given(st.dictionaries(plain, plain | st.integers().map(str), min_size=1, max_size=5), plain)
def test_a_changed_text_says_what_it_was_told(values: dict[str, str], value: str) -> None:
    """Whatever the words are that YAML would take for something else: yes, 1e3, ~, quotes, colons."""
    key = next(iter(values))
    text = yaml.safe_dump(values, allow_unicode=True)
    node = yaml.ScalarNode("tag:yaml.org,2002:str", value)
    again = changed_text(text.encode(), "t", (Change((key,), node),))
    assert yaml.safe_load(again) == values | {key: value}


def test_values_in_one_line() -> None:
    node = node_of("{a: [1, {b: c}], d: x}")
    assert value_text(node) == "{a: [1, {b: c}], d: x}"
