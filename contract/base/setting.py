"""Declare a key of a configuration file once: as a field of the frozen type that holds its value.

The field carries the key, the parser with its form and bounds, and the default; the text below it is its meaning, as below
any field (a `meaning` argument takes its place). `settings_reader` reads the type from YAML; reference pages and JSON Schemas
follow from the same field (tools/write_reference.py). Imports no YAML, so that agents can import the types.

A rule that concerns several keys is a method of the type:

    def broken_rules(self, keys: Collection[str]) -> Iterator[Problem]

It yields a `Problem` for each broken rule; `where` is the key to blame, or a path such as "racks[1].name"; `keys` are the keys
that the file gives a value. It is called after all keys were read, if the file has the mapping.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Final, cast

from etloop.contract.base.late_dataclass import dataclass

_SETTING: Final = "setting"


class Kind(Enum):
    """Form of the content under a key of a file."""

    VALUE = auto()
    LIST = auto()
    """A list of values; a single value is a list of one."""
    GROUP = auto()
    """A mapping of a declared type; without a key, the keys are those of the parent."""
    GROUPS = auto()
    """A list of such mappings."""
    NAMED = auto()
    """A mapping from names that the user chooses to values or to such mappings."""
    VARIANT = auto()
    """Keys of the same mapping whose type depends on the value of another field."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One key, or the keys of a group."""

    key: str
    """As the file has it; "" for a group whose keys are in the mapping of its parent."""
    meaning: str
    parse: Callable[[str], Any] | None = None
    """None for a group."""
    group: type[Any] | None = None
    """The type that declares the keys of a group."""
    kind: Kind = Kind.VALUE
    stand_in: Any = None
    """Value after a mistake, so that reading continues; for keys that must be there."""
    remedy: str = ""
    """Remedy where the key is absent; "": it may be absent."""
    same_as: str = ""
    """Field whose value is the default."""
    is_optional: bool = False
    """Whether the value of an absent group is None, or a list of mappings may be empty."""
    is_flat: bool = False
    """Whether each value of a list is a tuple of items of the list, such as a range."""
    most: int = 0
    """Most items of a list of mappings or entries of a mapping; 0: any number."""
    parse_name: Callable[[str], str] | None = None
    """Parser of the names of `NAMED`."""
    name_meaning: str = ""
    """Meaning of the content under a name."""
    by_value: Mapping[Any, type[Any]] | None = None
    """Types of `VARIANT` by the value of the field `same_as`."""


def _declare(declared: Setting, **default: Any) -> Any:
    return dataclasses.field(metadata={_SETTING: declared}, **default)


def setting(key: str, parse: Callable[[str], object], default: object, meaning: str = "") -> Any:
    """Return a dataclass field that is a key of a file; `default` is its value where the key is absent."""
    return _declare(Setting(key, meaning, parse), default=default)


def required_setting(key: str, parse: Callable[[str], object], stand_in: object, remedy: str) -> Any:
    """Return a dataclass field that is a key which must be there; `stand_in` is its value after a mistake."""
    return _declare(Setting(key, "", parse, stand_in=stand_in, remedy=remedy))


def setting_like(key: str, parse: Callable[[str], object], field: str) -> Any:
    """Return a dataclass field that is a key; where it is absent, it has the value of an earlier `field`."""
    return _declare(Setting(key, "", parse, same_as=field), kw_only=True)


def list_setting(
    key: str,
    parse: Callable[[str], object],
    meaning: str = "",
    *,
    remedy: str = "",
    is_flat: bool = False,
    stand_in: object = None,
) -> Any:
    """Return a dataclass field that is a list of values; empty where the key is absent, which `remedy` makes a mistake.

    `stand_in` is an item after a mistake; None: the item is left out.
    """
    declared = Setting(key, meaning, parse, kind=Kind.LIST, remedy=remedy, is_flat=is_flat, stand_in=stand_in)
    return _declare(declared, default=())


def group(kind: type[Any], key: str = "", meaning: str = "") -> Any:
    """Return a dataclass field whose value is of another declared type: a mapping under `key`, or, without one, keys of the
    same mapping."""
    is_complete = all(
        field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        for field in dataclasses.fields(kind)
    )
    default = {"default": kind()} if is_complete else {}
    return _declare(Setting(key, meaning, group=kind, kind=Kind.GROUP), **default)


def optional_group(kind: type[Any], key: str) -> Any:
    """Return a dataclass field as `group` does whose value is None where the key is absent."""
    declared = Setting(key, "", group=kind, kind=Kind.GROUP, is_optional=True)
    return _declare(declared, default=None)


def groups(kind: type[Any], key: str, *, remedy: str = "", most: int = 0, may_be_empty: bool = False) -> Any:
    """Return a dataclass field that is a list of mappings of another declared type; `remedy` makes absence a mistake."""
    declared = Setting(
        key, "", group=kind, kind=Kind.GROUPS, remedy=remedy, most=most, is_optional=may_be_empty
    )
    return _declare(declared, default=())


def mapping_setting(
    content: type[Any] | Callable[[str], object],
    key: str,
    parse_name: Callable[[str], str],
    name_meaning: str,
    *,
    most: int = 0,
) -> Any:
    """Return a dataclass field that maps names of the user's choice to values (`content` is a parser) or to another declared
    type; empty where the key is absent."""
    is_group = isinstance(content, type)
    declared = Setting(
        key,
        "",
        parse=None if is_group else content,
        group=cast("type[Any]", content) if is_group else None,
        kind=Kind.NAMED,
        parse_name=parse_name,
        name_meaning=name_meaning,
        most=most,
    )
    return _declare(declared, default_factory=dict)


def variant(field: str, by_value: Mapping[Any, type[Any]]) -> Any:
    """Return a dataclass field whose value is of the type that the value of an earlier `field` selects; its keys are in the
    same mapping."""
    return _declare(Setting("", "", kind=Kind.VARIANT, same_as=field, by_value=by_value), kw_only=True)


def setting_of(field: dataclasses.Field[Any]) -> Setting | None:
    """Return how a field is declared; None for a field that is not a key."""
    return cast("Setting | None", field.metadata.get(_SETTING))
