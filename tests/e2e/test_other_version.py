"""An agent of another version: both sides say which versions met, and what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from etloop.contract.base.errors import ExitCode
from etloop.contract.protocol.form_digest import messages_digest
from etloop.contract.protocol.messages import PROTOCOL_VERSION
from tests.e2e.first_light.test_first_light_ends import write_job
from tests.support.first_light.commands import PATIENCE_S, agents, free_place, run_to_end, running

SCENARIO = "workload: {trace: job}\niterations: 3\nmapping: {placement: round_robin}\n"


@pytest.mark.parametrize("other", [PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1])
def test_an_agent_of_another_version_is_refused_with_both_versions(tmp_path: Path, other: int) -> None:
    place = free_place(tmp_path)
    place.rig()
    write_job(tmp_path)
    arguments = (str(other), "run", "--controller", place.endpoint, "--name", "a")
    with (
        running(place, "tests.support.control_plane.other_agent", *arguments) as agent,
        agents(place, names="b"),
    ):
        ended = run_to_end(place, SCENARIO + "limits: {gather_timeout: 5s}\n")
        assert ended.exit_code == ExitCode.PREPARATION_FAILED
        assert (
            f"the peer speaks protocol {other}, this side {PROTOCOL_VERSION}; install the same etloop"
            in ended.err
        )
        assert agent.process.wait(PATIENCE_S) == ExitCode.PREPARATION_FAILED


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (
            "reads",
            r"agent 'a': left: cannot decode the message: Assign\.assignment\.of_another_build: ",
        ),
        (
            "opens",
            r"agent 'a': engine: AttributeError: 'Assignment' object has no attribute 'of_another_build' and so",
        ),
        ("dies", r"agent 'a': its connection is closed, and it has not returned for 3\.0 s, in ASSIGN; "),
    ],
)
def test_an_agent_of_another_build_says_what_it_could_not_do(tmp_path: Path, how: str, expected: str) -> None:
    place = free_place(tmp_path)
    place.rig()
    write_job(tmp_path)
    arguments = (how, "run", "--controller", place.endpoint, "--name", "a")
    with (
        running(place, "tests.support.control_plane.other_build", *arguments) as agent,
        agents(place, names="b"),
    ):
        ended = run_to_end(place, SCENARIO)
        assert re.search(expected, ended.err), ended.err
        assert len(ended.err) < 10_000
        assert (how == "dies") == (agent.process.poll() is not None)
    other = re.search(
        r"its etloop \S+ is of another build than the controller's \(messages (\w+), here (\w+)\)", ended.err
    )
    assert bool(other) == (how == "reads")
    if other is not None:
        assert other[1] != other[2] == messages_digest()
