"""A case as files on disk: an archive, the directory it was unpacked into, or a run directory, which contains its case.

Decides where to search for files that are not inside, and refuses files whose content differs from the run's. While a case is
open, all its files are in a private temporary directory.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, InputError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.case.pack import current_versions
from etloop.results.schema.case import (
    CASE_FILE,
    MANIFEST_FILE,
    Case,
    CaseFile,
    CaseRole,
    CaseVersions,
    case_from_json,
)
from etloop.results.store.case_archive import (
    MOST_MANIFEST_BYTES,
    CaseArchive,
    case_in,
    digest_of,
    name_fault,
    open_archive,
)
from etloop.results.store.run_dir import INPUT_FILES, TOPOLOGY_FILE

GIVE_TRACES: Final = "give --traces DIR with the unchanged files"
_NOT_A_CASE: Final = (
    "name a case that etloop bundle made, the directory it was unpacked into, or a run directory"
)
_READABLE: Final = "check the disk, and the permissions of the run directory"
_CHANGED: Final = "get the case again; to run changed files, use etloop run scenario.yaml --rig rig.yaml"


@dataclass(frozen=True, slots=True)
class OpenCase:
    """A case whose files are in a directory and verified."""

    case: Case
    label: str
    """The case as the user named it."""
    directory: Path
    absent: tuple[CaseFile, ...]
    """Secret files that were not found."""

    @property
    def scenario(self) -> Path:
        """Return the path of the scenario file."""
        return self.directory / INPUT_FILES[0]

    @property
    def rig(self) -> Path:
        """Return the path of the rig file."""
        return self.directory / INPUT_FILES[1]

    @property
    def topology(self) -> Path | None:
        """Return the path of the topology file of the device, or None without one."""
        path = self.directory / TOPOLOGY_FILE
        return path if path.exists() else None

    def relabel(self, text: str) -> str:
        """Return a text with the temporary directory replaced by the name of the case."""
        return text.replace(str(self.directory), self.label)

    def refuse_absent_secrets(self) -> None:
        """Raise `ConfigError` if the rig in the case needs secret files that were not found."""
        if self.absent:
            remedy = "give --rig FILE, a rig of this site, or unpack the case and put the files there"
            raise ConfigError(
                *(Problem(f"{self.label}: {file.name}", f"is {file.why}", remedy) for file in self.absent)
            )


def is_as_the_run_read_it(path: Path) -> bool:
    """Return whether a settings file in a run directory is unchanged since the run read it.

    Raises `ConfigError` if it cannot be read, which shows no change.
    """
    if not (path.parent / CASE_FILE).is_file():
        return False
    try:
        with open_archive(path.parent / CASE_FILE) as archive:
            case = case_in(archive, str(path.parent / CASE_FILE))
        read_sha256 = next((file.read_sha256 for file in case.files if file.name == path.name), "")
        return bool(read_sha256) and digest_of(path).sha256 == read_sha256
    except (InputError, FileNotFoundError):
        return False
    except OSError as error:
        raise ConfigError(
            Problem(str(path), f"cannot be read: {error.strerror or error}", _READABLE)
        ) from None


def version_notes(case: Case, label: str) -> tuple[str, ...]:
    """Return a note on the versions that differ between the run and this installation; () if none does."""
    recorded, current = case.versions, current_versions()
    differences = [
        f"{name} {getattr(recorded, name)} (here {getattr(current, name)})"
        for name in CaseVersions.__dataclass_fields__
        if getattr(recorded, name) != getattr(current, name)
    ]
    if not differences:
        return ()
    return (f"{label} was run by {', '.join(differences)}: figures may differ for this reason alone",)


@contextmanager
def opened_case(path: Path, traces: Path | None = None) -> Iterator[OpenCase]:
    """Open a case, with all its files in a temporary directory that is removed at the end of the block.

    `path` is an archive, the directory it was unpacked into, a run directory, or the scenario of one. `traces` is a directory
    to search for files that are not inside, by their names in the case or by shorter ends of these names. Raises an
    `InputError` with every file that is missing, or that differs from the one the run read.
    """
    if path.name == INPUT_FILES[0]:
        path = path.parent
    with ExitStack() as stack:
        source = _source_of(path, stack)
        case = source.case
        _refuse_faults(case, str(path))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="etloop-case-")))
        external_files = found_files(case, traces, source.folder)
        source.put(directory)
        for name, target in external_files.places.items():
            link = directory / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target.absolute())
        yield OpenCase(case, str(path), directory, external_files.absent)


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The files of a case that are not inside it."""

    places: Mapping[str, Path]
    """Paths of the files by name."""
    absent: tuple[CaseFile, ...]
    """Secret files that were not found; callers decide whether they are needed."""


def found_files(
    case: Case, traces: Path | None, folder: Path | None = None, remedy: str = GIVE_TRACES
) -> FoundFiles:
    """Find the files of a case that are not inside: below `traces`, in `folder`, and at the path where the run read them.

    `folder` is the directory that the case was unpacked into; `remedy` is the advice for a file that is not found. Raises
    `ConfigError` with every file that is missing or has a different content. Secret files may be missing.
    """
    problems: list[Problem] = []
    places: dict[str, Path] = {}
    absent: list[CaseFile] = []
    for file in case.files:
        if file.inside:
            continue
        candidates = list(_candidates(file, traces, folder))
        if file.role is CaseRole.PRIVATE:
            place = next((path for path in candidates if path.exists()), None)
            if place is None:
                absent.append(file)
        else:
            place = next((path for path in candidates if _has_same_content(file, path)), None)
            if place is None:
                problems.append(_not_found(file, candidates, remedy))
        if place is not None:
            places[file.name] = place
    if problems:
        further = len(problems) - 20
        first_problems = problems[:20]
        if further > 0:
            first_problems.append(
                Problem("traces", f"{further} more files are missing or changed", first_problems[0].remedy)
            )
        raise ConfigError(*first_problems)
    return FoundFiles(places, tuple(absent))


def _candidates(file: CaseFile, traces: Path | None, folder: Path | None) -> Iterator[Path]:
    if traces is not None and file.role is not CaseRole.PRIVATE:
        # By its full name in the case, then below the folder of the trace, then by file name alone.
        parts = file.name.split("/")
        for start in (0, *range(2, len(parts) - 1), len(parts) - 1):
            yield traces.joinpath(*parts[start:])
    if folder is not None:
        yield folder / file.name
    if file.place:
        yield Path(file.place)


def _has_same_content(file: CaseFile, path: Path) -> bool:
    try:
        if not path.is_file() or path.stat().st_size != file.size_bytes:
            return False
        return digest_of(path).sha256 == file.sha256
    except OSError:
        return False


def _not_found(file: CaseFile, candidates: list[Path], remedy: str) -> Problem:
    other_file = next((path for path in candidates if path.is_file()), None)
    if other_file is not None:
        problem = f"{other_file} differs from the file that the run read (sha256 {file.sha256[:12]}…, {file.size_bytes} bytes)"
    elif candidates:
        problem = f"is not in the case, and no longer at {candidates[-1]}"
    else:
        problem = f"is not in the case: {file.why or 'it was left out'}"
    return Problem(file.name, problem, remedy)


@dataclass(frozen=True, slots=True)
class _Source:
    """The place that a case is read from."""

    case: Case
    label: str
    archive: CaseArchive | None
    folder: Path | None
    """The directory that it was unpacked into; None for an archive."""

    def put(self, directory: Path) -> None:
        """Copy all files that are inside into a directory and verify them. Raises `ConfigError` with every bad file."""
        problems: list[Problem] = []
        for file in self.case.files:
            if not file.inside:
                continue
            target = directory / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            where = f"{self.label}: {file.name}"
            try:
                size_and_digest = self._copy(file.name, target)
            except OSError as error:
                problem = f"cannot be unpacked: {error.strerror or error}"
                problems.append(Problem(where, problem, "make room in the directory of TMPDIR"))
                continue
            if size_and_digest is None:
                problems.append(Problem(where, "is missing", _CHANGED))
            elif size_and_digest != (file.size_bytes, file.sha256):
                problem = (
                    f"differs from the run's file: got {size_and_digest[0]} bytes, expected {file.size_bytes}"
                )
                if size_and_digest[0] == file.size_bytes:
                    problem = "differs from the run's file: same size, other content"
                problems.append(Problem(where, problem, _CHANGED))
        if problems:
            raise ConfigError(*problems[:20])

    def _copy(self, name: str, to: Path) -> tuple[int, str] | None:
        if self.archive is not None:
            if name not in self.archive.names():
                return None
            member = self.archive.unpack(name, to)
        else:
            assert self.folder is not None
            path = self.folder / name
            if not path.is_file():
                return None
            member = digest_of(Path(shutil.copyfile(path, to)))
        return member.size_bytes, member.sha256


def _source_of(path: Path, stack: ExitStack) -> _Source:
    """Return the case that a path refers to. Raises an `InputError` if there is none."""
    if path.is_dir():
        manifest = path / MANIFEST_FILE
        if manifest.is_file():
            text = _text_of(manifest)
            return _Source(case_from_json(text, str(manifest)), str(path), None, path)
        if not (path / CASE_FILE).is_file():
            problem = f"is a directory without {MANIFEST_FILE} and {CASE_FILE}"
            raise ConfigError(Problem(str(path), problem, _NOT_A_CASE))
        path = path / CASE_FILE
    archive = stack.enter_context(open_archive(path))
    case = case_in(archive, str(path))
    if extra := sorted(
        set(archive.names()) - {file.name for file in case.files if file.inside} - {MANIFEST_FILE}
    ):
        problem = f"has {', '.join(map(ascii, extra[:5]))[:200]}, which its {MANIFEST_FILE} does not list"
        raise ConfigError(Problem(str(path), problem, _CHANGED))
    return _Source(case, str(path), archive, None)


def _text_of(path: Path) -> str:
    try:
        if path.stat().st_size > MOST_MANIFEST_BYTES:
            raise ConfigError(Problem(str(path), f"has more than {MOST_MANIFEST_BYTES} bytes", _CHANGED))
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(Problem(str(path), f"cannot be read: {error}", _CHANGED)) from None


def _refuse_faults(case: Case, label: str) -> None:
    """Raise `ConfigError` for invalid or duplicate file names in a manifest, or a missing scenario or rig."""
    problems = [
        Problem(f"{label}: {ascii(file.name)[:80]}", f"its name {fault}", _CHANGED)
        for file in case.files
        if (fault := name_fault(file.name))
    ]
    names = [file.name for file in case.files]
    if len(set(names)) < len(names):
        problems.append(Problem(label, f"its {MANIFEST_FILE} lists a file twice", _CHANGED))
    inside = {(file.name, file.role) for file in case.files if file.inside}
    for name, role in zip(INPUT_FILES, (CaseRole.SCENARIO, CaseRole.RIG), strict=True):
        if (name, role) not in inside:
            problems.append(Problem(label, f"its {MANIFEST_FILE} does not list {name}", _CHANGED))
    if problems:
        raise ConfigError(*problems[:20])
