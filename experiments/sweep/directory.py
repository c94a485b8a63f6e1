"""The directory of a sweep: its index, the files of its points, complete runs and remains of interrupted ones.

Decides the layout: sweep.json, sweep.yaml, compare.html, junit.xml; points/pNNN/ with the point's files and a run
directory for each round. A run is made under a temporary name and renamed when it is complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.experiments.sweep.index import AFRESH, value_changes
from etloop.experiments.sweep.points import FILES, PointFiles, run_name
from etloop.experiments.sweep.shard import MOST_SHARDS, Shard
from etloop.results.compare.samples import SWEEP_FILE
from etloop.results.schema.summary import Summary
from etloop.results.schema.sweep import SWEEP_SCHEMA, RunRecord, SweepRecord
from etloop.results.schema.typed_json import RunDirError, from_json, to_json
from etloop.results.store.checksums import refuse_damage
from etloop.results.store.run_dir import (
    SUMMARY_FILE,
    TOPOLOGY_FILE,
    read_index,
    read_input,
    read_inputs,
    read_summary,
    write_files,
)
from etloop.results.verdict.junit import join_junit
from etloop.results.verdict.junit_names import plain_word, run_class

PAGE_FILE: Final = "compare.html"
JUNIT_FILE: Final = "junit.xml"
KEY_FILE: Final = "inputs.sha256"
SWEEP_TEXT_FILE: Final = "sweep.yaml"
SHARDS_FILE: Final = ".shards"
"""File whose bytes are locked by running shards."""
_OWN_NAMES: Final = frozenset({"points", SWEEP_TEXT_FILE, SHARDS_FILE, SWEEP_FILE, PAGE_FILE, JUNIT_FILE})
_PARTIAL: Final = ".partial"
UNREAD_CLASS: Final = "unreadable"
"""In place of the name of a job, in junit.xml, of a run that cannot be read."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadRun:
    """A run of the index as its directory has it."""

    run: RunRecord
    summary: Summary | None
    """None if it cannot be read."""
    texts: tuple[str, ...]
    """Input files; () if the run cannot be read."""
    problems: tuple[Problem, ...]
    """Why it cannot be read."""

    @property
    def why(self) -> str:
        """Return why the run cannot be read, as text."""
        return "; ".join(str(problem) for problem in self.problems)


class SweepDirectory:
    """Directory of one sweep on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        """Make the directory if it does not exist. Raises `ConfigError` if it cannot be made."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = f"cannot be written: {error.strerror or error}"
            raise ConfigError(Problem(str(self.path), reason, "name another directory with --out")) from None

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the directory inside the block; the lock ends with this process, however it dies.

        Raises `ConfigError` if another sweep has the lock, or the directory cannot be opened.
        """
        descriptor = self._open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _lock(descriptor, self.path, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def locked_by(self, shard: Shard) -> Iterator[None]:
        """Lock the directory for a shard inside the block: other shards may run in it, other sweeps may not.

        Raises `ConfigError` as `locked`, also if the same shard is running.
        """
        with contextlib.ExitStack() as stack:
            descriptor = self._open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, descriptor)
            _lock(descriptor, self.path, fcntl.LOCK_SH)
            descriptor = self._open(self.path / SHARDS_FILE, os.O_RDWR | os.O_CREAT)
            stack.callback(os.close, descriptor)
            try:
                fcntl.lockf(
                    descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, shard.count * MOST_SHARDS + shard.index
                )
            except BlockingIOError:
                reason, remedy = f"shard {shard} is running in it", "wait until it ends"
                raise ConfigError(Problem(str(self.path), reason, remedy)) from None
            yield

    def _open(self, path: Path, flags: int) -> int:
        try:
            return os.open(path, flags, 0o666)
        except OSError as error:
            reason = f"cannot be opened: {error.strerror or error}"
            raise ConfigError(Problem(str(path), reason, "name another directory with --out")) from None

    def begin_shard(self, sweep_text: bytes, files: Mapping[str, PointFiles]) -> None:
        """Write the sweep's file and the files of a shard's points, unless they exist.

        Raises `ConfigError` if the directory has something else, or the points had other files.
        """
        try:
            unknown_names = sorted({entry.name for entry in self.path.iterdir()} - _OWN_NAMES)
            if unknown_names:
                reason = f"has files that are not of a sweep, such as {unknown_names[0]}"
                raise ConfigError(Problem(str(self.path), reason, "name another directory with --out"))
            _write_once(self.path / SWEEP_TEXT_FILE, sweep_text)
            for name, texts in files.items():
                self.add(name, texts)
        except OSError as error:
            reason = f"cannot be written: {error.strerror or error}"
            raise ConfigError(Problem(str(self.path), reason, "name another directory with --out")) from None

    def take_runs(self, source: SweepDirectory, point: str, repeats: Iterable[int]) -> None:
        """Copy complete runs of a point that exist in another directory and not in this one."""
        for repeat in repeats:
            if source.has(point, repeat) and not self.has(point, repeat):
                shutil.copytree(source.run(point, repeat), self.room(point, repeat))
                self.finish(point, repeat)

    def end_shards(self) -> None:
        """Remove what only running shards need."""
        (self.path / SHARDS_FILE).unlink(missing_ok=True)

    def begin(self, record: SweepRecord | None, sweep_text: bytes, files: Mapping[str, PointFiles]) -> None:
        """Write the files of a new sweep; a search has no index (`record` None).

        Raises `ConfigError` if the directory is not empty or cannot be written.
        """
        try:
            if any(self.path.iterdir()):
                reason = "is not an empty directory"
                remedy = "name a new one with --out, or continue in it with --resume"
                raise ConfigError(Problem(str(self.path), reason, remedy))
            (self.path / SWEEP_TEXT_FILE).write_bytes(sweep_text)
            for name, texts in files.items():
                self.add(name, texts)
        except OSError as error:
            reason = f"cannot be written: {error.strerror or error}"
            raise ConfigError(Problem(str(self.path), reason, "name another directory with --out")) from None
        if record is not None:
            self.keep(record)

    def add(self, name: str, texts: PointFiles) -> None:
        """Add a point with its files. Raises `ConfigError` if the point exists with other files."""
        self.point(name).mkdir(parents=True, exist_ok=True)
        for kind in FILES:
            file = getattr(texts, kind)
            if file is not None:
                _write_once(self.point(name) / f"{kind}.yaml", file.content or b"")

    def earlier(self) -> SweepRecord:
        """Return the index of the sweep that began here. Raises `ConfigError` or `RunDirError` if it cannot be read."""
        path = self.path / SWEEP_FILE
        if not path.is_file():
            reason = f"has no {SWEEP_FILE}: no sweep was started here"
            raise ConfigError(
                Problem(str(self.path), reason, "leave --resume out, or name the sweep's directory")
            )
        return from_json(SweepRecord, read_index(path), str(path), SWEEP_SCHEMA)

    def changed_values(self, name: str, now: PointFiles) -> tuple[str, ...]:
        """Return the differences, in words, between the files of a point now and when the sweep began."""
        differences: tuple[str, ...] = ()
        for kind in FILES:
            file = getattr(now, kind)
            path = self.point(name) / f"{kind}.yaml"
            before = path.read_bytes() if path.is_file() else b""
            after = b"" if file is None else file.content or b""
            if before != after:
                differences += value_changes(kind, before, after)
        return differences

    def keep(self, record: SweepRecord, pages: Mapping[str, str] = MappingProxyType({})) -> None:
        """Write the index, and further pages by file name. Raises `RunNotWritten`."""
        write_files(self.path, {**pages, SWEEP_FILE: to_json(record)})

    def read_runs(self, record: SweepRecord) -> tuple[ReadRun, ...]:
        """Return all runs of the index in the order of points and repeats, also those that cannot be read."""
        runs = sorted(record.runs, key=lambda run: (run.point, run.repeat))
        return tuple(self._read_run(run) for run in runs)

    def _read_run(self, run: RunRecord) -> ReadRun:
        run_dir = self.run(run.point, run.repeat)
        try:
            refuse_damage(run_dir)
            summary = read_summary(run_dir)
            texts = (*read_inputs(run_dir), read_input(run_dir, TOPOLOGY_FILE) or "")
        except RunDirError as error:
            return ReadRun(run, None, (), error.problems)
        return ReadRun(run, summary, texts, ())

    def junit(self, record: SweepRecord, runs: Sequence[ReadRun]) -> str:
        """Return junit.xml of all runs, a suite each; that of a run that cannot be read has an error with the reason."""
        words = {point.name: ", ".join(point.labels.values()) for point in record.points}
        suites: list[tuple[str, str, Summary | str]] = []
        for read_run in runs:
            run, summary = read_run.run, read_run.summary
            source = UNREAD_CLASS if summary is None else run_class(summary.workload.source, read_run.texts)
            identity = (source, plain_word(words[run.point]), run.point, run_name(run.repeat))
            suite_name = f"{run.point} {run_name(run.repeat)} ({words[run.point]})"
            suites.append((suite_name, ".".join(identity), summary or read_run.why))
        return join_junit(suites)

    def point(self, name: str) -> Path:
        """Return the directory of a point."""
        return self.path / "points" / name

    def run(self, point: str, number: int) -> Path:
        """Return the directory of a complete run."""
        return self.point(point) / run_name(number)

    def key(self, point: str, number: int) -> str:
        """Return the digest of the inputs of a complete run (`index.run_key`); "" for a run in real time."""
        path = self.run(point, number) / KEY_FILE
        return path.read_text(encoding="ascii", errors="replace").strip() if path.is_file() else ""

    def room(self, point: str, number: int) -> Path:
        """Return the temporary directory in which a run is made; remains of an earlier attempt are removed."""
        partial = self.point(point) / f".{run_name(number)}{_PARTIAL}"
        shutil.rmtree(partial, ignore_errors=True)
        return partial

    def finish(self, point: str, number: int) -> Path:
        """Rename a run to its final name, replacing an aborted earlier one, and sync the directory; return its path."""
        final, temporary = self.run(point, number), self.point(point) / f".{run_name(number)}{_PARTIAL}"
        if final.exists():
            shutil.rmtree(final)
        temporary.rename(final)
        descriptor = os.open(final.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return final

    def drop(self, point: str, number: int) -> None:
        """Remove the remains of an interrupted run."""
        self.room(point, number)

    def has(self, point: str, number: int) -> bool:
        """Return whether a run is complete."""
        return (self.run(point, number) / SUMMARY_FILE).is_file()


def _write_once(path: Path, content: bytes) -> None:
    """Write a file that several shards may write at the same time, each the same content. Raises `ConfigError`."""
    if path.is_file():
        if path.read_bytes() != content:
            raise ConfigError(Problem(str(path), "differs: the directory is of another sweep", AFRESH))
        return
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_PARTIAL}")
    partial.write_bytes(content)
    partial.rename(path)


def _lock(descriptor: int, path: Path, kind: int) -> None:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        reason, remedy = "another sweep is running in it", "wait until it ends, or name another with --out"
        raise ConfigError(Problem(str(path), reason, remedy)) from None
