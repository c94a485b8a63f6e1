"""Provides the files of a job, in a directory or a tar or zip archive, as names and contents.

Decides which of these a path means and which part of it is inside. Leaves which files make up a job to `files` and
`json_job`. gzip and zstd are accepted anywhere, by their magic. Content is streamed in pieces of 1 MiB; no file is
unpacked to disk. Describes files that are not Chakra traces by their first bytes, for error messages.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, Protocol

from etloop.contract.base.errors import Problem, TraceError
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.decompression import CompressionFault, decompress
from etloop.workload.readers.foreign_files import identify
from etloop.workload.readers.json_names import is_json_name
from etloop.workload.readers.tar_members import MemberKind, TarFault, TarMember, is_tar, members
from etloop.workload.readers.zip_members import is_zip, zip_members
from etloop.workload.trace.trace_names import by_prefix, printable_name

COPY_AGAIN: Final = "copy or collect the file again"

_PIECE_BYTES: Final = 1 << 20
_DEEPEST: Final = 4
"""Depth of nested folders that are searched for a job's files."""
_MOST_SEEN: Final = 200_000
"""Limit of files and folders that are listed; a job has a few per rank."""
HEAD_BYTES: Final = 512
"""Number of bytes that `foreign_look` needs of a file."""

_TEXT_WORKLOAD: Final = (
    "an ASTRA-sim text workload, which is not supported; convert it to .et files with chakra_converter Text"
)
_MAGICS: Final = (
    (b"PK\x03\x04", "a zip archive"),
    (b"\x7fELF", "a program"),
    (b"SQLite format 3", "an SQLite database"),
    (b"BZh", "a bzip2 stream, which is not supported; use gzip or zstd"),
    (b"\xfd7zXZ", "an xz stream, which is not supported; use gzip or zstd"),
    (b"\x04\x22\x4d\x18", "an lz4 stream, which is not supported; use gzip or zstd"),
    (b"PAR1", "a Parquet file"),
    *((word, _TEXT_WORKLOAD) for word in (b"DATA\n", b"MODEL\n", b"HYBRID_")),
    (b"\x89PNG", "an image"),
    *((bytes((0x80, version)), "a Python pickle") for version in range(2, 6)),
)
# First tags that a GlobalMetadata or a Node can have: version or id, attributes or name, type.
_FIRST_TAGS: Final = (0x0A, 0x08, 0x12, 0x18)
_SHOWN_TEXT: Final = 24


class Store(Protocol):
    """Location of the files of a job."""

    def names(self) -> frozenset[str]: ...

    def where(self, name: str) -> str:
        """Return the file's name as shown in messages."""

    def contents(self, names: frozenset[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yield name and raw bytes of each of `names`, in any order. A content must be read before the next is
        requested."""


@dataclass(frozen=True, slots=True)
class Directory:
    """Files of one folder. If it is the whole source and holds no trace itself, files of the folders inside it too."""

    path: Path
    is_whole: bool = False

    def names(self) -> frozenset[str]:
        """Return the names of the files, relative to the folder. Raises `OSError`, `TraceError`."""
        own_names = frozenset(path.name for path in self.path.iterdir())
        if not self.is_whole or by_prefix(own_names) or any(map(is_json_name, own_names)):
            return own_names
        return own_names | frozenset(self._below())

    def _below(self) -> Iterator[str]:
        """Yield the names of files in nested folders, without following links. Raises `TraceError` if there are too
        many."""
        listed_count = 0
        for folder, folders, files in os.walk(self.path):
            relative = Path(folder).relative_to(self.path)
            listed_count += len(folders) + len(files)
            if len(relative.parts) == _DEEPEST:
                folders.clear()
            if relative.parts:
                yield from ((relative / name).as_posix() for name in files)
            if listed_count > _MOST_SEEN:
                problem = f"holds more than {_MOST_SEEN} files in its folders, but no trace at its top level"
                raise TraceError(
                    Problem(printable_name(str(self.path)), problem, "give the directory of one job")
                )

    def where(self, name: str) -> str:
        """Return the path of a file as shown in messages."""
        return printable_name(str(self.path / name))

    def contents(self, names: frozenset[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yield name and raw bytes of each of `names`, sorted by name. Raises `OSError`."""
        for name in sorted(names):
            with closing(file_pieces(self.path / name)) as pieces:
                yield name, pieces


@dataclass(frozen=True, slots=True)
class Archive:
    """Members of a tar or zip archive. The archive is read through for each request."""

    path: Path
    is_zip: bool = False

    def _members(self) -> Iterator[TarMember]:
        return zip_members(self.path) if self.is_zip else members(decompress(file_pieces(self.path)))

    def names(self) -> frozenset[str]:
        """Return the names of all members. Raises `TraceError` for links to traces and for repeated names."""
        member_names: set[str] = set()
        problems = []
        for member in self._members():
            if member.kind is MemberKind.OTHER:
                continue
            if member.kind is MemberKind.LINK and (by_prefix((member.name,)) or is_json_name(member.name)):
                problems.append(
                    Problem(self.where(member.name), "is a link", "pack the file that it points to instead")
                )
            if member.name in member_names:
                problems.append(
                    Problem(self.where(member.name), "is in the archive twice", "pack the archive again")
                )
            member_names.add(member.name)
        if problems:
            raise TraceError(*problems)
        return frozenset(member_names)

    def where(self, name: str) -> str:
        """Return the path of a member as shown in messages."""
        return printable_name(f"{self.path}/{name}")

    def contents(self, names: frozenset[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yield name and raw bytes of each of `names`, in archive order. Raises `OSError`, `CompressionFault` or
        `TarFault`."""
        for member in self._members():
            if member.name in names:
                yield member.name, member.content


def file_pieces(path: Path) -> Generator[bytes, None, None]:
    """Yield the raw bytes of a regular file. Raises `OSError`, also for a file of another kind."""
    if path.is_fifo() or path.is_char_device() or path.is_block_device() or path.is_socket():
        # Opening such a file may block forever.
        raise OSError(errno.EINVAL, "Not a regular file")
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def open_store(source: Path) -> tuple[Store, str]:
    """Return the store that contains `source`, and the part of its path inside the store: a prefix or folder, "" for
    all. Raises `TraceError`."""
    if source.is_dir():
        return Directory(source, is_whole=True), ""
    for archive in (source, *source.parents):
        if archive.is_file():
            if archive == source and by_prefix((source.name,)):
                prefix = str(source.parent / next(iter(by_prefix((source.name,)))))
                problem = "is the trace of one rank, expected a job"
                raise TraceError(
                    Problem(
                        printable_name(str(source)),
                        problem,
                        f"give the directory, or the prefix {printable_name(prefix)}",
                    )
                )
            is_zip_archive = _is_zip(archive)
            head = b"" if is_zip_archive else _head(archive)
            if not is_zip_archive and not is_tar(head):
                if archive == source and (is_json_name(source.name) or head.lstrip()[:1] in (b"{", b"[")):
                    return Directory(source.parent), source.name
                problem = "is neither a directory, an archive of traces nor a JSON trace"
                if foreign_form := foreign_look(head):
                    problem += f"; it {foreign_form}"
                remedy = "give a directory with PREFIX.<rank>.et files, a prefix, or an archive (.tar, .tar.gz, .tar.zst, .zip)"
                raise TraceError(Problem(printable_name(str(archive)), problem, remedy))
            inside = source.relative_to(archive).as_posix()
            return Archive(archive, is_zip_archive), "" if inside == "." else inside
    if source.parent.is_dir():
        return Directory(source.parent), source.name
    raise TraceError(
        Problem(
            printable_name(str(source)),
            "does not exist",
            "give a directory, a prefix or an archive of traces",
        )
    )


def _is_zip(path: Path) -> bool:
    try:
        with closing(file_pieces(path)) as pieces:
            return is_zip(next(pieces, b""))
    except OSError as error:
        raise TraceError(unreadable(str(path), error)) from None


def _head(path: Path) -> bytes:
    head = b""
    try:
        for piece in decompress(file_pieces(path)):
            head += piece
            if len(head) >= HEAD_BYTES:
                break
    except (OSError, CompressionFault) as error:
        raise TraceError(unreadable(str(path), error)) from None
    return head


def first_bytes(pieces: Iterator[bytes], limit_bytes: int) -> bytes:
    """Return the first `limit_bytes` bytes."""
    content = bytearray()
    for piece in pieces:
        content += piece[: limit_bytes - len(content)]
        if len(content) == limit_bytes:
            break
    return bytes(content)


def unreadable(where: str, error: OSError | CompressionFault | TarFault) -> Problem:
    """Return a problem for a file or archive that cannot be read."""
    if isinstance(error, OSError):
        return Problem(
            printable_name(where),
            f"cannot be read: {error.strerror or error}",
            "check that it exists and is readable",
        )
    remedy = error.remedy if isinstance(error, CompressionFault) else ""
    return Problem(printable_name(where), str(error), remedy or COPY_AGAIN)


def foreign_look(head: bytes) -> str | None:
    """Describe what a file beginning with `head` is; None if it may be a trace."""
    for magic, meaning in _MAGICS:
        if head.startswith(magic):
            return f"begins like {meaning}"
    if head[257:262] == b"ustar":
        return "begins like a tar archive"
    if head and not head.strip(b"\0"):
        return "begins with zeros, like a file that was allocated but never written"
    if identity := identify(head):
        return f"is {identity}"
    text = head.decode("utf-8", errors="ignore")
    printable = sum(c.isprintable() or c in "\t\r\n" for c in text)
    if text and len(text) >= 0.9 * len(head) and printable == len(text):
        first_text = printable_name(next(iter(text.lstrip()[:_SHOWN_TEXT].splitlines()), ""))
        kind = "JSON text" if first_text[:1] in ("{", "[") else "text"
        return f'begins like {kind}: "{first_text}"'
    first_varint_end = next((i for i, byte in enumerate(head[:5]) if byte < 0x80), None)
    if (
        first_varint_end is not None
        and head[first_varint_end + 1 : first_varint_end + 2]
        and head[first_varint_end + 1] in _FIRST_TAGS
    ):
        return None
    return f"begins with the bytes {head[:8].hex(' ')}"
