"""Read the directory of agents' public keys, again and again while a controller runs. A shell: the file system.

A look costs one listing; files are read only when one of them came, went or changed. Whom the keys admit is decided in
`controller.session.admission`. What cannot be read says nothing about its keys: the last that was read of it stays true.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.runtime.curve_keys import UnreadableKeyFile, read_public_key

MOST_KEYS: Final = 4096
"""Keys of one directory; a rack has hundreds of agents at most."""
_SUFFIX: Final = ".key"
_Signature = tuple[int, int, int]
"""What changes with a file: time of change, size, inode."""


@dataclass(frozen=True, slots=True)
class ListedKeys:
    """What a key directory says."""

    names: Mapping[str, str]
    """Public key in Z85 -> name of its agent, the stem of its file."""
    remarks: tuple[str, ...]
    """Files that admit nobody, and what cannot be read, and why."""


@dataclass(frozen=True, slots=True)
class _KeyFile:
    """What a file said when it was last read."""

    signature: _Signature | None
    """None: it is to be read again."""
    key: str
    """"": it holds none."""
    why: str
    """Why it holds no key, or cannot be read now."""


class KeyDirectory:
    """One directory of public keys, and what it said last."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, _KeyFile] = {}
        self._said: ListedKeys | None = None
        self.unreadable = ""
        """Why the directory could not be listed at the last call; "" if it was."""

    def read_again(self) -> ListedKeys | None:
        """Return what it says now; None if nothing changed since the last call.

        A directory that cannot be listed, or is missing, keeps the keys that it had, and a file that cannot be read keeps its
        key; remarks say so. A directory that is there and empty admits nobody, and so does a file that is gone.
        """
        try:
            self._look()
        except OSError as error:
            self.unreadable = f"{self._directory} cannot be read ({error.strerror})"
            names = {} if self._said is None else self._said.names
            listed = ListedKeys(names, (f"{self.unreadable}: the keys that were read before stay admitted",))
        else:
            self.unreadable = ""
            listed = self._listed()
        if listed == self._said:
            return None
        self._said = listed
        return listed

    def _look(self) -> None:
        """Read the files that came or changed. Raises `OSError`, and has changed nothing, if the directory cannot be listed."""
        # By a descriptor: files of a directory that is moved meanwhile are still there.
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with os.scandir(directory) as entries:
                names = sorted(entry.name for entry in entries if entry.name.endswith(_SUFFIX))
            found = {name: _signature(directory, name) for name in names}
            self._files = {
                name: self._read(directory, name, signature)
                for name, signature in found.items()
                if not (isinstance(signature, OSError) and signature.errno == errno.ENOENT)
            }
        finally:
            os.close(directory)

    def _read(self, directory: int, file: str, signature: _Signature | OSError) -> _KeyFile:
        """Return what a file says now, or what it said last where it cannot be read."""
        known = self._files.get(file, _KeyFile(None, "", ""))
        if isinstance(signature, OSError):
            return _KeyFile(None, known.key, f"it cannot be read ({signature.strerror})")
        if signature == known.signature:
            return known
        try:
            key = read_public_key(Path(f"/proc/self/fd/{directory}/{file}")).decode("ascii")
        except UnreadableKeyFile as error:
            return _KeyFile(None, known.key, error.problems[0].what)
        except ConfigError as error:
            return _KeyFile(signature, "", error.problems[0].what)
        except UnicodeDecodeError:
            return _KeyFile(signature, "", "it holds no key")
        return _KeyFile(signature, key, "")

    def _listed(self) -> ListedKeys:
        names: dict[str, str] = {}
        twice: set[str] = set()
        remarks = []
        for file, known in list(self._files.items())[:MOST_KEYS]:
            key = known.key
            if not key:
                remarks.append(f"{file} admits nobody: {known.why}")
                continue
            if known.why:
                remarks.append(f"{file}: {known.why}; its key that was read before stays admitted")
            if key in names:
                twice.add(key)
                remarks.append(
                    f"{file} and {names[key]}.key hold one key, which admits nobody: make a pair for each"
                )
                continue
            names[key] = file.removesuffix(_SUFFIX)
        if len(self._files) > MOST_KEYS:
            remarks.append(f"{len(self._files)} keys: those after the first {MOST_KEYS} admit nobody")
        return ListedKeys({key: name for key, name in names.items() if key not in twice}, tuple(remarks))


def _signature(directory: int, file: str) -> _Signature | OSError:
    """Return what changes with a file, or why that cannot be asked."""
    try:
        status = os.stat(file, dir_fd=directory)
    except OSError as error:
        return error
    return status.st_ctime_ns, status.st_size, status.st_ino


def first_keys(directory: KeyDirectory, path: Path) -> ListedKeys:
    """Return what a directory says at the start. Raises `ConfigError` if it admits nobody."""
    listed = directory.read_again()
    if listed is not None and listed.names:
        return listed
    what = "holds no agent key (*.key)"
    if directory.unreadable:
        what = f"cannot be used: {directory.unreadable}"
    elif listed is not None and listed.remarks:
        what += f": {listed.remarks[0]}"
    remedy = "put the .key file of every agent there, as etloop keys make and etloop-agent keygen write it"
    raise ConfigError(Problem(str(path), what, remedy))
