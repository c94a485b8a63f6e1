"""A run directory -> one archive that repeats the run elsewhere: its inputs, its traces and its results.

Decides which files go in, and states the reason for those left out. No paths of this machine go in.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import approximate_bytes
from etloop.controller.case.pack import members_of
from etloop.controller.case.unpack import GIVE_TRACES, found_files
from etloop.results.artifacts import JUNIT_FILE, REPORT_FILE
from etloop.results.schema.case import CASE_FILE, Case, CaseFile, CaseRole
from etloop.results.schema.kpis import KPI_FILE
from etloop.results.store.case_archive import (
    MOST_CASE_BYTES,
    case_in,
    digest_of,
    is_too_dense,
    name_fault,
    open_archive,
    write_members,
)
from etloop.results.store.run_dir import SUMMARY_FILE, look_at_run

MOST_TRACES_BYTES: Final = 1 << 30
"""Limit of the traces that are packed; of larger ones only the digests are."""
RESULT_FILES: Final = (REPORT_FILE, SUMMARY_FILE, KPI_FILE, JUNIT_FILE)
NO_TRACES: Final = "left out with --no-traces"
ENDING: Final = ".etloop.zip"


@dataclass(frozen=True, slots=True)
class Bundle:
    """A packed case."""

    path: Path
    packed_bytes: int
    case: Case


def bundle(run_dir: Path, out: Path, traces: Path | None = None, *, has_traces: bool = True) -> Bundle:
    """Pack the case of a run into the new file `out`.

    `traces` is a directory to search for traces first, before the path where the run read them. Without `has_traces` no trace
    goes in. Raises an `InputError` if `run_dir` has no finished run, if a file is missing or differs from the one the run
    read, or if `out` exists or cannot be written.
    """
    look_at_run(run_dir)
    case_path = run_dir / CASE_FILE
    if not case_path.is_file():
        problem = f"has no {CASE_FILE}: the run had no scenario, or an older version wrote it"
        raise ConfigError(Problem(str(run_dir), problem, "run it again, or send scenario, rig and traces"))
    with open_archive(case_path) as archive:
        case = case_in(archive, str(case_path))
        contents: dict[str, bytes | Path] = {
            file.name: archive.read(file.name, MOST_CASE_BYTES) for file in case.files if file.inside
        }
    omission = _why_without_traces(case, has_traces=has_traces)
    packed_files = tuple(
        file
        for file in case.files
        if file.role is not CaseRole.PRIVATE and not (omission and file.role is CaseRole.TRACE)
    )
    _refuse_names(packed_files)
    remedy = f"{GIVE_TRACES}, or --no-traces"
    places = found_files(replace(case, files=packed_files), traces, remedy=remedy).places
    contents = {file.name: contents[file.name] for file in packed_files if file.inside}
    contents |= places
    files = [
        replace(file, place="", inside=True, why="")
        if file.name in contents
        else replace(file, place="", inside=False, why=omission if file.role is CaseRole.TRACE else file.why)
        for file in case.files
    ]
    for name in RESULT_FILES:
        if (path := run_dir / name).is_file():
            digest = digest_of(path)
            files.append(CaseFile(name, CaseRole.RESULT, digest.size_bytes, digest.sha256, inside=True))
            contents[name] = path
    case = replace(case, files=tuple(files))
    return Bundle(out, _write(out, case, contents), case)


def _why_without_traces(case: Case, *, has_traces: bool) -> str:
    """Return the reason for leaving traces out; "" if they go in."""
    if not has_traces:
        return NO_TRACES
    traces_bytes = sum(file.size_bytes for file in case.files if file.role is CaseRole.TRACE)
    if traces_bytes <= MOST_TRACES_BYTES:
        return ""
    limit = approximate_bytes(MOST_TRACES_BYTES)
    return f"the traces have {approximate_bytes(traces_bytes)}, expected at most {limit}"


def _refuse_names(files: Iterable[CaseFile]) -> None:
    """Raise `ConfigError` for files whose names could not be unpacked safely."""
    problems = [
        Problem(
            file.place or file.name,
            f"its name {fault}",
            "rename it and run again, or leave traces out with --no-traces",
        )
        for file in files
        if (fault := name_fault(file.name))
    ]
    if problems:
        raise ConfigError(*problems[:20])


def _write(out: Path, case: Case, contents: Mapping[str, bytes | Path]) -> int:
    """Write the archive and return its size in bytes. Removes a partial file. Raises `ConfigError` if it cannot be written."""
    try:
        file = out.open("x+b")
    except FileExistsError:
        problem = "already exists"
        raise ConfigError(Problem(str(out), problem, "name a new file with -o, or move it away")) from None
    except OSError as error:
        raise _not_written(out, error) from None
    try:
        with file:
            _pack(file, case, contents)
            packed_bytes = file.tell()
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        out.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _not_written(out, error) from None
        raise
    return packed_bytes


def _not_written(out: Path, error: OSError) -> ConfigError:
    problem = f"cannot be written: {error.strerror or error}"
    return ConfigError(Problem(str(out), problem, "name a file in a writable directory with room"))


def _pack(file: IO[bytes], case: Case, contents: Mapping[str, bytes | Path]) -> None:
    members = members_of(case, contents)
    unpacked_bytes = 0
    for deflated in (True, False):
        file.seek(0)
        file.truncate()
        members_written = write_members(file, members, deflated=deflated)
        unpacked_bytes = sum(member.size_bytes for member in members_written)
        file.seek(0, os.SEEK_END)
        if not is_too_dense(unpacked_bytes, file.tell()):
            break
    inside = [entry for entry in case.files if entry.inside]
    problems = [
        Problem(
            entry.name,
            "differs from the file that the run read, or changed while it was packed",
            "pack it again",
        )
        for entry, member in zip(inside, members_written[1:], strict=True)
        if (entry.size_bytes, entry.sha256) != (member.size_bytes, member.sha256)
    ]
    if problems:
        raise ConfigError(*problems[:20])
    if unpacked_bytes > MOST_CASE_BYTES:
        text = f"the case has {approximate_bytes(unpacked_bytes)}, more than the {approximate_bytes(MOST_CASE_BYTES)} of a case"
        raise ConfigError(Problem(case.run_id, text, "leave the traces out with --no-traces"))
