"""Declare a key of a configuration file once: as a field of the frozen type that holds its value.

The field carries the key, the parser with its form and bounds, the default and the meaning. `settings_reader` reads the type
from YAML; reference pages and JSON Schemas follow from the same field (tools/write_reference.py). Rules that concern several
keys are code of the reader. Imports no YAML, so that agents can import the types.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final, cast

from etloop.contract.base.late_dataclass import dataclass

_SETTING: Final = "setting"


@dataclass(frozen=True, slots=True)
class Setting:
    """One key, or the keys of a group."""

    key: str
    """As the file has it; "" for a group whose keys are in the mapping of its parent."""
    meaning: str
    parse: Callable[[str], object] | None = None
    """None for a group."""
    group: type[Any] | None = None
    """The type that declares the keys of a group."""
    is_list: bool = False
    """Whether the value is a list; a single value is a list of one."""


def setting(key: str, parse: Callable[[str], object], default: object, meaning: str) -> Any:
    """Return a dataclass field that is a key of a file; `default` is its value where the key is absent."""
    return dataclasses.field(default=default, metadata={_SETTING: Setting(key, meaning, parse)})


def list_setting(key: str, parse: Callable[[str], object], meaning: str) -> Any:
    """Return a dataclass field that is a list of values; empty where the key is absent."""
    return dataclasses.field(default=(), metadata={_SETTING: Setting(key, meaning, parse, is_list=True)})


def group(kind: type[Any], key: str = "", meaning: str = "") -> Any:
    """Return a dataclass field whose value is of another declared type: a mapping under `key`, or, without one, keys of the
    same mapping."""
    return dataclasses.field(default=kind(), metadata={_SETTING: Setting(key, meaning, group=kind)})


def setting_of(field: dataclasses.Field[Any]) -> Setting | None:
    """Return how a field is declared; None for a field that is no key."""
    return cast("Setting | None", field.metadata.get(_SETTING))
