"""Write the engine's settings from their declarations: `python tools/write_settings.py`.

Writes traffic/native/plan/transport_settings.h: a struct for each type of contract/model whose fields are declared by
`setting`, with its enumerations, defaults and bounds. bind/columns.h reads them, `out_of_bounds` of plan/setting.h checks
them. A test checks that the file is current.
"""

from __future__ import annotations

import dataclasses
import textwrap
import typing
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from etloop.contract.base.setting import Kind, setting_of
from etloop.contract.base.value_form import form_of
from etloop.contract.model.congestion import PacingSettings, SeriesSettings
from etloop.contract.model.transport import TransportSettings
from tools.reference.type_fields import fill_in_meanings

ROOT: Final = Path(__file__).resolve().parent.parent
FILE: Final = "traffic/native/plan/transport_settings.h"
TYPES: Final[tuple[type[Any], ...]] = (TransportSettings, PacingSettings, SeriesSettings)
_HEAD: Final = """// Settings of queue pairs, as contract/model/transport.py and congestion.py declare them.
// Written by tools/write_settings.py.
#pragma once

#include <cstdint>

#include "base/time.h"
#include "plan/setting.h"

namespace etloop {
"""
_FOOT: Final = "\n}  // namespace etloop\n"
_COMMENT_CHARS: Final = 120
_MOST_LISTED: Final = 63
"""Greatest number of a list that becomes a `NumberSet`."""


@dataclasses.dataclass(frozen=True)
class Member:
    """A field of a generated struct."""

    name: str
    type_name: str
    initial: str
    """Initial value in C++; "" for the value of the type's own default."""
    meaning: str
    bounds: str
    """"least, most, left out"; "" for a field without bounds."""


def native_header(types: tuple[type[Any], ...] = TYPES) -> str:
    """Return the text of `FILE`."""
    fill_in_meanings()
    parts: list[str] = []
    written: set[type[Any]] = set()
    for kind in types:
        _write_type(kind, parts, written)
    return _HEAD + "".join(parts) + _FOOT


def _write_type(kind: type[Any], parts: list[str], written: set[type[Any]]) -> None:
    """Append a struct behind the types of its fields."""
    if kind in written:
        return
    written.add(kind)
    hints = typing.get_type_hints(kind)
    members = []
    for field in dataclasses.fields(kind):
        member = _member(field, hints[field.name])
        if member is None:
            continue
        members.append(member)
        if issubclass(hints[field.name], IntEnum) if isinstance(hints[field.name], type) else False:
            _write_enum(hints[field.name], parts, written)
        elif _is_declared(hints[field.name]):
            _write_type(hints[field.name], parts, written)
    parts.append(_struct_text(kind, members))


def _is_declared(kind: object) -> bool:
    """Return whether a type has fields that are settings."""
    return dataclasses.is_dataclass(kind) and any(setting_of(field) for field in dataclasses.fields(kind))


def _member(field: dataclasses.Field[Any], kind: Any) -> Member | None:
    """Return the member for a field; None if the engine does not get it as a setting."""
    declared = setting_of(field)
    meaning = declared.meaning if declared is not None else ""
    if _is_declared(kind):
        return Member(field.name, kind.__name__, "", meaning, "")
    if kind is bool:
        return Member(field.name, "bool", str(field.default).lower(), meaning, "")
    if declared is None or declared.parse is None:
        return None
    form = form_of(declared.parse)
    bounds_of_value = form.bounds if form is not None else None
    assert bounds_of_value is not None, f"{field.name}: its parser has no bounds"
    least, most = bounds_of_value
    if declared.kind is Kind.LIST:
        assert 0 <= least <= most <= _MOST_LISTED, f"{field.name}: a list needs numbers from 0 to 63"
        return Member(field.name, "NumberSet", "", meaning, "")
    left_out = int(typing.cast("int", field.default))
    bounds = f"{_number(least)}, {_number(most)}, {_number(left_out)}"
    if issubclass(kind, IntEnum):
        initial = f"{kind.__name__}::{kind(left_out).name.lower()}"
        return Member(field.name, kind.__name__, initial, meaning, bounds)
    assert kind is int, f"{field.name}: no native type for {kind}"
    return Member(
        field.name, _integer_type(field.name, min(least, left_out), most), _number(left_out), meaning, bounds
    )


def _integer_type(name: str, least: int, most: int) -> str:
    if name.endswith("_ns"):
        return "Nanos"
    bits = 32 if most < 1 << 31 else 64
    return f"int{bits}_t" if least < 0 else f"uint{bits}_t"


def _number(value: int) -> str:
    return f"{value:,}".replace(",", "'")


def _enum_text(kind: type[IntEnum]) -> str:
    members = ", ".join(f"{member.name.lower()} = {member.value}" for member in kind)
    return f"\n{_comment(_summary(kind), '')}enum class {kind.__name__} : uint8_t {{ {members} }};\n"


def _write_enum(kind: type[IntEnum], parts: list[str], written: set[type[Any]]) -> None:
    if kind not in written:
        written.add(kind)
        parts.append(_enum_text(kind))


def _struct_text(kind: type[Any], members: list[Member]) -> str:
    lines = [f"\n{_comment(_summary(kind), '')}struct {kind.__name__} {{\n"]
    for member in members:
        initial = f" = {member.initial}" if member.initial else ""
        lines.append(f"{_comment(member.meaning, '  ')}  {member.type_name} {member.name}{initial};\n")
    lines.append("\n  template <typename Settings, typename Visitor>\n")
    lines.append("  static void visit(Settings& settings, Visitor&& visitor) {\n")
    for member in members:
        bounds = f", SettingBounds{{{member.bounds}}}" if member.bounds else ""
        lines.append(f'    visitor("{member.name}", settings.{member.name}{bounds});\n')
    return "".join([*lines, "  }\n};\n"])


def _summary(kind: type[Any]) -> str:
    """Return the first sentence of a type's docstring."""
    return (kind.__doc__ or "").partition("\n")[0].replace(" Numbers as in the engine.", "")


def _comment(text: str, indent: str) -> str:
    return "".join(f"{indent}// {line}\n" for line in textwrap.wrap(text, _COMMENT_CHARS - len(indent) - 3))


def main() -> None:
    """Rewrite `FILE`."""
    (ROOT / FILE).write_text(native_header(), encoding="utf-8")


if __name__ == "__main__":
    main()
