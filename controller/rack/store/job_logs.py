"""The log of each job: the lines of the rack's log that are about it, in a file of its own. A shell: the disk.

A log is bounded, and so are all logs together: those of the oldest jobs go first, whether results of theirs are kept or not.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Final

MOST_LOG_BYTES: Final = 1 << 20
"""Of one job; after it one line says that more are left out."""
MOST_LOGS: Final = 10_000
MOST_ALL_BYTES: Final = 1 << 30
_DUE: Final = 64
"""Logs begun between two looks for those that are too many."""
_SUFFIX: Final = ".log"
_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_LEFT_OUT: Final = json.dumps({"event": "this log is full: later lines stand in the controller's own"})


class JobLogs:
    """The logs of a rack's jobs, below one directory."""

    def __init__(self, directory: Path, most_log_bytes: int = MOST_LOG_BYTES) -> None:
        self._directory = directory
        self._most_log_bytes = most_log_bytes
        self._begun = _DUE
        """Logs since the last look at all of them; whatever a controller before this one left is looked at, too."""

    @property
    def is_due(self) -> bool:
        """Whether `trim` may find something."""
        return self._begun >= _DUE

    def append(self, job_id: str, line: str) -> None:
        """Add a line; in vain on a disk that takes none, which must not end what it tells of."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path(job_id), _APPEND, 0o640)
            try:
                written_bytes = os.fstat(descriptor).st_size
                self._begun += not written_bytes
                if written_bytes >= self._most_log_bytes:
                    return
                is_last = written_bytes + len(line) >= self._most_log_bytes
                text = f"{line}\n{_LEFT_OUT}\n" if is_last else f"{line}\n"
                os.write(descriptor, text.encode(errors="replace"))
            finally:
                os.close(descriptor)

    def read(self, job_id: str) -> bytes:
        """Return a job's log; nothing if there is none. Raises `OSError`."""
        try:
            descriptor = os.open(self._path(job_id), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        with os.fdopen(descriptor, "rb") as file:
            return file.read(2 * self._most_log_bytes)

    def trim(self, most_logs: int = MOST_LOGS, most_bytes: int = MOST_ALL_BYTES) -> int:
        """Remove the logs of the oldest jobs, beyond so many and so much; how many."""
        self._begun = 0
        # Ids of jobs sort by their submission.
        found = sorted(self._directory.glob(f"*{_SUFFIX}"), reverse=True)
        gone = total_bytes = 0
        for number, path in enumerate(found, 1):
            with contextlib.suppress(OSError):
                total_bytes += path.lstat().st_size
                if number > most_logs or total_bytes > most_bytes:
                    path.unlink()
                    gone += 1
        return gone

    def _path(self, job_id: str) -> Path:
        return self._directory / f"{job_id}{_SUFFIX}"
