"""Checks before a run that its results can be stored, because a measurement cannot be repeated at will."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, InputError, NoRoom, Problem
from etloop.contract.base.units import approximate_bytes
from etloop.contract.model.run import PlanTables

OP_BYTES: Final = 128
"""Size of the records of one op of one iteration in all tables, before compression."""
PAGES_BYTES: Final = 16 << 20
"""Size of report, timeline and key figures together."""

_PROBE: Final = ".etloop-"
PROBE_FILES: Final = f"{_PROBE}*"
"""Glob pattern of the probe files that are written to check that a directory is writable."""


def refuse_used_directory(out_dir: Path) -> None:
    """Raise `ConfigError` unless `out_dir` is absent or an empty directory."""
    try:
        is_used = out_dir.exists() and (not out_dir.is_dir() or next(out_dir.iterdir(), None) is not None)
    except OSError as error:
        problem = f"cannot be looked into: {error.strerror or error}"
        raise ConfigError(Problem(str(out_dir), problem, "choose a directory that can be written")) from None
    if is_used:
        problem = "is not an empty directory, and results are never mixed or overwritten"
        raise ConfigError(
            Problem(str(out_dir), problem, "name a new directory with --out, or move the old one away")
        )


def move_earlier_away(out_dir: Path) -> Path | None:
    """Rename a directory that holds files of an earlier run to NAME.1, NAME.2, and so on; return its new path.

    None if it is absent or empty. Raises `NoRoom` if it cannot be read or renamed: no run ever writes into it.
    """
    try:
        if not out_dir.exists() or next(out_dir.iterdir(), None) is None:
            return None
        number = 1
        while (moved := out_dir.with_name(f"{out_dir.name}.{number}")).exists():
            number += 1
        return out_dir.rename(moved)
    except OSError as error:
        problem = f"holds files of an earlier run and cannot be moved away: {error.strerror or error}"
        raise NoRoom(Problem(str(out_dir), problem, "make its parent directory writable")) from None


@contextlib.contextmanager
def claimed_directory(out_dir: Path | None, tables: PlanTables) -> Iterator[None]:
    """Create `out_dir`, write a probe file into it and check its free space; None keeps nothing.

    If the block raises an `InputError`, a directory that was created here is removed. Raises `NoRoom` if the results of the
    plan would not fit.
    """
    if out_dir is None:
        yield
        return
    is_new = not out_dir.exists()
    try:
        _try_out(out_dir, PAGES_BYTES + OP_BYTES * len(tables.ops.rank) * tables.iterations)
        yield
    except InputError:
        if is_new:
            with contextlib.suppress(OSError):
                out_dir.rmdir()
        raise


def _try_out(out_dir: Path, needed_bytes: int) -> None:
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=out_dir, prefix=_PROBE) as probe:
            probe.write(b"\0")
            probe.flush()
            os.fsync(probe.fileno())
        free_bytes = shutil.disk_usage(out_dir).free
    except OSError as error:
        problem = f"the results cannot be written there: {error.strerror or error}"
        raise NoRoom(Problem(str(out_dir), problem, "choose a directory that can be written")) from None
    if free_bytes < needed_bytes:
        problem = f"{approximate_bytes(free_bytes)} are free there, and the results may take {approximate_bytes(needed_bytes)}"
        raise NoRoom(Problem(str(out_dir), problem, "make room, or choose a directory on another disk"))
