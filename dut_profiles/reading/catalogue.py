"""Which profiles there are: those shipped beside this file, by name, and files of the user's own, by path.

Decides what a name means. What a file may say is decided by `profile_file`.
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
    """The names of all shipped profiles."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob(f"*{_SUFFIX}")))


def is_path(name_or_path: str) -> bool:
    """Whether this names a file and not a shipped profile."""
    return "/" in name_or_path or name_or_path.endswith((_SUFFIX, ".yml"))


def find_profile(name_or_path: str) -> DutProfile:
    """The profile of a shipped name, or of a file: whatever has a slash or ends in .yaml or .yml.

    Raises `ConfigError` with all mistakes of the file, or for a name that is not shipped.
    """
    if is_path(name_or_path):
        path = Path(name_or_path)
        return parse_profile(_read(path), str(path))
    _refuse_unknown(name_or_path)
    return _shipped(name_or_path)


def profile_content(name_or_path: str) -> bytes:
    """The text of the same file. Raises as `find_profile`, but for mistakes in it."""
    if is_path(name_or_path):
        return _read(Path(name_or_path))
    _refuse_unknown(name_or_path)
    return _read(_SHIPPED / f"{name_or_path}{_SUFFIX}")


def _refuse_unknown(name_or_path: str) -> None:
    names = profile_names()
    if name_or_path not in names:
        near = difflib.get_close_matches(name_or_path, names, n=1)
        hint = f"write {near[0]} if you mean that" if near else f"there are {', '.join(names)}"
        what = f'"{name_or_path[:64]}" is not a shipped profile'
        raise ConfigError(Problem("profile", what, f"{hint}, or name a file that ends in {_SUFFIX}"))


@functools.cache
def _shipped(name: str) -> DutProfile:
    path = _SHIPPED / f"{name}{_SUFFIX}"
    return parse_profile(_read(path), path.name)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            # One byte more than is allowed, so that the reader can say that it is too much.
            return file.read(LARGEST_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        what = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise ConfigError(Problem(str(path), what, "check the name and that it may be read")) from None
