"""`history.sqlite`: the figures of many runs of a device, kept after their run directories are removed. A shell: SQLite.

A run is a row once its directory is complete, and is read again only if its summary.json changes. Decides which figures of
a run are kept, the keys of its job (workload, scenario and rig, without the description of the device), and the
version of the device. Several processes may write to one file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, EtloopError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.yaml_tree import values_by_path
from etloop.contract.model.run import RunEnd
from etloop.results.schema.kinds import kind_label
from etloop.results.schema.kpis import KPI_FILE
from etloop.results.schema.summary import VIRTUAL_TIME, Summary
from etloop.results.schema.trend import BANDWIDTH, RecordedRun
from etloop.results.schema.typed_json import RunDirError
from etloop.results.store.checksums import refuse_damage
from etloop.results.store.run_dir import (
    PROFILE_FILE,
    SUMMARY_FILE,
    TOPOLOGY_FILE,
    read_input,
    read_inputs,
    read_kpis,
    read_summary,
)
from etloop.results.verdict.junit_names import run_class

HISTORY_FILE: Final = "history.sqlite"
MOST_RUNS: Final = 20_000
"""Most runs that are searched for in a directory, and most runs of one job that are read."""
_OF_THE_DEVICE: Final = ("dut", "twin")
"""Keys of scenario and rig that name the device, which differs between the runs of one history."""
_DEEPEST: Final = 6
_VERSION: Final = 1
_BUSY_MS: Final = 10_000
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS run (
    place TEXT PRIMARY KEY, stamp TEXT NOT NULL, at_ns INTEGER NOT NULL, at TEXT NOT NULL, job TEXT NOT NULL,
    series TEXT NOT NULL, device TEXT NOT NULL, version TEXT NOT NULL, unusable TEXT NOT NULL, figures TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS run_series ON run (series, at_ns);
"""
_REMEDY: Final = "name a file in a directory that this user may write to with --history"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One run as the history keeps it."""

    run: RecordedRun
    job: str
    series: str
    unusable: str
    """Why its figures cannot be used; "" if they can."""
    figures: dict[str, float]


def record_runs(directory: Path, history: Path) -> tuple[str, ...]:
    """Add all new runs below `directory` to the history; return those that cannot be read, each with the reason.

    Raises `ConfigError` if the history cannot be used.
    """
    unreadable = []
    with _open(history) as connection:
        known = dict(connection.execute("SELECT place, stamp FROM run"))
        for run_dir in _run_directories(directory):
            place = run_dir.relative_to(directory).as_posix()
            try:
                stamp = _stamp(run_dir)
                if known.get(place) != stamp:
                    _insert(connection, place, stamp, run_dir)
            except (EtloopError, OSError) as error:
                unreadable.append(f"{place}: {error}")
    return tuple(unreadable)


def record_run(run_dir: Path, directory: Path, history: Path, version: str = "") -> None:
    """Add one run below `directory` to the history, with a version of the device that is known otherwise.

    Raises `ConfigError`, `RunDirError` or `OSError`.
    """
    with _open(history) as connection:
        _insert(connection, run_dir.relative_to(directory).as_posix(), _stamp(run_dir), run_dir, version)


def read_history(history: Path) -> tuple[HistoryRow, ...]:
    """Return all runs by job and start. Raises `ConfigError` if the history cannot be used."""
    with _open(history) as connection:
        rows = connection.execute(
            "SELECT place, at, version, device, job, series, unusable, figures FROM run ORDER BY series, at_ns, place"
        ).fetchall()
    return tuple(
        HistoryRow(RecordedRun(*row[:4]), row[4], row[5], row[6], json.loads(row[7])) for row in rows
    )


@contextlib.contextmanager
def _open(history: Path) -> Iterator[sqlite3.Connection]:
    """Open a history, made if absent, as one transaction. Raises `ConfigError`."""
    try:
        connection = sqlite3.connect(history, timeout=_BUSY_MS / 1000)
        try:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
            if version != _VERSION and (version or tables):
                problem = f"is not a history of version {_VERSION}"
                raise ConfigError(Problem(str(history), problem, "name another file with --history"))
            connection.executescript(f"{_TABLE} PRAGMA user_version = {_VERSION};")
            with connection:
                yield connection
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise ConfigError(Problem(str(history), f"cannot be used: {error}", _REMEDY)) from None


def _insert(
    connection: sqlite3.Connection, place: str, stamp: str, run_dir: Path, known_version: str = ""
) -> None:
    refuse_damage(run_dir, (SUMMARY_FILE,))
    summary = read_summary(run_dir)
    scenario, rig = read_inputs(run_dir)
    at_ns, at = _start(summary, run_dir)
    source = Path(summary.workload.source).name
    series = run_class(source, (summary.workload.digest, scenario, rig), _OF_THE_DEVICE)
    device, version = _identity(summary, run_dir)
    figures = json.dumps(_figures(summary, run_dir), allow_nan=False)
    unusable = _why_unusable(summary)
    row = (place, stamp, at_ns, at, source, series, device, known_version or version, unusable, figures)
    connection.execute("INSERT OR REPLACE INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def _figures(summary: Summary, run_dir: Path) -> dict[str, float]:
    """Return the key figures and bus bandwidths of a run that have a value."""
    figures: dict[str, float] = {}
    if (run_dir / KPI_FILE).exists():
        figures |= {
            figure.name: float(figure.value)
            for figure in read_kpis(run_dir).figures
            if figure.value is not None
        }
    for kind in summary.kinds:
        if kind.joined_busbw_bytes_per_s is not None:
            figures[BANDWIDTH + kind_label(kind.kind, kind.ranks)] = kind.joined_busbw_bytes_per_s
    return figures


def _why_unusable(summary: Summary) -> str:
    if summary.state is not RunEnd.DONE:
        return f"it ended early: {summary.reason.splitlines()[0] if summary.reason else 'no reason is known'}"
    if not summary.is_consistent:
        return "its records are inconsistent"
    return summary.overload[0] if summary.overload_frames else ""


def _identity(summary: Summary, run_dir: Path) -> tuple[str, str]:
    """Return the name and the version of the device as the run recorded them."""
    profile = read_input(run_dir, PROFILE_FILE)
    values = _values(profile) if profile is not None else {}
    vendor, model, version = (_text_of(values, f"identity.{key}") for key in ("vendor", "model", "software"))
    topology = read_input(run_dir, TOPOLOGY_FILE)
    if not version and topology is not None and summary.started_at == VIRTUAL_TIME:
        version = f"topology {hashlib.blake2b(topology.encode(), digest_size=4).hexdigest()}"
    return f"{vendor} {model}".strip(), version


def _text_of(values: dict[str, str], path: str) -> str:
    """Return a value of a profile with or without its basis; "" without one."""
    paths = (path, *(f"{path}.{basis}" for basis in ("measured", "configured", "declared")))
    return next((values[key] for key in paths if key in values), "")


def _values(text: str) -> dict[str, str]:
    try:
        return values_by_path(text.encode(), PROFILE_FILE)
    except ConfigError:
        return {}


def _start(summary: Summary, run_dir: Path) -> tuple[int, str]:
    """Return the start of a run in ns since 1970, and as text in UTC to the second."""
    if summary.started_at == VIRTUAL_TIME:
        written_ns = (run_dir / SUMMARY_FILE).stat().st_mtime_ns
        return written_ns, f"{datetime.fromtimestamp(written_ns // 10**9, UTC):%Y-%m-%dT%H:%M:%SZ}"
    try:
        start = datetime.fromisoformat(summary.started_at)
    except ValueError:
        problem = f'started_at is "{summary.started_at[:64]}"; expected a time'
        raise RunDirError(Problem(str(run_dir / SUMMARY_FILE), problem, "restore the file")) from None
    utc = start.astimezone(UTC) if start.tzinfo else start.replace(tzinfo=UTC)
    elapsed = utc - _EPOCH
    start_ns = (elapsed.days * 86_400 + elapsed.seconds) * 10**9 + elapsed.microseconds * 1000
    return start_ns, f"{utc:%Y-%m-%dT%H:%M:%SZ}"


def _stamp(run_dir: Path) -> str:
    status = (run_dir / SUMMARY_FILE).stat()
    return f"{status.st_mtime_ns} {status.st_size}"


def _run_directories(directory: Path) -> Iterator[Path]:
    """Yield the run directories below `directory`, by name. Raises `RunDirError` if there are too many, or it is one itself."""
    if not directory.is_dir() or (directory / SUMMARY_FILE).is_file():
        problem = "is a single run" if directory.is_dir() else "is not a directory"
        raise RunDirError(Problem(str(directory), problem, "name a directory that holds runs"))
    count = 0
    for folder, names, files in os.walk(directory):
        names.sort()
        path = Path(folder)
        if SUMMARY_FILE in files:
            names.clear()
            count += 1
            if count > MOST_RUNS:
                problem = f"holds more than {MOST_RUNS} runs"
                raise RunDirError(Problem(str(directory), problem, "name a directory with fewer"))
            yield path
        elif len(path.relative_to(directory).parts) >= _DEEPEST:
            names.clear()
        names[:] = [name for name in names if not name.startswith(".") and not name.endswith(".partial")]
