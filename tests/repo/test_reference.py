"""The reference and the schemas: current, complete, and of one mind with the readers."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from etloop.cli.commands.schema import FORMATS as SCHEMA_NAMES
from etloop.cli.main import main
from etloop.cli.parser import find_commands
from etloop.contract.base.errors import ConfigError, ExitCode, Problem
from etloop.contract.base.questions import Shape
from etloop.contract.base.value_parsers import integer
from etloop.contract.base.yaml_reader import ConfigFile, read_document
from tests.repo.test_docs import EXAMPLES, blocks
from tests.support.places import ROOT
from tools.reference.commands import EXIT_CODES
from tools.reference.fields import generic_path
from tools.reference.formats import FORMATS, Format, questions_of
from tools.write_reference import files, meaning_in, meanings_of, root_of

NAMES = [one.name for one in FORMATS]
BY_NAME = {one.name: one for one in FORMATS}
READERS = (
    *(ROOT / "controller/inputs/scenario").glob("*.py"),
    *(ROOT / "experiments/sweep").glob("*.py"),
)
ASKING = {"optional": 0, "required": 0, "section": 0, "sections": 0, "texts": 0, "nodes": 0, "up_to": 1}
"""Questions of a `Section`, and which argument is the key."""
ANY_WORDS = st.sampled_from(
    ("", "x y", "1.5.2", "5", "true", "-3", "10us", "400Gbps", "64MiB", "5%", "a/p0", "~~")
)
WRONG = st.one_of(
    ANY_WORDS, st.just([]), st.just([["x"]]), st.just({}), st.just({"nothing": 1}), st.just([{}])
)
OF_TYPE = re.compile(
    r"expected (a list|a mapping|one value)|is not a whole number|is not one of the choices|has no unit"
    r"|is not a (size|duration|rate|share|factor|compute rate|name|port of a rig)\b"
)
"""What a reader says of values that are of another type."""


@pytest.mark.parametrize(
    ("name", "text"), list(files()), ids=lambda value: value if "/" in value[:40] else ""
)
def test_every_file_of_the_reference_is_current(name: str, text: str) -> None:
    path = ROOT / name
    there = path.read_text() if path.exists() else ""
    assert there == text, "run: .venv/bin/python tools/write_reference.py"


@pytest.mark.parametrize("name", NAMES)
def test_every_key_has_a_meaning_and_every_meaning_a_key(name: str) -> None:
    one = BY_NAME[name]
    paths = {field.path for field in root_of(name).walk() if field.path}
    meaning = meaning_in(one)
    assert sorted(path for path in paths if not meaning(path)) == []
    assert sorted(set(meanings_of(name)) - paths) == []
    for text in meanings_of(name).values():
        assert text.endswith("."), text
        assert len(text.split()) <= 35, text


@pytest.mark.parametrize("name", NAMES)
def test_sections_that_are_alike_have_the_same_keys(name: str) -> None:
    keys = {field.path: set(field.children) for field in root_of(name).walk()}
    for here, there in BY_NAME[name].same_as.items():
        assert keys[here.removesuffix("[]")] == keys[there.removesuffix("[]")] - {"name"}, (here, there)


@pytest.mark.parametrize("name", NAMES)
def test_every_value_has_a_form(name: str) -> None:
    bare = [
        field.path
        for field in root_of(name).walk()
        if field.shapes & {Shape.VALUE, Shape.VALUES} and not field.forms
    ]
    assert bare == [], "its parser does not say what it reads (contract/base/value_form.py)"


def keys_asked(source: str) -> Iterator[str]:
    """Yield the keys that a reader's source names in its questions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ASKING:
            at = ASKING[node.func.attr]
            key = node.args[at] if len(node.args) > at else None
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value


@pytest.mark.parametrize("path", READERS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_readings_ask_every_question_of_the_readers(path: Path) -> None:
    asked = {field.path.rpartition(".")[2] for name in NAMES for field in root_of(name).walk()}
    assert sorted(set(keys_asked(path.read_text())) - asked) == [], (
        "no file in tools/reference/formats.py leads the reader to this question"
    )


def test_a_question_that_no_reading_asks_is_found() -> None:
    assert list(keys_asked('section.optional("a", words, ""); top.up_to(3, "b", "", "")')) == ["a", "b"]


def test_the_names_of_schemas_are_those_of_the_formats(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(SCHEMA_NAMES) == NAMES
    for name in NAMES:
        assert main(["schema", name]) == ExitCode.PASS
        printed = json.loads(capsys.readouterr().out)
        jsonschema.Draft202012Validator.check_schema(printed)


def test_every_exit_code_is_explained() -> None:
    assert {code for code in EXIT_CODES if code < 100} == set(ExitCode)


class _Core(yaml.SafeLoader):
    """YAML 1.2's core schema, as editors read files: yes and no are words, and there are no dates."""


_Core.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("int", r"^[-+]?[0-9]+$", "-+0123456789"),
    ("float", r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", "-+.0123456789"),
    ("null", r"^(?:~|null|Null|NULL|)$", "~nN\0"),
):
    _Core.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), [*list(_first), ""])


def parsed(text: str) -> Any:
    """Return a YAML text as an editor sees it."""
    return json.loads(json.dumps(yaml.load(text, _Core)))


def validator(name: str) -> jsonschema.Draft202012Validator:
    """Return what checks files of a format as editors do."""
    return jsonschema.Draft202012Validator(json.loads((ROOT / f"cli/schemas/{name}.json").read_text()))


def format_of(file: str) -> Format | None:
    """Return the format of a file by its name; None of others, such as profiles."""
    others = ("profile.yaml", "kernels.yaml", "racks.yaml", "card.yaml", "model.yaml")
    found = next((one for one in FORMATS if one.file in file), None)
    return found or (None if any(other in file for other in others) else BY_NAME["scenario"])


SHOWN = [(path.name, path.read_text()) for path in EXAMPLES]
SHOWN += [(text.splitlines()[0].removeprefix("# "), text) for _, text in blocks("yaml")]


@pytest.mark.parametrize(("file", "text"), SHOWN, ids=[f"{at}-{file}" for at, (file, _) in enumerate(SHOWN)])
def test_shipped_files_fit_their_schema(file: str, text: str) -> None:
    one = format_of(file)
    if one is None:
        return
    wrong = [f"{error.json_path}: {error.message}" for error in validator(one.name).iter_errors(parsed(text))]
    assert wrong == []


def test_shipped_files_ask_no_question_that_the_reference_has_not() -> None:
    known = {one.name: {field.path for field in root_of(one.name).walk()} for one in FORMATS}
    for file, text in SHOWN:
        one = format_of(file)
        if (
            one is None or one.kind is not None or one.name == "sweep"
        ):  # keys of a sweep are key paths, with dots
            continue
        asked = {generic_path(question.path, one.open_keys) for question in questions_of(one, text)}
        assert sorted(asked - known[one.name]) == [], file


STARTS = [
    (one.name, text)
    for one in FORMATS
    for text in (*one.readings, *(text for file, text in SHOWN if format_of(file) == one))
]


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every value."""
    if path:
        yield path
    for key, below in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from places(below, (*path, key))


def with_value(value: Any, path: tuple[str | int, ...], new: object) -> Any:
    """Return a value with another one at a path."""
    if not path:
        return new
    key, *rest = path
    changed: Any = dict(value) if isinstance(value, dict) else list(value)
    changed[key] = with_value(value[key], tuple(rest), new)
    return changed


def is_of_type(problem: Problem) -> bool:
    """Whether a reader complains of the type of a value, or of a key that no file has."""
    # A key may be known beside one value of another key and not beside the next; schemas let it stand.
    unknown = problem.what == "unknown key" and problem.where.endswith("nothing")
    # The choices of `compare` are axes of the same file, which no schema knows.
    return unknown or bool(OF_TYPE.search(problem.what) and not problem.where.endswith(": compare"))


def refusals(one: Format, text: str) -> list[str]:
    """Return what a reader says against the types of a file."""
    try:
        one.read(text.encode())
    except ConfigError as error:
        return [str(problem) for problem in error.problems if is_of_type(problem)]
    return []


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.data())
def test_what_a_reader_refuses_by_type_its_schema_refuses(data: st.DataObject) -> None:
    name, text = data.draw(st.sampled_from(STARTS))
    value = parsed(text)
    path = data.draw(st.sampled_from(sorted(places(value), key=str)))
    changed = json.dumps(with_value(value, path, data.draw(WRONG)))
    refused = refusals(BY_NAME[name], changed)
    if refused:
        assert not validator(name).is_valid(json.loads(changed)), f"{name}: {changed}: {refused[0]}"


def test_questions_are_noted_only_within_a_reading() -> None:
    read_document(b"a: 1", ConfigFile("x")).optional("a", integer(0, 1), 0)
    assert "seed" in {question.path for question in questions_of(BY_NAME["scenario"], "seed: 1")}


@pytest.mark.skipif(
    shutil.which("groff") is None, reason="no groff to read the manual with (Debian package groff-base)"
)
@pytest.mark.parametrize("name", ["etloop", "etloop-agent"])
def test_the_manual_is_read_without_a_warning_and_has_every_command(name: str) -> None:
    page = ROOT / "cli" / "manual" / f"{name}.1"
    done = subprocess.run(
        ("groff", "-man", "-ww", "-Tascii", "-P-cbou", str(page)),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    assert all(
        command in done.stdout
        for command in (find_commands() if name == "etloop" else ("run", "preflight", "nic-peer"))
    )
