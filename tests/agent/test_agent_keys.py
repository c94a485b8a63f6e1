"""Agents with and without keys, and a controller session that lets some of them in: real processes and sockets."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError, RigError
from etloop.controller.session.actions import RunProgress
from etloop.controller.session.settings import CurveServer, SessionSettings
from etloop.runtime.curve_keys import make_key_pairs, read_public_key
from tests.agent.test_agent_service import Agents, agents, said, session, settings

__all__ = ["agents", "settings"]

pytestmark = pytest.mark.e2e


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    folder = tmp_path / "keys"
    (folder / "allowed").mkdir(parents=True)
    make_key_pairs(folder, ("controller", "a", "intruder"))
    (folder / "a.key").rename(folder / "allowed" / "a.key")
    return folder


async def test_with_keys_only_known_agents_get_in(
    settings: SessionSettings, agents: Agents, keys: Path
) -> None:
    secured = replace(settings, curve=CurveServer(keys / "controller.key_secret", keys / "allowed"))
    options = ("--controller-key", str(keys / "controller.key"), "--key")
    agents.start("a", *options, str(keys / "intruder.key_secret"))
    reported: list[str] = []
    waiting = asyncio.create_task(session(secured, "a", ops=3, reported=reported))
    intruder = read_public_key(keys / "intruder.key").decode()
    await said(agents, "a", (0,), f"this agent's key {intruder} is not on its list of agents' keys")
    assert not any("joined" in line for line in reported)
    agents.start("a", *options, str(keys / "a.key_secret"))
    assert (await waiting).state == "done"
    assert any(f"its key {intruder} is not on the list of agents' keys" in line for line in reported)


async def test_an_agent_that_was_refused_joins_when_its_key_is_allowed(
    settings: SessionSettings, agents: Agents, keys: Path
) -> None:
    secured = replace(settings, curve=CurveServer(keys / "controller.key_secret", keys / "allowed"))
    agents.start(
        "intruder",
        "--controller-key",
        str(keys / "controller.key"),
        "--key",
        str(keys / "intruder.key_secret"),
    )
    waiting = asyncio.create_task(session(secured, "intruder", ops=3))
    await said(agents, "intruder", (0,), "retrying every few seconds")
    shutil.copy(keys / "intruder.key", keys / "allowed")
    assert (await waiting).state == "done"


async def test_a_key_of_one_agent_does_not_speak_for_another(
    settings: SessionSettings, agents: Agents, keys: Path
) -> None:
    secured = replace(settings, curve=CurveServer(keys / "controller.key_secret", keys / "allowed"))
    shutil.copy(keys / "intruder.key", keys / "allowed")
    options = ("--controller-key", str(keys / "controller.key"), "--key")
    agents.start("a", *options, str(keys / "intruder.key_secret"))
    reported: list[str] = []
    waiting = asyncio.create_task(session(secured, "a", ops=3, reported=reported))
    why = "its key belongs to agent 'intruder', but it uses the name 'a'; start it with --name intruder"
    await said(agents, "a", (0,), why)
    assert any(why in line for line in reported)
    agents.start("a", *options, str(keys / "a.key_secret"))
    assert (await waiting).state == "done"


async def test_a_key_that_is_revoked_in_a_run_ends_it_with_that_reason(
    settings: SessionSettings, agents: Agents, keys: Path
) -> None:
    secured = replace(settings, curve=CurveServer(keys / "controller.key_secret", keys / "allowed"))
    options = ("--controller-key", str(keys / "controller.key"), "--key", str(keys / "a.key_secret"))
    agents.start("a", *options)

    def revoke(progress: RunProgress) -> None:
        if progress.ops_done > 20:
            (keys / "allowed" / "a.key").unlink(missing_ok=True)

    outcome = await session(secured, "a", ops=100_000, on_progress=revoke)
    assert outcome.state == "aborted"
    gone = "agent 'a': left: its key is not on the controller's list of agents' keys any more, in RUN after"
    assert outcome.reason.startswith(gone)
    await said(agents, "a", (0,), "refused by the controller")
    assert "its key is not on the controller's list" in agents.log("a", 0)


async def test_a_hangup_ends_no_agent_and_has_its_keys_read_again(
    settings: SessionSettings, agents: Agents, keys: Path
) -> None:
    secured = replace(settings, curve=CurveServer(keys / "controller.key_secret", keys / "allowed"))
    own = keys / "own.key_secret"
    shutil.copy(keys / "intruder.key_secret", own)
    agent = agents.start("a", "--controller-key", str(keys / "controller.key"), "--key", str(own))
    waiting = asyncio.create_task(session(secured, "a", ops=3))
    await said(agents, "a", (0,), "retrying every few seconds")
    own.write_text("no key any more")
    agent.send_signal(signal.SIGHUP)
    await said(agents, "a", (0,), "SIGHUP: keeping the current keys")
    shutil.copy(keys / "a.key_secret", own)
    agent.send_signal(signal.SIGHUP)
    assert (await waiting).state == "done"
    assert "SIGHUP: keys reloaded" in agents.log("a", 0)


async def test_an_agent_without_keys_does_not_get_in(
    settings: SessionSettings, agents: Agents, keys: Path
) -> None:
    agents.start("a")
    secured = replace(settings, curve=CurveServer(keys / "controller.key_secret", keys / "allowed"))
    with pytest.raises(RigError, match="did not join"):
        await session(replace(secured, gather_timeout_ns=2 * NS_PER_S), "a")


KEY_MISTAKES = {
    "no such key": (CurveServer(Path("none.key_secret"), Path("allowed")), "cannot be read"),
    "a public key for the secret one": (
        CurveServer(Path("controller.key"), Path("allowed")),
        "contains no secret key",
    ),
    "an empty allow-list": (CurveServer(Path("controller.key_secret"), Path()), "contains no agent key"),
}


@pytest.mark.parametrize(("curve", "expected"), KEY_MISTAKES.values(), ids=KEY_MISTAKES.keys())
async def test_keys_that_cannot_be_used_are_told(
    settings: SessionSettings, keys: Path, curve: CurveServer, expected: str
) -> None:
    (keys / "empty").mkdir()
    folder = keys / (curve.agent_keys_dir if curve.agent_keys_dir.name else "empty")
    with pytest.raises(ConfigError, match=expected):
        await session(replace(settings, curve=CurveServer(keys / curve.secret_key_file, folder)), "a")


async def test_a_taken_port_is_told(settings: SessionSettings) -> None:
    host, _, port = settings.bind.removeprefix("tcp://").partition(":")
    with socket.create_server((host, int(port))), pytest.raises(ConfigError, match="Address already in use"):
        await session(settings, "a")


async def test_listening_beyond_loopback_has_to_be_meant(settings: SessionSettings) -> None:
    with pytest.raises(ConfigError, match="reachable from other machines") as caught:
        await session(replace(settings, bind="tcp://0.0.0.0:5555"), "a")
    assert "insecure: true" in str(caught.value)
