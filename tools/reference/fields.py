"""What a reader asked files for -> a tree of fields: every key once, with all that was asked of it.

Decides when two questions are about the same key, when a key is required, and how a default is written. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from etloop.contract.base.questions import Question, Shape
from etloop.contract.base.units import QuantityError
from etloop.contract.base.value_form import TEXT, ValueForm

MOST_DEFAULTS: Final = 2
"""More are not listed: then they follow from something else, and the key's meaning says from what."""
ANY_KEY: Final = "*"


@dataclass(slots=True)
class Field:
    """One key, or the items of one list."""

    path: str
    """Keys with dots between; `[]` for the items of a list, `*` for keys of the user's choice."""
    shapes: set[Shape] = field(default_factory=set)
    forms: list[ValueForm] = field(default_factory=list)
    defaults: list[str] = field(default_factory=list)
    required: bool = False
    meaning: str = ""
    """Of a key that is declared by `setting`."""
    children: dict[str, Field] = field(default_factory=dict)
    """By key; those of a list's items stand below the list itself."""

    @property
    def is_section(self) -> bool:
        """Whether there are keys below it."""
        return bool(self.children)

    def walk(self) -> Iterable[Field]:
        """Return the field and all below it."""
        yield self
        for child in self.children.values():
            yield from child.walk()


def field_tree(probes: Sequence[Sequence[Question]], open_keys: Mapping[str, str]) -> Field:
    """Return the fields of a file format from what its reader asked in several readings.

    `open_keys`: paths of mappings whose keys users choose.
    """
    root = Field("", {Shape.MAPPING})
    required = _required_paths(probes, open_keys)
    for questions in probes:
        for question in questions:
            path = generic_path(question.path, open_keys)
            here = _place(root, path)
            here.shapes.add(question.shape)
            here.required = path in required
            here.meaning = here.meaning or question.meaning
            if question.form is not None and question.form not in here.forms:
                here.forms.append(question.form)
            text = default_text(question)
            if text and text not in here.defaults:
                here.defaults.append(text)
    for each in root.walk():
        # A value that is read twice, once as what it is and once as it was written.
        if len(each.forms) > 1 and TEXT in each.forms:
            each.forms.remove(TEXT)
    return root


def generic_path(path: str, open_keys: Iterable[str]) -> str:
    """Return a path without the numbers of list items and without keys of the user's choice."""
    done = ""
    for part in re.sub(r"\[\d+\]", "[]", path).split("."):
        chosen = done in open_keys
        items = "[]" if part.endswith("[]") else ""
        name = f"{ANY_KEY}{items}" if chosen else part
        done = f"{done}.{name}" if done else name
    return done


def default_text(question: Question) -> str:
    """Return the default as a file would have it; "" where no file could, because it stands for an absent value."""
    if question.shape is not Shape.VALUE or question.required or question.default is None:
        return ""
    if question.form is None or question.parse is None:
        return ""
    try:
        text = question.form.write(question.default)
        return text if question.parse(text) == question.default else ""
    except (QuantityError, ValueError, TypeError, AttributeError, IndexError):
        return ""


def _place(root: Field, path: str) -> Field:
    here, done = root, ""
    for part in path.split("."):
        done = f"{done}.{part}" if done else part
        here = here.children.setdefault(part.removesuffix("[]"), Field(done.removesuffix("[]")))
    return here


def _required_paths(probes: Sequence[Sequence[Question]], open_keys: Mapping[str, str]) -> set[str]:
    """Return the paths that every mapping which may have them must have."""
    answers: dict[str, list[bool]] = defaultdict(list)
    by_section: dict[str, int] = defaultdict(int)
    for questions in probes:
        sections: dict[str, dict[str, bool]] = defaultdict(dict)
        for question in questions:
            if question.present:
                parent = question.path.rpartition(".")[0]
                known = sections[parent].get(question.path, True)
                sections[parent][question.path] = known and question.required
        for parent, keys in sections.items():
            by_section[generic_path(parent, open_keys) if parent else ""] += 1
            for path, one in keys.items():
                answers[generic_path(path, open_keys)].append(one)
    return {
        path
        for path, found in answers.items()
        if all(found) and len(found) == by_section[path.rpartition(".")[0]]
    }


def as_json(value: Any) -> Any:
    """Return a value with tuples as lists, as JSON has them."""
    if isinstance(value, Mapping):
        return {key: as_json(one) for key, one in value.items()}
    return [as_json(one) for one in value] if isinstance(value, list | tuple) else value
