"""Zip archives of cases: written so that the same files give the same bytes, and read as untrusted input.

Decides which archives are accepted: number, size, names and compression of members. `controller.case` decides whether a
case holds the right files.
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
from etloop.results.store.checksums import refuse_damage
from etloop.results.store.run_dir import INPUT_FILES, SUMMARY_LIMIT_BYTES, TOPOLOGY_FILE

MOST_CASE_BYTES: Final = 2 << 30
"""Limit of all members unpacked; below the size at which zip archives need the Zip64 format."""
MOST_RATIO: Final = 200
"""Greatest ratio of unpacked to packed size, if more than `FREE_BYTES` are unpacked. Traces reach a tenth of it."""
FREE_BYTES: Final = 16 << 20
MOST_DIRECTORY_BYTES: Final = 32 << 20
"""Limit of the archive's central directory, which is read into memory."""
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
"""The first date of the format: the time of packing is not part of a case."""
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_BROKEN: Final = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError, ValueError),
    *(OverflowError, IndexError, OSError),
)
"""Exceptions that `zipfile` raises for bytes that are not an archive, or a damaged one."""
_PACK_AGAIN: Final = "have it packed again with etloop bundle, and copied whole"


@dataclass(frozen=True, slots=True)
class Member:
    """One file of an archive to be written: its content, or the path of it."""

    name: str
    content: bytes | Path


@dataclass(frozen=True, slots=True)
class Written:
    """Size and digest of a written member."""

    size_bytes: int
    sha256: str


def name_fault(name: str) -> str:
    """Return why a file of a case cannot have this name; "" if it can."""
    parts = name.split("/")
    if not name or len(name.encode(errors="replace")) > LONGEST_NAME or len(parts) > DEEPEST_NAME:
        return f"is empty, longer than {LONGEST_NAME} bytes or deeper than {DEEPEST_NAME} folders"
    if any(part in ("", ".", "..") for part in parts) or "\\" in name:
        return "is outside the case"
    if not name.isprintable():
        return "cannot be printed"
    return ""


def write_members(file: IO[bytes], members: Iterable[Member], *, deflated: bool = True) -> list[Written]:
    """Pack members in their order, and return size and digest of each as packed. Raises `OSError`."""
    written = []
    with zipfile.ZipFile(file, "w", allowZip64=False) as archive:
        for member in members:
            entry = zipfile.ZipInfo(member.name, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
            entry.create_system = 3  # Unix, because Unix permissions follow.
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
    """Return whether a reader refuses an archive of this size because of its unpacked size."""
    return unpacked_bytes > FREE_BYTES and unpacked_bytes > packed_bytes * MOST_RATIO


def pieces_of(content: bytes | Path) -> Iterator[bytes]:
    """Yield the given content, or that of a regular file, in pieces. Raises `OSError`."""
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
    """An archive with a valid list of members. Made by `open_archive`."""

    def __init__(self, label: str, archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo]) -> None:
        self._label = label
        self._archive = archive
        self._entries = entries

    def names(self) -> tuple[str, ...]:
        """Return the names of all members."""
        return tuple(self._entries)

    def size_bytes(self, name: str) -> int:
        """Return the size of a member that the archive states."""
        return self._entries[name].file_size

    def read(self, name: str, most_bytes: int) -> bytes:
        """Return the content of a member. Raises `ConfigError` if it is absent, larger than `most_bytes`, or damaged."""
        if name not in self._entries:
            raise ConfigError(Problem(self._label, f"has no {name}", "name a case that etloop bundle made"))
        if self.size_bytes(name) > most_bytes:
            problem = f"{name} has {self.size_bytes(name)} bytes, more than the {most_bytes} that are read"
            raise ConfigError(Problem(self._label, problem, _PACK_AGAIN))
        return b"".join(self._pieces(name))

    def unpack(self, name: str, path: Path) -> Written:
        """Write a member to a new file, and return its size and digest.

        Raises `ConfigError` if the member is damaged, `OSError` if the file cannot be written.
        """
        size_bytes, digest = 0, hashlib.sha256()
        with path.open("xb") as file:
            for piece in self._pieces(name):
                file.write(piece)
                digest.update(piece)
                size_bytes += len(piece)
        return Written(size_bytes, digest.hexdigest())

    def _pieces(self, name: str) -> Iterator[bytes]:
        """Yield the content of a member in pieces. Raises `ConfigError` if it is damaged."""
        try:
            # `zipfile` stops at the stated size, so no more can come out of it.
            with self._archive.open(self._entries[name]) as member:
                while piece := member.read(_PIECE_BYTES):
                    yield piece
        except _BROKEN as error:
            problem = f"{name} cannot be unpacked: {str(error)[:200] or type(error).__name__}"
            raise ConfigError(Problem(self._label, problem, _PACK_AGAIN)) from None


@contextmanager
def open_archive(path: Path, label: str = "") -> Iterator[CaseArchive]:
    """Open an archive and check its list of members; `label` names it in messages instead of the path.

    Raises `ConfigError` if it is not an archive, or one that is refused.
    """
    label = label or str(path)
    try:
        file = path.open("rb")
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise ConfigError(Problem(label, problem, "check the name and the permissions")) from None
    with file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(Problem(label, "is not a regular file", "name a case that etloop bundle made"))
        with _archive_in(file, status.st_size, label) as archive:
            yield archive


@contextmanager
def _archive_in(file: IO[bytes], size_bytes: int, label: str) -> Iterator[CaseArchive]:
    _check_end(file, size_bytes, label)
    with _open_member(file, label) as archive:
        yield CaseArchive(label, archive, _check_members(archive.infolist(), size_bytes, label))


def _open_member(file: IO[bytes], label: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except _BROKEN as error:
        problem = f"is not a zip archive that can be read: {str(error)[:200]}"
        raise ConfigError(Problem(label, problem, _PACK_AGAIN)) from None


def _check_end(file: IO[bytes], size_bytes: int, label: str) -> None:
    """Raise `ConfigError` unless the central directory is where the end record places it, and small enough to read into
    memory."""
    if size_bytes > MOST_CASE_BYTES + MOST_DIRECTORY_BYTES:
        problem = f"has {approximate_bytes(size_bytes)}, more than a case may have"
        raise ConfigError(Problem(label, problem, "name a case that etloop bundle made"))
    file.seek(max(size_bytes - _END.size - _LONGEST_COMMENT, 0))
    tail = file.read()
    end_offset = tail.rfind(_END_MARK)
    if end_offset < 0 or len(tail) - end_offset < _END.size:
        raise ConfigError(Problem(label, "is not a zip archive, or was not copied whole", _PACK_AGAIN))
    _, disk, first_disk, here, members, listed_bytes, begins_at, comment_bytes = _END.unpack_from(
        tail, end_offset
    )
    end_at = size_bytes - len(tail) + end_offset
    if disk or first_disk or here != members or begins_at + listed_bytes != end_at:
        raise ConfigError(
            Problem(
                label, "its list of members is not at the position that its end record names", _PACK_AGAIN
            )
        )
    if end_offset + _END.size + comment_bytes != len(tail):
        raise ConfigError(Problem(label, "something follows the archive", _PACK_AGAIN))
    if members > MOST_FILES or listed_bytes > MOST_DIRECTORY_BYTES:
        problem = f"lists {members} members in {listed_bytes} bytes, at most {MOST_FILES} in {MOST_DIRECTORY_BYTES} are read"
        raise ConfigError(Problem(label, problem, _PACK_AGAIN))


def _check_members(
    entries: Sequence[zipfile.ZipInfo], packed_bytes: int, label: str
) -> dict[str, zipfile.ZipInfo]:
    """Return the members by name. Raises `ConfigError` with every member or size that is refused."""
    problems: list[Problem] = []
    entry_by_name: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        fault = _member_fault(entry)
        if not fault and entry.filename in entry_by_name:
            fault = "is in the archive twice"
        if fault:
            problems.append(Problem(f"{label}: {ascii(entry.filename)[:80]}", fault, _PACK_AGAIN))
        elif not entry.is_dir():
            entry_by_name[entry.filename] = entry
    folders = {
        "/".join(parts[:end])
        for name in entry_by_name
        for parts in (name.split("/"),)
        for end in range(1, len(parts))
    }
    problems += [
        Problem(f"{label}: {ascii(name)[:80]}", "is a file and a folder", _PACK_AGAIN)
        for name in sorted(folders & entry_by_name.keys())
    ]
    unpacked = sum(entry.file_size for entry in entry_by_name.values())
    if unpacked > MOST_CASE_BYTES or is_too_dense(unpacked, packed_bytes):
        problem = (
            f"{approximate_bytes(packed_bytes)} would become {approximate_bytes(unpacked)}; at most "
            f"{approximate_bytes(MOST_CASE_BYTES)} and {MOST_RATIO} times as much are unpacked"
        )
        problems.append(Problem(label, problem, _PACK_AGAIN))
    if sum(entry.compress_size for entry in entries) > packed_bytes:
        problems.append(Problem(label, "its members overlap", _PACK_AGAIN))
    if problems:
        raise ConfigError(*problems[:20])
    return entry_by_name


def _member_fault(entry: zipfile.ZipInfo) -> str:
    """Return why a member is refused; "" if it is accepted."""
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
        # Other programs would unpack it under a different name.
        return "its name has a NUL in it"
    return ""


def case_in(archive: CaseArchive, label: str) -> Case:
    """Return the case.json of an archive. Raises an `InputError`."""
    where = f"{label}: {MANIFEST_FILE}"
    try:
        text = archive.read(MANIFEST_FILE, MOST_MANIFEST_BYTES).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(Problem(where, f"byte {error.start} is not UTF-8", _PACK_AGAIN)) from None
    return case_from_json(text, where)


def repeating_steps(content: bytes) -> tuple[str, ...]:
    """Return the commands that repeat a run, to be run in its directory, from the content of its case; () if the case is
    damaged."""
    try:
        with _archive_in(io.BytesIO(content), len(content), CASE_FILE) as archive:
            steps = case_in(archive, CASE_FILE).steps
    except InputError:
        return ()
    here = (step.replace("CASE --out again", ". --out ../again").replace("CASE", CASE_FILE) for step in steps)
    return (*here, "etloop report ../again")


def read_case(run_dir: Path) -> tuple[Case, dict[str, str]] | None:
    """Return the case of a run directory with the texts of scenario, rig and topology by name; None if there is none.

    Raises an `InputError` if it is damaged.
    """
    path = run_dir / CASE_FILE
    if not path.is_file():
        return None
    refuse_damage(run_dir, (CASE_FILE,))
    with open_archive(path) as archive:
        case = case_in(archive, str(path))
        names = {file.name for file in case.files if file.inside} & {*INPUT_FILES, TOPOLOGY_FILE}
        texts = {name: archive.read(name, SUMMARY_LIMIT_BYTES).decode(errors="replace") for name in names}
    return case, texts
