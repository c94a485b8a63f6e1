"""Write the reference: `python tools/write_reference.py`. Pages of docs/reference, rows of other pages, and JSON Schemas.

Keys, types, limits and defaults come from the readers themselves, whose questions are recorded. Meanings come from the types
that declare their keys (contract/base/setting.py), and for formats that do not yet, from tools/reference/meanings. Commands come
from argparse. A test checks that every file is current.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tools.reference.commands import commands_page, exit_codes_page  # noqa: E402 - of a script, after its path
from tools.reference.fields import Field, field_tree  # noqa: E402
from tools.reference.findings import findings_page  # noqa: E402
from tools.reference.formats import FORMATS, Format, questions_of  # noqa: E402
from tools.reference.manual import agent_manual, etloop_manual  # noqa: E402
from tools.reference.pages import page_of  # noqa: E402
from tools.reference.rows import pages_with_rows  # noqa: E402
from tools.reference.schemas import schema_of  # noqa: E402
from tools.reference.type_fields import fields_of_type  # noqa: E402

SCHEMAS: Final = "cli/schemas"
PAGES: Final = "docs/reference"
MANUAL: Final = "cli/manual"
_MEANINGS: Final = ROOT / "tools" / "reference" / "meanings"


@functools.cache
def meanings_of(name: str) -> dict[str, str]:
    """Return the written meanings of the keys of a format."""
    file = _MEANINGS / f"{name}.yaml"
    meanings = yaml.load(file.read_text(encoding="utf-8"), yaml.BaseLoader) if file.exists() else {}
    assert isinstance(meanings, dict)
    return meanings


def root_of(name: str) -> Field:
    """Return the fields of a format."""
    return _fields(name)[0]


def open_keys_of(name: str) -> Mapping[str, str]:
    """Return the paths of mappings whose keys users choose, with the pattern of a key."""
    return _fields(name)[1]


@functools.cache
def _fields(name: str) -> tuple[Field, Mapping[str, str]]:
    file_format = next(candidate for candidate in FORMATS if candidate.name == name)
    declared, open_keys = fields_of_type(file_format.kind) if file_format.kind else (Field(""), {})
    if file_format.kind is None or file_format.open_keys:
        questions = [questions_of(file_format, text) for text in file_format.readings]
        declared.add(field_tree(questions, file_format.open_keys))
    return declared, {**file_format.open_keys, **open_keys}


def meaning_in(file_format: Format) -> Callable[[str], str]:
    """Return a function from a key path of a format to its meaning, "" if it has none."""
    declared = {field.path: field.meaning for field in root_of(file_format.name).walk() if field.meaning}
    meanings = {**declared, **meanings_of(file_format.name)}
    if file_format.name == "scenario":
        meanings = {**_algorithm_meanings(), **meanings}

    def meaning(path: str) -> str:
        if path in meanings:
            return meanings[path]
        for section_path, described_path in file_format.same_as.items():
            for mark in (".", "[]."):
                if path.startswith(section_path + mark):
                    key = path.removeprefix(section_path + mark)
                    return meaning(f"{described_path}.{key}")
        return ""

    return meaning


def _algorithm_meanings() -> dict[str, str]:
    from etloop.traffic.congestion import built_in

    texts_by_path: dict[str, dict[str, str]] = {}
    for algorithm in built_in():
        for parameter in algorithm.parameters:
            path = f"transport.cc.{parameter.name}"
            text = parameter.meaning[0].upper() + parameter.meaning[1:]
            texts_by_path.setdefault(path, {}).setdefault(text.rstrip("."), algorithm.name)
    return {
        path: "; ".join(f"{name}: {text[0].lower() + text[1:]}" for text, name in texts.items()) + "."
        for path, texts in texts_by_path.items()
    }


def files() -> Iterator[tuple[str, str]]:
    """Yield every file of the reference with its text."""
    for file_format in FORMATS:
        meaning = meaning_in(file_format)
        schema = schema_of(
            root_of(file_format.name), file_format.file, open_keys_of(file_format.name), meaning
        )
        yield f"{SCHEMAS}/{file_format.name}.json", json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
        yield f"{PAGES}/{file_format.name}.md", page_of(file_format, root_of(file_format.name), meaning)
    yield f"{MANUAL}/etloop.1", etloop_manual()
    yield f"{MANUAL}/etloop-agent.1", agent_manual()
    yield f"{PAGES}/commands.md", commands_page()
    yield f"{PAGES}/exit-codes.md", exit_codes_page()
    yield f"{PAGES}/findings.md", findings_page()
    yield from pages_with_rows().items()


def main() -> None:
    """Rewrite every file of the reference."""
    for name, text in files():
        path = ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
