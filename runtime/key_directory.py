"""Reads the directory of agents' public keys, repeatedly while a controller runs. A shell: the file system.

Each poll costs one listing; a file is read only when it appeared or changed. `controller.session.admission` decides
which agents the keys admit. If a file cannot be read, the key that was read from it last stays valid.
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
"""Values that change with a file: ctime in ns, size, inode."""


@dataclass(frozen=True, slots=True)
class ListedKeys:
    """Keys of a key directory, with remarks on unusable files."""

    names: Mapping[str, str]
    """Public key in Z85 -> name of its agent, the stem of its file."""
    remarks: tuple[str, ...]
    """Files without a usable key, and files that cannot be read, with the reason."""


@dataclass(frozen=True, slots=True)
class _KeyFile:
    """Content of a key file when it was last read."""

    signature: _Signature | None
    """None: the file must be read again."""
    key: str
    """"": the file holds no key."""
    why: str
    """Reason why the file holds no key, or cannot be read now."""


class KeyDirectory:
    """One directory of public keys, and its content when last read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, _KeyFile] = {}
        self._said: ListedKeys | None = None
        self.unreadable = ""
        """Why the directory could not be listed at the last call; "" if it was."""

    def read_again(self) -> ListedKeys | None:
        """Return the keys of the directory now; None if they have not changed since the last call.

        A directory that cannot be listed, or is missing, keeps the keys that it had, and a file that cannot be read
        keeps its key; remarks report both. An empty directory and a removed file admit no agent.
        """
        try:
            self._look()
        except OSError as error:
            self.unreadable = f"{self._directory} cannot be read ({error.strerror})"
            names = {} if self._said is None else self._said.names
            keys = ListedKeys(names, (f"{self.unreadable}: keeping the keys that were read before",))
        else:
            self.unreadable = ""
            keys = self._list_keys()
        if keys == self._said:
            return None
        self._said = keys
        return keys

    def _look(self) -> None:
        """Read the files that appeared or changed. Raises `OSError`, without any change, if the directory cannot be
        listed.
        """
        # Use a descriptor: the files stay reachable if the directory is moved meanwhile.
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with os.scandir(directory) as entries:
                names = sorted(entry.name for entry in entries if entry.name.endswith(_SUFFIX))
            signatures = {name: _signature(directory, name) for name in names}
            self._files = {
                name: self._read(directory, name, signature)
                for name, signature in signatures.items()
                if not (isinstance(signature, OSError) and signature.errno == errno.ENOENT)
            }
        finally:
            os.close(directory)

    def _read(self, directory: int, file: str, signature: _Signature | OSError) -> _KeyFile:
        """Return the content of a file now, or its last content if it cannot be read."""
        last = self._files.get(file, _KeyFile(None, "", ""))
        if isinstance(signature, OSError):
            return _KeyFile(None, last.key, f"it cannot be read ({signature.strerror})")
        if signature == last.signature:
            return last
        try:
            key = read_public_key(Path(f"/proc/self/fd/{directory}/{file}")).decode("ascii")
        except UnreadableKeyFile as error:
            return _KeyFile(None, last.key, error.problems[0].what)
        except ConfigError as error:
            return _KeyFile(signature, "", error.problems[0].what)
        except UnicodeDecodeError:
            return _KeyFile(signature, "", "it contains no key")
        return _KeyFile(signature, key, "")

    def _list_keys(self) -> ListedKeys:
        names: dict[str, str] = {}
        duplicates: set[str] = set()
        remarks = []
        for file, key_file in list(self._files.items())[:MOST_KEYS]:
            key = key_file.key
            if not key:
                remarks.append(f"{file} is ignored: {key_file.why}")
                continue
            if key_file.why:
                remarks.append(f"{file}: {key_file.why}; keeping its previous key")
            if key in names:
                duplicates.add(key)
                remarks.append(
                    f"{file} and {names[key]}.key contain the same key, which is ignored: make a pair for each agent"
                )
                continue
            names[key] = file.removesuffix(_SUFFIX)
        if len(self._files) > MOST_KEYS:
            remarks.append(f"{len(self._files)} keys: those after the first {MOST_KEYS} are ignored")
        return ListedKeys({key: name for key, name in names.items() if key not in duplicates}, tuple(remarks))


def _signature(directory: int, file: str) -> _Signature | OSError:
    """Return the values that change with a file, or the error why they cannot be read."""
    try:
        status = os.stat(file, dir_fd=directory)
    except OSError as error:
        return error
    return status.st_ctime_ns, status.st_size, status.st_ino


def first_keys(directory: KeyDirectory, path: Path) -> ListedKeys:
    """Return the keys of a directory at the start. Raises `ConfigError` if it admits no agent."""
    keys = directory.read_again()
    if keys is not None and keys.names:
        return keys
    problem = "contains no agent key (*.key)"
    if directory.unreadable:
        problem = f"cannot be used: {directory.unreadable}"
    elif keys is not None and keys.remarks:
        problem += f": {keys.remarks[0]}"
    remedy = "put the .key file of every agent there, as etloop keys make and etloop-agent keygen write it"
    raise ConfigError(Problem(str(path), problem, remedy))
