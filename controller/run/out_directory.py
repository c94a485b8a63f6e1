"""Whether the results of a run will have a place: found out before the run, because a measurement cannot be repeated at will."""

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
"""Of the records of one op of one iteration in all tables, before compression."""
PAGES_BYTES: Final = 16 << 20
"""Of report, timeline and key figures."""

_PROBE: Final = ".etloop-"
PROBE_FILES: Final = f"{_PROBE}*"
"""Names of files by which it is found out whether a directory can be written."""


def refuse_used_directory(out_dir: Path) -> None:
    """Raise `ConfigError` unless `out_dir` is absent or an empty directory."""
    try:
        used = out_dir.exists() and (not out_dir.is_dir() or next(out_dir.iterdir(), None) is not None)
    except OSError as error:
        what = f"cannot be looked into: {error.strerror or error}"
        raise ConfigError(Problem(str(out_dir), what, "choose a directory that can be written")) from None
    if used:
        what = "is not an empty directory, and results are never mixed or overwritten"
        raise ConfigError(
            Problem(str(out_dir), what, "name a new directory with --out, or move the old one away")
        )


@contextlib.contextmanager
def claimed_directory(out_dir: Path | None, tables: PlanTables) -> Iterator[None]:
    """Make `out_dir` (None: nothing is kept), write into it and look at the room that is left there.

    What is refused in the block with an `InputError` leaves no directory behind that was made for it.

    Raises `NoRoom` where the results of the plan would not get in.
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
        what = f"the results cannot be written there: {error.strerror or error}"
        raise NoRoom(Problem(str(out_dir), what, "choose a directory that can be written")) from None
    if free_bytes < needed_bytes:
        what = f"{approximate_bytes(free_bytes)} are free there, and the results may take {approximate_bytes(needed_bytes)}"
        raise NoRoom(Problem(str(out_dir), what, "make room, or choose a directory on another disk"))
