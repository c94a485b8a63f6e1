"""The daemon's log: one line an event, as JSON or for people, on standard error. A shell: it reads the clock and writes."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

from etloop.contract.base.printable import printable
from etloop.controller.rack.config import LogFormat
from etloop.runtime.clock import wall_time_text

if TYPE_CHECKING:
    from etloop.controller.rack.store.job_logs import JobLogs

Field = str | int | float | bool | list[str]


class RackLog:
    """Writes what happens. Values are the caller's to keep free of secrets; control characters are escaped here."""

    def __init__(self, form: LogFormat, stream: TextIO | None = None) -> None:
        self._form = form
        self._stream = stream if stream is not None else sys.stderr
        self._logs: JobLogs | None = None

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
        at = wall_time_text()
        line = as_json = json.dumps({"at": at} | dict(fields))
        if self._form is not LogFormat.JSON:
            fields_text = " ".join(
                f"{key}={_plain(value)}" for key, value in fields.items() if key not in ("event", "job")
            )
            job = f"job {fields['job']}: " if "job" in fields else ""
            line = f"{at} {job}{_plain(fields['event'])} {fields_text}".rstrip()
        # A log that is on a full disk, or that nobody reads any more, must not end what it tells of.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(line + "\n")
            self._stream.flush()
        if self._logs is not None and "job" in fields:
            self._logs.append(str(fields["job"]), as_json)


def _plain(value: Field) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return printable(text)
