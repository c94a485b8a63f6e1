"""Read a type whose fields are declared by `setting` from a mapping of a YAML file."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from etloop.contract.base.setting import Setting, setting_of
from etloop.contract.base.yaml_reader import Section

T = TypeVar("T")


def read_settings(kind: type[T], section: Section, **known: object) -> T:
    """Return a value of `kind` from the keys of a section; mistakes go to the file of the section.

    `known`: fields that the caller determines; their keys are not read here. Fields that are no keys keep their defaults.
    Mappings below the section are closed, the section itself is not: its caller may read further keys.
    """
    values: dict[str, Any] = dict(known)
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        declared = setting_of(field)
        if declared is not None and field.name not in known:
            values[field.name] = _read(declared, field.default, section)
    return kind(**values)


def _read(declared: Setting, default: object, section: Section) -> object:
    if declared.group is not None and not declared.key:
        return read_settings(declared.group, section)
    if declared.group is not None:
        below = section.section(declared.key, declared.meaning)
        value = read_settings(declared.group, below)
        below.close()
        return value
    assert declared.parse is not None, f"{declared.key} has neither a parser nor a group"
    if declared.is_list:
        return section.texts(declared.key, declared.parse, None, declared.meaning)
    return section.optional(declared.key, declared.parse, default, declared.meaning)
