"""The daemon's log: one line an event, as JSON or for people, on standard error. A shell: it reads the clock and writes.

How much an event weighs stands in one table here. What is below the level of the log is not written there; a job's own log
has every line that is about it.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TextIO

from etloop.contract.base.printable import printable
from etloop.controller.rack.log_settings import LogFormat, LogLevel
from etloop.runtime.clock import wall_time_text

if TYPE_CHECKING:
    from etloop.controller.rack.store.job_logs import JobLogs

_WEIGHTS: Final = {
    "request": LogLevel.DEBUG,
    "http request": LogLevel.DEBUG,
    "a download broke off": LogLevel.WARNING,
    "a port is out of service": LogLevel.WARNING,
    "a trace was refused": LogLevel.WARNING,
    "broker lost": LogLevel.WARNING,
    "http request refused": LogLevel.WARNING,
    "http tokens cannot be used": LogLevel.WARNING,
    "http trouble": LogLevel.WARNING,
    "interrupted": LogLevel.WARNING,
    "its end could not be noted": LogLevel.WARNING,
    "killed what a controller before this one left": LogLevel.WARNING,
    "lines left out": LogLevel.WARNING,
    "no job starts": LogLevel.WARNING,
    "put back": LogLevel.WARNING,
    "rig refused, the one before stays": LogLevel.WARNING,
    "this is not in the audit trail": LogLevel.WARNING,
    "a gateway failed": LogLevel.ERROR,
    "loop trouble": LogLevel.ERROR,
}
"""Event -> its level; all others are `INFO`."""
Field = str | int | float | bool | list[str]


class RackLog:
    """Writes what happens. Values are the caller's to keep free of secrets; control characters are escaped here."""

    def __init__(
        self, form: LogFormat, stream: TextIO | None = None, level: LogLevel = LogLevel.INFO
    ) -> None:
        self._form = form
        self._started_level = self._level = level
        self._stream = stream if stream is not None else sys.stderr
        self._logs: JobLogs | None = None

    def write_all(self) -> None:
        """Write every event from now on."""
        self._level = LogLevel.DEBUG
        self.rack("log level", is_now=self._level.value)

    def write_as_started(self) -> None:
        """Write the events of the level that was asked for at the start from now on."""
        self.rack("log level", is_now=self._started_level.value)
        self._level = self._started_level

    @property
    def writes_all(self) -> bool:
        """Whether what is asked for and answered is to be said."""
        return self._level is LogLevel.DEBUG

    def keep(self, logs: JobLogs) -> None:
        """Also write what is about a job into its own log from now on, as JSON whatever the form."""
        self._logs = logs

    @property
    def has_many_job_logs(self) -> bool:
        """Whether so many logs of jobs were begun that the oldest may have to go."""
        return self._logs is not None and self._logs.is_due

    def trim_job_logs(self) -> None:
        """Remove the logs of the oldest jobs; takes a while, and may be asked from any thread."""
        if self._logs is not None:
            self._logs.trim()

    def rack(self, event: str, **more: Field) -> None:
        """Something about the rack as a whole."""
        self._write({"event": event} | more)

    def job(self, job_id: str, event: str, **more: Field) -> None:
        """Something about one job."""
        self._write({"job": job_id, "event": event} | more)

    def _write(self, fields: Mapping[str, Field]) -> None:
        level = _WEIGHTS.get(str(fields["event"]), LogLevel.INFO)
        at = wall_time_text()
        as_json = json.dumps({"at": at, "level": level.value} | dict(fields))
        if level.weight >= self._level.weight:
            self._put(as_json if self._form is LogFormat.JSON else _for_people(at, level, fields))
        if self._logs is not None and "job" in fields:
            self._logs.append(str(fields["job"]), as_json)

    def _put(self, line: str) -> None:
        # A log that is on a full disk, or that nobody reads any more, must not end what it tells of.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(line + "\n")
            self._stream.flush()


def _for_people(at: str, level: LogLevel, fields: Mapping[str, Field]) -> str:
    rest = " ".join(f"{key}={_plain(value)}" for key, value in fields.items() if key not in ("event", "job"))
    job = f"job {fields['job']}: " if "job" in fields else ""
    weight = "" if level is LogLevel.INFO else f"{level}: "
    return f"{at} {weight}{job}{_plain(fields['event'])} {rest}".rstrip()


def _plain(value: Field) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return printable(text)
