"""Convert the input of a caller, a file or values, to the file that the rest of the program reads."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etloop.contract.base.errors import ConfigError, Problem

if TYPE_CHECKING:
    from etloop.controller.run.prepare import InputFile

    FileOrValues = str | os.PathLike[str] | Mapping[str, Any]
    """A file, or its content as values. Paths inside are relative to the file, or to the working directory."""

_DEEPEST: Final = 32


def input_file(source: FileOrValues, name: str) -> InputFile:
    """Return a file, or values as the text of a file `name`. Raise `ConfigError` for values that a file cannot contain."""
    from etloop.controller.run.prepare import InputFile

    if not isinstance(source, Mapping):
        return InputFile(Path(source))
    return InputFile(Path(name), yaml_text(source, name), name)


def yaml_text(values: Mapping[str, Any], name: str) -> bytes:
    """Return values as YAML. Raise `ConfigError` for values that a file cannot contain."""
    import yaml

    return yaml.safe_dump(_plain(values, name, 0), sort_keys=False, allow_unicode=True).encode()


def with_plugin(scenario: FileOrValues, name: str, plugin: str) -> InputFile:
    """Return a scenario whose congestion control is that plugin instead of the one it names; other keys of `cc` are
    kept.

    Raise `ConfigError` for text that is not YAML or has another structure.
    """
    import yaml

    from etloop.controller.run.prepare import InputFile

    file = input_file(scenario, name)
    try:
        tree = yaml.safe_load(file.read())
    except yaml.YAMLError as error:
        raise ConfigError(Problem(file.source, f"is not YAML: {error}", "correct it")) from None
    section = tree
    for key in ("transport", "cc"):
        if not isinstance(section, dict) or not isinstance(section.setdefault(key, {}), dict):
            raise ConfigError(Problem(file.source, f"{key} is not a mapping", f"write {key}: {{...}}"))
        section = section[key]
    for key in ("algorithm", "preset"):
        section.pop(key, None)
    section["plugin"] = plugin
    return InputFile(file.path, yaml_text(tree, file.source), file.source)


def _plain(value: Any, where: str, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ConfigError(
            Problem(where, f"is nested deeper than {_DEEPEST} levels", "remove references to itself")
        )
    if isinstance(value, Mapping):
        return {str(key): _plain(item, f"{where}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(item, f"{where}[{number}]", depth + 1) for number, item in enumerate(value)]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    remedy = "write text, a number, a mapping or a list"
    raise ConfigError(Problem(where, f"is a {type(value).__name__}, which YAML cannot express", remedy))
