"""The log of each job: the lines of the rack's log about it, in a file of its own. A shell: the disk.

Each log is bounded, and so are all together: logs of the oldest jobs are removed first, whether or not their results
are kept.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

MOST_LOG_BYTES: Final = 1 << 20
"""Most bytes of one log; its last line then reports that more are left out."""
MOST_LOGS: Final = 10_000
MOST_ALL_BYTES: Final = 1 << 30
_DUE: Final = 64
"""Logs begun between two checks for too many of them."""
_SUFFIX: Final = ".log"
_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_LEFT_OUT: Final = json.dumps({"event": "this log is full: later lines are in the controller's log"})


class JobLogs:
    """The logs of a rack's jobs, in one directory."""

    def __init__(self, directory: Path, most_log_bytes: int = MOST_LOG_BYTES) -> None:
        self._directory = directory
        self._most_log_bytes = most_log_bytes
        self._begun = _DUE
        """Logs begun since the last check. Begins at the bound, so that logs of an earlier controller are checked first."""

    @property
    def is_due(self) -> bool:
        """Return whether `trim` may find logs to remove."""
        return self._begun >= _DUE

    def append(self, job_id: str, line: str) -> str:
        """Add a line; return why it could not be written, as on a full disk, which must not break the rack; "" if it was."""
        try:
            descriptor = os.open(self._path(job_id), _APPEND, 0o640)
            try:
                written_bytes = os.fstat(descriptor).st_size
                self._begun += not written_bytes
                if written_bytes >= self._most_log_bytes:
                    return ""
                is_last = written_bytes + len(line) >= self._most_log_bytes
                text = f"{line}\n{_LEFT_OUT}\n" if is_last else f"{line}\n"
                os.write(descriptor, text.encode(errors="replace"))
            finally:
                os.close(descriptor)
        except OSError as error:
            return str(error)
        return ""

    def read(self, job_id: str) -> bytes:
        """Return a job's log; b"" if there is none. Raises `OSError`."""
        try:
            descriptor = os.open(self._path(job_id), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        with os.fdopen(descriptor, "rb") as file:
            return file.read(2 * self._most_log_bytes)

    def trim(self, most_logs: int = MOST_LOGS, most_bytes: int = MOST_ALL_BYTES) -> int:
        """Remove the logs of the oldest jobs beyond these bounds; return how many.

        Raises `OSError` if the directory cannot be read, or, after all others, for the first log that cannot be examined or
        removed. Then it must be repeated.
        """
        with os.scandir(self._directory) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(_SUFFIX)]
        begun = self._begun
        removed = total_bytes = 0
        fault: OSError | None = None
        # Job ids sort by time of submission.
        for number, name in enumerate(sorted(names, reverse=True), 1):
            path = self._directory / name
            try:
                total_bytes += path.lstat().st_size
                if number > most_logs or total_bytes > most_bytes:
                    path.unlink()
                    removed += 1
            except FileNotFoundError:
                continue
            except OSError as error:
                fault = fault or error
        if fault is not None:
            raise fault
        self._begun -= begun
        return removed

    def _path(self, job_id: str) -> Path:
        return self._directory / f"{job_id}{_SUFFIX}"
