"""What finished jobs left on disk, and which of it has to go. A shell: it walks and removes directories."""

from __future__ import annotations

import contextlib
import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etloop.controller.rack.config import Retention
    from etloop.controller.rack.job import Job


def size_bytes(directory: Path) -> int:
    """Bytes of all files below a directory; 0 if it does not exist."""
    total_bytes = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):  # Somebody else tidies up.
            status = path.lstat()
            total_bytes += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return total_bytes


def expired(
    jobs: Sequence[Job], total_bytes: int, retention: Retention, ages_ns: Mapping[str, int]
) -> tuple[Job, ...]:
    """Ended jobs whose artifacts must go: those above the age, then the oldest until the rest fits the size.

    `jobs` are the oldest with artifacts, oldest first; `total_bytes` is what all jobs keep; `ages_ns` is the time that was seen
    to pass since each ended: no clock that is set makes a job older.
    """
    gone = []
    for job in jobs:
        if ages_ns[job.job_id] <= retention.age_ns and total_bytes <= retention.size_bytes:
            continue
        gone.append(job)
        total_bytes -= job.artifact_bytes
    return tuple(gone)


def remove(directory: Path) -> bool:
    """Removes a run directory; whether it is gone, by this or before."""
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()


def summary_text(directory: Path) -> str:
    """summary.json of a run directory, which is whole if it has one; "" otherwise."""
    try:
        return (directory / "summary.json").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
