"""Conditions that keep every job of a rack from starting: disk, descriptors, job store. A shell: it asks the kernel.

None of them is a fault of a job, so jobs wait and are not ended.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.contract.base.units import approximate_bytes
from etloop.runtime.descriptors import can_open

if TYPE_CHECKING:
    from etloop.controller.rack.config import RackConfig
    from etloop.controller.rack.log import RackLog

DISK: Final = "disk"
PROCESSES: Final = "processes"
STORE: Final = "store"
_SPARE_DESCRIPTORS: Final = 16
"""Descriptors that must be free to begin a run: its process needs about half of them."""


class Obstacles:
    """Reasons why no job starts, by subject (DISK, PROCESSES, STORE)."""

    def __init__(self, config: RackConfig, log: RackLog) -> None:
        self._config = config
        self._log = log
        self._found: dict[str, str] = {}

    def __bool__(self) -> bool:
        """Return whether there is any obstacle."""
        return bool(self._found)

    def __contains__(self, about: str) -> bool:
        """Return whether there is an obstacle of that subject."""
        return about in self._found

    def texts(self) -> tuple[str, ...]:
        """Return the reasons, for /healthz and for waiting jobs."""
        return tuple(self._found.values())

    def note(self, about: str, obstacle: str) -> None:
        """Set or, with "", clear the obstacle of a subject. Logs only its beginning and its end."""
        if self._found.get(about, "") == obstacle:
            return
        if obstacle:
            is_new = about not in self._found
            self._found[about] = obstacle
            if is_new:
                self._log.rack("no job starts", why=obstacle)
        else:
            self._log.rack("fixed", what=self._found.pop(about))

    def look(self) -> None:
        """Check the free disk space and the free descriptors."""
        try:
            (free_bytes, place), least_bytes = self._scarcest(), self._config.limits.free_disk_bytes
            reason = (
                f"the disk is full: {approximate_bytes(free_bytes)} are free below {place}, "
                f"and limits.free_disk is {approximate_bytes(least_bytes)}"
            )
            self.note(DISK, reason if free_bytes < least_bytes else "")
        except OSError as error:
            self.note(DISK, f"{self._config.state_dir} cannot be used: {error.strerror}")
        is_short_of_descriptors = not can_open(_SPARE_DESCRIPTORS)
        self.note(
            PROCESSES,
            "no files or sockets can be opened: the limit of open files is reached"
            if is_short_of_descriptors
            else "",
        )

    def free_disk_bytes(self) -> int:
        """Return the free bytes of the directory of jobs or of results, whichever has less. Raises `OSError`."""
        return self._scarcest()[0]

    def _scarcest(self) -> tuple[int, Path]:
        """Return (free bytes, directory) of the directory of jobs or of results, whichever has less."""
        directories = (self._config.state_dir, self._config.state_dir / "artifacts")
        return min((shutil.disk_usage(directory).free, directory) for directory in directories)
