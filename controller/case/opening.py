"""A case as files on disk: an archive, the directory that it was unpacked into, or a run directory, which has a case of its own.

Decides where a file is looked for that is not inside, and that nothing is taken whose content is not the run's. Everything
lies in a private directory while a case is open, whatever it was before.
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
from etloop.controller.case.making import current_versions
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
    opened_archive,
)
from etloop.results.store.run_dir import INPUT_FILES, TOPOLOGY_FILE

GIVE_TRACES: Final = "give --traces DIR with the files as they were"
_NOT_A_CASE: Final = (
    "name a case that etloop bundle made, the directory it was unpacked into, or a run directory"
)
_CHANGED: Final = "have the case sent again; a file that was changed on purpose is run by etloop run scenario.yaml --rig rig.yaml"


@dataclass(frozen=True, slots=True)
class OpenCase:
    """A case whose files lie in a directory, verified."""

    case: Case
    label: str
    """The case as the user named it."""
    directory: Path
    absent: tuple[CaseFile, ...]
    """Secrets that are nowhere to be found."""

    @property
    def scenario(self) -> Path:
        """The scenario's file."""
        return self.directory / INPUT_FILES[0]

    @property
    def rig(self) -> Path:
        """The rig's file."""
        return self.directory / INPUT_FILES[1]

    @property
    def topology(self) -> Path | None:
        """The file of the device's topology; None without one."""
        path = self.directory / TOPOLOGY_FILE
        return path if path.exists() else None

    def shown(self, text: str) -> str:
        """Return a text with the name of the case in the place of the directory, which will be gone."""
        return text.replace(str(self.directory), self.label)

    def refuse_absent_secrets(self) -> None:
        """Raise `ConfigError` where the rig inside needs secrets that are not here."""
        if self.absent:
            remedy = "give --rig FILE, a rig of this site, or unpack the case and put the files there"
            raise ConfigError(
                *(Problem(f"{self.label}: {one.name}", f"is {one.why}", remedy) for one in self.absent)
            )


def is_as_the_run_read_it(path: Path) -> bool:
    """Whether a file of settings is that of the run in whose directory it lies, unchanged."""
    if not (path.parent / CASE_FILE).is_file():
        return False
    try:
        with opened_archive(path.parent / CASE_FILE) as archive:
            case = case_in(archive, str(path.parent / CASE_FILE))
        read_sha256 = next((file.read_sha256 for file in case.files if file.name == path.name), "")
        return bool(read_sha256) and digest_of(path).sha256 == read_sha256
    except (InputError, OSError):
        return False


def version_notes(case: Case, label: str) -> tuple[str, ...]:
    """Return in which versions the run was another one's than here."""
    then, now = case.versions, current_versions()
    differing = [
        f"{name} {getattr(then, name)} (here {getattr(now, name)})"
        for name in CaseVersions.__dataclass_fields__
        if getattr(then, name) != getattr(now, name)
    ]
    if not differing:
        return ()
    return (f"{label} was run by {', '.join(differing)}: figures may differ for that alone",)


@contextmanager
def opened_case(path: Path, traces: Path | None = None) -> Iterator[OpenCase]:
    """Open a case, with all its files in a directory that is gone afterwards.

    `path`: an archive, the directory it was unpacked into, a run directory, or the scenario of one as the run read it.
    `traces`: where files are looked for that are not inside, by their names there or in any folder of it. Raises an `InputError`
    with everything that is missing, or not what the run read.
    """
    if path.name == INPUT_FILES[0]:
        path = path.parent
    with ExitStack() as stack:
        source = _source_of(path, stack)
        case = source.case
        _refuse_faults(case, str(path))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="etloop-case-")))
        found = found_files(case, traces, source.folder)
        source.put(directory)
        for name, place in found.places.items():
            to = directory / name
            to.parent.mkdir(parents=True, exist_ok=True)
            to.symlink_to(place.absolute())
        yield OpenCase(case, str(path), directory, found.absent)


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """Files that a case does not hold."""

    places: Mapping[str, Path]
    """Where they are, by name."""
    absent: tuple[CaseFile, ...]
    """Secrets that are not there; whether they are needed, others know."""


def found_files(
    case: Case, traces: Path | None, folder: Path | None = None, remedy: str = GIVE_TRACES
) -> FoundFiles:
    """Find what is not inside a case: below `traces`, in the `folder` it was unpacked into, and where the run read it.

    `remedy`: what to do about a file that is not found. Raises `ConfigError` with every file that is not there, or is
    another one by its content.
    """
    problems: list[Problem] = []
    places: dict[str, Path] = {}
    absent: list[CaseFile] = []
    for file in case.files:
        if file.inside:
            continue
        candidates = list(_candidates(file, traces, folder))
        if file.role is CaseRole.PRIVATE:
            place = next((one for one in candidates if one.exists()), None)
            if place is None:
                absent.append(file)
        else:
            place = next((one for one in candidates if _is_the_same(file, one)), None)
            if place is None:
                problems.append(_not_found(file, candidates, remedy))
        if place is not None:
            places[file.name] = place
    if problems:
        more = len(problems) - 20
        shown = problems[:20]
        if more > 0:
            shown.append(Problem("traces", f"{more} more files are missing or changed", shown[0].remedy))
        raise ConfigError(*shown)
    return FoundFiles(places, tuple(absent))


def _candidates(file: CaseFile, traces: Path | None, folder: Path | None) -> Iterator[Path]:
    if traces is not None and file.role is not CaseRole.PRIVATE:
        # As in the case, then below the folder of the trace, then by the file's own name.
        parts = file.name.split("/")
        for start in (0, *range(2, len(parts) - 1), len(parts) - 1):
            yield traces.joinpath(*parts[start:])
    if folder is not None:
        yield folder / file.name
    if file.place:
        yield Path(file.place)


def _is_the_same(file: CaseFile, path: Path) -> bool:
    try:
        if not path.is_file() or path.stat().st_size != file.size_bytes:
            return False
        return digest_of(path).sha256 == file.sha256
    except OSError:
        return False


def _not_found(file: CaseFile, candidates: list[Path], remedy: str) -> Problem:
    there = next((one for one in candidates if one.is_file()), None)
    if there is not None:
        what = f"{there} has other content than the run read (sha256 {file.sha256[:12]}…, {file.size_bytes} bytes)"
    elif candidates:
        what = f"is not inside, and no longer at {candidates[-1]}"
    else:
        what = f"is not inside: {file.why or 'it was left out'}"
    return Problem(file.name, what, remedy)


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a case comes from."""

    case: Case
    label: str
    archive: CaseArchive | None
    folder: Path | None
    """That it was unpacked into."""

    def put(self, directory: Path) -> None:
        """Put all that is inside into a directory, verified. Raises `ConfigError`."""
        problems: list[Problem] = []
        for file in self.case.files:
            if not file.inside:
                continue
            to = directory / file.name
            to.parent.mkdir(parents=True, exist_ok=True)
            where = f"{self.label}: {file.name}"
            try:
                found = self._copy(file.name, to)
            except OSError as error:
                what = f"cannot be unpacked: {error.strerror or error}"
                problems.append(Problem(where, what, "make room in the directory that TMPDIR names"))
                continue
            if found is None:
                problems.append(Problem(where, "is missing", _CHANGED))
            elif found != (file.size_bytes, file.sha256):
                what = f"is another file than the run's: {found[0]} bytes, {file.size_bytes} expected"
                if found[0] == file.size_bytes:
                    what = "is another file than the run's: same size, other content"
                problems.append(Problem(where, what, _CHANGED))
        if problems:
            raise ConfigError(*problems[:20])

    def _copy(self, name: str, to: Path) -> tuple[int, str] | None:
        if self.archive is not None:
            if name not in self.archive.names():
                return None
            written = self.archive.unpack(name, to)
        else:
            assert self.folder is not None
            path = self.folder / name
            if not path.is_file():
                return None
            written = digest_of(Path(shutil.copyfile(path, to)))
        return written.size_bytes, written.sha256


def _source_of(path: Path, stack: ExitStack) -> _Source:
    """Return the case that a path means. Raises an `InputError`."""
    if path.is_dir():
        manifest = path / MANIFEST_FILE
        if manifest.is_file():
            text = _text_of(manifest)
            return _Source(case_from_json(text, str(manifest)), str(path), None, path)
        if not (path / CASE_FILE).is_file():
            what = f"is a directory with neither {MANIFEST_FILE} nor {CASE_FILE}"
            raise ConfigError(Problem(str(path), what, _NOT_A_CASE))
        path = path / CASE_FILE
    archive = stack.enter_context(opened_archive(path))
    case = case_in(archive, str(path))
    if extra := sorted(
        set(archive.names()) - {file.name for file in case.files if file.inside} - {MANIFEST_FILE}
    ):
        what = f"has {', '.join(map(ascii, extra[:5]))[:200]}, of which its {MANIFEST_FILE} says nothing"
        raise ConfigError(Problem(str(path), what, _CHANGED))
    return _Source(case, str(path), archive, None)


def _text_of(path: Path) -> str:
    try:
        if path.stat().st_size > MOST_MANIFEST_BYTES:
            raise ConfigError(Problem(str(path), f"has more than {MOST_MANIFEST_BYTES} bytes", _CHANGED))
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(Problem(str(path), f"cannot be read: {error}", _CHANGED)) from None


def _refuse_faults(case: Case, label: str) -> None:
    """Raise `ConfigError` for what a case says of its files that cannot be."""
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
            problems.append(Problem(label, f"its {MANIFEST_FILE} lists no {name}", _CHANGED))
    if problems:
        raise ConfigError(*problems[:20])
