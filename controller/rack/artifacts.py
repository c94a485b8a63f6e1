"""What finished jobs left on disk, and which of it has to go. A shell: it walks and removes directories."""

from __future__ import annotations

import shutil
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from controller.rack.config import Retention
    from controller.rack.job import Job


def size_bytes(directory: Path) -> int:
    """Bytes of all files below a directory; 0 if it does not exist."""
    return sum(
        path.stat().st_size for path in directory.rglob("*") if path.is_file() and not path.is_symlink()
    )


def expired(jobs: Sequence[Job], retention: Retention, now: datetime) -> tuple[Job, ...]:
    """Ended jobs whose artifacts must go: those above the age, then the oldest until the rest fits the size.

    `jobs` are those with artifacts, oldest first. Wall time is what people mean by age; a clock that is stepped back
    only keeps things longer.
    """
    gone = []
    total_bytes = sum(job.artifact_bytes for job in jobs)
    for job in jobs:
        age_s = (now - datetime.fromisoformat(job.ended_at)).total_seconds()
        if age_s * 1e9 <= retention.age_ns and total_bytes <= retention.size_bytes:
            continue
        gone.append(job)
        total_bytes -= job.artifact_bytes
    return tuple(gone)


def remove(directory: Path) -> None:
    """Removes a run directory; what is gone already is no error."""
    shutil.rmtree(directory, ignore_errors=True)
