"""Types whose fields declare keys of a file: what is read, what stays at its default, and where mistakes are reported."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from pathlib import Path

import pytest

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.questions import noted_questions
from etloop.contract.base.setting import (
    group,
    groups,
    list_setting,
    mapping_setting,
    optional_group,
    required_setting,
    setting,
    setting_like,
    setting_of,
    variant,
)
from etloop.contract.base.settings_reader import read_file, read_settings
from etloop.contract.base.units import parse_name
from etloop.contract.base.value_parsers import file_name, integer, one_of, yes_or_no
from etloop.contract.base.yaml_reader import ConfigFile, read_document


@dataclass(frozen=True, slots=True)
class Inner:
    """A group."""

    depth: int = setting("depth", integer(1, 9), 3, "Depth of a queue.")


@dataclass(frozen=True, slots=True)
class Outer:
    """A mapping with every kind of field."""

    enabled: bool = setting("on", yes_or_no, True, "Whether it is on.")
    codes: tuple[int, ...] = list_setting("codes", integer(0, 63), "Its codes.")
    nested: Inner = group(Inner, "queue", "Its queue.")
    inline: Inner = group(Inner)
    internal: int = 7
    """Not a key."""


def read(text: str, **known: object) -> Outer:
    file = ConfigFile("f.yaml")
    top = read_document(text.encode(), file)
    value = read_settings(Outer, top, **known)
    top.close()
    file.refuse_mistakes()
    return value


@pytest.mark.parametrize(
    ("sentence", "text", "expected"),
    [
        ("absent keys have their defaults", "{}", Outer()),
        ("a value", "on: false", Outer(enabled=False)),
        ("a list", "codes: [1, 2]", Outer(codes=(1, 2))),
        ("a single value is a list of one", "codes: 5", Outer(codes=(5,))),
        ("a group under its key", "queue: {depth: 9}", Outer(nested=Inner(9))),
        ("a group without a key reads the same mapping", "depth: 2", Outer(inline=Inner(2))),
    ],
)
def test_read(sentence: str, text: str, expected: Outer) -> None:
    assert read(text) == expected, sentence


def test_known_fields_are_not_read() -> None:
    assert read("{}", enabled=False, internal=1) == Outer(enabled=False, internal=1)
    with pytest.raises(ConfigError, match=r"f\.yaml:1: on: unknown key"):
        read("on: true", enabled=False)


def test_every_mistake_is_reported_at_its_place() -> None:
    with pytest.raises(ConfigError) as caught:
        read("on: maybe\ncodes: [64]\nqueue:\n  depth: 0\n  depht: 1\ninternal: 2\n")
    assert [problem.where for problem in caught.value.problems] == [
        "f.yaml:1: on",
        "f.yaml:2: codes[0]",
        "f.yaml:4: queue.depth",
        "f.yaml:5: queue.depht",
        "f.yaml:6: internal",
    ]


def test_the_reference_gets_the_meaning_of_every_key() -> None:
    with noted_questions() as asked:
        read("{}")
    assert {question.path: question.meaning for question in asked} == {
        "on": "Whether it is on.",
        "codes": "Its codes.",
        "queue": "Its queue.",
        "queue.depth": "Depth of a queue.",
        "depth": "Depth of a queue.",
    }


def test_a_field_without_a_declaration_is_no_key() -> None:
    assert [field.name for field in fields(Outer) if setting_of(field) is None] == ["internal"]


@dataclass(frozen=True, slots=True)
class Lossy:
    """A variant."""

    drop: int = setting("drop", integer(0, 9), 1, "Drops.")


@dataclass(frozen=True, slots=True)
class Delayed:
    """Another variant, with a required key."""

    delay: int = required_setting("delay", integer(0, 9), 0, "write a delay")


@dataclass(frozen=True, slots=True)
class Link:
    """An item of a list, with a rule between its keys."""

    name: str = required_setting("name", parse_name, "?", "name it")
    label: str = setting_like("label", parse_name, "name")
    kind: str = setting("kind", one_of({"lossy": "lossy", "delayed": "delayed"}), "lossy", "Kind.")
    behaviour: Lossy | Delayed = variant("kind", {"lossy": Lossy, "delayed": Delayed})

    def broken_rules(self, keys: Collection[str]) -> Iterator[Problem]:
        if self.label == "x" and "kind" not in keys:
            yield Problem("label", "x needs a kind", "write kind")


@dataclass(frozen=True, slots=True)
class Whole:
    """A file with every kind of field that may hold several values."""

    links: tuple[Link, ...] = groups(Link, "links", remedy="list the links", most=2)
    weights: Mapping[str, int] = mapping_setting(integer(1, 9), "weights", parse_name, "a weight.")
    queue: Inner | None = optional_group(Inner, "queue")
    log: Path | None = setting("log", file_name, None, "Log file.")

    def broken_rules(self, _: Collection[str]) -> Iterator[Problem]:
        for index, link in enumerate(self.links):
            if link.name == "bad":
                yield Problem(f"links[{index}].name", "is bad", "write good")


def test_groups_variants_names_and_files() -> None:
    text = b"""
links: [{name: a}, {name: b, label: c, kind: delayed, delay: 3}]
weights: {p0: 2}
log: run.log
"""
    assert read_file(Whole, text, "w.yaml", Path("dir")) == Whole(
        (
            Link("a", label="a", behaviour=Lossy(1)),
            Link("b", label="c", kind="delayed", behaviour=Delayed(3)),
        ),
        {"p0": 2},
        None,
        Path("dir/run.log"),
    )
    assert read_file(Whole, b"{links: [{name: a}], queue: {}}", "w.yaml").queue == Inner(3)


def test_mistakes_of_groups_variants_and_names_have_their_places() -> None:
    text = b"""
links:
- {label: x}
- {name: bad, kind: delayed, drop: 1}
weights: {p0: 99, "a b": 1}
queue: {depth: 0}
"""
    with pytest.raises(ConfigError) as caught:
        read_file(Whole, text, "w.yaml")
    assert [str(problem)[:90] for problem in caught.value.problems] == [
        "w.yaml:3: links[0].name: is missing; name it",
        "w.yaml:3: links[0].label: x needs a kind; write kind",
        "w.yaml:4: links[1].delay: is missing; write a delay",
        "w.yaml:4: links[1].drop: unknown key; the keys here are name, label, kind, delay",
        "w.yaml:4: links[1].name: is bad; write good",
        "w.yaml:5: weights.p0: 99 is out of range; write a whole number from 1 to 9",
        'w.yaml:5: weights.a b: "a b" is not a name; write letters, digits, dots, dashes or undersc',
        "w.yaml:6: queue.depth: 0 is out of range; write a whole number from 1 to 9",
    ]
    for short, problem in (
        (b"{}", "w.yaml:1: links: is missing or empty; list the links"),
        (b"links: [{name: a}, {name: b}, {name: c}]", "w.yaml:1: links: 3 links; write at most 2"),
    ):
        with pytest.raises(ConfigError) as caught:
            read_file(Whole, short, "w.yaml")
        assert problem in str(caught.value)
        assert len(caught.value.problems) == 1
