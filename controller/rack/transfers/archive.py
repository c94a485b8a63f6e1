"""A run directory as a tar archive, generated in pieces while its files are read. A shell: the disk.

Every component of a path is opened without following links, so files elsewhere cannot get in. The archive's length is
known before its first byte is sent, so a reader notices when it is cut short, also because a file has shrunk. Links,
sockets and other special files are left out. Nothing here runs in the daemon's loop.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

from etloop.contract.base.late_dataclass import dataclass

MOST_FILES: Final = 10_000
_PIECE_BYTES: Final = 1 << 18
_BLOCK_BYTES: Final = 512
_END: Final = bytes(2 * _BLOCK_BYTES)
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Non-blocking: a pipe in the place of a file would block the thread for ever.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotArchivable(Exception):
    """The directory is not as a run leaves it, or changed meanwhile; the text explains how."""


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    """Path below the directory."""
    header: bytes
    size_bytes: int


@dataclass(frozen=True, slots=True)
class RunArchive:
    """The members of an archive of a directory."""

    directory: Path
    members: tuple[_Member, ...]

    @classmethod
    def list_directory(cls, directory: Path, folder: str) -> RunArchive:
        """List a directory, whose files will be below `folder` in the archive. Raises `NotArchivable` and `OSError`."""
        members: list[_Member] = []
        root = os.open(directory, _FOLDER)
        try:
            for place, folders, files, descriptor in os.fwalk(dir_fd=root, follow_symlinks=False):
                folders.sort()
                for name in sorted(files):
                    status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                    if not stat.S_ISREG(status.st_mode):
                        continue
                    path = os.path.normpath(os.path.join(place, name))  # noqa: PTH118 - relative to a descriptor
                    members.append(_Member(path, _header(f"{folder}/{path}", status), status.st_size))
                    if len(members) > MOST_FILES:
                        raise NotArchivable(f"it holds more than {MOST_FILES} files, the most in one archive")
        finally:
            os.close(root)
        return cls(directory, tuple(members))

    @property
    def size_bytes(self) -> int:
        """Return the size of the whole archive."""
        return sum(len(member.header) + _pad(member.size_bytes) for member in self.members) + len(_END)

    def pieces(self) -> Generator[bytes, None, None]:
        """Yield the archive in pieces of at most `_PIECE_BYTES`. Raises `NotArchivable`, or `OSError` for a missing file."""
        root = os.open(self.directory, _FOLDER)
        try:
            for member in self.members:
                yield member.header
                yield from _content(root, member)
        finally:
            os.close(root)
        yield _END


def _header(name: str, status: os.stat_result) -> bytes:
    header = tarfile.TarInfo(name)
    header.size = status.st_size
    header.mtime = int(status.st_mtime)
    header.mode = 0o644
    return header.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _content(root: int, member: _Member) -> Iterator[bytes]:
    descriptor = _opened_below(root, member.name)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotArchivable(f"{member.name} is no longer a file")
        remaining_bytes = member.size_bytes
        while remaining_bytes:
            piece = os.read(descriptor, min(remaining_bytes, _PIECE_BYTES))
            if not piece:
                raise NotArchivable(f"{member.name} became shorter while it was read")
            remaining_bytes -= len(piece)
            yield piece
        yield bytes(-member.size_bytes % _BLOCK_BYTES)
    finally:
        os.close(descriptor)


def _opened_below(root: int, name: str) -> int:
    """Return a descriptor of a file below `root`, opened without following any link. Raises `OSError`."""
    *folders, last = name.split("/")
    current = os.dup(root)
    try:
        for folder in folders:
            child = os.open(folder, _FOLDER, dir_fd=current)
            os.close(current)
            current = child
        return os.open(last, _FILE, dir_fd=current)
    finally:
        os.close(current)


def _pad(size_bytes: int) -> int:
    return size_bytes + -size_bytes % _BLOCK_BYTES
