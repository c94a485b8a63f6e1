"""What keeps every job of a rack from starting, and those that wait are told: disk, descriptors, job store. A shell: it asks
the operating system.

None of it is a fault of a job, so none ends one.
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
"""Without so many to be had no run is begun: its process needs about half of them."""


class Obstacles:
    """Why no job starts, by what about."""

    def __init__(self, config: RackConfig, log: RackLog) -> None:
        self._config = config
        self._log = log
        self._found: dict[str, str] = {}

    def __bool__(self) -> bool:
        """Return whether there is any."""
        return bool(self._found)

    def __contains__(self, about: str) -> bool:
        """Return whether there is one of that sort."""
        return about in self._found

    def texts(self) -> tuple[str, ...]:
        """Return what people should know, for /healthz and for jobs that wait."""
        return tuple(self._found.values())

    def note(self, about: str, what: str) -> None:
        """Something keeps jobs from starting; "" if not any more. Said once."""
        if self._found.get(about, "") == what:
            return
        if what:
            is_new = about not in self._found
            self._found[about] = what
            if is_new:
                self._log.rack("no job starts", why=what)
        else:
            self._log.rack("fixed", what=self._found.pop(about))

    def look(self) -> None:
        """Look at the disk and at what may still be opened."""
        try:
            (free_bytes, place), least_bytes = self._scarcest(), self._config.free_disk_bytes
            what = (
                f"the disk is full: {approximate_bytes(free_bytes)} are free below {place}, "
                f"and limits.free_disk is {approximate_bytes(least_bytes)}"
            )
            self.note(DISK, what if free_bytes < least_bytes else "")
        except OSError as error:
            self.note(DISK, f"{self._config.state_dir} cannot be used: {error.strerror}")
        few = not can_open(_SPARE_DESCRIPTORS)
        self.note(PROCESSES, "no files or sockets can be opened: too many are open" if few else "")

    def free_disk_bytes(self) -> int:
        """Return the room where jobs, or results, are kept: where there is less. Raises `OSError`."""
        return self._scarcest()[0]

    def _scarcest(self) -> tuple[int, Path]:
        """The least room where jobs or results are kept, and where that is."""
        directories = (self._config.state_dir, self._config.state_dir / "artifacts")
        return min((shutil.disk_usage(directory).free, directory) for directory in directories)
