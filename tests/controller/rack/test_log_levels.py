"""How much the rack's log says: from a level on, changed by a signal while it runs; a job's own log has everything of it."""

from __future__ import annotations

import io
import json
import os
import re
import signal
from pathlib import Path

import pytest

from etloop.controller.rack.log import _WEIGHTS, RackLog
from etloop.controller.rack.log_settings import LogFormat, LogLevel
from etloop.controller.rack.store.job_logs import JobLogs
from etloop.runtime.stop_signals import level_calls
from tests.support.places import ROOT


def events(stream: io.StringIO) -> list[tuple[str, str]]:
    """Level and event of every line."""
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [(line["level"], line["event"]) for line in lines]


def said(log: RackLog) -> None:
    """One event of each level."""
    log.rack("request")
    log.rack("ready")
    log.rack("broker lost")
    log.rack("loop trouble")


@pytest.mark.parametrize("level", LogLevel)
def test_a_log_has_its_level_and_all_above_it(level: LogLevel) -> None:
    stream = io.StringIO()
    said(RackLog(LogFormat.JSON, stream, level))
    whole = [("debug", "request"), ("info", "ready"), ("warning", "broker lost"), ("error", "loop trouble")]
    assert events(stream) == whole[level.weight :]


def test_people_see_what_is_more_or_less_than_information() -> None:
    stream = io.StringIO()
    said(RackLog(LogFormat.TEXT, stream, LogLevel.INFO))
    assert [line.partition(" ")[2] for line in stream.getvalue().splitlines()] == [
        "ready",
        "warning: broker lost",
        "error: loop trouble",
    ]


def test_a_signal_has_it_say_all_and_another_what_it_was_started_for() -> None:
    stream = io.StringIO()
    log = RackLog(LogFormat.JSON, stream, LogLevel.WARNING)
    with level_calls(log.write_all, log.write_as_started):
        os.kill(os.getpid(), signal.SIGUSR1)
        assert log.writes_all
        log.rack("request")
        os.kill(os.getpid(), signal.SIGUSR2)
        assert not log.writes_all
        log.rack("request")
        log.rack("ready")
    assert [event for _, event in events(stream)] == ["log level", "request", "log level"]


def test_the_log_of_a_job_has_every_line_about_it(tmp_path: Path) -> None:
    log, logs = RackLog(LogFormat.JSON, io.StringIO(), LogLevel.ERROR), JobLogs(tmp_path)
    log.keep(logs)
    log.job("j1", "starting")
    assert json.loads(logs.read("j1"))["event"] == "starting"


def test_every_event_that_has_a_weight_is_one_that_is_written() -> None:
    source = "".join(path.read_text() for path in (ROOT / "controller" / "rack").rglob("*.py"))
    written = set(re.findall(r'log\.(?:rack|job)\(\s*(?:[^"()]*, )?"([^"]+)"', source))
    assert set(_WEIGHTS) <= written
