"""Read the directory of agents' public keys, again and again while a controller runs. A shell: the file system.

A look costs one listing; files are read only when one of them came, went or changed. Whom the keys admit is decided in
`controller.session.admission`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.runtime.curve_keys import read_public_key

MOST_KEYS: Final = 4096
"""Keys of one directory; a rack has hundreds of agents at most."""
_SUFFIX: Final = ".key"


@dataclass(frozen=True, slots=True)
class ListedKeys:
    """What a key directory says."""

    names: Mapping[str, str]
    """Public key in Z85 -> name of its agent, the stem of its file."""
    remarks: tuple[str, ...]
    """Files that admit nobody, and why."""


class KeyDirectory:
    """One directory of public keys, and what it said last."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen: tuple[tuple[str, int, int, int], ...] | None = None

    def read_again(self) -> ListedKeys | None:
        """Return what it says now; None if nothing changed since the last call.

        A directory that cannot be listed admits nobody, and says so as a remark.
        """
        try:
            found = self._listing()
        except OSError as error:
            gone = (("", error.errno or 0, 0, 0),)
            if self._seen == gone:
                return None
            self._seen = gone
            return ListedKeys(
                {}, (f"{self._directory} cannot be read ({error.strerror}): nobody is admitted",)
            )
        if found == self._seen:
            return None
        self._seen = found
        return self._read([name for name, *_ in found])

    def _listing(self) -> tuple[tuple[str, int, int, int], ...]:
        found = []
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if not entry.name.endswith(_SUFFIX):
                    continue
                try:
                    its = entry.stat()
                except OSError:
                    continue  # It went in this moment, or is a link to nothing.
                found.append((entry.name, its.st_ctime_ns, its.st_size, its.st_ino))
        return tuple(sorted(found))

    def _read(self, files: list[str]) -> ListedKeys:
        names: dict[str, str] = {}
        twice: set[str] = set()
        remarks = []
        for file in files[:MOST_KEYS]:
            name = file.removesuffix(_SUFFIX)
            try:
                key = read_public_key(self._directory / file).decode("ascii")
            except (ConfigError, UnicodeDecodeError) as error:
                remarks.append(f"{file} admits nobody: {_why(error)}")
                continue
            if key in names:
                twice.add(key)
                remarks.append(
                    f"{file} and {names[key]}.key hold one key, which admits nobody: make a pair for each"
                )
                continue
            names[key] = name
        if len(files) > MOST_KEYS:
            remarks.append(f"{len(files)} keys: those after the first {MOST_KEYS} admit nobody")
        return ListedKeys({key: name for key, name in names.items() if key not in twice}, tuple(remarks))


def first_keys(directory: KeyDirectory, path: Path) -> ListedKeys:
    """Return what a directory says at the start. Raises `ConfigError` if it admits nobody."""
    listed = directory.read_again()
    if listed is not None and listed.names:
        return listed
    what = "holds no agent key (*.key)"
    if listed is not None and listed.remarks:
        what += f": {listed.remarks[0]}"
    remedy = "put the .key file of every agent there, as etloop keys make and etloop-agent keygen write it"
    raise ConfigError(Problem(str(path), what, remedy))


def _why(error: ConfigError | UnicodeDecodeError) -> str:
    return error.problems[0].what if isinstance(error, ConfigError) else "it holds no key"
