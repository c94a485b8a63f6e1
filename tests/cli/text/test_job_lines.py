"""Jobs of a rack as lines, word for word."""

from __future__ import annotations

from typing import Final

from etloop.cli.text.job import job_line, job_table
from etloop.controller.rack.job import JobState
from etloop.controller.rack.job_words import duration_words, port_words
from etloop.controller.rack.mqtt.messages import JobStatus

PORTS: Final = ("a/p0", "b/p0", "c/p0")
TIMES: Final = ("2026-01-01T00:00:00+00:00", "2026-01-01T00:00:01+00:00", "2026-01-01T00:01:31.5+00:00")
ENDED: Final = JobStatus(
    *(1, "j1", 1, JobState.FINISHED, 0, *TIMES, PORTS, 30, "x = 1\nsecond line", "", "", "", {}),
    results_url="http://rack/j1.tar",
    scenario="step.yaml",
)
WAITS: Final = JobStatus(1, "j20", 2, JobState.QUEUED, 0, TIMES[0], "", "", (), None, "\x1b", "", "", "", {})


def test_list_has_scenario_ports_and_duration() -> None:
    assert job_table([WAITS, ENDED]) == (
        "job  state     code  scenario   ports               duration  submitted                  reason\n"
        "j20  queued          -          -                   -         2026-01-01T00:00:00+00:00  \\x1b\n"
        "j1   finished    30  step.yaml  3: a/p0, b/p0, ...  90.5 s    2026-01-01T00:00:00+00:00  x = 1"
        "  http://rack/j1.tar\n"
    )


def test_single_job_has_the_same_in_one_line() -> None:
    assert job_line(ENDED) == (
        "j1  finished     30  step.yaml  3: a/p0, b/p0, ...  90.5 s  2026-01-01T00:00:00+00:00  x = 1"
        "  http://rack/j1.tar\n"
    )


def test_unknown_times_and_ports_have_no_words() -> None:
    assert port_words(()) == ""
    assert port_words(PORTS[:2]) == "2: a/p0, b/p0"
    assert (
        duration_words(TIMES[0], "") == duration_words("x", TIMES[0]) == duration_words(*TIMES[:0:-1]) == ""
    )
