"""Writes and reads a run directory: the values in it, not their meaning.

Every file is written under a temporary name, flushed to disk and renamed; summary.json comes last, so a directory that
has one is complete. An existing file is kept under a numbered name and never overwritten by a new run. SHA256SUMS has the
digest of every file, and no file is read that differs from it (`checksums`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from etloop.contract.base.errors import EtloopError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.run import PlanTables
from etloop.results.schema.case import CASE_FILE
from etloop.results.schema.columns import TABLES
from etloop.results.schema.kpis import KPI_FILE, KPI_SCHEMA, KpiSet
from etloop.results.schema.plan_json import plan_from_json, plan_to_json
from etloop.results.schema.summary import SUMMARY_SCHEMA, TRANSPORT_COUNTERS, Summary
from etloop.results.schema.typed_json import OTHER_VERSION, RESTORE, RunDirError, from_json, to_json
from etloop.results.store.checksums import (
    SUMS_FILE,
    Sums,
    digest_of_file,
    read_sums,
    refuse_damage,
    sums_text,
)
from etloop.results.verdict.evaluation import Frame

SUMMARY_FILE: Final = "summary.json"
PLAN_FILE: Final = "plan.json"
TOPOLOGY_FILE: Final = "topology.yaml"
PROFILE_FILE: Final = "profile.yaml"
INPUT_FILES: Final = ("scenario.yaml", "rig.yaml")
OPTIONAL_TABLES: Final = (
    *("cc", "comparison", "switches", "queues", "jobs"),
    *("dut", "counters", "reconciliation", "classes"),
)
SUMMARY_LIMIT_BYTES: Final = 64 << 20
PLAN_LIMIT_BYTES: Final = 1 << 30
PARTIAL_FILES: Final = ".*.partial"
"""Pattern of the names of files that are being written."""
KEPT_LIMIT: Final = 10_000
"""Numbered names that are tried for an existing file."""


class RunNotWritten(EtloopError):
    """The directory of a finished run cannot be written: no mistake of the input, so not an `InputError`."""


@dataclass(frozen=True, slots=True, eq=False)
class RunArtifacts:
    """The values of a run; its directory holds the same in files."""

    summary: Summary
    plan: PlanTables
    tables: Mapping[str, Any]
    """`pyarrow.Table`s by name, those of columns.py and `OPTIONAL_TABLES`."""
    texts: Mapping[str, str | bytes]
    """By file name: the inputs, and the files made for readers."""
    made: Mapping[str, Path] = field(default_factory=dict)
    """Files that are already written, by their final names; complete, while `tables` holds only the first part of them."""
    part: str = ""
    """Part of the run that `tables` covers, in words; "" if all of it."""

    def frames(self) -> dict[str, Frame]:
        """Return the tables as conditions, key figures and reports read them."""
        from etloop.results.tables.frames import frame_of

        return {name: frame_of(name, table) for name, table in self.tables.items()}

    def files(self) -> dict[str, object]:
        """Return the contents of the directory by file name, in the order in which they are written."""
        tables = {f"{name}.parquet": table for name, table in self.tables.items()}
        return {**tables, **self.texts, PLAN_FILE: self.plan, **self.made, SUMMARY_FILE: self.summary}


def write_run(
    run_dir: Path, now: RunArtifacts, before: RunArtifacts | None = None, left_out: Sequence[str] = ()
) -> None:
    """Update a run directory from the files of `before` to those of `now`; None: the directory is new.

    `left_out`: patterns of the names of files that are not written.

    The old summary.json stays until the new one replaces it. A file that the run did not write is kept under a numbered
    name.

    Raises:
        RunNotWritten: the directory cannot be written; no existing file is lost.
        RunDirError: its SHA256SUMS cannot be read.
    """
    old_files = {} if before is None else before.files()
    fresh = {
        name: content
        for name, content in now.files().items()
        if content is not old_files.get(name) and not any(fnmatchcase(name, pattern) for pattern in left_out)
    }
    if fresh:
        _write_signed(run_dir, fresh, {} if before is None else read_sums(run_dir))


def _write_signed(run_dir: Path, files: Mapping[str, object], before: Sums) -> None:
    """Write files of a run, whose earlier files have the digests `before`, and SHA256SUMS. Raises `RunNotWritten`."""
    partials: dict[str, Path] = {}
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        try:
            for name, content in files.items():
                partials[name] = partial = _partial(run_dir / name)
                _write_partial(partial, content)
            after = {name: frozenset({digest_of_file(partial)}) for name, partial in partials.items()}
            # Valid at every moment of the update: a file that is replaced may have its old or its new content.
            during = {
                name: before.get(name, frozenset()) | after.get(name, frozenset())
                for name in {**before, **after}
            }
            if not before:
                _keep_existing(run_dir / SUMS_FILE)
            _write(run_dir / SUMS_FILE, sums_text(during))
            for name, partial in partials.items():
                if name not in before:
                    _keep_existing(run_dir / name)
                partial.rename(run_dir / name)
            _flush(run_dir)
            if during != (whole := {**before, **after}):
                _write(run_dir / SUMS_FILE, sums_text(whole))
                _flush(run_dir)
        finally:
            for partial in partials.values():
                partial.unlink(missing_ok=True)
    except OSError as error:
        raise _not_written(run_dir, error) from error


def write_files(directory: Path, files: Mapping[str, object]) -> None:
    """Write files into a directory (made if absent). An existing file of the same name is replaced.

    A file's content is a `pyarrow.Table`, a plan, a summary, a text, bytes, or a file on the same disk, which stays in
    its place, too. Raises `RunNotWritten`.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            _write(directory / name, content)
        _flush(directory)
    except OSError as error:
        raise _not_written(directory, error) from error


def _not_written(directory: Path, error: OSError) -> RunNotWritten:
    reason = f"cannot write the run: {error}"
    return RunNotWritten(str(Problem(str(directory), reason, "choose a directory that can be written")))


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A run directory with the tables that most readers need: `pyarrow.Table`s with the columns of columns.py."""

    path: Path
    summary: Summary
    ops: Any
    collectives: Any
    flows: Any
    ports: Any


def read_index(path: Path) -> str:
    """Return the text of a file that ETLoop wrote for its own use. Raises `RunDirError`."""
    return _read_text(path, SUMMARY_LIMIT_BYTES)


def _write(path: Path, content: object) -> None:
    """Write the file under a temporary name, then rename it."""
    partial = _partial(path)
    try:
        _write_partial(partial, content)
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)


def _partial(path: Path) -> Path:
    """Return the temporary name of a file that is being written."""
    return path.with_name(f".{path.name}.{os.getpid()}.partial")


def _write_partial(partial: Path, content: object) -> None:
    """Write a file's content under its temporary name, and flush it to disk."""
    match content:
        case Path():
            partial.hardlink_to(content)
        case bytes():
            partial.write_bytes(content)
        case str():
            partial.write_text(content, encoding="utf-8")
        case PlanTables():
            partial.write_text(plan_to_json(content), encoding="utf-8")
        case Summary():
            partial.write_text(to_json(content), encoding="utf-8")
        case _:
            # Imported here, because a run needs pyarrow only after its traffic.
            import pyarrow.parquet as pq

            pq.write_table(content, partial, compression="zstd", write_page_checksum=True)
    _flush(partial)


def _keep_existing(path: Path) -> None:
    """Rename a file of an earlier run to NAME.1, NAME.2, and so on."""
    if not path.exists():
        return
    for number in range(1, KEPT_LIMIT):
        numbered_path = path.with_name(f"{path.name}.{number}")
        if not numbered_path.exists():
            path.rename(numbered_path)
            return
    message = f"{path} and {KEPT_LIMIT - 1} numbered copies of it exist"
    raise FileExistsError(message)


def _flush(path: Path) -> None:
    """Flush the file, or the entries of the directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_run(run_dir: Path) -> Run:
    """Read a run directory, its tables into memory, after comparing every file with SHA256SUMS.

    Raises:
        RunDirError: no run directory, incomplete, damaged, or of another version.
    """
    return Run(path=run_dir, summary=_whole_summary(run_dir), **_read_tables(run_dir, _read_parquet))


def look_at_run(run_dir: Path) -> Summary:
    """Return the summary of a run directory after comparing every file with SHA256SUMS, and the columns of its tables with
    this version's, without reading rows.

    Raises as `read_run`.
    """
    summary = _whole_summary(run_dir)
    _read_tables(run_dir, _schema_of)
    return summary


def _whole_summary(run_dir: Path) -> Summary:
    """Return the summary of a run directory of which no file is damaged. Raises as `read_run`."""
    if _exists(run_dir / SUMMARY_FILE) and _exists(run_dir / SUMS_FILE):
        refuse_damage(run_dir)
    # Explains an incomplete directory, and one of another version, which may have no SHA256SUMS.
    summary = read_summary(run_dir)
    read_sums(run_dir)
    return summary


def read_summary(run_dir: Path) -> Summary:
    """Return the content of summary.json. Raises as `read_run`."""
    summary_path = run_dir / SUMMARY_FILE
    if not _exists(summary_path):
        names = sorted(name for name in TABLES if _exists(run_dir / name))
        problem = f"has no {SUMMARY_FILE}" + (f", only {', '.join(names)}" if names else "")
        remedy = "name the directory given to `etloop run --out`; a run that wrote no summary did not end"
        raise RunDirError(Problem(str(run_dir), problem, remedy))
    text = _read_text(summary_path, SUMMARY_LIMIT_BYTES)
    summary = from_json(Summary, text, str(summary_path), SUMMARY_SCHEMA)
    counter_names = {name for names in TRANSPORT_COUNTERS.values() for name in names}
    if differing := sorted(counter_names ^ summary.transport.keys()):
        problem = f"counters missing or unknown: {', '.join(differing)[:200]}"
        raise RunDirError(Problem(f"{summary_path}.transport", problem, OTHER_VERSION))
    return summary


def _read_tables(run_dir: Path, read: Callable[[Path], Any]) -> dict[str, Any]:
    """Return the result of `read` for each table that every run has, by name. Raises `RunDirError` with everything wrong
    in them."""
    import pyarrow as pa

    from etloop.results.tables.arrow_tables import arrow_schema

    problems: list[Problem] = []
    table_by_name = {}
    for name, columns in TABLES.items():
        path = run_dir / name
        table_by_name[name.removesuffix(".parquet")] = table = _read_or_note(path, read, problems)
        expected = arrow_schema(columns)
        schema = table if table is None or isinstance(table, pa.Schema) else table.schema
        if schema is not None and not schema.equals(expected):
            differing = ", ".join(sorted(set(schema.names) ^ set(expected.names))) or "types"
            problem = f"columns differ from this version's: {differing}"
            problems.append(Problem(str(path), problem, OTHER_VERSION))
    if problems:
        raise RunDirError(*problems)
    return table_by_name


def read_plan(run_dir: Path) -> PlanTables:
    """Read the plan of a run directory.

    Raises:
        RunDirError: absent or damaged.
    """
    refuse_damage(run_dir, (PLAN_FILE,))
    path = run_dir / PLAN_FILE
    return plan_from_json(_read_text(path, PLAN_LIMIT_BYTES), str(path))


def read_artifacts(run_dir: Path) -> RunArtifacts:
    """Read a run directory, except for the files made for readers.

    Raises:
        RunDirError: no run directory, or a file in it is damaged.
    """
    run = read_run(run_dir)
    tables = {name: getattr(run, name) for name in ("ops", "collectives", "flows", "ports")}
    problems: list[Problem] = []
    for name in OPTIONAL_TABLES:
        if _has(run_dir, f"{name}.parquet"):
            tables[name] = _read_or_note(run_dir / f"{name}.parquet", _read_parquet, problems)
    if problems:
        raise RunDirError(*problems)
    texts: dict[str, str | bytes] = dict(zip(INPUT_FILES, read_inputs(run_dir), strict=True))
    if _has(run_dir, CASE_FILE):
        texts[CASE_FILE] = _read_bytes(run_dir / CASE_FILE, SUMMARY_LIMIT_BYTES)
    return RunArtifacts(run.summary, read_plan(run_dir), tables, texts)


def read_table(run: Run, name: str) -> Any:
    """Return the table `name` of a run directory, which may be any of its tables.

    Raises:
        RunDirError: the run has no such table, or it is damaged.
    """
    return read_table_of(run.path, name)


def read_table_of(run_dir: Path, name: str) -> Any:
    """Return a table of a directory that is known to hold a run; see `read_table`."""
    names = table_names(run_dir)
    if name not in names:
        problem = f'has no table "{name[:64]}"'
        raise RunDirError(Problem(str(run_dir), problem, f"name one of {', '.join(names)}"))
    refuse_damage(run_dir, (f"{name}.parquet",))
    problems: list[Problem] = []
    table = _read_or_note(run_dir / f"{name}.parquet", _read_parquet, problems)
    if problems:
        raise RunDirError(*problems)
    return table


def table_names(run_dir: Path) -> tuple[str, ...]:
    """Return the names of all tables of a run, without ".parquet". Raises `RunDirError` without its SHA256SUMS."""
    return tuple(sorted(Path(name).stem for name in read_sums(run_dir) if name.endswith(".parquet")))


def read_kpis(run_dir: Path) -> KpiSet:
    """Return the key figures of a run directory, with their basis. Raises `RunDirError` if the file is missing or damaged."""
    refuse_damage(run_dir, (KPI_FILE,))
    path = run_dir / KPI_FILE
    return from_json(KpiSet, _read_text(path, PLAN_LIMIT_BYTES), str(path), KPI_SCHEMA)


def read_inputs(run_dir: Path) -> tuple[str, str]:
    """Return scenario and rig as the run read them. Raises `RunDirError` if they are missing or damaged."""
    refuse_damage(run_dir, INPUT_FILES)
    scenario, rig = (_read_text(run_dir / name, SUMMARY_LIMIT_BYTES) for name in INPUT_FILES)
    return scenario, rig


def read_input(run_dir: Path, name: str) -> str | None:
    """Return an input file of the run, `TOPOLOGY_FILE` or `PROFILE_FILE`; None if it had none. Raises `RunDirError`."""
    return _read_text(run_dir / name, SUMMARY_LIMIT_BYTES) if _has(run_dir, name) else None


def _has(run_dir: Path, name: str) -> bool:
    """Return whether a run has an optional file. Raises `RunDirError` if it is damaged, missing, or not part of the run."""
    if name not in read_sums(run_dir) and not _exists(run_dir / name):
        return False
    refuse_damage(run_dir, (name,))
    return True


def _exists(path: Path) -> bool:
    """Return whether a file exists. Raises `RunDirError` if that cannot be determined."""
    try:
        return path.exists()
    except OSError as error:
        raise RunDirError(Problem(str(path), f"cannot be read: {error.strerror}", RESTORE)) from None


def _read_text(path: Path, limit_bytes: int) -> str:
    try:
        return _read_bytes(path, limit_bytes).decode()
    except UnicodeDecodeError as error:
        raise RunDirError(Problem(str(path), f"cannot be read: {error}", RESTORE)) from None


def _read_bytes(path: Path, limit_bytes: int) -> bytes:
    try:
        size_bytes = path.stat().st_size
        if size_bytes > limit_bytes:
            problem = f"{size_bytes} bytes, more than the {limit_bytes} that are read"
            raise RunDirError(Problem(str(path), problem, "is it the file that the run wrote?"))
        return path.read_bytes()
    except OSError as error:
        raise RunDirError(Problem(str(path), f"cannot be read: {error}", RESTORE)) from None


def _read_parquet(path: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.read_table(path, page_checksum_verification=True)


def _schema_of(path: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.read_schema(path)


def _read_or_note(path: Path, read: Callable[[Path], Any], problems: list[Problem]) -> Any:
    """Return the result of `read` for a table; None if it cannot be read, which is added to `problems`."""
    import pyarrow as pa

    try:
        return read(path)
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        # The text of FileNotFoundError from Arrow is only the name of the file.
        reason = "no such file" if isinstance(error, FileNotFoundError) else str(error).splitlines()[0]
        problems.append(Problem(str(path), f"cannot be read: {reason}", RESTORE))
        return None
