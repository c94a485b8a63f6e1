"""When the agents themselves were the limit."""

from __future__ import annotations

from typing import Any

import pytest

from etloop.results.diagnosis.rules.emulator_late import look
from tests.results.diagnosis.given import evidence

LATE_OPS = {"rank": [0, 1, 2], "slip_ns": [10, 9_000, 20]}
NEEDLESS = {"needless_share": 0.02}


@pytest.mark.parametrize(
    ("given", "place", "fact"),
    [
        pytest.param(
            evidence(figures={"slip_share": 0.2}, ops=LATE_OPS), "b/p0", ("slip_share", 0.2), id="late"
        ),
        pytest.param(
            evidence(
                host_counters={
                    "loop_turns": {"a/p0": 100.0, "c/p0": 1000.0},
                    "idle_turns": {"a/p0": 40.0, "c/p0": 1.0},
                }
            ),
            "c/p0",
            ("busy_share", pytest.approx(0.999)),
            id="busy",
        ),
        pytest.param(
            evidence(host_counters={"receive_overflows": {"d/p0": 7.0}}),
            "d/p0",
            ("receive_overflows", 7.0),
            id="overflow",
        ),
        pytest.param(evidence(overload_frames=3), "soft switch", ("overload_frames", 3), id="soft switch"),
        pytest.param(evidence(figures=NEEDLESS), "job", ("needless_share", 0.02), id="timer"),
    ],
)
def test_limit_of_the_emulator_is_named(given: Any, place: Any, fact: Any) -> None:
    (finding,) = look(given).findings
    assert finding.places[0].name == place
    assert (finding.evidence[0].name, finding.evidence[0].value) == fact


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(evidence(figures={"slip_share": 0.2}, ops=LATE_OPS, is_virtual=True), id="virtual time"),
        pytest.param(evidence(figures={"slip_share": 0.01, "busy_share": 0.5}), id="below the limits"),
        pytest.param(evidence(figures={**NEEDLESS, "lost_packets": 2.0}), id="lost packets"),
        pytest.param(
            evidence(figures=NEEDLESS, queue_counters={"queue_paused_ns": {"leaf0/1": 900_000.0}}),
            id="paused port",
        ),
        pytest.param(evidence(figures=NEEDLESS, transport={"naks_rx": 4}), id="asked for by NAKs"),
    ],
)
def test_emulator_is_not_blamed(given: Any) -> None:
    assert not look(given).findings
