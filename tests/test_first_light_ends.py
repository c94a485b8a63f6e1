"""However a run ends, it ends: with its reason, with what was measured until then, and with nothing left running.

Processes are killed, stopped and interrupted, and a link goes dead under load; each test waits for the ends to come by
themselves and fails if they do not.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests import first_light
from tests.first_light import Live, Place, Row, is_free
from tests.first_light_trace import COLLECTIVE, Node, written

pytestmark = pytest.mark.e2e

RUN_ERROR: Final = 50
RANKS: Final = 8
SCENARIO: Final = """\
workload: {trace: job}
iterations: 100000
mapping: {placement: round_robin}
limits: {gather_timeout: 30s}
"""
UNDER_LOAD_S: Final = 1.0


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A rig, and a job that would take many minutes."""
    place = first_light.free_place(tmp_path)
    place.rig()
    write_job(tmp_path)
    return place


def write_job(directory: Path) -> None:
    """An all-reduce of 64 KiB over all ranks."""
    (directory / "job").mkdir()
    node = Node(7, COLLECTIVE, (), 0, {"comm_type": 0, "comm_size": 1 << 16})
    for rank in range(RANKS):
        (directory / "job" / f"w.{rank}.et").write_bytes(written([node]))


def wait_for_load(controller: Live) -> None:
    """Returns in the midst of the run."""
    controller.wait_for(": RUN")
    with contextlib.suppress(subprocess.TimeoutExpired):
        controller.process.wait(UNDER_LOAD_S)


def assert_broken(controller: Live, place: Place, reason: str) -> Row:
    """The controller ends by itself; its summary gives the reason and its records can be read."""
    ended = controller.ended()
    assert ended.exit_code == RUN_ERROR, ended.err
    assert "Traceback" not in ended.err
    left = first_light.left_by(place)
    summary = left.summary
    assert summary["state"] == "aborted"
    assert re.search(reason, summary["reason"]), summary["reason"]
    # The table breaks lines where it likes.
    assert "aborted" in ended.out
    rows = left.rows("ops")
    assert len(rows) == summary["ops"]["recorded"] > 0
    assert {row["agent"] for row in rows} <= set(first_light.AGENTS)
    assert all(row["intended_ns"] <= row["issued_ns"] <= row["completed_ns"] for row in rows)
    assert {check["result"] for check in summary["checks"]} <= {"pass", "not_judged"}
    return summary


def assert_waits_again(agent: Live, place: Place) -> None:
    """An agent that stays has closed its engine and asks for the next controller."""
    agent.wait_until(
        lambda: agent.said().count("waiting for a controller") >= 2, "it waited for a controller again"
    )
    agent.wait_until(lambda: all(map(is_free, addresses_of(place))), "its sockets were closed")
    assert "Traceback" not in agent.said()


def addresses_of(place: Place) -> list[str]:
    return [f"{network}.{host}" for network in place.networks for host in range(1, RANKS // 2 + 1)]


def test_a_killed_agent_ends_the_run(place: Place) -> None:
    with first_light.agents(place) as live, first_light.run_going(place, SCENARIO) as controller:
        wait_for_load(controller)
        live["b"].process.kill()
        summary = assert_broken(controller, place, r"agent 'b'.*no heartbeat for 3")
        assert {agent["name"]: agent["complete"] for agent in summary["agents"]} == {"a": True, "b": False}
        assert_waits_again(live["a"], place)


def test_a_killed_controller_leaves_no_traffic(place: Place) -> None:
    with first_light.agents(place) as live:
        with first_light.run_going(place, SCENARIO) as controller:
            wait_for_load(controller)
            controller.process.kill()
        for agent in live.values():
            assert_waits_again(agent, place)
        again = first_light.run_to_end(place, SCENARIO.replace("100000", "3"), out="again")
        assert again.exit_code == 0, again.err
        assert first_light.left_by(place, "again").summary["state"] == "done"


def test_agents_of_one_run_end_with_their_controller(place: Place) -> None:
    with first_light.agents(place, "--once") as live:
        with first_light.run_going(place, SCENARIO) as controller:
            wait_for_load(controller)
            controller.process.kill()
        for agent in live.values():
            ended = agent.ended()
            assert ended.exit_code == RUN_ERROR
            assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("number", "reason"), [(signal.SIGINT, "stopped by Ctrl-C"), (signal.SIGTERM, "stopped by SIGTERM")]
)
def test_a_user_ends_the_run(place: Place, number: signal.Signals, reason: str) -> None:
    with first_light.agents(place, "--once") as live, first_light.run_going(place, SCENARIO) as controller:
        wait_for_load(controller)
        controller.process.send_signal(number)
        summary = assert_broken(controller, place, f"^{reason} while in RUN$")
        assert all(agent["complete"] for agent in summary["agents"]), "all that was measured is handed over"
        for agent in live.values():
            assert "Traceback" not in agent.ended().err


def test_ctrl_c_at_an_agent_ends_the_run(place: Place) -> None:
    with first_light.agents(place) as live, first_light.run_going(place, SCENARIO) as controller:
        wait_for_load(controller)
        live["b"].process.send_signal(signal.SIGINT)
        assert_broken(controller, place, r"agent 'b'.*left: stopped by Ctrl-C")
        assert "Traceback" not in live["b"].ended().err


def test_a_frozen_agent_ends_the_run(place: Place) -> None:
    with first_light.agents(place) as live, first_light.run_going(place, SCENARIO) as controller:
        wait_for_load(controller)
        live["b"].process.send_signal(signal.SIGSTOP)
        assert_broken(controller, place, r"agent 'b'.*no heartbeat for 3")
        live["b"].process.send_signal(signal.SIGCONT)
        for agent in live.values():
            assert_waits_again(agent, place)
