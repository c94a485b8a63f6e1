"""A run on disk from before its traffic on: what its results are made of, so that they can be made whatever ends its process.

`RUN_DIR/spool` holds this and what agents hand over (`controller.session.spool`) until results are written. A shell: files.
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
from numpy.typing import NDArray

SPOOL: Final = "spool"
_SCHEMA: Final = "etloop-spool/1"
_MATERIAL_FILE: Final = "material.json"
_LOCK_FILE: Final = "lock"


@dataclass(frozen=True, slots=True, eq=False)
class RunMaterial:
    """What the results of a run are made of, besides what its agents measure."""

    plan: PlanTables
    connection_rows: Mapping[str, NDArray[np.int32]]
    """Per agent: row i of its connections is this row of the plan's."""
    port_names: Mapping[str, tuple[str, ...]]
    texts: Mapping[str, str | bytes]
    """By file name: what the run was made of."""
    basis: KpiBasis
    conditions: Conditions


@dataclass(frozen=True, slots=True, eq=False)
class _MaterialFile:
    """material.json."""

    schema: str
    connection_rows: dict[str, NDArray[np.int32]]
    port_names: dict[str, tuple[str, ...]]
    texts: tuple[str, ...]
    basis: KpiBasis
    conditions: Conditions


@contextlib.contextmanager
def spool_of(run_dir: Path, material: RunMaterial) -> Iterator[Path]:
    """Keep the material of a run that begins; its spool stays if the block is left by an error after traffic began.

    Raises `NoRoom` if it cannot be written.
    """
    directory = run_dir / SPOOL
    named = {f"text.{name}": text for name, text in material.texts.items()}
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
            directory, {**named, PLAN_FILE: plan_to_json(material.plan), _MATERIAL_FILE: to_json(file)}
        )
    except RunNotWritten as error:
        forget_spool(run_dir)
        raise NoRoom(Problem(str(run_dir), str(error), "make room on its disk")) from None
    with _locked(directory):
        yield directory


def forget_spool(run_dir: Path) -> None:
    """Remove the spool of a run: its results are written, or it never began."""
    shutil.rmtree(run_dir / SPOOL, ignore_errors=True)


def has_spool(run_dir: Path) -> bool:
    """Return whether a run has left what it measured, and no results."""
    return (run_dir / SPOOL / _MATERIAL_FILE).is_file() and not (run_dir / SUMMARY_FILE).is_file()


def has_records(run_dir: Path) -> bool:
    """Return whether such a run may have measured something: results can be made of it."""
    return has_spool(run_dir) and has_begun(run_dir / SPOOL)


def tidy_ended(run_dir: Path) -> None:
    """Remove what a run that is over, of which no process lives, does not need: all of it where nothing was measured.

    What it measured stays: as results, or in its spool where none could be made.
    """
    if has_begun(run_dir / SPOOL) and not (run_dir / SUMMARY_FILE).is_file():
        return
    forget_spool(run_dir)
    with contextlib.suppress(OSError):
        for pattern in (PARTIAL_FILES, PROBE_FILES):
            for file in run_dir.glob(pattern):
                file.unlink(missing_ok=True)
        run_dir.rmdir()  # Which is refused where results are.


@contextlib.contextmanager
def kept_run(run_dir: Path, reason: str) -> Iterator[tuple[RunMaterial, RunOutcome | None]]:
    """Read what a run that is over has left, and nobody else while the block lasts; no outcome if it had not begun.

    `reason`: why it ended, if it could not say so itself.

    Raises:
        ConfigError: its process still lives.
        RunDirError: no such directory, or damaged.
        SpoolFailed: what it measured cannot be read.
    """
    directory = run_dir / SPOOL
    if not has_spool(run_dir):
        remedy = "name the directory of a run that ended before it wrote its results"
        raise RunDirError(Problem(str(run_dir), "holds no spool", remedy))
    with _locked(directory):
        free_reserve(directory)
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
        raise RunDirError(Problem(str(directory), f"cannot be read: {error}", "is the disk whole?")) from None
    shown = {name: text.decode() if name.endswith(".yaml") else text for name, text in texts.items()}
    return RunMaterial(plan, file.connection_rows, file.port_names, shown, file.basis, file.conditions)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """The lock is the kernel's and ends with its holder, however that dies."""
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
