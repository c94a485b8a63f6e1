"""Parses `card.yaml`, the parameters of a modelled card. Decides which keys and values are allowed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from enum import StrEnum
from typing import Any, Final

from etloop.contract.base.units import (
    QuantityError,
    format_duration,
    format_rate,
    parse_duration_ns,
    parse_rate_bps,
)
from etloop.contract.base.value_form import FormedParser, pattern_form
from etloop.contract.base.value_parsers import bounded, integer, word_of, yes_or_no
from etloop.contract.base.yaml_reader import ConfigFile, Section, read_document
from etloop.experiments.nic.cards.model import CnpScope, NicModel, Recovery, limits_of

_NUMBER: Final = r"[0-9]+(\.[0-9]+)?"


def parse_model(text: bytes, source: str) -> NicModel:
    """Parse a YAML text into the model of a card. Raises `ConfigError` with all its mistakes."""
    file = ConfigFile(source)
    top = read_document(text, file)
    parameters = {name: value for name, value in _read(top).items() if value is not None}
    top.close()
    file.refuse_mistakes()
    return NicModel(**parameters)


def _read(top: Section) -> dict[str, Any]:
    values: dict[str, Any] = {}
    default = NicModel()
    for field in fields(NicModel):
        default_value = getattr(default, field.name)
        key = field.name.removesuffix("_ns").removesuffix("_bps")
        if isinstance(default_value, bool):
            values[field.name] = top.optional(key, yes_or_no, default_value)
        elif isinstance(default_value, StrEnum):
            words = Recovery if field.name == "recovery" else CnpScope
            values[field.name] = top.optional(key, word_of(words), default_value)
        else:
            least, most = limits_of(field.name)
            values[field.name] = top.optional(key, _parser(field.name, least, most), default_value)
    return values


def _parser(name: str, least: float, most: float) -> Callable[[str], float]:
    if name.endswith("_ns"):
        return bounded(parse_duration_ns, int(least), int(most), format_duration)
    if name.endswith("_bps"):
        return bounded(parse_rate_bps, int(least), int(most), format_rate)
    if not isinstance(getattr(NicModel(), name), float):
        return integer(int(least), int(most))

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            remedy = f"write a number from {least:g} to {most:g}"
            raise QuantityError(f'"{text[:32]}" is not a number in this range', remedy)
        return value

    return FormedParser(parse, pattern_form("number", _NUMBER, f"{least:g} to {most:g}"))
