"""The bench of profiler traces: both ways read the same, and a bar that is missed is an exit code."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.measure.jobs.kineto import KinetoTimes, events_of, made_events, main, measure, report_text


def test_both_ways_find_the_same() -> None:
    measured = measure(made_events(280), copies=2, turns=1)
    assert measured.is_same
    assert measured.events == 560
    assert len(measured.glanced_s) == len(measured.whole_s) == 1


def test_the_report_has_the_ratio_and_says_what_differs() -> None:
    text = report_text(KinetoTimes(100_000_000, 7, (0.5,), (2.0,), is_same=False))
    assert "100 MB, 7 events: 200 MB/s (bar 150), with every event read whole 50 MB/s: 4.0 times" in text
    assert "DIFFERENT things" in text


def test_a_file_is_read_packed_or_plain_and_a_missed_bar_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": made_events(14)}).encode()))
    assert len(events_of(path)) == 14
    monkeypatch.setattr("tests.measure.jobs.kineto.BAR_BYTES_PER_S", 1e15)
    assert main((str(path), "--copies", "1", "--turns", "1")) == 0
    assert main((str(path), "--copies", "1", "--turns", "1", "--check")) == 30
    assert "both ways found the same" in capsys.readouterr().out
