"""JSON Schema (2020-12) of a type, from the same annotations and fields that its codec is made of. Pure."""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import StrEnum
from typing import Any, Final

from etloop.contract.protocol.typed_form import (
    NO_BOUNDS,
    Bounds,
    Rules,
    bounds_of,
    description_of,
    may_be_left_out,
)

_NAMES: Final = {int: "integer", float: "number", str: "string", bool: "boolean"}


def schema_of(kind: type[Any], title: str, rules: Rules) -> dict[str, Any]:
    """Return the schema of a message. With `rules.skip_unknown` unknown keys are allowed."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return head | _schema(kind, NO_BOUNDS, rules)


def _schema(kind: Any, bounds: Bounds, rules: Rules) -> dict[str, Any]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        (option,) = (argument for argument in arguments if argument is not types.NoneType)
        return {"anyOf": [_schema(option, bounds, rules), {"type": "null"}]}
    if kind is Any:
        return {}
    if dataclasses.is_dataclass(kind):
        return _object(typing.cast("type[Any]", kind), rules)
    length = rules.items if bounds.max_length is None else bounds.max_length
    if origin is tuple:
        return {"type": "array", "items": _schema(arguments[0], NO_BOUNDS, rules), "maxItems": length}
    if origin is dict:
        entries = _schema(arguments[1], NO_BOUNDS, rules)
        return {"type": "object", "additionalProperties": entries, "maxProperties": length}
    if issubclass(kind, StrEnum):
        return {"enum": [member.value for member in kind]}
    schema: dict[str, Any] = {"type": _NAMES[kind]}
    if kind is str:
        schema["maxLength"] = rules.text_chars if bounds.max_length is None else bounds.max_length
    limits = {"minimum": bounds.minimum, "maximum": bounds.maximum}
    return schema | {name: limit for name, limit in limits.items() if limit is not None}


def _object(kind: type[Any], rules: Rules) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    properties: dict[str, Any] = {}
    for class_field in dataclasses.fields(kind):
        described = {"description": description_of(class_field)} if description_of(class_field) else {}
        properties[class_field.name] = described | _schema(
            hints[class_field.name], bounds_of(class_field), rules
        )
    required = [
        class_field.name for class_field in dataclasses.fields(kind) if not may_be_left_out(class_field)
    ]
    closed = {} if rules.skip_unknown else {"additionalProperties": False}
    return {"type": "object", **closed, "required": required, "properties": properties}
