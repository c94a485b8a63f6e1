"""What `etloop submit --wait` says of a job that ended: its verdict as well as where its results are."""

from __future__ import annotations

import argparse

import pytest

from etloop.cli.rack import submission
from etloop.cli.rack.submission import _result_text, carry_out_submission
from etloop.cli.result import CommandResult
from etloop.contract.base.errors import EtloopError
from etloop.controller.rack.client.client import BrokerAbsent, RackUnreachable
from etloop.controller.rack.job import JobState
from etloop.controller.rack.mqtt.messages import ResultStatus


@pytest.mark.parametrize(
    ("sentence", "summary", "line"),
    [
        (
            "a verdict with what its conditions came to",
            {
                "verdict": {
                    "result": "fail",
                    "checks": [{"result": "fail"}, {"result": "pass"}, {"result": "pass"}],
                }
            },
            "verdict: FAIL: 1 fail, 2 pass\n",
        ),
        (
            "no conditions, which is no pass",
            {"verdict": None},
            "verdict: none: the scenario has no conditions\n",
        ),
        ("no run", None, ""),
        ("a summary of another form", {"verdict": {"result": "pass", "checks": 3}}, "verdict: PASS: \n"),
    ],
)
def test_the_end_of_a_job_has_its_verdict(sentence: str, summary: object, line: str) -> None:
    result = ResultStatus(
        1, "j", JobState.FINISHED, 30, "late", "jobs/j", summary, results_url="http://r/j.tar"
    )
    assert _result_text(result) == (
        f"job j finished, exit code 30\n{line}reason: late\nresults: http://r/j.tar\n"
    ), sentence


@pytest.mark.parametrize(
    ("patience_ns", "error", "is_tried_again"),
    [
        (None, BrokerAbsent("no broker"), True),
        (None, RackUnreachable("wrong password"), False),
        (0, BrokerAbsent("no broker"), False),
        (60_000_000_000, RackUnreachable("no answer"), True),
    ],
)
async def test_a_request_waits_a_moment_for_a_broker_that_may_be_starting(
    patience_ns: int | None, error: EtloopError, is_tried_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[EtloopError] = [error]

    async def attempt(_: argparse.Namespace) -> CommandResult:
        if attempts:
            raise attempts.pop()
        return CommandResult("accepted")

    monkeypatch.setattr(submission, "_attempt", attempt)
    monkeypatch.setattr(submission, "use_named_rack", lambda _: None)
    monkeypatch.setattr(submission, "_PAUSE_S", 0)
    parsed = argparse.Namespace(key="", token_file=None, any=False, patience=patience_ns)
    if is_tried_again:
        assert (await carry_out_submission(parsed)).text == "accepted"
    else:
        with pytest.raises(type(error)):
            await carry_out_submission(parsed)
