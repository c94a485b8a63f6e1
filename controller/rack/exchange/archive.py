"""A run directory as a tar archive, made piece by piece while it is read. A shell: the disk.

Every name on the way to a file is opened without following links, so what lies elsewhere cannot get in. How long the archive
is stands before its first byte: a reader whom it breaks off on sees that, and so does whoever finds a file shorter than it
was. Links, sockets and the like are left out. Nothing here runs in the daemon's loop.
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
# Not blocking: a pipe in the place of a file would have the thread wait for ever.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotArchivable(Exception):
    """The directory is not as a run leaves it, or does not stay so; the text says how."""


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    """Below the directory."""
    header: bytes
    size_bytes: int


@dataclass(frozen=True, slots=True)
class RunArchive:
    """What an archive of a directory will be."""

    directory: Path
    members: tuple[_Member, ...]

    @classmethod
    def of(cls, directory: Path, folder: str) -> RunArchive:
        """Look at a directory, whose files will be below `folder` in the archive. Raises `NotArchivable` and `OSError`."""
        members: list[_Member] = []
        root = os.open(directory, _FOLDER)
        try:
            for place, folders, files, descriptor in os.fwalk(dir_fd=root, follow_symlinks=False):
                folders.sort()
                for name in sorted(files):
                    found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                    if not stat.S_ISREG(found.st_mode):
                        continue
                    path = os.path.normpath(os.path.join(place, name))  # noqa: PTH118 - relative to a descriptor
                    members.append(_Member(path, _header(f"{folder}/{path}", found), found.st_size))
                    if len(members) > MOST_FILES:
                        raise NotArchivable(f"it holds more than {MOST_FILES} files, and is not sent as one")
        finally:
            os.close(root)
        return cls(directory, tuple(members))

    @property
    def size_bytes(self) -> int:
        """Of the whole archive."""
        return sum(len(each.header) + _padded(each.size_bytes) for each in self.members) + len(_END)

    def pieces(self) -> Generator[bytes, None, None]:
        """The archive, in pieces of `_PIECE_BYTES` at most. Raises `NotArchivable`, or `OSError` for a file that is gone."""
        root = os.open(self.directory, _FOLDER)
        try:
            for member in self.members:
                yield member.header
                yield from _content(root, member)
        finally:
            os.close(root)
        yield _END


def _header(name: str, found: os.stat_result) -> bytes:
    about = tarfile.TarInfo(name)
    about.size = found.st_size
    about.mtime = int(found.st_mtime)
    about.mode = 0o644
    return about.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _content(root: int, member: _Member) -> Iterator[bytes]:
    descriptor = _opened_below(root, member.name)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotArchivable(f"{member.name} is no file any more")
        left = member.size_bytes
        while left:
            piece = os.read(descriptor, min(left, _PIECE_BYTES))
            if not piece:
                raise NotArchivable(f"{member.name} became shorter while it was read")
            left -= len(piece)
            yield piece
        yield bytes(-member.size_bytes % _BLOCK_BYTES)
    finally:
        os.close(descriptor)


def _opened_below(root: int, name: str) -> int:
    """Descriptor of a file, on the way to which no link was followed. Raises `OSError`."""
    *folders, last = name.split("/")
    here = os.dup(root)
    try:
        for folder in folders:
            deeper = os.open(folder, _FOLDER, dir_fd=here)
            os.close(here)
            here = deeper
        return os.open(last, _FILE, dir_fd=here)
    finally:
        os.close(here)


def _padded(size_bytes: int) -> int:
    return size_bytes + -size_bytes % _BLOCK_BYTES
