"""Frozen dataclasses <-> plain values (JSON, msgpack), bounded, with all mistakes by key path; and their JSON Schema. Pure.

Reads text, integers, numbers, true and false, text enums, lists, maps of text, objects and null. A field with a default may
be left out; an unknown one is a mistake, unless its writer may be newer than we are. Bounds and meanings stand in the
fields themselves, made by `field`.
"""

from __future__ import annotations

import dataclasses
import types
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from etloop.contract.base.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

MOST_TEXT: Final = 4096
MOST_ITEMS: Final = 4096
_MOST_INTEGER: Final = (1 << 63) - 1
_MOST_PROBLEMS: Final = 64
_NAMES: Final[Mapping[Any, str]] = {int: "an integer", float: "a number", str: "text", bool: "true or false"}
_JSON_NAMES: Final[Mapping[Any, str]] = {int: "integer", float: "number", str: "string", bool: "boolean"}


def field(
    description: str,
    *,
    minimum: int | None = None,
    maximum: int | None = None,
    max_length: int | None = None,
    **more: Any,
) -> Any:
    """Return a dataclass field with its description and bounds: of a number, or of the length of a text, list or map."""
    metadata = {"description": description, "minimum": minimum, "maximum": maximum, "max_length": max_length}
    return dataclasses.field(metadata=metadata, **more)


# ---- values


def plain(value: Any) -> Any:
    """A dataclass as dicts, lists and scalars."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value.value if isinstance(value, StrEnum) else value


@dataclasses.dataclass(slots=True)
class _Reading:
    """One reading of a message."""

    passes_over: bool
    """Whether keys that are not known are passed over."""
    problems: list[Problem] = dataclasses.field(default_factory=list)


def read(kind: type[T], value: Any, *, passes_over: bool = False) -> tuple[T | None, tuple[Problem, ...]]:
    """`value` as a `kind`; None with all that is wrong if it is none.

    `passes_over`: of somebody who may be newer; a key that is not known here is no mistake.
    """
    reading = _Reading(passes_over)
    result = _read(kind, value, "", {}, reading)
    return (None, tuple(reading.problems[:_MOST_PROBLEMS])) if reading.problems else (result, ())


def _read(kind: Any, value: Any, where: str, bounds: Mapping[str, Any], reading: _Reading) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        options = [option for option in get_args(kind) if option is not types.NoneType]
        return None if value is None else _read(options[0], value, where, bounds, reading)
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        if isinstance(value, dict):
            return _read_fields(kind, value, where, reading)
    elif origin is tuple:
        if isinstance(value, list):
            return _read_items(get_args(kind)[0], value, where, bounds, reading)
    elif origin is dict:
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return _read_map(get_args(kind)[1], value, where, bounds, reading)
    elif issubclass(kind, StrEnum):
        if isinstance(value, str) and value in set(kind):
            return kind(value)
        reading.problems.append(Problem(where, f"is {_shown(value)}", f"write one of {', '.join(kind)}"))
        return None
    elif kind is float and type(value) in (int, float):
        return float(value)
    elif type(value) is kind:
        _check_bounds(kind, value, where, bounds, reading)
        return value
    reading.problems.append(Problem(where or "the message", f"is {_shown(value)}", f"write {_name(kind)}"))
    return None


def _read_fields(kind: Any, value: dict[Any, Any], where: str, reading: _Reading) -> Any:
    hints = get_type_hints(kind)
    known = {field.name: field for field in dataclasses.fields(kind)}
    before = len(reading.problems)
    if not reading.passes_over:
        remedy = f"it may have {', '.join(known)}"
        unknown = (key for key in value if key not in known)
        reading.problems += [
            Problem(_under(where, str(key)[:64]), "is not a key of this message", remedy)
            for key in islice(unknown, _MOST_PROBLEMS)
        ]
    decoded: dict[str, Any] = {}
    for name, field in known.items():
        if name in value:
            decoded[name] = _read(hints[name], value[name], _under(where, name), field.metadata, reading)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            reading.problems.append(
                Problem(_under(where, name), "is missing", field.metadata.get("description", "give it"))
            )
    return kind(**decoded) if len(reading.problems) == before else None


def _read_items(
    item: Any, value: list[Any], where: str, bounds: Mapping[str, Any], reading: _Reading
) -> tuple[Any, ...]:
    most = bounds.get("max_length") or MOST_ITEMS
    if len(value) > most:
        reading.problems.append(Problem(where, f"has {len(value)} items", f"give at most {most}"))
        return ()
    return tuple(_read(item, each, f"{where}[{index}]", {}, reading) for index, each in enumerate(value))


def _read_map(
    item: Any, value: dict[str, Any], where: str, bounds: Mapping[str, Any], reading: _Reading
) -> dict[str, Any]:
    most = bounds.get("max_length") or MOST_ITEMS
    if len(value) > most or any(len(key) > MOST_TEXT for key in value):
        reading.problems.append(
            Problem(where, f"has {len(value)} entries", f"give at most {most}, with short keys")
        )
        return {}
    return {key: _read(item, each, _under(where, key[:64]), {}, reading) for key, each in value.items()}


def _check_bounds(kind: Any, value: Any, where: str, bounds: Mapping[str, Any], reading: _Reading) -> None:
    least, most = bounds.get("minimum"), bounds.get("maximum")
    if kind is str:
        most = bounds.get("max_length")
        most = most if most is not None else MOST_TEXT
        if len(value) > most:
            reading.problems.append(Problem(where, f"has {len(value)} characters", f"give at most {most}"))
    elif kind is int:
        least = least if least is not None else -_MOST_INTEGER
        most = most if most is not None else _MOST_INTEGER
        if not least <= value <= most:
            reading.problems.append(
                Problem(where, f"{value} is outside {least} to {most}", "give a number in that range")
            )


def _under(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _name(kind: Any) -> str:
    if dataclasses.is_dataclass(kind) or get_origin(kind) is dict:
        return "an object"
    return "a list" if get_origin(kind) is tuple else _NAMES[kind]


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


# ---- schemas


def schema_of(kind: Any, title: str, *, grows: bool = False) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a message. `grows`: later versions may add keys, so that others are no mistake."""
    found = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title} | _schema(kind, {})
    return _opened(found) if grows else found


def _opened(schema: Any) -> Any:
    """A schema without its refusals of other keys."""
    if isinstance(schema, list):
        return [_opened(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    refusal = ("additionalProperties", False)
    return {key: _opened(each) for key, each in schema.items() if (key, each) != refusal}


def _schema(kind: Any, metadata: Mapping[str, Any]) -> dict[str, Any]:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        (option,) = (each for each in get_args(kind) if each is not types.NoneType)
        return {"anyOf": [_schema(option, metadata), {"type": "null"}]}
    if kind is Any:
        return {}
    if dataclasses.is_dataclass(kind):
        return _object_schema(kind)
    if origin is tuple:
        return {
            "type": "array",
            "items": _schema(get_args(kind)[0], {}),
            "maxItems": metadata.get("max_length") or MOST_ITEMS,
        }
    if origin is dict:
        most = metadata.get("max_length") or MOST_ITEMS
        return {
            "type": "object",
            "additionalProperties": _schema(get_args(kind)[1], {}),
            "maxProperties": most,
        }
    if issubclass(kind, StrEnum):
        return {"enum": [member.value for member in kind]}
    found: dict[str, Any] = {"type": _JSON_NAMES[kind]}
    least, most = metadata.get("minimum"), metadata.get("maximum")
    if kind is str:
        longest = metadata.get("max_length")
        found["maxLength"] = longest if longest is not None else MOST_TEXT
    elif kind is int:
        found |= {"minimum": least} if least is not None else {}
        found |= {"maximum": most} if most is not None else {}
    return found


def _object_schema(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    properties: dict[str, Any] = {}
    required = []
    for field in dataclasses.fields(kind):
        described = {"description": field.metadata["description"]} if "description" in field.metadata else {}
        properties[field.name] = described | _schema(hints[field.name], field.metadata)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            required.append(field.name)
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}
