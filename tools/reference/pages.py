"""A tree of fields -> the page of a file format in Markdown. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from textwrap import fill
from typing import Final

from etloop.contract.base.questions import Shape
from etloop.contract.base.value_form import ValueForm
from tools.reference.fields import ANY_KEY, Field
from tools.reference.formats import Format

WRITTEN_BY: Final = "<!-- Written by tools/write_reference.py; a test holds it current. -->\n"
_TABLE: Final = "| key | value | default | meaning |\n|---|---|---|---|\n"


def page_of(file_format: Format, root: Field, meaning: Callable[[str], str]) -> str:
    """Return the page of a file format."""
    head = (
        f"`{file_format.file}`: {file_format.says} `etloop schema {file_format.name}` prints the same as a JSON Schema, "
        "by which editors check a file while it is written ([how](README.md#in-an-editor)). Units and other values "
        "are explained in [the overview](README.md#values)."
    )
    parts = [
        f"# {file_format.file}\n",
        WRITTEN_BY,
        fill(head, 100, break_on_hyphens=False, break_long_words=False) + "\n",
    ]
    parts += _section(root, file_format, meaning, "Top level")
    return "\n".join(parts)


def _section(section: Field, file_format: Format, meaning: Callable[[str], str], title: str) -> list[str]:
    rows = "".join(_row(key, child, file_format, meaning) for key, child in section.children.items())
    description = meaning(section.path)
    parts = [f"## {title}\n", *([description + "\n"] if description else []), _TABLE + rows]
    for child in section.children.values():
        if child.is_section and child.path not in file_format.same_as:
            parts += _section(child, file_format, meaning, heading(child))
    return parts


def heading(section: Field) -> str:
    """Return the heading of a section below the top level."""
    return section.path.replace(f".{ANY_KEY}", ".KEY") + ("[]" if Shape.MAPPINGS in section.shapes else "")


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-")


def _row(key: str, child: Field, file_format: Format, meaning: Callable[[str], str]) -> str:
    name = "*a key of your choice*" if key == ANY_KEY else f"`{key}`"
    default = "**required**" if child.required else " or ".join(f"`{text}`" for text in child.defaults[:3])
    if len(child.defaults) > 2:
        default = ""
    return f"| {name} | {_value(child, file_format.same_as)} | {default} | {_cell(meaning(child.path))} |\n"


def _value(child: Field, same_as: Mapping[str, str]) -> str:
    forms = " or ".join(dict.fromkeys(_form(form) for form in child.forms))
    kinds = []
    if Shape.VALUE in child.shapes and Shape.UNREAD_LIST not in child.shapes:
        kinds.append(forms or "anything")
    if Shape.VALUES in child.shapes:
        kinds.append(f"{forms}, or a list")
    if Shape.UNREAD_LIST in child.shapes:
        kinds.append(forms)
    if Shape.UNREAD in child.shapes:
        kinds.append("anything")
    sorts = {Shape.MAPPING: "mapping", Shape.MAPPINGS: "list of mappings"}
    for shape, words in sorts.items():
        if shape in child.shapes:
            target = same_as.get(child.path)
            title = target + ("[]" if target == "switches[]" else "") if target else heading(child)
            title = title.replace("[][]", "[]").replace(f".{ANY_KEY}", ".KEY")
            kinds.append(f"[{words}](#{_anchor(title)})" if child.is_section or target else words)
    return " or ".join(dict.fromkeys(kinds))


def _form(form: ValueForm) -> str:
    if form.noun == "one of":
        return ", ".join(f"`{word}`" for word in form.limits.split(", "))
    return _cell(f"{form.noun}, {form.limits}" if form.limits else form.noun)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
