"""results/summary.schema.json tells other programs what the reader enforces: same keys, same types, nothing besides."""

from __future__ import annotations

import json
import types
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from etloop.results.schema.summary import SUMMARY_SCHEMA, TRANSPORT_COUNTERS, Summary
from tests.support.places import ROOT

SCHEMA_PATH: Final = ROOT / "results" / "summary.schema.json"


def schema_of(cls: Any) -> dict[str, Any]:
    """The JSON Schema of values of type `cls`, without descriptions."""
    origin = get_origin(cls)
    if origin in (Union, types.UnionType):
        (value,) = (option for option in get_args(cls) if option is not types.NoneType)
        inner = schema_of(value)
        if list(inner) == ["type"]:
            return {"type": [inner["type"], "null"]}
        return {"anyOf": [inner, {"type": "null"}]}
    if is_dataclass(cls):
        hints = get_type_hints(cls)
        names = [field.name for field in fields(cls)]
        return {
            "type": "object",
            "additionalProperties": False,
            "required": [field.name for field in fields(cls) if field.default is MISSING],
            "properties": {name: schema_of(hints[name]) for name in names},
        }
    if origin is tuple:
        return {"type": "array", "items": schema_of(get_args(cls)[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(get_args(cls)[1])}
    if issubclass(cls, StrEnum):
        return {"enum": [member.value for member in cls]}
    return {"type": {int: "integer", float: "number", str: "string", bool: "boolean"}[cls]}


def without_descriptions(schema: Any, is_properties: bool = False) -> Any:
    """`schema` without its "description" entries (a property of that name would stay)."""
    if isinstance(schema, list):
        return [without_descriptions(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: without_descriptions(entry, key == "properties" and not is_properties)
        for key, entry in schema.items()
        if key != "description" or is_properties
    }


def undescribed(schema: Any, where: str = "summary") -> list[str]:
    """Paths of properties without a description."""
    found = []
    for name, entry in schema.get("properties", {}).items():
        path = f"{where}.{name}"
        found += [] if entry.get("description") else [path]
        for part in (entry, entry.get("items", {}), *entry.get("anyOf", [])):
            found += undescribed(part, path)
    return found


def test_the_schema_file_says_what_the_reader_enforces() -> None:
    schema = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))
    assert schema.pop("$schema") == "https://json-schema.org/draft/2020-12/schema"
    assert schema.pop("title") == SUMMARY_SCHEMA
    expected = schema_of(Summary)
    names = [name for of_owner in TRANSPORT_COUNTERS.values() for name in of_owner]
    expected["properties"]["transport"] = {
        "type": "object",
        "additionalProperties": False,
        "required": names,
        "properties": {name: {"type": "integer"} for name in names},
    }
    expected["properties"]["schema"] = {"const": SUMMARY_SCHEMA}
    assert without_descriptions(schema) == expected


def test_every_key_of_the_schema_is_described() -> None:
    assert undescribed(json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))) == []


def test_a_key_without_a_description_is_found() -> None:
    inner = {"properties": {"rank": {"type": "integer"}}}
    planted = {"properties": {"agents": {"description": "x", "type": "array", "items": inner}}}
    assert undescribed(planted) == ["summary.agents.rank"]
