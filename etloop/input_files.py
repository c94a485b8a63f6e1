"""Converts the input of a caller, a file or values, to the file that the rest of the program reads."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etloop.contract.base.errors import ConfigError, Problem

if TYPE_CHECKING:
    from etloop.controller.run.prepare import InputFile

    Given = str | os.PathLike[str] | Mapping[str, Any]
    """A file, or what would be in it. Paths inside are relative to the file, or to the working directory."""

_DEEPEST: Final = 32


def input_file(given: Given, name: str) -> InputFile:
    """Return a file, or values as the text of a file `name`. Raises `ConfigError` for values that a file cannot contain."""
    from etloop.controller.run.prepare import InputFile

    if not isinstance(given, Mapping):
        return InputFile(Path(given))
    return InputFile(Path(name), text_of(given, name), name)


def text_of(given: Mapping[str, Any], name: str) -> bytes:
    """Return values as YAML. Raises `ConfigError` for values that a file cannot contain."""
    import yaml

    return yaml.safe_dump(_plain(given, name, 0), sort_keys=False, allow_unicode=True).encode()


def with_plugin(given: Given, name: str, plugin: str) -> InputFile:
    """Return a scenario whose congestion control is that plugin instead of the one it names; other keys of `cc` are
    kept.

    Raises `ConfigError` for text that is not YAML or has another structure.
    """
    import yaml

    from etloop.controller.run.prepare import InputFile

    file = input_file(given, name)
    try:
        tree = yaml.safe_load(file.read())
    except yaml.YAMLError as error:
        raise ConfigError(Problem(file.source, f"is not YAML: {error}", "correct it")) from None
    section = tree
    for key in ("transport", "cc"):
        if not isinstance(section, dict) or not isinstance(section.setdefault(key, {}), dict):
            raise ConfigError(Problem(file.source, f"{key} is no mapping", f"write {key}: {{...}}"))
        section = section[key]
    for key in ("algorithm", "preset"):
        section.pop(key, None)
    section["plugin"] = plugin
    return InputFile(file.path, text_of(tree, file.source), file.source)


def _plain(value: Any, where: str, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ConfigError(Problem(where, f"is nested deeper than {_DEEPEST}", "does it contain itself?"))
    if isinstance(value, Mapping):
        return {str(key): _plain(item, f"{where}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(item, f"{where}[{number}]", depth + 1) for number, item in enumerate(value)]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    remedy = "write text, a number, a mapping or a list"
    raise ConfigError(Problem(where, f"is a {type(value).__name__}, which no file can hold", remedy))
