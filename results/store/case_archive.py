"""Zip archives of cases: written so that the same files give the same bytes, and read as what a stranger may have made.

Decides what an archive may be at all: how many members, how large, under which names, packed how. What is in a case and
whether it is the right content is decided by `opening`.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from etloop.contract.base.errors import ConfigError, InputError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import approximate_bytes
from etloop.results.schema.case import CASE_FILE, MANIFEST_FILE, MOST_FILES, Case, case_from_json
from etloop.results.store.run_dir import INPUT_FILES, SUMMARY_LIMIT_BYTES, TOPOLOGY_FILE

MOST_CASE_BYTES: Final = 2 << 30
"""Of all members unpacked; less than where zip archives need their second format."""
MOST_RATIO: Final = 200
"""Unpacked to packed, of more than `FREE_BYTES` in all. Traces come to a tenth of it."""
FREE_BYTES: Final = 16 << 20
MOST_DIRECTORY_BYTES: Final = 32 << 20
"""Of the archive's list of members, which is read as a whole."""
MOST_MANIFEST_BYTES: Final = 32 << 20
LONGEST_NAME: Final = 1024
DEEPEST_NAME: Final = 8
_PIECE_BYTES: Final = 1 << 20
_END: Final = struct.Struct("<4s4H2LH")
"""End of central directory record (APPNOTE.TXT 4.3.16)."""
_END_MARK: Final = b"PK\5\6"
_LONGEST_COMMENT: Final = 0xFFFF
_ENCRYPTED: Final = 1
_DATE: Final = (1980, 1, 1, 0, 0, 0)
"""The first one that the format has: when a case was packed is not part of it."""
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_BROKEN: Final = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError, ValueError),
    *(OverflowError, IndexError, OSError),
)
"""What `zipfile` raises for bytes that are no archive, or a damaged one."""
_PACK_AGAIN: Final = "have it packed again with etloop bundle, and copied whole"


@dataclass(frozen=True, slots=True)
class Member:
    """One file of an archive to be: its content, or where that lies."""

    name: str
    content: bytes | Path


@dataclass(frozen=True, slots=True)
class Written:
    """What has been packed of a member."""

    size_bytes: int
    sha256: str


def name_fault(name: str) -> str:
    """Return why a file of a case cannot have this name; "" if it can."""
    parts = name.split("/")
    if not name or len(name.encode(errors="replace")) > LONGEST_NAME or len(parts) > DEEPEST_NAME:
        return f"is empty, longer than {LONGEST_NAME} bytes or deeper than {DEEPEST_NAME} folders"
    if any(part in ("", ".", "..") for part in parts) or "\\" in name:
        return "leads out of the case"
    if not name.isprintable():
        return "cannot be printed"
    return ""


def write_members(file: IO[bytes], members: Iterable[Member], *, deflated: bool = True) -> list[Written]:
    """Pack members in their order, and return size and digest of what was packed of each. Raises `OSError`."""
    written = []
    with zipfile.ZipFile(file, "w", allowZip64=False) as archive:
        for member in members:
            entry = zipfile.ZipInfo(member.name, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
            entry.create_system = 3  # Unix, whose rights follow.
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            size_bytes, digest = 0, hashlib.sha256()
            with archive.open(entry, "w") as packed:
                for piece in pieces_of(member.content):
                    packed.write(piece)
                    digest.update(piece)
                    size_bytes += len(piece)
            written.append(Written(size_bytes, digest.hexdigest()))
    return written


def is_too_dense(unpacked_bytes: int, packed_bytes: int) -> bool:
    """Whether a reader refuses an archive of this size for what comes out of it."""
    return unpacked_bytes > FREE_BYTES and unpacked_bytes > packed_bytes * MOST_RATIO


def pieces_of(content: bytes | Path) -> Iterator[bytes]:
    """Return a content, or that of a regular file, in pieces. Raises `OSError`."""
    if isinstance(content, bytes):
        yield content
        return
    with content.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def digest_of(path: Path) -> Written:
    """Return size and digest of a file. Raises `OSError`."""
    size_bytes, digest = 0, hashlib.sha256()
    for piece in pieces_of(path):
        size_bytes += len(piece)
        digest.update(piece)
    return Written(size_bytes, digest.hexdigest())


class CaseArchive:
    """An archive whose list of members is in order. Made by `opened_archive`."""

    def __init__(self, label: str, archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo]) -> None:
        self._label = label
        self._archive = archive
        self._entries = entries

    def names(self) -> tuple[str, ...]:
        """Return the names of all members."""
        return tuple(self._entries)

    def size_bytes(self, name: str) -> int:
        """Return the size that the archive states of a member."""
        return self._entries[name].file_size

    def read(self, name: str, most_bytes: int) -> bytes:
        """Return a member. Raises `ConfigError` where it is absent, larger, or damaged."""
        if name not in self._entries:
            raise ConfigError(Problem(self._label, f"has no {name}", "name a case that etloop bundle made"))
        if self.size_bytes(name) > most_bytes:
            what = f"{name} has {self.size_bytes(name)} bytes, more than the {most_bytes} that are read"
            raise ConfigError(Problem(self._label, what, _PACK_AGAIN))
        return b"".join(self._pieces(name))

    def unpack(self, name: str, path: Path) -> Written:
        """Write a member to a new file, and return what it was.

        Raises `ConfigError` where it is damaged, `OSError` where the file cannot be written.
        """
        size_bytes, digest = 0, hashlib.sha256()
        with path.open("xb") as file:
            for piece in self._pieces(name):
                file.write(piece)
                digest.update(piece)
                size_bytes += len(piece)
        return Written(size_bytes, digest.hexdigest())

    def _pieces(self, name: str) -> Iterator[bytes]:
        try:
            # No more than the stated size comes out of it: `zipfile` stops there.
            with self._archive.open(self._entries[name]) as member:
                while piece := member.read(_PIECE_BYTES):
                    yield piece
        except _BROKEN as error:
            what = f"{name} cannot be unpacked: {str(error)[:200] or type(error).__name__}"
            raise ConfigError(Problem(self._label, what, _PACK_AGAIN)) from None


@contextmanager
def opened_archive(path: Path, label: str = "") -> Iterator[CaseArchive]:
    """Open an archive and look at its list of members; `label` names it in messages instead of the path.

    Raises `ConfigError` for what is no archive, or none that is unpacked.
    """
    label = label or str(path)
    try:
        file = path.open("rb")
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise ConfigError(Problem(label, what, "check the name and that it may be read")) from None
    with file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(Problem(label, "is no regular file", "name a case that etloop bundle made"))
        with _archive_in(file, status.st_size, label) as archive:
            yield archive


@contextmanager
def _archive_in(file: IO[bytes], size_bytes: int, label: str) -> Iterator[CaseArchive]:
    _check_end(file, size_bytes, label)
    with _opened(file, label) as archive:
        yield CaseArchive(label, archive, _checked(archive.infolist(), size_bytes, label))


def _opened(file: IO[bytes], label: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except _BROKEN as error:
        what = f"is no zip archive that can be read: {str(error)[:200]}"
        raise ConfigError(Problem(label, what, _PACK_AGAIN)) from None


def _check_end(file: IO[bytes], size_bytes: int, label: str) -> None:
    """Raise `ConfigError` unless the list of members stands at the end, where it says, and may be read as a whole."""
    if size_bytes > MOST_CASE_BYTES + MOST_DIRECTORY_BYTES:
        what = f"has {approximate_bytes(size_bytes)}, more than a case may have"
        raise ConfigError(Problem(label, what, "name a case that etloop bundle made"))
    file.seek(max(size_bytes - _END.size - _LONGEST_COMMENT, 0))
    tail = file.read()
    at = tail.rfind(_END_MARK)
    if at < 0 or len(tail) - at < _END.size:
        raise ConfigError(Problem(label, "is no zip archive, or was not copied whole", _PACK_AGAIN))
    _, disk, first_disk, here, members, listed_bytes, begins_at, comment_bytes = _END.unpack_from(tail, at)
    end_at = size_bytes - len(tail) + at
    if disk or first_disk or here != members or begins_at + listed_bytes != end_at:
        raise ConfigError(Problem(label, "its list of members does not stand where it says", _PACK_AGAIN))
    if at + _END.size + comment_bytes != len(tail):
        raise ConfigError(Problem(label, "something follows the archive", _PACK_AGAIN))
    if members > MOST_FILES or listed_bytes > MOST_DIRECTORY_BYTES:
        what = f"lists {members} members in {listed_bytes} bytes, at most {MOST_FILES} in {MOST_DIRECTORY_BYTES} are read"
        raise ConfigError(Problem(label, what, _PACK_AGAIN))


def _checked(entries: Sequence[zipfile.ZipInfo], packed_bytes: int, label: str) -> dict[str, zipfile.ZipInfo]:
    problems: list[Problem] = []
    found: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        fault = _fault(entry)
        if not fault and entry.filename in found:
            fault = "is in the archive twice"
        if fault:
            problems.append(Problem(f"{label}: {ascii(entry.filename)[:80]}", fault, _PACK_AGAIN))
        elif not entry.is_dir():
            found[entry.filename] = entry
    folders = {
        "/".join(parts[:end])
        for name in found
        for parts in (name.split("/"),)
        for end in range(1, len(parts))
    }
    problems += [
        Problem(f"{label}: {ascii(name)[:80]}", "is a file and a folder", _PACK_AGAIN)
        for name in sorted(folders & found.keys())
    ]
    unpacked = sum(entry.file_size for entry in found.values())
    if unpacked > MOST_CASE_BYTES or is_too_dense(unpacked, packed_bytes):
        what = (
            f"{approximate_bytes(packed_bytes)} would become {approximate_bytes(unpacked)}; at most "
            f"{approximate_bytes(MOST_CASE_BYTES)} and {MOST_RATIO} times as much are unpacked"
        )
        problems.append(Problem(label, what, _PACK_AGAIN))
    if sum(entry.compress_size for entry in entries) > packed_bytes:
        problems.append(Problem(label, "its members overlap", _PACK_AGAIN))
    if problems:
        raise ConfigError(*problems[:20])
    return found


def _fault(entry: zipfile.ZipInfo) -> str:
    """Return why a member is not unpacked; "" if it is."""
    if fault := name_fault(entry.filename.removesuffix("/")):
        return f"its name {fault}"
    if entry.flag_bits & _ENCRYPTED:
        return "is encrypted"
    if entry.compress_type not in _METHODS:
        return f"is packed by method {entry.compress_type}, which is not read"
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFDIR if entry.is_dir() else stat.S_IFREG):
        return "is a link or a special file"
    if entry.orig_filename != entry.filename:
        # The name that others would unpack it under is another one.
        return "its name has a NUL in it"
    return ""


def case_in(archive: CaseArchive, label: str) -> Case:
    """Return what an archive says of itself. Raises an `InputError`."""
    where = f"{label}: {MANIFEST_FILE}"
    try:
        text = archive.read(MANIFEST_FILE, MOST_MANIFEST_BYTES).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(Problem(where, f"byte {error.start} is not UTF-8", _PACK_AGAIN)) from None
    return case_from_json(text, where)


def repeating_steps(content: bytes) -> tuple[str, ...]:
    """Return the commands that repeat a run, in its directory, by the content of its case; none where that is damaged."""
    try:
        with _archive_in(io.BytesIO(content), len(content), CASE_FILE) as archive:
            steps = case_in(archive, CASE_FILE).steps
    except InputError:
        return ()
    here = (step.replace("CASE --out again", ". --out ../again").replace("CASE", CASE_FILE) for step in steps)
    return (*here, "etloop report ../again")


def read_case(run_dir: Path) -> tuple[Case, dict[str, str]] | None:
    """Return the case of a run directory, with the texts of scenario, rig and topology by name; None without one.

    Raises an `InputError` where it is damaged.
    """
    path = run_dir / CASE_FILE
    if not path.is_file():
        return None
    with opened_archive(path) as archive:
        case = case_in(archive, str(path))
        names = {file.name for file in case.files if file.inside} & {*INPUT_FILES, TOPOLOGY_FILE}
        texts = {name: archive.read(name, SUMMARY_LIMIT_BYTES).decode(errors="replace") for name in names}
    return case, texts
