"""The daemon's log: one line an event, as JSON or for people, on standard error. A shell: it reads the clock and writes."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from typing import TextIO

from etloop.contract.base.printable import printable
from etloop.controller.rack.config import LogFormat
from etloop.runtime.clock import wall_time_text

Field = str | int | float | bool | list[str]


class RackLog:
    """Writes what happens. Values are the caller's to keep free of secrets; control characters are escaped here."""

    def __init__(self, form: LogFormat, stream: TextIO | None = None) -> None:
        self._form = form
        self._stream = stream if stream is not None else sys.stderr

    def rack(self, event: str, **more: Field) -> None:
        """Something about the rack as a whole."""
        self._write({"event": event} | more)

    def job(self, job_id: str, event: str, **more: Field) -> None:
        """Something about one job."""
        self._write({"job": job_id, "event": event} | more)

    def _write(self, fields: Mapping[str, Field]) -> None:
        at = wall_time_text()
        if self._form is LogFormat.JSON:
            line = json.dumps({"at": at} | dict(fields))
        else:
            fields_text = " ".join(
                f"{key}={_plain(value)}" for key, value in fields.items() if key not in ("event", "job")
            )
            job = f"job {fields['job']}: " if "job" in fields else ""
            line = f"{at} {job}{_plain(fields['event'])} {fields_text}".rstrip()
        # A log that is on a full disk, or that nobody reads any more, must not end what it tells of.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(line + "\n")
            self._stream.flush()


def _plain(value: Field) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return printable(text)
