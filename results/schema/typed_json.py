"""Frozen values as the JSON files of a run directory: an unknown or missing key or a wrong type is refused by key path."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from etloop.contract.base.errors import InputError, Problem
from etloop.contract.protocol.codec import codec_of, plain
from etloop.contract.protocol.serialization import Unreadable, parse_json
from etloop.contract.protocol.typed_form import FILE_RULES, Misfit

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class _Versioned(Protocol):
    @property
    def schema(self) -> str: ...


T = TypeVar("T", bound=_Versioned)

OTHER_VERSION: Final = "read it with the version of ETLoop that wrote it"
RESTORE: Final = "restore the file as the run wrote it"


class RunDirError(InputError):
    """A run directory cannot be read."""


def to_json(value: DataclassInstance) -> str:
    """Return `value` as indented JSON with a stable order of keys. Raises `ValueError` on NaN and infinity, which our
    values never hold."""
    return json.dumps(plain(value, FILE_RULES), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def from_json(cls: type[T], text: str, where: str, schema: str) -> T:
    """Parse a `cls` of that `schema` from JSON.

    Raises:
        RunDirError: with every mistake by key path, where `where` names the file, or if the file has another schema.
    """
    try:
        value = codec_of(cls, FILE_RULES).read(parse_json(text, None), where)
    except Unreadable as error:
        raise RunDirError(Problem(where, f"not JSON: {error}", RESTORE)) from None
    except Misfit as misfit:
        remedy = f"{RESTORE}, or {OTHER_VERSION}"
        raise RunDirError(*(replace(problem, remedy=remedy) for problem in misfit.problems)) from None
    if value.schema != schema:
        message = f"schema is {value.schema!r}, this version reads {schema!r}"
        raise RunDirError(Problem(where, message, OTHER_VERSION))
    return value
