"""An agent of another version: both sides say which versions met, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from etloop.contract.base.errors import ExitCode
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
