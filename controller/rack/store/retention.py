"""Removes artifacts of ended jobs that are too old or too large, in a thread next to the daemon's loop. A shell.

`artifacts.expired` decides which of them are removed, by the time that was seen to pass (`seen_time`). Removing a large
directory from a slow disk may take longer than the silence after which an agent counts as lost, so the loop does not
wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.contract.base.clock import NS_PER_S, seconds_text
from etloop.controller.rack.events import JobForgotten
from etloop.controller.rack.store import artifacts
from etloop.runtime.seen_time import SinceBoot, since_boot
from etloop.runtime.task_shutdown import end

if TYPE_CHECKING:
    from etloop.controller.rack.api import Rack
    from etloop.controller.rack.config import Retention
    from etloop.controller.rack.log import RackLog

_MOST_REMOVED: Final = 16
"""Run directories removed per pass: an operator who sees a wrong removal in the log has time to act."""
_PASS_NS: Final = 60 * NS_PER_S
_NAMED: Final = 8


class Retaining:
    """Keeps the artifacts of a rack within their bounds. The first pass after a start only logs what the next would remove."""

    def __init__(
        self,
        rack: Rack,
        retention: Retention,
        directory: Path,
        log: RackLog,
        kernel_time: Callable[[], SinceBoot] = since_boot,
    ) -> None:
        self._rack = rack
        self._retention = retention
        self._directory = directory
        self._log = log
        self._kernel_time = kernel_time
        self._next_pass_ns = 0
        self._is_first = True
        self._going: asyncio.Task[None] | None = None

    def look(self, now_ns: int) -> None:
        """Start a pass if it is time for one, without waiting for it.

        Raises `StoreFailed` or `OSError` if the previous pass failed, or the kept artifacts cannot be determined.
        """
        if self._going is not None:
            if not self._going.done():
                return
            finished, self._going = self._going, None
            finished.result()
        if now_ns < self._next_pass_ns:
            return
        self._next_pass_ns = now_ns + _PASS_NS
        for job_id in self._rack.store.trim(self._retention.ended_jobs, self._retention.audit_lines):
            self._rack.publish(JobForgotten(job_id))
        oldest_jobs = self._rack.store.with_artifacts(_MOST_REMOVED)
        ages_ns = self._rack.store.see(
            self._rack.store.seen_time().at(*self._kernel_time()), [job.job_id for job in oldest_jobs]
        )
        total_bytes = self._rack.store.artifact_bytes()
        expired_jobs = artifacts.expired_jobs(oldest_jobs, total_bytes, self._retention, ages_ns)
        is_first, self._is_first = self._is_first, False
        if expired_jobs and is_first:
            event = f"{len(expired_jobs)} run directories are above the bounds of retention"
            names = [job.job_id for job in expired_jobs[:_NAMED]]
            self._log.rack(event, first=names, removed_from=f"{seconds_text(_PASS_NS)} from now")
        elif expired_jobs or self._log.has_many_job_logs:
            self._going = asyncio.create_task(self._pass([job.job_id for job in expired_jobs]))

    async def end(self) -> None:
        """Cancel a pass in progress; the next controller finds the same directories again."""
        if self._going is not None:
            await end([self._going])

    async def _pass(self, job_ids: list[str]) -> None:
        for job_id in job_ids:
            with self._rack.readings.removing(job_id) as is_free:
                job = self._rack.store.find(job_id)
                if not is_free or job is None:
                    continue  # It is being read: the next pass finds it again.
                if await asyncio.to_thread(artifacts.remove, self._directory / job_id):
                    self._rack.forget(job)
                    self._log.job(job_id, "artifacts removed", bytes=job.artifact_bytes)
        # Last: its failure must not keep run directories.
        await asyncio.to_thread(self._log.trim_job_logs)
