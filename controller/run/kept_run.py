"""A run on disk from before its traffic starts: the inputs of its results, so that they can be made even if its process dies.

`RUN_DIR/spool` holds these and the records from agents (`controller.session.spool`) until results are written. A shell:
files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import ConfigError, NoRoom, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.run import PlanTables, RunOutcome
from etloop.controller.run.out_directory import PROBE_FILES
from etloop.controller.session.spool import free_reserve, has_begun, read_spool
from etloop.results.schema.kpis import KpiBasis
from etloop.results.schema.plan_json import plan_from_json, plan_to_json
from etloop.results.schema.typed_json import RunDirError, from_json, to_json
from etloop.results.store.run_dir import PARTIAL_FILES, PLAN_FILE, SUMMARY_FILE, RunNotWritten, write_files
from etloop.results.verdict.verdict import Conditions

SPOOL: Final = "spool"
_SCHEMA: Final = "etloop-spool/1"
_MATERIAL_FILE: Final = "material.json"
_LOCK_FILE: Final = "lock"


@dataclass(frozen=True, slots=True, eq=False)
class RunMaterial:
    """The inputs of a run's results, except the records of its agents."""

    plan: PlanTables
    connection_rows: Mapping[str, NDArray[np.int32]]
    """Row in the plan's connections of each connection of an agent, by agent name."""
    port_names: Mapping[str, tuple[str, ...]]
    texts: Mapping[str, str | bytes]
    """Files that the run was made of, by name."""
    basis: KpiBasis
    conditions: Conditions


@dataclass(frozen=True, slots=True, eq=False)
class _MaterialFile:
    """The contents of material.json."""

    schema: str
    connection_rows: dict[str, NDArray[np.int32]]
    port_names: dict[str, tuple[str, ...]]
    texts: tuple[str, ...]
    basis: KpiBasis
    conditions: Conditions


@contextlib.contextmanager
def spool_of(run_dir: Path, material: RunMaterial) -> Iterator[Path]:
    """Store the material of a run that begins. The spool stays if the block raises an error after traffic began.

    Raises `NoRoom` if it cannot be written.
    """
    directory = run_dir / SPOOL
    text_files = {f"text.{name}": text for name, text in material.texts.items()}
    file = _MaterialFile(
        _SCHEMA,
        dict(material.connection_rows),
        dict(material.port_names),
        tuple(material.texts),
        material.basis,
        material.conditions,
    )
    try:
        write_files(
            directory, {**text_files, PLAN_FILE: plan_to_json(material.plan), _MATERIAL_FILE: to_json(file)}
        )
    except RunNotWritten as error:
        forget_spool(run_dir)
        raise NoRoom(Problem(str(run_dir), str(error), "make room on its disk")) from None
    with _hold_lock(directory):
        yield directory


def forget_spool(run_dir: Path) -> None:
    """Remove the spool of a run whose results are written or that never began.

    What cannot be removed now stays: `has_spool` ignores it next to results, and `tidy_ended` tries again.
    """
    shutil.rmtree(run_dir / SPOOL, ignore_errors=True)


def has_spool(run_dir: Path) -> bool:
    """Return whether a run left a spool but no results."""
    return (run_dir / SPOOL / _MATERIAL_FILE).is_file() and not (run_dir / SUMMARY_FILE).is_file()


def has_records(run_dir: Path) -> bool:
    """Return whether results can be made from a spool: whether its run may have measured something."""
    return has_spool(run_dir) and has_begun(run_dir / SPOOL)


def tidy_ended(run_dir: Path) -> None:
    """Remove the temporary files of a run whose process has ended, and its directory if it has no measurements.

    Keeps measurements: as results, or in the spool if there are no results yet. Raises `OSError` if files cannot be listed or
    removed.
    """
    if has_begun(run_dir / SPOOL) and not (run_dir / SUMMARY_FILE).is_file():
        return
    if not run_dir.exists():
        return
    if (run_dir / SPOOL).exists():
        shutil.rmtree(run_dir / SPOOL)
    for pattern in (PARTIAL_FILES, PROBE_FILES):
        for file in run_dir.glob(pattern):
            file.unlink(missing_ok=True)
    if next(run_dir.iterdir(), None) is None:
        run_dir.rmdir()


@contextlib.contextmanager
def kept_run(run_dir: Path, reason: str) -> Iterator[tuple[RunMaterial, RunOutcome | None]]:
    """Read what an ended run left, under a lock that is held during the block; no outcome if the run had not begun.

    `reason` is the reason of its end, for a run that could not record one.

    Raises:
        ConfigError: its process is still alive.
        RunDirError: the directory has no spool, or a damaged one.
        SpoolFailed: its records cannot be read.
    """
    directory = run_dir / SPOOL
    if not has_spool(run_dir):
        remedy = "name the directory of a run that ended before it wrote its results"
        raise RunDirError(Problem(str(run_dir), "holds no spool", remedy))
    with _hold_lock(directory):
        try:
            free_reserve(directory)
        except OSError as error:
            problem = f"its reserved space cannot be freed: {error.strerror}"
            raise RunDirError(Problem(str(directory), problem, "is the disk whole, and writable?")) from error
        yield _read(directory), read_spool(directory, reason)


def _read(directory: Path) -> RunMaterial:
    path = directory / _MATERIAL_FILE
    try:
        file = from_json(_MaterialFile, path.read_text(), str(path), _SCHEMA)
        if any("/" in name or name.startswith(".") for name in file.texts):
            raise RunDirError(
                Problem(str(path), "names files elsewhere", "is it the file that the run wrote?")
            )
        plan = plan_from_json((directory / PLAN_FILE).read_text(), str(directory / PLAN_FILE))
        texts = {name: (directory / f"text.{name}").read_bytes() for name in file.texts}
    except (OSError, ValueError) as error:
        raise RunDirError(
            Problem(str(directory), f"cannot be read: {error}", "is the disk whole?")
        ) from error
    decoded_texts = {name: text.decode() if name.endswith(".yaml") else text for name, text in texts.items()}
    return RunMaterial(
        plan, file.connection_rows, file.port_names, decoded_texts, file.basis, file.conditions
    )


@contextlib.contextmanager
def _hold_lock(directory: Path) -> Iterator[None]:
    """Hold the lock of a spool during the block. The kernel releases it if the process dies. Raises `ConfigError` if it is
    taken."""
    descriptor = os.open(directory / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            remedy = "wait until it has ended, or end it"
            raise ConfigError(Problem(str(directory), "the run still goes on", remedy)) from None
        yield
    finally:
        os.close(descriptor)
