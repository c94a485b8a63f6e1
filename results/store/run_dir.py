"""Writes and reads a run directory. The only module of this folder that touches the file system.

Every file is written under a temporary name, flushed to disk and renamed; summary.json comes last, so a directory that has
one is whole. A file that stands in the way is kept under a numbered name, never overwritten.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from etloop.contract.base.errors import EtloopError, Problem
from etloop.results.device.summary import device_results
from etloop.results.expected.expected_vs_measured import compare, compared_rows, expected_rows
from etloop.results.measure.summary import measure
from etloop.results.schema.columns import TABLES
from etloop.results.schema.kpis import KPI_FILE, KPI_SCHEMA, KpiSet
from etloop.results.schema.plan_json import plan_from_json, plan_to_json
from etloop.results.schema.summary import SUMMARY_SCHEMA, TRANSPORT_COUNTERS, Summary
from etloop.results.schema.typed_json import OTHER_VERSION, RESTORE, RunDirError, from_json, to_json
from etloop.results.tables.arrow_tables import (
    arrow_schema,
    collectives_table,
    comparison_table,
    flows_table,
    jobs_table,
    ops_table,
    ports_table,
    rates_table,
)
from etloop.results.tables.frames import frame_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from etloop.contract.model.device_counts import CountedDevice
    from etloop.contract.model.run import ExpectedRun, PlanTables, RunOutcome
    from etloop.results.device.summary import DeviceBasis
    from etloop.results.verdict.evaluation import Frame
    from numpy.typing import NDArray

SUMMARY_FILE: Final = "summary.json"
PLAN_FILE: Final = "plan.json"
TOPOLOGY_FILE: Final = "topology.yaml"
OPTIONAL_TABLES: Final = (
    *("cc", "comparison", "switches", "queues", "jobs"),
    *("dut", "counters", "reconciliation", "classes"),
)
COMPARISON_FILE: Final = "comparison.parquet"
SUMMARY_LIMIT_BYTES: Final = 64 << 20
PLAN_LIMIT_BYTES: Final = 1 << 30
KEPT_LIMIT: Final = 10_000
"""Numbered names tried for a file that stands in the way."""


class RunNotWritten(EtloopError):
    """A run took place and its directory cannot be written: no mistake of the input, so not an `InputError`."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A run directory as read back. Tables are `pyarrow.Table`s with the columns of columns.py."""

    path: Path
    summary: Summary
    ops: Any
    collectives: Any
    flows: Any
    ports: Any


def write_run(
    out_dir: Path,
    outcome: RunOutcome,
    tables: PlanTables,
    scenario_text: str,
    rig_text: str,
    connection_rows: Mapping[str, NDArray[np.int32]],
    port_names: Mapping[str, tuple[str, ...]] | None = None,
) -> Summary:
    """Measure a run, finished or aborted, and leave it in `out_dir` (made if absent).

    `connection_rows[agent][i]` is the row in `tables.connections` of row i of the agent's `Assignment.connections`;
    `port_names[agent]` are the names of its ports in the order of its assignment.

    Raises:
        RunNotWritten: the directory cannot be written; nothing that was there is lost.
    """
    result = measure(outcome, tables, connection_rows)
    parquet = {
        "ops.parquet": ops_table(outcome, tables, result.ops),
        "collectives.parquet": collectives_table(tables, result.groups, result.collectives),
        "flows.parquet": flows_table(outcome, tables, result.flows),
        "ports.parquet": ports_table(outcome, tables, port_names or {}),
    }
    if (jobs := jobs_table(result.ops, tables)) is not None:
        parquet["jobs.parquet"] = jobs
    if (rates := rates_table(outcome, tables, connection_rows)) is not None:
        parquet["cc.parquet"] = rates
    texts = {
        "scenario.yaml": scenario_text,
        "rig.yaml": rig_text,
        PLAN_FILE: plan_to_json(tables),
        SUMMARY_FILE: to_json(result.summary),
    }
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        for name, table in parquet.items():
            _write(out_dir / name, partial(pq.write_table, table, compression="zstd"))
        for name, text in texts.items():
            _write(out_dir / name, partial(_write_text, text))
        _flush(out_dir)
    except OSError as error:
        problem = Problem(
            str(out_dir), f"cannot write the run: {error}", "choose a directory that can be written"
        )
        raise RunNotWritten(str(problem)) from error
    return result.summary


def keep_files(out_dir: Path, files: Mapping[str, Callable[[Path], object]]) -> None:
    """Add files to a run directory, each by its writer, as `write_run` writes its own. Raises `RunNotWritten`."""
    try:
        for name, write in files.items():
            _write(out_dir / name, write)
        _flush(out_dir)
    except OSError as error:
        what = f"cannot write the run: {error}"
        raise RunNotWritten(
            str(Problem(str(out_dir), what, "choose a directory that can be written"))
        ) from error


def add_comparison(
    out_dir: Path,
    outcome: RunOutcome,
    tables: PlanTables,
    connection_rows: Mapping[str, NDArray[np.int32]],
    expected: Sequence[ExpectedRun],
    absent: tuple[str, ...],
) -> Summary:
    """Hold a run that `write_run` has just left in `out_dir` against what was expected of it; returns the new summary.

    Until the new summary.json is in its place, the old one is.

    Raises:
        RunNotWritten: the directory cannot be written; what `write_run` left is still there.
    """
    result = measure(outcome, tables, connection_rows)
    rows = [expected_rows(run, tables, result.groups) for run in expected]
    summary = replace(result.summary, comparison=compare(result, tables, rows, absent))
    table = comparison_table(tables, result.groups, compared_rows(result, rows))
    try:
        _write(out_dir / COMPARISON_FILE, partial(pq.write_table, table, compression="zstd"))
        _write(out_dir / SUMMARY_FILE, partial(_write_text, to_json(summary)), keeps=False)
        _flush(out_dir)
    except OSError as error:
        problem = Problem(
            str(out_dir), f"cannot write the comparison: {error}", "choose a directory that can be written"
        )
        raise RunNotWritten(str(problem)) from error
    return summary


def add_device(out_dir: Path, counted: CountedDevice, basis: DeviceBasis) -> Summary:
    """Put what was read of the device's counters into a run directory; returns the new summary.

    Raises:
        RunNotWritten: the directory cannot be written; what is there stays.
    """
    run = read_run(out_dir)
    found = device_results(counted, basis, *read_frames(run))
    summary = replace(run.summary, dut=found.summary)
    try:
        for name, table in found.tables.items():
            _write(out_dir / name, partial(pq.write_table, table, compression="zstd"))
        _write(out_dir / SUMMARY_FILE, partial(_write_text, to_json(summary)), keeps=False)
        _flush(out_dir)
    except OSError as error:
        problem = Problem(
            str(out_dir), f"cannot write the counters: {error}", "choose a directory that can be written"
        )
        raise RunNotWritten(str(problem)) from error
    return summary


def write_verdict(out_dir: Path, summary: Summary, texts: Mapping[str, str]) -> None:
    """Put `texts` into a run directory, then `summary` in the place of the one that is there.

    What an earlier verdict left is replaced. Raises `RunNotWritten`; what `write_run` left is still there.
    """
    try:
        for name, text in (*texts.items(), (SUMMARY_FILE, to_json(summary))):
            _write(out_dir / name, partial(_write_text, text), keeps=False)
        _flush(out_dir)
    except OSError as error:
        problem = Problem(
            str(out_dir), f"cannot write the verdict: {error}", "choose a directory that can be written"
        )
        raise RunNotWritten(str(problem)) from error


def write_texts(directory: Path, texts: Mapping[str, str]) -> None:
    """Put texts into a directory, in the place of those of the same names. Raises `RunNotWritten`."""
    try:
        for name, text in texts.items():
            _write(directory / name, partial(_write_text, text), keeps=False)
        _flush(directory)
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise RunNotWritten(
            str(Problem(str(directory), what, "make room, or choose another directory"))
        ) from error


def read_index(path: Path) -> str:
    """The text of a file that we wrote for ourselves. Raises `RunDirError`."""
    return _read_text(path, SUMMARY_LIMIT_BYTES)


def _write(path: Path, write: Callable[[Path], object], *, keeps: bool = True) -> None:
    """Let `write` make the file under a temporary name, then give it its own; `keeps` what has that name."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(partial)
        _flush(partial)
        if keeps:
            _keep_existing(path)
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)


def _write_text(text: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8")


def _keep_existing(path: Path) -> None:
    """Move a file of an earlier run out of the way, as NAME.1, NAME.2, and so on."""
    if not path.exists():
        return
    for number in range(1, KEPT_LIMIT):
        kept = path.with_name(f"{path.name}.{number}")
        if not kept.exists():
            path.rename(kept)
            return
    message = f"{path} and {KEPT_LIMIT - 1} numbered copies of it exist"
    raise FileExistsError(message)


def _flush(path: Path) -> None:
    """Have the file, or the names in the directory, on disk before going on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_run(run_dir: Path) -> Run:
    """Read a run directory.

    Raises:
        RunDirError: no run directory, written only in part, damaged, or of another version.
    """
    summary_path = run_dir / SUMMARY_FILE
    if not summary_path.is_file():
        names = sorted(name for name in TABLES if (run_dir / name).exists())
        what = f"has no {SUMMARY_FILE}" + (f", only {', '.join(names)}" if names else "")
        remedy = "name the directory given to `etloop run --out`; a run that wrote no summary did not end"
        raise RunDirError(Problem(str(run_dir), what, remedy))
    summary = from_json(Summary, _read_text(summary_path, SUMMARY_LIMIT_BYTES), str(summary_path))
    if summary.schema != SUMMARY_SCHEMA:
        what = f"schema is {summary.schema!r}, this version reads {SUMMARY_SCHEMA!r}"
        problem = Problem(str(summary_path), what, OTHER_VERSION)
        raise RunDirError(problem)
    known = {name for names in TRANSPORT_COUNTERS.values() for name in names}
    if differing := sorted(known ^ summary.transport.keys()):
        what = f"counters missing or unknown: {', '.join(differing)[:200]}"
        raise RunDirError(Problem(f"{summary_path}.transport", what, OTHER_VERSION))
    problems: list[Problem] = []
    found = {name.removesuffix(".parquet"): _read_table(run_dir / name, problems) for name in TABLES}
    if problems:
        raise RunDirError(*problems)
    return Run(path=run_dir, summary=summary, **found)


def read_plan(run_dir: Path) -> PlanTables:
    """Read the plan that a run directory keeps.

    Raises:
        RunDirError: absent or damaged.
    """
    path = run_dir / PLAN_FILE
    return plan_from_json(_read_text(path, PLAN_LIMIT_BYTES), str(path))


def read_frames(run: Run) -> tuple[PlanTables, dict[str, Frame]]:
    """The plan, and every table of a run directory: the four of `run`, and those that not every run has.

    Raises:
        RunDirError: the plan or a table is damaged.
    """
    tables = {name: getattr(run, name) for name in ("ops", "collectives", "flows", "ports")}
    problems: list[Problem] = []
    for name in OPTIONAL_TABLES:
        path = run.path / f"{name}.parquet"
        if path.exists():
            tables[name] = _read_parquet(path, problems)
    if problems:
        raise RunDirError(*problems)
    return read_plan(run.path), {name: frame_of(name, table) for name, table in tables.items()}


def read_table(run: Run, name: str) -> Any:
    """Return the table `name` of a run directory, any that it has.

    Raises:
        RunDirError: the run has no such table, or it is damaged.
    """
    names = sorted(path.stem for path in run.path.glob("*.parquet"))
    if name not in names:
        what = f'has no table "{name[:64]}"'
        raise RunDirError(Problem(str(run.path), what, f"name one of {', '.join(names)}"))
    problems: list[Problem] = []
    table = _read_parquet(run.path / f"{name}.parquet", problems)
    if problems:
        raise RunDirError(*problems)
    return table


def read_kpis(run_dir: Path) -> KpiSet:
    """The key figures that a run directory keeps, with what they rest on. Raises `RunDirError` where they are gone."""
    path = run_dir / KPI_FILE
    kpis = from_json(KpiSet, _read_text(path, PLAN_LIMIT_BYTES), str(path))
    if kpis.schema != KPI_SCHEMA:
        what = f"schema is {kpis.schema!r}, this version reads {KPI_SCHEMA!r}"
        raise RunDirError(Problem(str(path), what, OTHER_VERSION))
    return kpis


def read_inputs(run_dir: Path) -> tuple[str, str]:
    """Scenario and rig as the run read them. Raises `RunDirError` where they are gone."""
    names = ("scenario.yaml", "rig.yaml")
    scenario, rig = (_read_text(run_dir / name, SUMMARY_LIMIT_BYTES) for name in names)
    return scenario, rig


def read_topology(run_dir: Path) -> str | None:
    """The topology that a run directory keeps; None if the run had none. Raises `RunDirError` where it is damaged."""
    path = run_dir / TOPOLOGY_FILE
    return _read_text(path, SUMMARY_LIMIT_BYTES) if path.exists() else None


def _read_text(path: Path, limit_bytes: int) -> str:
    try:
        size_bytes = path.stat().st_size
        if size_bytes > limit_bytes:
            what = f"{size_bytes} bytes, more than the {limit_bytes} that are read"
            raise RunDirError(Problem(str(path), what, "is it the file that the run wrote?"))
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = Problem(str(path), f"cannot be read: {error}", RESTORE)
        raise RunDirError(problem) from None


def _read_parquet(path: Path, problems: list[Problem]) -> Any:
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        # Its text for a file that is not there is the file's name alone.
        reason = "no such file" if isinstance(error, FileNotFoundError) else str(error).splitlines()[0]
        problems.append(Problem(str(path), f"cannot be read: {reason}", RESTORE))
        return None


def _read_table(path: Path, problems: list[Problem]) -> Any:
    table = _read_parquet(path, problems)
    if table is None:
        return None
    expected = arrow_schema(TABLES[path.name])
    if not table.schema.equals(expected):
        differing = ", ".join(sorted(set(table.schema.names) ^ set(expected.names))) or "types"
        what = f"columns differ from this version's: {differing}"
        problems.append(Problem(str(path), what, OTHER_VERSION))
    return table
