"""The daemon's log: one line per event, as JSON or as text, on standard error. A shell: it reads the clock and writes.

One table here gives each event its level. Events below the log's level are left out; a job's own log has every line
about that job.
"""

from __future__ import annotations

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
    "a download failed": LogLevel.WARNING,
    "a port is out of service": LogLevel.WARNING,
    "a trace was refused": LogLevel.WARNING,
    "broker lost": LogLevel.WARNING,
    "http request refused": LogLevel.WARNING,
    "http tokens cannot be used": LogLevel.WARNING,
    "http trouble": LogLevel.WARNING,
    "interrupted": LogLevel.WARNING,
    "its end could not be recorded": LogLevel.WARNING,
    "killed a process of an earlier controller": LogLevel.WARNING,
    "its temporary files stay": LogLevel.WARNING,
    "lines left out": LogLevel.WARNING,
    "stale locks stay": LogLevel.WARNING,
    "no job starts": LogLevel.WARNING,
    "put back": LogLevel.WARNING,
    "rig refused, the old one stays in use": LogLevel.WARNING,
    "this is not in the audit trail": LogLevel.WARNING,
    "a gateway failed": LogLevel.ERROR,
    "loop trouble": LogLevel.ERROR,
}
"""Event -> its level; any other event has level `INFO`."""
Field = str | int | float | bool | list[str]


class RackLog:
    """Writes events. Callers keep secrets out of the values; control characters are escaped here."""

    def __init__(
        self, form: LogFormat, stream: TextIO | None = None, level: LogLevel = LogLevel.INFO
    ) -> None:
        self._form = form
        self._started_level = self._level = level
        self._stream = stream if stream is not None else sys.stderr
        self._logs: JobLogs | None = None
        self._log_fault = ""
        """Why the last line of a job's log could not be written."""
        self._lost_lines = 0
        """Lines that the stream did not take since the last one that it took."""

    def write_all(self) -> None:
        """Log every event from now on."""
        self._level = LogLevel.DEBUG
        self.rack("log level", is_now=self._level.value)

    def write_as_started(self) -> None:
        """Return to the level of the start."""
        self.rack("log level", is_now=self._started_level.value)
        self._level = self._started_level

    @property
    def writes_all(self) -> bool:
        """Return whether requests and answers are logged too."""
        return self._level is LogLevel.DEBUG

    def keep(self, logs: JobLogs) -> None:
        """Write events about a job to its own log from now on, too, always as JSON."""
        self._logs = logs

    @property
    def has_many_job_logs(self) -> bool:
        """Return whether enough job logs were begun that the oldest may have to be removed."""
        return self._logs is not None and self._logs.is_due

    def trim_job_logs(self) -> None:
        """Remove the logs of the oldest jobs; takes a while, and is callable from any thread. Raises `OSError`."""
        if self._logs is not None:
            self._logs.trim()

    def rack(self, event: str, **more: Field) -> None:
        """Log an event about the rack as a whole."""
        self._write({"event": event} | more)

    def job(self, job_id: str, event: str, **more: Field) -> None:
        """Log an event about one job."""
        self._write({"job": job_id, "event": event} | more)

    def _write(self, fields: Mapping[str, Field]) -> None:
        level = _WEIGHTS.get(str(fields["event"]), LogLevel.INFO)
        time_text = wall_time_text()
        as_json = json.dumps({"at": time_text, "level": level.value} | dict(fields))
        if level.weight >= self._level.weight:
            self._put(as_json if self._form is LogFormat.JSON else _for_people(time_text, level, fields))
        if self._logs is not None and "job" in fields:
            fault = self._logs.append(str(fields["job"]), as_json)
            if fault != self._log_fault:
                self._log_fault = fault
                if fault:
                    self.rack("logs of jobs lose lines", why=fault)
                else:
                    self.rack("logs of jobs are written again")

    def _put(self, line: str) -> None:
        # A log on a full disk, or a closed pipe, must not break the rack.
        lost = (
            json.dumps({"event": "lines lost", "lines": self._lost_lines}) + "\n" if self._lost_lines else ""
        )
        try:
            self._stream.write(f"{lost}{line}\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._lost_lines += 1
        else:
            self._lost_lines = 0


def _for_people(at: str, level: LogLevel, fields: Mapping[str, Field]) -> str:
    field_text = " ".join(
        f"{key}={_plain(value)}" for key, value in fields.items() if key not in ("event", "job")
    )
    job_text = f"job {fields['job']}: " if "job" in fields else ""
    level_text = "" if level is LogLevel.INFO else f"{level}: "
    return f"{at} {level_text}{job_text}{_plain(fields['event'])} {field_text}".rstrip()


def _plain(value: Field) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return printable(text)
