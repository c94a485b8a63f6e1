"""Formats values of a profile as text, in the unit that the end of their field's name gives."""

from __future__ import annotations

from enum import Enum
from fractions import Fraction
from typing import Final

from etloop.contract.base.units import format_bytes, format_duration, format_rate
from etloop.dut_profiles.model.profile import DSCPS, Breakout

PER_PERCENT: Final = 10_000


def value_text(path: str, value: object) -> str:
    """Return the text of the value at `path`, as a profile's YAML would write it."""
    name = path.rpartition(".")[2]
    if isinstance(value, tuple):
        return _list(name, value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, Breakout):
        return f"{value.count}x{format_rate(value.speed_bps)}"
    if isinstance(value, int):
        return _number(name, value)
    return f"{value}" if isinstance(value, (str, Fraction)) else repr(value)


def _number(name: str, value: int) -> str:
    if name.endswith("_bytes"):
        return format_bytes(value)
    if name.endswith("_ns"):
        return format_duration(value)
    if name.endswith("_bps"):
        return format_rate(value)
    if name.endswith("_per_million"):
        return f"{float(Fraction(value, PER_PERCENT)):g}%"
    if name.endswith("_per_s"):
        return f"{value}/s"
    return str(value)


def _list(name: str, values: tuple[object, ...]) -> str:
    if "_to_" in name:
        return _map(values)
    return "[" + ", ".join(value_text(name, value) for value in values) + "]"


def _map(values: tuple[object, ...]) -> str:
    """Return the text of a map whose keys are positions: `identity`, or the most frequent value as default and the exceptions."""
    if values == tuple(range(len(values))) and len(values) < DSCPS:
        return "identity"
    default = max(dict.fromkeys(values), key=values.count)
    runs: list[tuple[int, int, object]] = []
    for key, value in enumerate(values):
        if runs and runs[-1][1] == key - 1 and runs[-1][2] == value:
            runs[-1] = (runs[-1][0], key, value)
        elif value != default:
            runs.append((key, key, value))
    exceptions = [f"{first if first == last else f'{first}-{last}'}: {value}" for first, last, value in runs]
    return "{" + ", ".join([f"default: {default}", *exceptions]) + "}"
