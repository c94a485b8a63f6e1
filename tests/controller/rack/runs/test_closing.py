"""Results made from the spool of an earlier run: a read error that passes costs nothing, one that stays ends the job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from etloop.contract.base.errors import ExitCode, Problem
from etloop.controller.rack.runs import process
from etloop.controller.rack.runs.protocol import Ended
from etloop.results.measure.summary import measure
from etloop.results.schema.typed_json import RunDirError
from tests.support.runs.records_by_hand import outcome_by_hand, tables_by_hand

WHOLE = replace(measure(outcome_by_hand(), tables_by_hand(), {}).summary, checks=(), reason="")
BEGIN: Any = SimpleNamespace(out_dir="/nowhere/run", closing="the controller stopped")


def unreadable(cause: BaseException | None) -> RunDirError:
    error = RunDirError(Problem("spool", "cannot be read: Input/output error", "is the disk whole?"))
    error.__cause__ = cause
    return error


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(process, "READ_AGAIN_S", 0.0)
    monkeypatch.setattr(process, "_remember", lambda begin, watcher: None)
    return []


def close(outcomes: list[object], lines: list[str], monkeypatch: pytest.MonkeyPatch) -> Ended:
    """Close a run whose attempts have these outcomes: a summary, or an error."""
    remaining = iter(outcomes)

    def close_run(run_dir: Path, reason: str, watcher: object) -> object:
        outcome = next(remaining)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    monkeypatch.setattr(process, "close_run", close_run)
    watcher: Any = SimpleNamespace(report=lines.append)
    return process.store_from_spool(BEGIN, watcher)


def test_a_spool_that_can_be_read_later_is_stored(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ended = close([unreadable(OSError(5, "Input/output error"))] * 3 + [WHOLE], lines, monkeypatch)
    assert (ended.exit_code, ended.stored, len(lines)) == (ExitCode.PASS, True, 3)


def test_a_spool_that_stays_unreadable_ends_the_job(
    lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[object] = [unreadable(OSError(5, "Input/output error"))] * process.READ_ATTEMPTS
    ended = close(errors, lines, monkeypatch)
    assert (ended.exit_code, ended.stored, ended.again) == (ExitCode.RUN_ERROR, False, False)
    assert "no results can be made from its spool" in ended.reason


def test_a_damaged_spool_is_read_once(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ended = close([unreadable(None)], lines, monkeypatch)
    assert (ended.stored, lines) == (False, [])
