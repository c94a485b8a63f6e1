"""Format and level of a rack's log. Imports nothing heavy, so that the command line can use it."""

from __future__ import annotations

from enum import StrEnum


class LogFormat(StrEnum):
    """Format of the daemon's log on standard error."""

    JSON = "json"
    TEXT = "text"


class LogLevel(StrEnum):
    """Least level of the events that are written; each level includes all that follow."""

    DEBUG = "debug"
    """Also requests and answers."""
    INFO = "info"
    WARNING = "warning"
    """A problem; the rack continues."""
    ERROR = "error"
    """A bug in the controller."""

    @property
    def weight(self) -> int:
        """Return the position of the level in ascending order."""
        return tuple(LogLevel).index(self)
