"""However a run ends, it ends: with its reason, with what was measured until then, and with nothing left running.

Processes are killed, stopped and interrupted, and a link goes dead under load; each test waits for the ends to come by
themselves and fails if they do not.
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.first_light import commands
from tests.support.first_light.cable import SIDES, cable_agents, cabled, for_root
from tests.support.first_light.commands import Live, Place, Row, is_free
from tests.support.first_light.trace_oracle import COLLECTIVE, Node, written

pytestmark = pytest.mark.e2e

RUN_ERROR: Final = 50
PREPARATION_FAILED: Final = 65
RANKS: Final = 8
SCENARIO: Final = """\
workload: {trace: job}
iterations: 100000
mapping: {placement: round_robin}
limits: {gather_timeout: 30s}
collectives: {algorithm: ring, protocol: simple, channels: 1}
"""
UNDER_LOAD_S: Final = 1.0


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A rig, and a job that would take many minutes."""
    place = commands.free_place(tmp_path)
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


def assert_broken(controller: Live, place: Place, reason: str, state: str = "aborted") -> Row:
    """The controller ends by itself; its summary gives the reason and its records can be read."""
    ended = controller.ended()
    assert ended.exit_code == RUN_ERROR, ended.err
    assert "Traceback" not in ended.err
    left = commands.left_by(place)
    summary = left.summary
    assert summary["state"] == state
    assert re.search(reason, summary["reason"]), summary["reason"]
    assert state in ended.out
    # The table breaks lines where it likes.
    assert "".join(summary["reason"].split()) in "".join(ended.out.split())
    rows = left.rows("ops")
    assert len(rows) == summary["ops"]["recorded"] > 0
    assert {row["agent"] for row in rows} <= set(commands.AGENTS)
    assert all(row["intended_ns"] <= row["issued_ns"] <= row["completed_ns"] for row in rows)
    assert {check["result"] for check in summary["checks"]} <= {"pass", "not_checked"}
    return summary


def assert_waits_again(agent: Live, place: Place) -> None:
    """An agent that stays has closed its engine and asks for the next controller."""
    agent.wait_until(
        lambda: agent.printed().count("waiting for a controller") >= 2, "it waited for a controller again"
    )
    agent.wait_until(lambda: all(map(is_free, addresses_of(place))), "its sockets were closed")
    assert "Traceback" not in agent.printed()


def addresses_of(place: Place) -> list[str]:
    return [f"{network}.{host}" for network in place.networks for host in range(1, RANKS // 2 + 1)]


def test_a_killed_agent_ends_the_run(place: Place) -> None:
    with commands.agents(place) as live, commands.run_going(place, SCENARIO) as controller:
        wait_for_load(controller)
        live["b"].process.kill()
        summary = assert_broken(controller, place, r"agent 'b': its connection is closed")
        assert {agent["name"]: agent["complete"] for agent in summary["agents"]} == {"a": True, "b": False}
        assert_waits_again(live["a"], place)


def test_a_killed_controller_leaves_no_traffic(place: Place) -> None:
    with commands.agents(place) as live:
        with commands.run_going(place, SCENARIO) as controller:
            wait_for_load(controller)
            controller.process.kill()
        for agent in live.values():
            assert_waits_again(agent, place)
        again = commands.run_to_end(place, SCENARIO.replace("100000", "3"), out="again")
        assert again.exit_code == 0, again.err
        assert commands.left_by(place, "again").summary["state"] == "done"


def test_agents_of_one_run_end_with_their_controller(place: Place) -> None:
    with commands.agents(place, "--once") as live:
        with commands.run_going(place, SCENARIO) as controller:
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
    with commands.agents(place, "--once") as live, commands.run_going(place, SCENARIO) as controller:
        wait_for_load(controller)
        controller.process.send_signal(number)
        summary = assert_broken(controller, place, f"^{reason} while in RUN$", "stopped")
        assert all(agent["complete"] for agent in summary["agents"]), "all that was measured is handed over"
        for agent in live.values():
            assert "Traceback" not in agent.ended().err


def test_ctrl_c_at_an_agent_ends_the_run(place: Place) -> None:
    with commands.agents(place) as live, commands.run_going(place, SCENARIO) as controller:
        wait_for_load(controller)
        live["b"].process.send_signal(signal.SIGINT)
        assert_broken(controller, place, r"agent 'b'.*left: stopped by Ctrl-C")
        assert "Traceback" not in live["b"].ended().err


def test_a_frozen_agent_ends_the_run(place: Place) -> None:
    with commands.agents(place) as live, commands.run_going(place, SCENARIO) as controller:
        wait_for_load(controller)
        live["b"].process.send_signal(signal.SIGSTOP)
        assert_broken(controller, place, r"agent 'b': has not been heard for")
        live["b"].process.send_signal(signal.SIGCONT)
        for agent in live.values():
            assert_waits_again(agent, place)


# ---- a link that goes dead under load: rank 3 sits at the far end, on the second address there

LOST_RANK: Final = 3
LOST_ADDRESS: Final = f"{SIDES[1]}.2"


@contextlib.contextmanager
def dead_link(place: Place, transport: str, limits: str) -> Iterator[Live]:
    """A run under load, whose packets to one rank are lost from now on."""
    scenario = SCENARIO.replace("gather_timeout: 30s", f"gather_timeout: 30s{limits}")
    with (
        cabled(place) as cable,
        cable_agents(place, cable),
        commands.run_going(place, f"{scenario}transport: {{{transport}}}\n") as controller,
    ):
        wait_for_load(controller)
        cable.lose(LOST_ADDRESS)
        yield controller


@for_root
def test_a_stalled_run_says_who_waits_for_whom_down_to_the_link(place: Place) -> None:
    with dead_link(place, "retries: 60", ", stall_timeout: 2s") as controller:
        summary = assert_broken(controller, place, r"^run: no progress for 2\.0 s:\n")
    steps = [line for line in summary["reason"].splitlines() if " waits for " in line]
    operation = r"all_reduce #0 of communicator world \(node 7, iteration \d+\)"
    # Both neighbours of the lost rank miss acknowledgements: of what they sent it, and of what it sent them.
    cause = (
        rf"rank 2 {operation} waits for an acknowledgement from rank 3 \(.* -> {LOST_ADDRESS}, qpn 0x\w+\)"
    )
    same = rf"rank 3 {operation} waits for an acknowledgement from rank 4 \({LOST_ADDRESS} -> .*, qpn 0x\w+\)"
    assert re.match(f"{cause}|{same}", steps[-1]), summary["reason"]
    waiting = [
        re.match(rf"rank (\d) {operation} waits for (data|clear-to-send) from rank (\d) ", step)
        for step in steps[:-1]
    ]
    links = [(int(found[1]), found[2], int(found[3])) for found in waiting if found]
    assert len(links) == len(steps) - 1, summary["reason"]
    # Of a ring, data comes from the rank before, and leave to send more from the one behind.
    towards = {"data": -1, "clear-to-send": 1}
    assert all(peer == (rank + towards[what]) % RANKS for rank, what, peer in links), summary["reason"]
    ends = [int(re.match(r"rank (\d)", step)[1]) for step in steps[1:]]  # type: ignore[index]
    assert [peer for *_, peer in links] == ends, "each waits for the next"


@for_root
def test_a_queue_pair_that_gives_up_names_its_peer(place: Place) -> None:
    gave_up = (
        rf"rank (2 -> rank 3|3 -> rank 4) \(.*{LOST_ADDRESS}.*\): no acknowledgement after the last retry"
    )
    with dead_link(place, "retries: 3", "") as controller:
        assert_broken(controller, place, gave_up)


@for_root
def test_a_link_that_was_dead_before_is_named_before_any_load(place: Place) -> None:
    with cabled(place) as cable, cable_agents(place, cable):
        cable.lose(LOST_ADDRESS)
        ended = commands.run_to_end(place, SCENARIO)
    assert ended.exit_code == PREPARATION_FAILED, ended.err
    # Data to the lost rank, and replies to it: each is told by another agent, and both are told.
    pairs = (
        f"rank 2 ({SIDES[0]}.2) -> rank 3 ({LOST_ADDRESS})",
        f"rank 3 ({LOST_ADDRESS}) -> rank 4 ({SIDES[0]}.3)",
    )
    for pair in pairs:
        assert f"{pair}: no reply to probes of 4096 payload bytes" in ended.err
    assert "Traceback" not in ended.err
    assert not (place.directory / "run").exists()
