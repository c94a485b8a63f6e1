"""Writes and reads a run directory: the values in it, not their meaning.

Every file is written under a temporary name, flushed to disk and renamed; summary.json comes last, so a directory that
has one is complete. An existing file is kept under a numbered name and never overwritten by a new run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import field
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


def write_run(run_dir: Path, now: RunArtifacts, before: RunArtifacts | None = None) -> None:
    """Update a run directory from the files of `before` to those of `now`; None: nothing was written before.

    The old summary.json stays until the new one replaces it.

    Raises:
        RunNotWritten: the directory cannot be written; no existing file is lost.
    """
    old_files = {} if before is None else before.files()
    fresh = {name: content for name, content in now.files().items() if content is not old_files.get(name)}
    write_files(run_dir, fresh, keeps=before is None)


def write_files(directory: Path, files: Mapping[str, object], *, keeps: bool = False) -> None:
    """Write files into a directory (made if absent). An existing file of the same name is replaced, or kept under a
    numbered name if `keeps`.

    A file's content is a `pyarrow.Table`, a plan, a summary, a text, bytes, or a file on the same disk, which stays in
    its place, too. Raises `RunNotWritten`.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            _write(directory / name, content, keeps=keeps)
        _flush(directory)
    except OSError as error:
        reason = f"cannot write the run: {error}"
        problem = Problem(str(directory), reason, "choose a directory that can be written")
        raise RunNotWritten(str(problem)) from error


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


def _write(path: Path, content: object, *, keeps: bool) -> None:
    """Write the file under a temporary name, then rename it; `keeps` an existing file of that name."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
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

                pq.write_table(content, partial, compression="zstd")
        _flush(partial)
        if keeps:
            _keep_existing(path)
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)


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
    """Read a run directory, its tables into memory.

    Raises:
        RunDirError: no run directory, incomplete, damaged, or of another version.
    """
    return Run(path=run_dir, summary=read_summary(run_dir), **_read_tables(run_dir, _read_parquet))


def look_at_run(run_dir: Path) -> Summary:
    """Return the summary of a run directory after checking that its tables exist and have this version's columns, without
    reading rows.

    Raises as `read_run`, except for damage within a table.
    """
    summary = read_summary(run_dir)
    _read_tables(run_dir, _schema_of)
    return summary


def read_summary(run_dir: Path) -> Summary:
    """Return the content of summary.json. Raises as `read_run`."""
    summary_path = run_dir / SUMMARY_FILE
    if not summary_path.is_file():
        names = sorted(name for name in TABLES if (run_dir / name).exists())
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
        path = run_dir / f"{name}.parquet"
        if path.exists():
            tables[name] = _read_or_note(path, _read_parquet, problems)
    if problems:
        raise RunDirError(*problems)
    texts: dict[str, str | bytes] = dict(zip(INPUT_FILES, read_inputs(run_dir), strict=True))
    if (case := run_dir / CASE_FILE).is_file():
        texts[CASE_FILE] = _read_bytes(case, SUMMARY_LIMIT_BYTES)
    return RunArtifacts(run.summary, read_plan(run_dir), tables, texts)


def read_table(run: Run, name: str) -> Any:
    """Return the table `name` of a run directory, which may be any of its tables.

    Raises:
        RunDirError: the run has no such table, or it is damaged.
    """
    return read_table_of(run.path, name)


def read_table_of(run_dir: Path, name: str) -> Any:
    """Return a table of a directory that is known to hold a run; see `read_table`."""
    names = sorted(path.stem for path in run_dir.glob("*.parquet"))
    if name not in names:
        problem = f'has no table "{name[:64]}"'
        raise RunDirError(Problem(str(run_dir), problem, f"name one of {', '.join(names)}"))
    problems: list[Problem] = []
    table = _read_or_note(run_dir / f"{name}.parquet", _read_parquet, problems)
    if problems:
        raise RunDirError(*problems)
    return table


def read_kpis(run_dir: Path) -> KpiSet:
    """Return the key figures of a run directory, with their basis. Raises `RunDirError` if the file is missing or damaged."""
    path = run_dir / KPI_FILE
    return from_json(KpiSet, _read_text(path, PLAN_LIMIT_BYTES), str(path), KPI_SCHEMA)


def read_inputs(run_dir: Path) -> tuple[str, str]:
    """Return scenario and rig as the run read them. Raises `RunDirError` if they are missing."""
    scenario, rig = (_read_text(run_dir / name, SUMMARY_LIMIT_BYTES) for name in INPUT_FILES)
    return scenario, rig


def read_input(run_dir: Path, name: str) -> str | None:
    """Return an input file of the run, `TOPOLOGY_FILE` or `PROFILE_FILE`; None if it had none. Raises `RunDirError`."""
    path = run_dir / name
    return _read_text(path, SUMMARY_LIMIT_BYTES) if path.exists() else None


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

    return pq.read_table(path)


def _schema_of(path: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.read_schema(path)


def _read_or_note(path: Path, read: Callable[[Path], Any], problems: list[Problem]) -> Any:
    """Return the result of `read` for a table; None if it cannot be read, which is added to `problems`."""
    import pyarrow as pa

    try:
        return read(path)
    except (OSError, pa.ArrowException) as error:
        # The text of FileNotFoundError from Arrow is only the name of the file.
        reason = "no such file" if isinstance(error, FileNotFoundError) else str(error).splitlines()[0]
        problems.append(Problem(str(path), f"cannot be read: {reason}", RESTORE))
        return None
