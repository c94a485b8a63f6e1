"""What `etloop submit --wait` says of a job that ended: its verdict as well as where its results are."""

from __future__ import annotations

import pytest

from etloop.cli.rack.submission import _result_text
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
