"""A tree of fields -> the JSON Schema by which editors check a file. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from etloop.contract.base.questions import Shape
from tools.reference.fields import ANY_KEY, Field, as_json

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]


def schema_of(root: Field, title: str, open_keys: Mapping[str, str], meaning: Callable[[str], str]) -> Schema:
    """Return the schema of a file format. `meaning` gives the description of a path."""
    return {"$schema": DIALECT, "title": title, **_mapping(root, open_keys, meaning)}


def _mapping(section: Field, open_keys: Mapping[str, str], meaning: Callable[[str], str]) -> Schema:
    inside: Schema = {"type": "object", "additionalProperties": False}
    fixed = {key: child for key, child in section.children.items() if key != ANY_KEY}
    if fixed:
        inside["properties"] = {key: _value(child, open_keys, meaning) for key, child in fixed.items()}
    if ANY_KEY in section.children:
        pattern = open_keys[section.path + "[]" if Shape.MAPPINGS in section.shapes else section.path]
        inside["patternProperties"] = {
            f"^(?:{pattern})$": _value(section.children[ANY_KEY], open_keys, meaning, or_nothing=True)
        }
    required = sorted(key for key, child in fixed.items() if child.required)
    if required:
        inside["required"] = required
    return inside


def _value(
    child: Field, open_keys: Mapping[str, str], meaning: Callable[[str], str], *, or_nothing: bool = False
) -> Schema:
    scalars = [as_json(form.schema) for form in child.forms]
    options: list[Schema] = []
    if child.shapes & {Shape.VALUE, Shape.VALUES} and Shape.UNREAD_LIST not in child.shapes:
        options += scalars
    if Shape.VALUES in child.shapes:
        options.append({"type": "array", "items": _either(scalars)})
    if Shape.UNREAD_LIST in child.shapes:
        options += scalars
    if Shape.MAPPING in child.shapes:
        options.append(_mapping(child, open_keys, meaning))
        # A name alone, without settings.
        options += [{"type": "null"}] if or_nothing else []
    if Shape.MAPPINGS in child.shapes:
        options.append({"type": "array", "minItems": 1, "items": _mapping(child, open_keys, meaning)})
    if Shape.UNREAD in child.shapes:
        # Passed on unread: a list, or any value if no mapping is expected.
        anything = {"type": ["string", "number", "boolean", "array", "object", "null"]}
        options.append({"type": "array"} if Shape.MAPPING in child.shapes else anything)
    text = meaning(child.path)
    return ({"description": text} if text else {}) | _either(options)


def _either(options: list[Schema]) -> Schema:
    """Return a schema for any one of several schemas; enumerations of words are joined into one."""
    words = [word for option in options if set(option) == {"enum"} for word in option["enum"]]
    other_options: list[Schema] = []
    for option in options:
        if set(option) != {"enum"} and option not in other_options:
            other_options.append(option)
    alternatives = [{"enum": list(dict.fromkeys(words))}, *other_options] if words else other_options
    return alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}
