"""Removes what ended jobs left when it is too old or too much, beside the daemon's loop. A shell: task, thread, wall clock.

Which of it has to go is decided by `artifacts.expired`. Removing a large directory from a slow disk may take longer than
an agent may be silent; nobody waits for it.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.contract.base.clock import NS_PER_S
from etloop.controller.rack.store import artifacts
from etloop.runtime.task_shutdown import end

if TYPE_CHECKING:
    from etloop.controller.rack.api import Rack
    from etloop.controller.rack.config import Retention
    from etloop.controller.rack.log import RackLog

_MOST_REMOVED: Final = 64
"""Run directories looked at in one go."""


class Retaining:
    """Keeps the artifacts of a rack within their bounds."""

    def __init__(
        self, rack: Rack, retention: Retention, directory: Path, log: RackLog, began_ns: int
    ) -> None:
        self._rack = rack
        self._retention = retention
        self._directory = directory
        self._log = log
        self._wall_began = datetime.now(UTC)
        self._began_ns = began_ns
        self._going: asyncio.Task[None] | None = None

    def look(self, now_ns: int) -> None:
        """Goes on with removing, or begins; returns at once. Raises `StoreFailed` if what was begun before had to break off."""
        if self._going is not None:
            if not self._going.done():
                return
            done, self._going = self._going, None
            done.result()
        self._rack.store.trim(self._retention.ended_jobs, self._retention.audit_lines)
        kept = self._rack.store.with_artifacts(_MOST_REMOVED)
        total_bytes = self._rack.store.artifact_bytes()
        gone = artifacts.expired(kept, total_bytes, self._retention, self._today(now_ns))
        if gone:
            self._going = asyncio.create_task(self._remove([job.job_id for job in gone]))

    async def end(self) -> None:
        """Breaks off; what is being removed is looked at again by the next controller."""
        if self._going is not None:
            await end([self._going])

    async def _remove(self, job_ids: list[str]) -> None:
        for job_id in job_ids:
            job = self._rack.store.find(job_id)
            if job is not None and await asyncio.to_thread(artifacts.remove, self._directory / job_id):
                self._rack.forget(job)
                self._log.job(job_id, "artifacts removed", bytes=job.artifact_bytes)

    def _today(self, now_ns: int) -> datetime:
        """The wall time, but not later than the time that has passed allows: a stepped clock must not age results."""
        passed = timedelta(seconds=(now_ns - self._began_ns) / NS_PER_S)
        return min(datetime.now(UTC), self._wall_began + passed)
