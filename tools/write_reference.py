"""Write the reference: `python tools/write_reference.py`. Pages of docs/reference, and the JSON Schemas that editors use.

Keys, types, limits and defaults come from the readers themselves, which are watched while they read; meanings come from the types
that declare their keys (contract/base/setting.py), and for formats that do not yet, from tools/reference/meanings. Commands come from argparse. A test holds every file current.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tools.reference.commands import commands_page, exit_codes_page  # noqa: E402 - of a script, after its path
from tools.reference.fields import Field, field_tree  # noqa: E402
from tools.reference.formats import FORMATS, Format, questions_of  # noqa: E402
from tools.reference.manual import agent_manual, etloop_manual  # noqa: E402
from tools.reference.pages import page_of  # noqa: E402
from tools.reference.schemas import schema_of  # noqa: E402

SCHEMAS: Final = "cli/schemas"
PAGES: Final = "docs/reference"
MANUAL: Final = "cli/manual"
_MEANINGS: Final = ROOT / "tools" / "reference" / "meanings"


@functools.cache
def meanings_of(name: str) -> dict[str, str]:
    """Return the meanings of the keys of a format, as they are written down."""
    found = yaml.load((_MEANINGS / f"{name}.yaml").read_text(encoding="utf-8"), yaml.BaseLoader)
    assert isinstance(found, dict)
    return found


@functools.cache
def root_of(name: str) -> Field:
    """Return the fields of a format."""
    one = next(each for each in FORMATS if each.name == name)
    return field_tree([questions_of(one, text) for text in one.readings], one.open_keys)


def meaning_in(one: Format) -> Callable[[str], str]:
    """Return what gives the meaning of a key path of a format; "" where none is written down."""
    declared = {field.path: field.meaning for field in root_of(one.name).walk() if field.meaning}
    meanings = {**declared, **meanings_of(one.name)}
    if one.name == "scenario":
        meanings = {**_of_algorithms(), **meanings}

    def meaning(path: str) -> str:
        if path in meanings:
            return meanings[path]
        for here, there in one.same_as.items():
            for mark in (".", "[]."):
                if path.startswith(here + mark):
                    rest = path.removeprefix(here + mark)
                    return meaning(f"{there}.{rest}")
        return ""

    return meaning


def _of_algorithms() -> dict[str, str]:
    from etloop.traffic.congestion import built_in

    found: dict[str, dict[str, str]] = {}
    for algorithm in built_in():
        for parameter in algorithm.parameters:
            path = f"transport.cc.{parameter.name}"
            text = parameter.meaning[0].upper() + parameter.meaning[1:]
            found.setdefault(path, {}).setdefault(text.rstrip("."), algorithm.name)
    return {
        path: "; ".join(f"{name}: {text[0].lower() + text[1:]}" for text, name in texts.items()) + "."
        for path, texts in found.items()
    }


def files() -> Iterator[tuple[str, str]]:
    """Yield every file of the reference with its text."""
    for one in FORMATS:
        meaning = meaning_in(one)
        schema = schema_of(root_of(one.name), one.file, one.open_keys, meaning)
        yield f"{SCHEMAS}/{one.name}.json", json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
        yield f"{PAGES}/{one.name}.md", page_of(one, root_of(one.name), meaning)
    yield f"{MANUAL}/etloop.1", etloop_manual()
    yield f"{MANUAL}/etloop-agent.1", agent_manual()
    yield f"{PAGES}/commands.md", commands_page()
    yield f"{PAGES}/exit-codes.md", exit_codes_page()


def main() -> None:
    """Write every file of the reference anew."""
    for name, text in files():
        path = ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
