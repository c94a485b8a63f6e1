"""JSON to frozen dataclasses and back, typed: an unknown key, a missing one or a wrong type is refused by key path.

Reads only what summary.json and plan.json need: numbers, text, enums, tuples, string-keyed dicts, None and dataclasses.
"""

from __future__ import annotations

import json
import types
from dataclasses import MISSING, asdict, fields, is_dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from etloop.contract.base.errors import InputError, Problem

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")

OTHER_VERSION: Final = "read it with the version of ETLoop that wrote it"
RESTORE: Final = "restore the file as the run wrote it"


class RunDirError(InputError):
    """A run directory cannot be read."""


def to_json(value: DataclassInstance) -> str:
    """`value` as indented JSON with a stable order of keys. NaN and infinity do not occur in our values."""
    return json.dumps(asdict(value), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def from_json(cls: type[T], text: str, where: str) -> T:
    """Read a `cls` from JSON.

    Raises:
        RunDirError: with every mistake by key path, `where` naming the file.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        problem = Problem(where, f"not JSON: {error}", RESTORE)
        raise RunDirError(problem) from None
    problems: list[Problem] = []
    result = _decode(cls, value, where, problems)
    if problems:
        raise RunDirError(*problems)
    return result  # type: ignore[no-any-return]


def _decode(cls: Any, value: Any, where: str, problems: list[Problem]) -> Any:
    """`value` as `cls`; what does not fit is added to `problems` and yields None."""
    origin = get_origin(cls)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        (cls,) = (option for option in get_args(cls) if option is not types.NoneType)
        return _decode(cls, value, where, problems)
    if is_dataclass(cls) and isinstance(value, dict):
        return _decode_fields(cls, value, where, problems)
    if origin is tuple and isinstance(value, list):
        item = get_args(cls)[0]
        return tuple(_decode(item, entry, f"{where}[{index}]", problems) for index, entry in enumerate(value))
    if origin is dict and isinstance(value, dict):
        item = get_args(cls)[1]
        return {key: _decode(item, entry, f"{where}.{key}", problems) for key, entry in value.items()}
    if isinstance(cls, type) and issubclass(cls, StrEnum):
        if isinstance(value, str) and value in set(cls):
            return cls(value)
        expected = ", ".join(cls)
    elif cls is float and type(value) in (int, float):
        return float(value)
    elif cls in (int, str, bool) and type(value) is cls:
        return value
    else:
        expected = _name(cls)
    problems.append(Problem(where, f"expected {expected}, found {_shown(value)}", RESTORE))
    return None


def _decode_fields(cls: Any, value: dict[str, Any], where: str, problems: list[Problem]) -> Any:
    hints = get_type_hints(cls)
    names = [field.name for field in fields(cls)]
    # A key that came with a later version of a schema has a default, for files of earlier ones.
    optional = {field.name for field in fields(cls) if field.default is not MISSING}
    before = len(problems)
    problems += [
        Problem(f"{where}.{key}", "unknown key", OTHER_VERSION) for key in sorted(value.keys() - set(names))
    ]
    decoded = {}
    for name in names:
        if name in value:
            decoded[name] = _decode(hints[name], value[name], f"{where}.{name}", problems)
        elif name not in optional:
            problems.append(Problem(f"{where}.{name}", "missing", OTHER_VERSION))
    return cls(**decoded) if len(problems) == before else None


def _name(cls: Any) -> str:
    if is_dataclass(cls) or get_origin(cls) is dict:
        return "an object"
    if get_origin(cls) is tuple:
        return "a list"
    return {int: "an integer", float: "a number", str: "text", bool: "true or false"}[cls]


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:37]}..."
