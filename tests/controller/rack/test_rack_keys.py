"""Keys of a rack that serves: allowed and revoked meanwhile, one name each, refusals counted; and SIGHUP, which ends nothing."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from pathlib import Path

import pytest
import zmq
import zmq.asyncio

from etloop.contract.base.errors import ExitCode
from etloop.contract.protocol.messages import Hello
from etloop.contract.protocol.wire import encode
from etloop.controller.rack.job import JobState
from etloop.controller.session.log_limit import MOST_LINES
from etloop.runtime.curve_keys import make_key_pairs, read_client_keys, secure_client
from tests.controller.rack.test_rack_daemon import SCENARIO, Serving, place, serving
from tests.support.first_light.commands import Live, Place, agent

__all__ = ["place"]


@pytest.fixture
def keys(place: Place) -> Path:
    """Keys of everybody, a and b allowed, and a rig that asks for them."""
    keys = place.directory / "keys"
    (keys / "allowed").mkdir(parents=True)
    make_key_pairs(keys, ("controller", "a", "b", "c"))
    for name in "ab":
        allow(keys, name)
    curve = "security: {curve: {server_key: keys/controller.key_secret, authorised_keys: keys/allowed}}\n"
    place.write("rig.yaml", (place.directory / "rig.yaml").read_text() + curve)
    return keys


def allow(keys: Path, name: str) -> None:
    shutil.copy(keys / f"{name}.key", keys / "allowed")


def options(keys: Path, name: str) -> tuple[str, ...]:
    """What an agent is started with that has the key of `name`."""
    return ("--controller-key", str(keys / "controller.key"), "--key", str(keys / f"{name}.key_secret"))


def idle(rack: Serving, name: str) -> int:
    return next(each.idle_slots for each in rack.daemon.hub.presence(0) if each.name == name)


def events(rack: Serving) -> str:
    return "\n".join(str(entry["event"]) for entry in rack.log())


async def says(rack: Serving, one: Live, text: str) -> None:
    await rack.until(lambda: text in one.printed())


async def test_a_revoked_agent_is_out_at_once_and_back_when_it_is_allowed_again(
    place: Place, keys: Path
) -> None:
    async with serving(place) as rack:
        with agent(place, "a", *options(keys, "a")) as a, agent(place, "b", *options(keys, "b")) as b:
            await rack.until(lambda: idle(rack, "a") == idle(rack, "b") == 1)
            (keys / "allowed" / "b.key").unlink()
            await rack.until(lambda: idle(rack, "b") == 0)
            assert "agents' keys: revoked: b" in events(rack)
            await says(rack, b, "its key is not on the controller's list of agents' keys any more")
            # Its connection was shut, and the next one was refused by ZeroMQ itself.
            await says(rack, b, "etloop keys allow b --dir KEYS, with the file of that key")
            refused = rack.daemon.tallies.refused_connections
            await rack.until(lambda: refused["key_not_allowed"] > 0)
            allow(keys, "b")
            await rack.until(lambda: idle(rack, "b") == 1)
            job = await rack.reaches(rack.submit(SCENARIO, "b/p0"), JobState.FINISHED)
            assert job.exit_code is ExitCode.PASS
            assert a.printed().count("joined the controller") == 1, "nobody else noticed"


async def test_a_list_that_is_away_revokes_nobody(place: Place, keys: Path) -> None:
    async with serving(place) as rack:
        with agent(place, "a", *options(keys, "a")) as a, agent(place, "b", *options(keys, "b")):
            await rack.until(lambda: idle(rack, "a") == idle(rack, "b") == 1)
            (keys / "allowed").rename(keys / "away")
            why = "cannot be read (No such file or directory): keeping the keys that were read before"
            await rack.until(lambda: why in events(rack))
            job = await rack.reaches(rack.submit(SCENARIO, "a/p0", "b/p0"), JobState.FINISHED)
            assert job.exit_code is ExitCode.PASS
            (keys / "away" / "b.key").unlink()
            (keys / "away").rename(keys / "allowed")
            await rack.until(lambda: "agents' keys: revoked: b" in events(rack))
            assert "revoked: a" not in events(rack)
            assert "is not on the controller's list" not in a.printed()


async def test_an_agent_that_came_before_its_key_joins_when_that_is_allowed(place: Place, keys: Path) -> None:
    (keys / "allowed" / "b.key").unlink()
    async with serving(place) as rack:
        with agent(place, "b", *options(keys, "b")) as b:
            await says(rack, b, "retrying every few seconds")
            allow(keys, "b")
            await rack.until(lambda: idle(rack, "b") == 1)


async def test_a_key_does_not_speak_for_another_agent_whether_that_is_there_or_not(
    place: Place, keys: Path
) -> None:
    why = "its key belongs to agent 'b', but it uses the name 'a'; start it with --name b"
    async with serving(place) as rack:
        with agent(place, "a", *options(keys, "b")) as forger:
            await says(rack, forger, why)
            assert idle(rack, "a") == 0
            with agent(place, "a", *options(keys, "a")):
                await rack.until(lambda: idle(rack, "a") == 1)
                await says(rack, forger, why)
                job = await rack.reaches(rack.submit(SCENARIO, "a/p0"), JobState.FINISHED)
                assert job.exit_code is ExitCode.PASS
        assert why in events(rack)
        assert rack.daemon.tallies.refused_connections["key_of_another"] > 0


async def test_a_second_process_of_a_name_is_told_and_takes_over_when_the_first_has_gone(
    place: Place, keys: Path
) -> None:
    async with serving(place) as rack:
        with agent(place, "a", *options(keys, "a")):
            await rack.until(lambda: idle(rack, "a") == 1)
            with agent(place, "a", *options(keys, "a")) as second:
                await says(rack, second, "agent 'a' has already joined from")
                assert events(rack).count("refused a second agent 'a'") == 1
                job = await rack.reaches(rack.submit(SCENARIO, "a/p0"), JobState.FINISHED)
                assert job.exit_code is ExitCode.PASS
        with agent(place, "a", *options(keys, "a")) as first:
            await says(rack, first, "joined the controller")
            with agent(place, "a", *options(keys, "a")) as second:
                await says(rack, second, "agent 'a' has already joined from")
                first.process.kill()
                await says(rack, second, "joined the controller")


async def test_what_has_no_key_is_counted_and_said_a_few_times(place: Place, keys: Path) -> None:
    (keys / "allowed" / "b.key").unlink()
    port = int(place.endpoint.rpartition(":")[2])
    async with serving(place) as rack:
        await rack.until(lambda: "ready" in events(rack))
        for _ in range(50):
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.sendall(b"GET / HTTP/1.0\r\n\r\n" + bytes(200))
        with zmq.asyncio.Context() as context:
            for name in ["", "a", *["b"] * 30]:
                with context.socket(zmq.DEALER) as dealer:
                    dealer.linger = 0
                    if name:
                        # Of "a" the controller's own key is taken for another's.
                        server = "c" if name == "a" else "controller"
                        secure_client(
                            dealer, read_client_keys(keys / f"{server}.key", keys / f"{name}.key_secret")
                        )
                    failures = dealer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
                    dealer.connect(place.endpoint)
                    await failures.recv_multipart()
                    dealer.disable_monitor()
                    failures.close(linger=0)
        refused = rack.daemon.tallies.refused_connections
        await rack.until(lambda: refused["key_not_allowed"] == 30 and refused["handshake"] >= 2)
        assert events(rack).count("is not on the list of agents' keys") == MOST_LINES
        assert events(rack).count("failed in its handshake") <= MOST_LINES


async def test_a_member_that_floods_fills_no_log(place: Place, keys: Path) -> None:
    async with serving(place) as rack:
        with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.linger = 0
            secure_client(dealer, read_client_keys(keys / "controller.key", keys / "b.key_secret"))
            dealer.connect(place.endpoint)
            for number in range(5000):
                await dealer.send(encode(Hello("ab"[number % 2], "here", number, {}, process=str(number))))
            await rack.until(lambda: rack.daemon.tallies.refused_connections["key_of_another"] > 2000)
        assert idle(rack, "a") == 0
        assert len(rack.log()) < 10 * MOST_LINES


async def test_a_hangup_has_the_keys_read_again_and_ends_nothing(place: Place, keys: Path) -> None:
    async with serving(place) as rack:
        with agent(place, "a", *options(keys, "a")) as a:
            await rack.until(lambda: idle(rack, "a") == 1)
            os.kill(os.getpid(), signal.SIGHUP)
            await rack.until(lambda: "agents' keys reloaded: 2 are admitted" in events(rack))
            a.process.send_signal(signal.SIGHUP)
            await says(rack, a, "SIGHUP: keys reloaded")
            await rack.until(lambda: a.printed().count("joined the controller") == 2)
            job = await rack.reaches(rack.submit(SCENARIO, "a/p0"), JobState.FINISHED)
            assert job.exit_code is ExitCode.PASS
