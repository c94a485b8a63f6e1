"""Real agents in processes of their own, a real controller session, real sockets; only the engine is a fake."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgpack  # type: ignore[import-untyped]  # ships no types
import numpy as np
import pytest
import zmq
import zmq.asyncio
from numpy.typing import NDArray

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ExitCode, RigError
from etloop.contract.model.run import RunOutcome
from etloop.contract.protocol.machine import RunState
from etloop.contract.protocol.messages import PROTOCOL_VERSION, Refused
from etloop.contract.protocol.wire import decode_from_controller
from etloop.controller.session.actions import RunProgress
from etloop.controller.session.service import run
from etloop.controller.session.settings import SessionSettings
from tests.support.control_plane.control_plane_by_hand import ring_assignments, ring_tables
from tests.support.places import ROOT
from tests.support.ports import free_endpoint

GLANCE_S = 0.02
PROMPT = 10_000
"""Milliseconds after which a process that should end counts as hanging."""

pytestmark = pytest.mark.e2e


@pytest.fixture
def settings() -> SessionSettings:
    return SessionSettings(run_id="r1", bind=free_endpoint(), gather_timeout_ns=90 * NS_PER_S)


class Agents:
    """Agent processes of one test, killed and reaped at its end."""

    def __init__(self, folder: Path, endpoint: str) -> None:
        self._folder = folder
        self._endpoint = endpoint
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *options: str, behaviour: str = "good") -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.support.control_plane.fake_engine", behaviour, "run"]
        command += ["--controller", self._endpoint, "--name", name, *options]
        log = self.log_path(name, len(self._processes))
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                command,
                stderr=stderr,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def process(self, number: int) -> subprocess.Popen[bytes]:
        return self._processes[number]

    def log_path(self, name: str, number: int) -> Path:
        return self._folder / f"{name}.{number}.log"

    def log(self, name: str, number: int) -> str:
        return self.log_path(name, number).read_text()

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture
def agents(tmp_path: Path, settings: SessionSettings) -> Iterator[Agents]:
    started = Agents(tmp_path, settings.bind)
    yield started
    started.end()


async def ended(process: subprocess.Popen[bytes]) -> int:
    return await asyncio.to_thread(process.wait, PROMPT / 1000)


@dataclass
class Watching:
    """Hands on how far a session is, and keeps what it says."""

    progress: Callable[[RunProgress], None]
    lines: list[str]
    records: int = 0

    def report(self, line: str) -> None:
        self.lines.append(line)

    def take_records(self, records: NDArray[np.void]) -> None:
        self.records += len(records)


async def session(
    settings: SessionSettings,
    *names: str,
    ops: int = 20,
    on_progress: Callable[[RunProgress], None] = lambda _: None,
    reported: list[str] | None = None,
) -> RunOutcome:
    parts = ring_assignments(*names, ops=ops, run_id=settings.run_id)
    watcher = Watching(on_progress, [] if reported is None else reported)
    return await run(settings, parts, ring_tables(*names, ops=ops), watcher)


async def test_a_whole_run_brings_back_every_record(settings: SessionSettings, agents: Agents) -> None:
    processes = [agents.start(name, "--once") for name in ("a", "b")]
    seen: list[RunProgress] = []
    outcome = await session(settings, "a", "b", on_progress=seen.append)
    assert (outcome.state, outcome.reason) == ("done", "")
    assert [agent.agent for agent in outcome.agents] == ["a", "b"]
    for rank, agent in enumerate(outcome.agents):
        assert agent.complete
        assert agent.ops["op"].tolist() == list(range(20))
        assert set(agent.ops["rank"].tolist()) == {rank}
        assert len(agent.flows) == 2
        assert len(agent.ports) == 1
        assert agent.degraded == ("it is a fake",)
        assert agent.versions["python"]
        assert abs(agent.clock_offset_ns) <= agent.clock_error_ns  # one clock: the bound must hold
    assert seen[-1].ops_done == seen[-1].ops_total == 40
    assert [await ended(process) for process in processes] == [0, 0]


async def test_an_agent_serves_one_run_after_another(settings: SessionSettings, agents: Agents) -> None:
    agents.start("a")
    for number in range(2):
        outcome = await session(replace(settings, run_id=f"r{number}"), "a", ops=3)
        assert outcome.state == "done", outcome.reason


async def test_a_killed_agent_ends_the_run_by_name_and_the_others_records_stay(
    settings: SessionSettings, agents: Agents
) -> None:
    victim = agents.start("b")
    survivor = agents.start("a", "--once")

    def kill_midway(progress: RunProgress) -> None:
        if progress.ops_done > 20 and victim.poll() is None:
            victim.kill()

    outcome = await session(settings, "a", "b", ops=1000, on_progress=kill_midway)
    assert outcome.state == "aborted"
    assert outcome.reason.startswith(
        "agent 'b': its connection is closed, and it has not returned for 3.0 s, in RUN after "
    )
    first, second = outcome.agents
    assert len(first.ops) > 10
    assert len(first.flows) == 2
    assert first.complete  # it handed over all it had
    assert len(second.ops) > 0
    assert not second.complete
    assert await ended(survivor) == ExitCode.RUN_ERROR


async def test_an_agent_that_is_stopped_says_goodbye(settings: SessionSettings, agents: Agents) -> None:
    agents.start("a")
    leaver = agents.start("b")

    def stop_midway(progress: RunProgress) -> None:
        if progress.ops_done > 20 and progress.state is RunState.RUN:
            leaver.send_signal(signal.SIGINT)

    outcome = await session(settings, "a", "b", ops=1000, on_progress=stop_midway)
    assert outcome.reason.startswith("agent 'b': left: stopped by Ctrl-C, in RUN after ")
    assert await ended(leaver) == ExitCode.RUN_ERROR


async def test_ctrl_c_at_the_controller_collects_what_there_is(
    settings: SessionSettings, agents: Agents
) -> None:
    agents.start("a")

    def interrupt(progress: RunProgress) -> None:
        if progress.ops_done > 20 and progress.state is RunState.RUN:
            os.kill(os.getpid(), signal.SIGINT)

    outcome = await session(settings, "a", ops=1000, on_progress=interrupt)
    assert (outcome.state, outcome.reason) == ("stopped", "stopped by Ctrl-C while in RUN")
    assert len(outcome.agents[0].ops) > 20
    assert len(outcome.agents[0].flows) == 2


async def test_ctrl_c_while_waiting_for_agents_ends_at_once(settings: SessionSettings) -> None:
    def interrupt(_: RunProgress) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    outcome = await session(settings, "a", on_progress=interrupt)
    assert (outcome.reason, outcome.agents) == ("stopped by Ctrl-C while in GATHER", ())


CONTROLLER = """
import asyncio, sys
from etloop.controller.session.service import run
from etloop.controller.session.settings import SessionSettings
from numpy.typing import NDArray
from tests.support.control_plane.control_plane_by_hand import ring_assignments, ring_tables

settings = SessionSettings(run_id="r1", bind=sys.argv[1])
class Watcher:
    progress = staticmethod(lambda progress: print(progress.ops_done, flush=True))
    report = take_records = staticmethod(lambda _: None)

parts, tables = ring_assignments("a", ops=100000), ring_tables("a", ops=100000)
asyncio.run(run(settings, parts, tables, Watcher()))
"""


@pytest.mark.parametrize("once", [True, False], ids=["once", "for ever"])
async def test_an_agent_outlives_a_killed_controller_or_ends_with_it(
    settings: SessionSettings, agents: Agents, once: bool
) -> None:
    agent = agents.start("a", *(["--once"] if once else []))
    controller = subprocess.Popen(  # noqa: ASYNC220 - only its start blocks
        [sys.executable, "-c", CONTROLLER, settings.bind],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert controller.stdout is not None
    with controller.stdout as progress:
        await asyncio.to_thread(next, (line for line in progress if int(line) > 20))
        controller.kill()
        controller.wait()
    if once:
        assert await ended(agent) == ExitCode.RUN_ERROR
        assert "the controller has been silent for 3.0 s" in agents.log("a", 0)
    else:
        outcome = await session(settings, "a", ops=3)
        assert outcome.state == "done", outcome.reason


STALL = """\
rank 2 all_reduce #5 of communicator world (node 105) waits for data from rank 1 (127.0.0.3 -> 127.0.0.2, qpn 0x101) \
(1 of 4 messages done)
rank 1 all_reduce #5 of communicator world (node 105) waits for data from rank 0 (127.0.0.2 -> 127.0.0.1, qpn 0x100) \
(1 of 4 messages done)
rank 0 all_reduce #5 of communicator world (node 105) waits for an acknowledgement from rank 1 \
(127.0.0.1 -> 127.0.0.2, qpn 0x200): packet 17 was never acknowledged; check the last link or rank in this list"""


async def test_a_stall_is_told_down_to_the_link(settings: SessionSettings, agents: Agents) -> None:
    for name in ("a", "b", "c"):
        agents.start(name, behaviour="stall")
    outcome = await session(replace(settings, stall_timeout_ns=NS_PER_S), "a", "b", "c", ops=10)
    assert outcome.state == "aborted"
    assert outcome.reason.partition("\n")[2] == STALL
    assert [len(agent.ops) for agent in outcome.agents] == [5, 5, 5]


async def test_a_failed_engine_ends_the_run_with_its_words(settings: SessionSettings, agents: Agents) -> None:
    agents.start("a", behaviour="fail")
    agents.start("b")
    outcome = await session(settings, "a", "b")
    assert outcome.reason.startswith(
        "agent 'a': queue pair 0x100 of rank 0 -> rank 1: no acknowledgement after 7 retries"
    )
    assert [len(agent.flows) for agent in outcome.agents] == [2, 2]


NOT_REACHED = """\
rank 0 (127.0.0.1) -> rank 1 (127.0.0.2): no reply to 5 probes of 4096 bytes; \
check link, addresses, path MTU and traffic class between the two ports"""

PREPARATION = {
    "an engine that cannot open tells every reason": (
        "no-open",
        [
            "agent 'a': address 10.0.0.9: is not on this host; correct the rig file",
            "agent 'a': port 4791: is taken; stop the other agent",
        ],
    ),
    "a failed probe names ranks and addresses": (
        "no-probe",
        [NOT_REACHED],
    ),
}


@pytest.mark.parametrize(("behaviour", "expected"), PREPARATION.values(), ids=PREPARATION.keys())
async def test_what_is_not_ready_is_told_before_any_load(
    settings: SessionSettings, agents: Agents, behaviour: str, expected: list[str]
) -> None:
    agents.start("a", behaviour=behaviour)
    agents.start("b")
    with pytest.raises(RigError) as caught:
        await session(settings, "a", "b")
    assert [str(problem) for problem in caught.value.problems] == expected
    assert caught.value.exit_code == ExitCode.PREPARATION_FAILED


async def test_a_crash_in_the_native_code_is_no_hang(settings: SessionSettings, agents: Agents) -> None:
    agents.start("a", behaviour="crash")
    outcome = await session(settings, "a")
    assert outcome.reason.startswith("agent 'a': engine error: bad_alloc")


async def test_agents_that_never_come_are_named(settings: SessionSettings) -> None:
    reported: list[str] = []
    with pytest.raises(RigError) as caught:
        await session(replace(settings, gather_timeout_ns=NS_PER_S), "b", reported=reported)
    assert str(caught.value) == (
        f"agent 'b': did not join at {settings.bind} within 1.0 s; "
        f"start it on its host: etloop-agent run --controller {settings.bind} --name b"
    )
    assert reported[0] == f"waiting at {settings.bind} for agent 'b'"


async def test_a_stranger_and_a_namesake_are_refused(settings: SessionSettings, agents: Agents) -> None:
    stranger = agents.start("x", "--once")
    agents.start("a")
    agents.start("a")
    waiting = asyncio.create_task(session(settings, "a", "b", ops=3))
    assert await ended(stranger) == ExitCode.PREPARATION_FAILED
    assert "agent 'x' is not in the rig, which has a, b" in agents.log("x", 0)
    logs = await said(agents, "a", (1, 2), "refused by the controller")
    assert re.search(
        r"agent 'a' has already joined from .* \(process \d+\); give every agent of the rig its own name, "
        r"or stop the other one; retrying every few seconds",
        logs,
    )
    agents.start("b")
    assert (await waiting).state == "done"


async def test_a_namesake_that_runs_once_ends_when_it_is_refused(
    settings: SessionSettings, agents: Agents
) -> None:
    agents.start("a")
    waiting = asyncio.create_task(session(settings, "a", "b", ops=3))
    await said(agents, "a", (0,), "joined the controller")
    assert await ended(agents.start("a", "--once")) == ExitCode.PREPARATION_FAILED
    assert "refused: agent 'a' has already joined from" in agents.log("a", 1)
    agents.start("b")
    assert (await waiting).state == "done"


async def said(agents: Agents, name: str, numbers: tuple[int, ...], text: str) -> str:
    """Waits until one of the agents has said `text`; what all of them said."""
    logs = ""
    for _ in range(round(PROMPT / 1000 / GLANCE_S)):
        logs = "".join(agents.log(name, number) for number in numbers)
        if text in logs:
            return logs
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(agents.process(numbers[0]).wait, GLANCE_S)
    raise AssertionError(f"waited in vain for {text!r}: {logs}")


async def test_another_version_is_refused_with_both_numbers(
    settings: SessionSettings, agents: Agents
) -> None:
    reported: list[str] = []
    waiting = asyncio.create_task(session(settings, "a", ops=3, reported=reported))
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.connect(settings.bind)
        await dealer.send(msgpack.packb([PROTOCOL_VERSION + 1, "Hello", {"new": 1}]))
        answer = decode_from_controller(await dealer.recv())
    expected = (
        f"the peer speaks protocol {PROTOCOL_VERSION + 1}, this side {PROTOCOL_VERSION}; "
        "install the same etloop on the controller and on every agent"
    )
    assert answer == Refused(expected)
    assert f"refused a connection: {expected}" in reported
    agents.start("a")
    assert (await waiting).state == "done"


async def test_an_agent_refuses_a_controller_of_another_version(
    settings: SessionSettings, agents: Agents
) -> None:
    agent = agents.start("a")
    with zmq.asyncio.Context() as context, context.socket(zmq.ROUTER) as router:
        router.linger = 0
        router.bind(settings.bind)
        identity, _ = await router.recv_multipart()
        await router.send_multipart([identity, msgpack.packb([PROTOCOL_VERSION + 3, "Welcome", {}])])
        assert await ended(agent) == ExitCode.PREPARATION_FAILED
    said = f"the peer speaks protocol {PROTOCOL_VERSION + 3}, this side {PROTOCOL_VERSION}; install the same etloop"
    assert said in agents.log("a", 0)
