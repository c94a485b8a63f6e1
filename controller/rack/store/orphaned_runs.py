"""Runs of an earlier controller: their ports stay leased until none of their processes lives, then their jobs end.

The process of a run notices that its controller is gone, stores its records and ends; it holds a lock until then. A
shell: it checks locks, kills processes that do not end, and reads what was stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.contract.base.clock import NS_PER_S
from etloop.controller.rack.store import artifacts, locks
from etloop.controller.run.kept_run import has_records, tidy_ended

if TYPE_CHECKING:
    from etloop.controller.rack.api import Rack
    from etloop.controller.rack.log import RackLog

_PATIENCE_NS: Final = 30 * NS_PER_S
"""Longest time such a process may write nothing while it stores its records."""


def lock_of(state_dir: Path, job_id: str) -> Path:
    """Return the path of the lock that a job's run holds as long as it lives."""
    return state_dir / "running" / job_id


class InheritedRuns:
    """The jobs returned by `Rack.recover` that have not ended yet."""

    def __init__(self, rack: Rack, state_dir: Path, log: RackLog) -> None:
        self._rack = rack
        self._state_dir = state_dir
        self._log = log
        self._left: set[str] = set()
        self._to_close: list[str] = []
        self._tidying: dict[str, asyncio.Task[None]] = {}
        self._written: dict[str, tuple[int, int]] = {}
        """Job -> bytes in its directory, and until when they may stay unchanged."""
        self._unread: dict[str, str] = {}
        """Job -> why its files could not be read."""

    def take_over(self, now_ns: int) -> None:
        """Find the unfinished jobs, and remove stale locks, which mean nothing by themselves. Raises `StoreFailed`."""
        self._left = {job.job_id for job in self._rack.recover()}
        try:
            for lock in (self._state_dir / "running").iterdir():
                if lock.name not in self._left and not locks.is_held(lock):
                    lock.unlink(missing_ok=True)
        except OSError as error:
            self._log.rack("stale locks stay", why=str(error))

    def look(self, now_ns: int) -> None:
        """End the jobs whose processes are gone. May be called again after `StoreFailed`.

        A job whose files cannot be read now is tried again at the next call.
        """
        for job_id in sorted(self._left):
            try:
                self._look_at(job_id, now_ns)
            except OSError as error:
                if self._unread.get(job_id) != str(error):
                    self._unread[job_id] = str(error)
                    self._log.job(job_id, "its records cannot be read yet", why=str(error))

    def _look_at(self, job_id: str, now_ns: int) -> None:
        """End a job or have it closed if its process is gone. Raises `StoreFailed` and `OSError`."""
        lock = lock_of(self._state_dir, job_id)
        if locks.is_held(lock):
            if self._is_quiet(job_id, now_ns):
                self._kill(job_id, lock)
            return
        directory = self._state_dir / "artifacts" / job_id
        if has_records(directory):
            self._left.discard(job_id)
            self._to_close.append(job_id)
            return
        if not self._is_tidy(job_id, directory):
            return
        summary, kept_bytes = artifacts.summary_text(directory), artifacts.size_bytes(directory)
        job = self._rack.interrupt(job_id, summary, kept_bytes)
        self._left.discard(job_id)
        del self._tidying[job_id]
        self._log.job(job_id, "interrupted", reason=job.reason)
        lock.unlink(missing_ok=True)

    def _is_tidy(self, job_id: str, directory: Path) -> bool:
        """Return whether useless files of a job have been removed, which a thread does as it may take long.

        Raises `OSError` if they could not be removed.
        """
        if job_id not in self._tidying:
            self._tidying[job_id] = asyncio.create_task(asyncio.to_thread(tidy_ended, directory))
        if not self._tidying[job_id].done():
            return False
        if self._tidying[job_id].exception() is not None:
            self._tidying.pop(job_id).result()  # Raises its error; the next call tries again.
        return True

    def to_close(self) -> list[str]:
        """Return the jobs whose results the caller has to make from their spools; each is returned once."""
        job_ids, self._to_close = self._to_close, []
        return job_ids

    def _is_quiet(self, job_id: str, now_ns: int) -> bool:
        """Return whether the process of a job has written nothing for long."""
        written_bytes = artifacts.size_bytes(self._state_dir / "artifacts" / job_id)
        before_bytes, until_ns = self._written.get(job_id, (-1, 0))
        if written_bytes != before_bytes:
            self._written[job_id] = (written_bytes, now_ns + _PATIENCE_NS)
            return False
        return now_ns > until_ns

    def _kill(self, job_id: str, lock: Path) -> None:
        pid = locks.signature(lock)
        if pid is None or pid <= 1:
            return
        self._log.job(job_id, "killed a process of an earlier controller", pid=pid)
        # The lock was held a moment ago, so the process id has not been reused.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
