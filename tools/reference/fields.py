"""Questions that a reader asked files -> a tree of fields: every key once, with all its questions.

Decides when two questions concern the same key, when a key is required, and how a default is written. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from etloop.contract.base.questions import Question, Shape
from etloop.contract.base.units import QuantityError
from etloop.contract.base.value_form import TEXT, ValueForm

MOST_DEFAULTS: Final = 2
"""Most defaults that are listed: more of them depend on another value, which the key's meaning names."""
ANY_KEY: Final = "*"


@dataclass(slots=True)
class Field:
    """One key, or the items of one list."""

    path: str
    """Keys joined by dots; `[]` for the items of a list, `*` for keys of the user's choice."""
    shapes: set[Shape] = field(default_factory=set)
    forms: list[ValueForm] = field(default_factory=list)
    defaults: list[str] = field(default_factory=list)
    required: bool = False
    meaning: str = ""
    """Meaning of a key that is declared by `setting`."""
    children: dict[str, Field] = field(default_factory=dict)
    """Fields by key; those of a list's items are children of the list itself."""

    @property
    def is_section(self) -> bool:
        """Return whether there are keys below it."""
        return bool(self.children)

    def add(self, more: Field) -> None:
        """Add the fields of another tree that are not here."""
        self.shapes |= more.shapes
        for key, child in more.children.items():
            if key not in self.children:
                self.children[key] = child

    def walk(self) -> Iterable[Field]:
        """Return the field and all below it."""
        yield self
        for child in self.children.values():
            yield from child.walk()


def field_tree(probes: Sequence[Sequence[Question]], open_keys: Mapping[str, str]) -> Field:
    """Return the fields of a file format from the questions of its reader in several readings.

    `open_keys`: paths of mappings whose keys users choose.
    """
    root = Field("", {Shape.MAPPING})
    required = _required_paths(probes, open_keys)
    for questions in probes:
        for question in questions:
            path = generic_path(question.path, open_keys)
            place = _place(root, path)
            place.shapes.add(question.shape)
            place.required = path in required
            place.meaning = place.meaning or question.meaning
            if question.form is not None and question.form not in place.forms:
                place.forms.append(question.form)
            text = default_text(question)
            if text and text not in place.defaults:
                place.defaults.append(text)
    for walked_field in root.walk():
        # A value that is read twice, once parsed and once as text.
        if len(walked_field.forms) > 1 and TEXT in walked_field.forms:
            walked_field.forms.remove(TEXT)
    return root


def generic_path(path: str, open_keys: Iterable[str]) -> str:
    """Return a path without the numbers of list items and without keys of the user's choice."""
    generic = ""
    for part in re.sub(r"\[\d+\]", "[]", path).split("."):
        chosen = generic in open_keys
        items = "[]" if part.endswith("[]") else ""
        name = f"{ANY_KEY}{items}" if chosen else part
        generic = f"{generic}.{name}" if generic else name
    return generic


def default_text(question: Question) -> str:
    """Return the default as written in a file; "" if it cannot be written, because it is the value of an absent key."""
    if question.shape is not Shape.VALUE or question.required or question.default is None:
        return ""
    if question.form is None or question.parse is None:
        return ""
    return written_default(question.form, question.parse, question.default)


def written_default(form: ValueForm, parse: Callable[[str], object] | None, default: object) -> str:
    """Return a default as written in a file; "" if there is none, or if its text would not be parsed to it."""
    if parse is None or default is None:
        return ""
    try:
        text = form.write(default)
        return text if parse(text) == default else ""
    except (QuantityError, ValueError, TypeError, AttributeError, IndexError):
        return ""


def _place(root: Field, path: str) -> Field:
    place, prefix = root, ""
    for part in path.split("."):
        prefix = f"{prefix}.{part}" if prefix else part
        place = place.children.setdefault(part.removesuffix("[]"), Field(prefix.removesuffix("[]")))
    return place


def _required_paths(probes: Sequence[Sequence[Question]], open_keys: Mapping[str, str]) -> set[str]:
    """Return the paths that are required in every mapping that may have them."""
    answers: dict[str, list[bool]] = defaultdict(list)
    by_section: dict[str, int] = defaultdict(int)
    for questions in probes:
        sections: dict[str, dict[str, bool]] = defaultdict(dict)
        for question in questions:
            if question.present:
                parent = question.path.rpartition(".")[0]
                was_required = sections[parent].get(question.path, True)
                sections[parent][question.path] = was_required and question.required
        for parent, keys in sections.items():
            by_section[generic_path(parent, open_keys) if parent else ""] += 1
            for path, is_required in keys.items():
                answers[generic_path(path, open_keys)].append(is_required)
    return {
        path
        for path, required_answers in answers.items()
        if all(required_answers) and len(required_answers) == by_section[path.rpartition(".")[0]]
    }


def as_json(value: Any) -> Any:
    """Return a value with tuples as lists, as in JSON."""
    if isinstance(value, Mapping):
        return {key: as_json(item) for key, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list | tuple) else value
