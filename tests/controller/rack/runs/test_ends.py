"""What is stored of a run whose process could not report its end is what its job ends with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etloop.contract.base.errors import ExitCode
from etloop.controller.rack.runs.ends import end_on_disk
from etloop.controller.rack.runs.protocol import Ended
from etloop.results.measure.summary import measure
from etloop.results.schema.typed_json import to_json
from tests.support.runs.records_by_hand import outcome_by_hand, tables_by_hand

UNREPORTED = Ended(ExitCode.RUN_ERROR, "its process was killed by SIGKILL", stored=False, summary="")
WHOLE = replace(measure(outcome_by_hand(), tables_by_hand(), {}).summary, checks=(), reason="")
SUMMARY = to_json(WHOLE)


def test_a_stored_and_judged_run_ends_as_its_summary_says() -> None:
    end = end_on_disk(UNREPORTED, SUMMARY, is_judged=True)
    assert (end.exit_code, end.reason, end.stored) == (ExitCode.PASS, "", True)


def test_a_stored_run_that_was_not_judged_does_not_pass() -> None:
    end = end_on_disk(UNREPORTED, SUMMARY, is_judged=False)
    assert (end.exit_code, end.stored) == (ExitCode.RUN_ERROR, True)
    assert end.reason == "its process was killed by SIGKILL; its results are stored, without a verdict"


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "etloop-summary/1"}'])
def test_a_damaged_summary_is_no_end(text: str) -> None:
    assert end_on_disk(UNREPORTED, text, is_judged=True) == UNREPORTED
