"""Reads YAML of other programs into plain values with limits: no tags, no aliases, bounded size. Pure but for the file."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from etloop.workload.readers.production.job_rows import MAX_DURATION_NS
from etloop.workload.readers.production.text_files import FileFault, quote, text_of

_MAX_BYTES: Final = 8 << 20
_MAX_DEPTH: Final = 16
_INT64_MAX: Final = (1 << 63) - 1


def yaml_document(path: Path) -> dict[str, Any]:
    """Return the mapping of a YAML file. Raises `FileFault`."""
    # YAML is imported for a file that needs it: most sources are of other formats.
    from etloop.workload.readers.production.alias_free_yaml import YAML_ERRORS, load_value

    try:
        document = load_value(text_of(path, _MAX_BYTES))
    except YAML_ERRORS as error:
        mark = getattr(error, "problem_mark", None)
        reason = str(getattr(error, "problem", None) or error).split("\n")[0]
        line = mark.line + 1 if mark is not None else 0
        raise FileFault(line, f"is not YAML that can be read: {quote(reason)}", "correct the file") from None
    _refuse_depth(document, 0)
    return map_of(document, "the file")


def map_of(value: object, where: str) -> dict[str, Any]:
    """Return a mapping with text keys. Raises `FileFault`."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise FileFault(0, f"{where} is not a mapping", "write keys with values")
    return value


def section_of(document: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the mapping at a key; an empty one if it is absent. Raises `FileFault`."""
    value = document.get(key)
    return {} if value is None else map_of(value, key)


def list_of(document: dict[str, Any], key: str, most: int) -> list[Any]:
    """Return the list at a key. Raises `FileFault`."""
    value = document.get(key)
    if not isinstance(value, list) or len(value) > most:
        raise FileFault(0, f"{key} is not a list of at most {most} items", "write a list")
    return value


def string_of(document: dict[str, Any], key: str, default: str) -> str:
    """Return the text at a key. Raises `FileFault`."""
    value = document.get(key, default)
    if not isinstance(value, str):
        raise FileFault(0, f"{key} is {quote(str(value))}, expected text", "write text")
    return value


def flag_of(document: dict[str, Any], key: str, default: bool) -> bool:
    """Return the truth value at a key. Raises `FileFault`."""
    value = document.get(key, default)
    if not isinstance(value, bool):
        raise FileFault(0, f"{key} is {quote(str(value))}, expected True or False", "write True or False")
    return value


def whole_of(document: dict[str, Any], key: str, default: int | None, least: int = 0) -> int:
    """Return the whole number at a key. Raises `FileFault`, also where it is absent without a default."""
    value = document.get(key, default)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or type(value) is not int or not least <= value <= _INT64_MAX:
        value_words = "missing" if value is None else quote(str(value))
        raise FileFault(0, f"{key} is {value_words}, expected a whole number from {least}", f"state {key}")
    return value


def number_of(document: dict[str, Any], key: str, default: int) -> Fraction:
    """Return the number at a key, with its decimals. Raises `FileFault`."""
    value = document.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
        raise FileFault(0, f"{key} is {quote(str(value))}, expected a number", "write a number")
    return Fraction(str(value))


def seconds_ns(document: dict[str, Any], key: str, *, is_negative_unset: bool = False) -> int:
    """Return the time at a key, in seconds in the file, as ns; 0 if absent, or negative where that means unset. Raises
    `FileFault`."""
    value = Fraction(0) if document.get(key) is None else number_of(document, key, 0)
    if value < 0 and not is_negative_unset:
        raise FileFault(
            0, f"{key} is {quote(str(document[key]))}, expected seconds", "write a number of seconds"
        )
    time_ns = round(max(value, Fraction(0)) * 10**9)
    if time_ns > MAX_DURATION_NS:
        raise FileFault(0, f"{key} is {quote(str(document[key]))}, more than weeks", "write a smaller number")
    return time_ns


def _refuse_depth(value: object, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise FileFault(0, f"is nested deeper than {_MAX_DEPTH} levels", "flatten the file")
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        _refuse_depth(child, depth + 1)
