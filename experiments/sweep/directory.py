"""The directory of a sweep: its index, the files of its points, runs that are whole and what others left.

Decides the layout: sweep.json, sweep.yaml, compare.html, junit.xml; points/pNNN/ with the point's files and a run directory
for each round. A run is made under another name and gets its own when it is whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.experiments.sweep.index import value_changes
from etloop.experiments.sweep.points import FILES, PointFiles, run_name
from etloop.results.compare.samples import SWEEP_FILE
from etloop.results.schema.summary import Summary
from etloop.results.schema.sweep import SWEEP_SCHEMA, SweepRecord
from etloop.results.schema.typed_json import RunDirError, from_json, to_json
from etloop.results.store.run_dir import (
    SUMMARY_FILE,
    TOPOLOGY_FILE,
    read_index,
    read_input,
    read_inputs,
    read_run,
    write_files,
)
from etloop.results.verdict.junit import joined_junit
from etloop.results.verdict.junit_names import plain_word, run_class

PAGE_FILE: Final = "compare.html"
JUNIT_FILE: Final = "junit.xml"
_PARTIAL: Final = ".partial"


class SweepDirectory:
    """One sweep's place on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        """Make it if it is not there. Raises `ConfigError` where it cannot be."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            what = f"cannot be written: {error.strerror or error}"
            raise ConfigError(Problem(str(self.path), what, "name another directory with --out")) from None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other sweeps out of it while it is open; the lock ends with this process, however it dies.

        Raises `ConfigError` where another sweep is at work in it, or it cannot be opened.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            what = f"cannot be opened: {error.strerror or error}"
            raise ConfigError(Problem(str(self.path), what, "name another directory with --out")) from None
        try:
            _lock(descriptor, self.path)
            yield
        finally:
            os.close(descriptor)

    def begin(self, record: SweepRecord | None, sweep_text: bytes, files: Mapping[str, PointFiles]) -> None:
        """Begins in it; a search has no index of a sweep. Raises `ConfigError` where it is in use or cannot be written."""
        try:
            if any(self.path.iterdir()):
                what = "is not an empty directory"
                remedy = "name a new one with --out, or go on in it with --resume"
                raise ConfigError(Problem(str(self.path), what, remedy))
            (self.path / "sweep.yaml").write_bytes(sweep_text)
            for name, texts in files.items():
                self.add(name, texts)
        except OSError as error:
            what = f"cannot be written: {error.strerror or error}"
            raise ConfigError(Problem(str(self.path), what, "name another directory with --out")) from None
        if record is not None:
            self.keep(record)

    def add(self, name: str, texts: PointFiles) -> None:
        """A point and its files."""
        self.point(name).mkdir(parents=True, exist_ok=True)
        for kind in FILES:
            file = getattr(texts, kind)
            if file is not None:
                (self.point(name) / f"{kind}.yaml").write_bytes(file.content or b"")

    def earlier(self) -> SweepRecord:
        """The index of the sweep that began here. Raises `ConfigError` or `RunDirError` where there is none to be read."""
        path = self.path / SWEEP_FILE
        if not path.is_file():
            what = f"has no {SWEEP_FILE}, so no sweep began here"
            raise ConfigError(
                Problem(str(self.path), what, "leave --resume out, or name the sweep's directory")
            )
        return from_json(SweepRecord, read_index(path), str(path), SWEEP_SCHEMA)

    def changed_values(self, name: str, now: PointFiles) -> tuple[str, ...]:
        """What in the files of a point is not as it was when the sweep began, in words."""
        found: tuple[str, ...] = ()
        for kind in FILES:
            file = getattr(now, kind)
            path = self.point(name) / f"{kind}.yaml"
            before = path.read_bytes() if path.is_file() else b""
            after = b"" if file is None else file.content or b""
            if before != after:
                found += value_changes(kind, before, after)
        return found

    def keep(self, record: SweepRecord, pages: Mapping[str, str] = MappingProxyType({})) -> None:
        """Writes the index, and what else there is by its file name. Raises `RunNotWritten`."""
        write_files(self.path, {**pages, SWEEP_FILE: to_json(record)})

    def junit(self, record: SweepRecord) -> str:
        """Return junit.xml of all runs that can be read, a suite each, in the order of points and repeats."""
        words = {point.name: ", ".join(point.labels.values()) for point in record.points}
        found: list[tuple[str, str, Summary]] = []
        for run in sorted(record.runs, key=lambda run: (run.point, run.repeat)):
            with contextlib.suppress(RunDirError):
                run_dir = self.run(run.point, run.repeat)
                summary = read_run(run_dir).summary
                texts = (*read_inputs(run_dir), read_input(run_dir, TOPOLOGY_FILE) or "")
                identity = (run_class(summary.workload.source, texts), plain_word(words[run.point]))
                called = ".".join((*identity, run.point, run_name(run.repeat)))
                found.append((f"{run.point} {run_name(run.repeat)} ({words[run.point]})", called, summary))
        return joined_junit(found)

    def point(self, name: str) -> Path:
        """Directory of a point."""
        return self.path / "points" / name

    def run(self, point: str, number: int) -> Path:
        """Directory of a run that is whole."""
        return self.point(point) / run_name(number)

    def room(self, point: str, number: int) -> Path:
        """Where the run is made until it is whole; what an earlier attempt left there is gone."""
        partial = self.point(point) / f".{run_name(number)}{_PARTIAL}"
        shutil.rmtree(partial, ignore_errors=True)
        return partial

    def finish(self, point: str, number: int) -> Path:
        """Gives a run its own name; one that broke off before makes room for it."""
        whole, partial = self.run(point, number), self.point(point) / f".{run_name(number)}{_PARTIAL}"
        if whole.exists():
            shutil.rmtree(whole)
        partial.rename(whole)
        descriptor = os.open(whole.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return whole

    def drop(self, point: str, number: int) -> None:
        """Removes what an interrupted run left."""
        self.room(point, number)

    def has(self, point: str, number: int) -> bool:
        """Whether a run is there."""
        return (self.run(point, number) / SUMMARY_FILE).is_file()


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        what, remedy = "another sweep is at work in it", "wait for its end, or name another with --out"
        raise ConfigError(Problem(str(path), what, remedy)) from None
