"""The bench of profiler traces: both ways read the same, and a bar that is missed is an exit code."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.measure.jobs.kineto import events_of, kineto_times, made_events, main


def test_both_ways_find_the_same() -> None:
    measured = kineto_times(made_events(280), copies=2, turns=1)
    assert measured.is_same
    assert measured.events == 560
    assert len(measured.glanced_s) == len(measured.whole_s) == 1


def test_a_file_is_read_packed_or_plain_and_a_missed_bar_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": made_events(14)}).encode()))
    assert len(events_of(path)) == 14
    monkeypatch.setattr("tests.measure.jobs.kineto.BAR_BYTES_PER_S", 1e15)
    assert main((str(path), "--copies", "1", "--turns", "1")) == 0
    assert main((str(path), "--copies", "1", "--turns", "1", "--check")) == 30
    assert "NOT MET: " in capsys.readouterr().out
