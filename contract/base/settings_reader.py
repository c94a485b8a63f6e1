"""Read a type whose fields are declared by `setting` from a mapping of a YAML file."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from etloop.contract.base.errors import Problem
from etloop.contract.base.setting import Kind, Setting, setting_of
from etloop.contract.base.units import QuantityError
from etloop.contract.base.yaml_reader import ConfigFile, Section, read_document

T = TypeVar("T")


def read_file(kind: type[T], text: bytes, source: str, directory: Path = Path()) -> T:
    """Return a value of `kind` from the YAML text of a file. Raises `ConfigError` with all its mistakes.

    `source` names the file in messages; files that it names are relative to `directory`.
    """
    file = ConfigFile(source, directory)
    top = read_document(text, file)
    value = read_settings(kind, top)
    top.close()
    file.refuse_mistakes()
    return value


def read_settings(kind: type[T], section: Section, base: T | None = None, /, **known: object) -> T:
    """Return a value of `kind` from the keys of a section; mistakes go to the file of the section.

    `base`: the value whose fields are the defaults, in place of those of `kind`. `known`: fields that the caller determines;
    their keys are not read here. Other fields keep their defaults.
    Mappings below the section are closed, the section itself is not: its caller may read further keys.
    """
    values: dict[str, Any] = dict(known)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        declared = setting_of(field)
        if declared is not None and field.name not in known:
            default = field.default if base is None else getattr(base, field.name)
            if declared.same_as and base is None:
                default = values[declared.same_as]
            values[field.name] = _READERS[declared.kind](declared, default, section)
    value = kind(**values) if base is None else dataclasses.replace(base, **values)  # type: ignore[type-var]
    if hasattr(kind, "broken_rules") and section.is_present:
        for problem in value.broken_rules(section.keys()):  # type: ignore[attr-defined]
            blame(section, problem)
    return value


def blame(section: Section, problem: Problem) -> None:
    """Note a mistake at the path `where` within the section, such as "racks[1].name"."""
    *above, key = problem.where.split(".")
    functools.reduce(_below, above, section).mistake(key, problem.what, problem.remedy)


def _below(section: Section, step: str) -> Section:
    """Return the mapping under a key, or, for "key[1]", the second mapping of the list under it."""
    key, _, index = step.removesuffix("]").partition("[")
    return section.sections(key, "")[int(index)] if index else section.section(key)


def _read_closed(kind: type[T], section: Section, base: T | None = None) -> T:
    value = read_settings(kind, section, base)
    section.close()
    return value


def _value(declared: Setting, default: Any, section: Section) -> Any:
    assert declared.parse is not None, declared.key
    if declared.remedy:
        value = section.require(
            declared.key, declared.parse, declared.stand_in, declared.remedy, declared.meaning
        )
    else:
        value = section.optional(declared.key, declared.parse, default, declared.meaning)
    return section.directory / value if isinstance(value, Path) and section.has(declared.key) else value


def _list(declared: Setting, default: Any, section: Section) -> Any:
    assert declared.parse is not None, declared.key
    key = declared.key
    stand_in: Any = () if declared.is_flat else declared.stand_in
    values = section.texts(key, declared.parse, stand_in, declared.meaning)
    if declared.remedy and not values:
        section.mistake(key, "is missing or empty", declared.remedy)
    if declared.is_flat:
        return tuple(item for value in values for item in value)
    values = tuple(value for value in values if value is not None)
    return values or (() if default is dataclasses.MISSING else default)


def _group(declared: Setting, default: Any, section: Section) -> Any:
    assert declared.group is not None, declared.key
    base = None if default is dataclasses.MISSING else default
    if not declared.key:
        return read_settings(declared.group, section, base)
    if declared.is_optional and not section.has(declared.key):
        return default
    return _read_closed(declared.group, section.section(declared.key, declared.meaning), base)


def _groups(declared: Setting, _: Any, section: Section) -> Any:
    assert declared.group is not None, declared.key
    key, remedy = declared.key, declared.remedy
    if not remedy and not declared.is_optional:
        remedy = f"list at least one, or remove {key}"
    if not declared.remedy and not section.has(key):
        return ()
    sections = section.sections(key, remedy)
    if declared.most and len(sections) > declared.most:
        section.mistake(key, f"{len(sections)} {key}", f"write at most {declared.most}")
        sections = sections[: declared.most]
    return tuple(_read_closed(declared.group, below) for below in sections)


def _read_named(declared: Setting, _: Any, section: Section) -> Any:
    assert declared.parse_name is not None, declared.key
    below = section.section(declared.key, declared.meaning)
    names = below.entry_names()
    if declared.most and len(names) > declared.most:
        section.mistake(declared.key, f"{len(names)} {declared.key}", f"write at most {declared.most}")
    values: dict[str, Any] = {}
    for name in names[: declared.most or None]:
        value: Any = None
        if declared.group is not None:
            value = _read_closed(declared.group, below.section(name))
        elif declared.parse is not None:
            value = below.require(name, declared.parse, None, f"write {declared.name_meaning}")
        try:
            declared.parse_name(name)
        except QuantityError as error:
            below.mistake(name, error.what, error.remedy)
            value = None
        if value is not None:
            values[name] = value
    return values


def _variant(declared: Setting, value: Any, section: Section) -> Any:
    assert declared.by_value is not None
    if value not in declared.by_value:
        # The value that selects the keys is a mistake: which keys are unknown cannot be decided.
        section.accept_all()
        return None
    return read_settings(declared.by_value[value], section)


_READERS: Final[Mapping[Kind, Any]] = {
    Kind.VALUE: _value,
    Kind.LIST: _list,
    Kind.GROUP: _group,
    Kind.GROUPS: _groups,
    Kind.NAMED: _read_named,
    Kind.VARIANT: _variant,
}
