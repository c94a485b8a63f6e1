"""How the log of a rack is written, and what of it. Loads nothing, so that a command line can name it."""

from __future__ import annotations

from enum import StrEnum


class LogFormat(StrEnum):
    """How the daemon's log is written to standard error."""

    JSON = "json"
    TEXT = "text"


class LogLevel(StrEnum):
    """From which weight on an event is written; each of them has all that follow."""

    DEBUG = "debug"
    """What was asked for and answered, too."""
    INFO = "info"
    WARNING = "warning"
    """Something is not as it should be; the rack goes on."""
    ERROR = "error"
    """A mistake of the controller's own."""

    @property
    def weight(self) -> int:
        """Orders the levels."""
        return tuple(LogLevel).index(self)
