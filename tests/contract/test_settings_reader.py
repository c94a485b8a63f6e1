"""Types whose fields declare keys of a file: what is read, what stays at its default, and where mistakes are reported."""

from __future__ import annotations

from dataclasses import fields

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.questions import noted_questions
from etloop.contract.base.setting import group, list_setting, setting, setting_of
from etloop.contract.base.settings_reader import read_settings
from etloop.contract.base.value_parsers import integer, yes_or_no
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
