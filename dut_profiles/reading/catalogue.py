"""Finds profiles: shipped ones by name, files of the user by path.

Decides the meaning of a name. `profile_file` decides the content of a file.
"""

from __future__ import annotations

import difflib
import functools
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.yaml_reader import LARGEST_FILE_BYTES
from etloop.dut_profiles.model.profile import DutProfile
from etloop.dut_profiles.reading.profile_file import parse_profile

_SHIPPED: Final = Path(__file__).parents[1]
_SUFFIX: Final = ".yaml"


def profile_names() -> tuple[str, ...]:
    """Return the names of all shipped profiles."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob(f"*{_SUFFIX}")))


def is_path(name_or_path: str) -> bool:
    """Return whether the text names a file and not a shipped profile."""
    return "/" in name_or_path or name_or_path.endswith((_SUFFIX, ".yml"))


def find_profile(name_or_path: str) -> DutProfile:
    """Return the profile of a shipped name or of a file: a text with a slash or that ends in .yaml or .yml is a path.

    Raise `ConfigError` with all mistakes of the file, or for a name that is not shipped.
    """
    if is_path(name_or_path):
        path = Path(name_or_path)
        return parse_profile(_read(path), str(path))
    _refuse_unknown(name_or_path)
    return _read_shipped(name_or_path)


def profile_content(name_or_path: str) -> bytes:
    """Return the text of the profile that `find_profile` reads. Raise `ConfigError` likewise, except for mistakes in it."""
    if is_path(name_or_path):
        return _read(Path(name_or_path))
    _refuse_unknown(name_or_path)
    return _read(_SHIPPED / f"{name_or_path}{_SUFFIX}")


def _refuse_unknown(name_or_path: str) -> None:
    names = profile_names()
    if name_or_path not in names:
        close_names = difflib.get_close_matches(name_or_path, names, n=1)
        hint = f"write {close_names[0]} if you mean that" if close_names else f"there are {', '.join(names)}"
        problem = f'"{name_or_path[:64]}" is not a shipped profile'
        raise ConfigError(Problem("profile", problem, f"{hint}, or name a file that ends in {_SUFFIX}"))


@functools.cache
def _read_shipped(name: str) -> DutProfile:
    path = _SHIPPED / f"{name}{_SUFFIX}"
    return parse_profile(_read(path), path.name)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            # Read one byte more than the limit, so that the reader can refuse a file that is too large.
            return file.read(LARGEST_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        problem = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise ConfigError(Problem(str(path), problem, "check the name and the permissions")) from None
