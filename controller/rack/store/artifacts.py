"""Run directories of ended jobs: their sizes, and which ones retention removes. A shell: it walks and removes them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from etloop.controller.rack.config import Retention
    from etloop.controller.rack.job import Job
    from etloop.controller.rack.log import RackLog

_TRIES: Final = 5
_AGAIN_S: Final = 1.0


def size_bytes(directory: Path) -> int:
    """Return the bytes of all files below a directory, 0 if there is none. Raises `OSError` if it cannot be read."""
    total_bytes = 0
    unread: list[str] = [str(directory)]
    while unread:
        # Another thread or process may remove files meanwhile.
        with contextlib.suppress(FileNotFoundError), os.scandir(unread.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        unread.append(entry.path)
                    total_bytes += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return total_bytes


def expired_jobs(
    jobs: Sequence[Job], total_bytes: int, retention: Retention, ages_ns: Mapping[str, int]
) -> tuple[Job, ...]:
    """Return the ended jobs whose artifacts must go: those above the age, then the oldest until the rest fits the size.

    `jobs` are the oldest with artifacts, oldest first; `total_bytes` is the sum over all jobs; `ages_ns` is the time
    seen to pass since each job's end (`seen_time`), which no change of the clock affects.
    """
    expired_jobs = []
    for job in jobs:
        if ages_ns[job.job_id] <= retention.age_ns and total_bytes <= retention.size_bytes:
            continue
        expired_jobs.append(job)
        total_bytes -= job.artifact_bytes
    return tuple(expired_jobs)


def remove(directory: Path) -> bool:
    """Remove a run directory; return whether it no longer exists. Raises `OSError` if that cannot be determined."""
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()


def summary_text(directory: Path) -> str:
    """Return summary.json of a run directory; "" if there is none, or it is not UTF-8.

    A directory with a summary is complete. Raises `OSError` if it cannot be read.
    """
    try:
        return (directory / "summary.json").read_text(encoding="utf-8")
    except (FileNotFoundError, UnicodeDecodeError):
        return ""


async def summary_in_time(read: Callable[[], str], job_id: str, log: RackLog) -> str:
    """Return the result of `read`, repeated each second after an `OSError`; "" after five tries, which is logged."""
    for _ in range(_TRIES):
        try:
            return read()
        except OSError as error:
            why = str(error)
            await asyncio.sleep(_AGAIN_S)
    log.job(job_id, "its summary cannot be read, and is left out", why=why)
    return ""
