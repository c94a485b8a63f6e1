"""Real agents in processes of their own, a real controller session, real sockets; only the engine is a fake."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import zmq
import zmq.asyncio

from tests.control_plane_by_hand import ring_assignments, ring_tables
from contract.clock import NS_PER_MS, NS_PER_S
from contract.codec import encode
from contract.errors import ConfigError, RigError
from contract.messages import Hello
from contract.run import RunOutcome
from controller.service import run
from controller.session import RunProgress
from controller.session_settings import CurveServer, SessionSettings

ROOT = Path(__file__).parent.parent
PROMPT = 10_000
"""Milliseconds after which a process that should end counts as hanging."""

pytestmark = pytest.mark.e2e


def free_endpoint() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
def settings() -> SessionSettings:
    return SessionSettings(
        run_id="r1", bind=free_endpoint(), gather_timeout_ns=30 * NS_PER_S, stall_timeout_ns=1 * NS_PER_S
    )


class Agents:
    """Agent processes of one test, killed and reaped at its end."""

    def __init__(self, folder: Path, endpoint: str) -> None:
        self._folder = folder
        self._endpoint = endpoint
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *options: str, behaviour: str = "good") -> subprocess.Popen[bytes]:
        command = [sys.executable, str(ROOT / "tests" / "fake_engine.py"), behaviour, "run"]
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


async def session(
    settings: SessionSettings,
    *names: str,
    ops: int = 20,
    on_progress: Callable[[RunProgress], None] | None = None,
    told: list[str] | None = None,
) -> RunOutcome:
    on_event = (lambda text: told.append(text)) if told is not None else None
    parts = ring_assignments(*names, ops=ops, run_id=settings.run_id)
    return await run(settings, parts, ring_tables(*names, ops=ops), on_progress, on_event)


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
