"""Each job has a log of its own: the rack's lines about it, bounded, and the oldest go first."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from etloop.controller.rack.log import RackLog
from etloop.controller.rack.log_settings import LogFormat
from etloop.controller.rack.store.job_logs import JobLogs


def test_lines_about_a_job_are_in_its_log_as_json_whatever_the_form(tmp_path: Path) -> None:
    logs = JobLogs(tmp_path)
    log = RackLog(LogFormat.TEXT, io.StringIO())
    log.job("j1", "before")
    log.keep(logs)
    log.rack("ready")
    log.job("j1", "starting", ports=["a/p0"])
    log.job("j2", "starting")
    lines = [json.loads(line) for line in logs.read("j1").splitlines()]
    assert [(line["event"], line["ports"]) for line in lines] == [("starting", ["a/p0"])]
    assert logs.read("j3") == b""


def test_a_log_is_bounded_and_says_so_once(tmp_path: Path) -> None:
    logs = JobLogs(tmp_path, most_log_bytes=1000)
    for number in range(50):
        logs.append("j1", f'{{"event": "{number:060}"}}')
    lines = logs.read("j1").decode().splitlines()
    assert len(logs.read("j1")) < 1200
    assert [line for line in lines if "this log is full" in line] == [lines[-1]]


def test_the_oldest_logs_go_beyond_a_number_or_a_size(tmp_path: Path) -> None:
    logs = JobLogs(tmp_path)
    assert logs.is_due, "what was there before may be too much"
    for number in range(10):
        logs.append(f"2026-{number}", "x" * 99)
    assert logs.trim(most_logs=8, most_bytes=1 << 20) == 2
    assert not logs.is_due
    assert logs.trim(most_logs=8, most_bytes=500) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"2026-{n}.log" for n in range(5, 10)]


def test_logs_that_cannot_be_removed_are_reported_and_remain_due(tmp_path: Path) -> None:
    logs = JobLogs(tmp_path)
    for number in range(10):
        logs.append(f"2026-{number}", "x" * 99)
    (tmp_path / "2026-1.log").unlink()
    (tmp_path / "2026-1.log").mkdir()
    with pytest.raises(IsADirectoryError):
        logs.trim(most_logs=8)
    assert not (tmp_path / "2026-0.log").exists(), "the others are removed"
    assert logs.is_due
    (tmp_path / "2026-1.log").rmdir()
    assert logs.trim(most_logs=8) == 0
    assert not logs.is_due


def test_an_unreadable_directory_of_logs_is_not_an_empty_one(tmp_path: Path) -> None:
    logs = JobLogs(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        logs.trim()
    assert logs.is_due


def test_a_log_that_cannot_be_written_ends_nothing_and_no_link_is_followed(tmp_path: Path) -> None:
    JobLogs(tmp_path / "none").append("j1", "x")
    (tmp_path / "j1.log").symlink_to(tmp_path / "elsewhere")
    JobLogs(tmp_path).append("j1", "x")
    assert not (tmp_path / "elsewhere").exists()


def test_a_log_that_cannot_be_written_is_reported_once(tmp_path: Path) -> None:
    stream = io.StringIO()
    log = RackLog(LogFormat.JSON, stream)
    log.keep(JobLogs(tmp_path / "logs"))
    log.job("j1", "starting")
    log.job("j1", "starting")
    (tmp_path / "logs").mkdir()
    log.job("j1", "starting")
    events = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    assert events.count("logs of jobs lose lines") == 1
    assert events[-1] == "logs of jobs are written again"


class FullStream(io.StringIO):
    """A log on a disk that is full at first."""

    full = True

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_lines_that_the_log_did_not_take_are_counted() -> None:
    stream = FullStream()
    log = RackLog(LogFormat.JSON, stream)
    log.rack("a")
    log.rack("b")
    stream.full = False
    log.rack("c")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first == {"event": "lines lost", "lines": 2}
    assert second["event"] == "c"
