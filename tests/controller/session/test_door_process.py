"""The process of a door over real sockets: what it relays, what it ends, and that it ends with its controller."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import zmq
import zmq.asyncio

from etloop.contract.base.errors import ConfigError
from etloop.controller.session.admission import Notice
from etloop.controller.session.door import door
from etloop.controller.session.door.door import Door, listening_at
from etloop.controller.session.router import RouterLink, open_router
from tests.support.ports import free_endpoint

PATIENCE_S: Final = 30.0


async def received(link: RouterLink) -> tuple[bytes, bytes]:
    async with asyncio.timeout(PATIENCE_S):
        while (found := await link.receive()) is None:
            await link.wait(100)
        return found


@contextlib.asynccontextmanager
async def peers(endpoint: str, count: int) -> AsyncIterator[list[zmq.asyncio.Socket]]:
    with zmq.asyncio.Context() as context, contextlib.ExitStack() as stack:
        made = [stack.enter_context(context.socket(zmq.DEALER)) for _ in range(count)]
        for peer in made:
            peer.linger = 0
            peer.connect(endpoint)
        yield made


def door_process() -> int:
    """Return the number of the one door that this process has."""
    return next(
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdecimal()
        and "door.relay" in text_of(entry / "cmdline")
        and f" {os.getpid()} " in text_of(entry / "stat").rpartition(")")[2][:16]
    )


def text_of(path: Path) -> str:
    """Return what a file of a process says; "" if that has gone."""
    with contextlib.suppress(OSError):
        return path.read_text()
    return ""


async def test_messages_of_any_size_pass_both_ways_as_they_are() -> None:
    endpoint = free_endpoint()
    async with open_router(endpoint, None) as link, peers(endpoint, 1) as (peer,):
        for size in (0, 1, 255, 256, 65_536, 5_000_001):
            body = os.urandom(size)
            await peer.send(body)
            identity, heard = await received(link)
            assert heard == body
            assert await link.send(identity, body)
            assert await peer.recv() == body


async def test_what_a_controller_says_last_arrives() -> None:
    endpoint = free_endpoint()
    async with peers(endpoint, 1) as (peer,):
        async with open_router(endpoint, None) as link:
            await peer.send(b"here")
            identity, _ = await received(link)
            for _ in range(3):
                await link.send(identity, bytes(1 << 20))
        for _ in range(3):
            async with asyncio.timeout(PATIENCE_S):
                assert await peer.recv() == bytes(1 << 20)
        with socket.create_server(("127.0.0.1", int(endpoint.rpartition(":")[2]))):
            pass  # The port is free at once.


async def test_256_peers_of_one_address_are_heard() -> None:
    endpoint = free_endpoint()
    async with open_router(endpoint, None) as link, peers(endpoint, 256) as several:
        for number, peer in enumerate(several):
            await peer.send(str(number).encode())
        heard = {(await received(link))[1] for _ in several}
        assert heard == {str(number).encode() for number in range(256)}


async def test_a_door_that_broke_is_followed_by_another() -> None:
    endpoint = free_endpoint()
    async with open_router(endpoint, None) as link, peers(endpoint, 1) as (peer,):
        await peer.send(b"before")
        await received(link)
        os.kill(door_process(), signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            while not (notices := link.take_notices()):
                await link.wait(20)
        assert (
            "restarting the process that accepts agents' connections: it ended with code -9"
            in notices[0].text
        )
        await peer.send(b"after")
        assert (await received(link))[1] == b"after"


async def test_a_door_is_followed_by_another_after_errors_too(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [OSError(errno.EINVAL, "Invalid argument"), OSError(errno.EMFILE, "Too many open files")]
    reap = vars(Door)["_reap"]

    def reap_at_last(self: Door) -> None:
        if errors:
            raise errors.pop()
        reap(self)

    monkeypatch.setattr(Door, "_reap", reap_at_last)
    monkeypatch.setattr(door, "_AGAIN_NS", 0)
    endpoint = free_endpoint()
    async with open_router(endpoint, None) as link, peers(endpoint, 1) as (peer,):
        await peer.send(b"before")
        await received(link)
        os.kill(door_process(), signal.SIGKILL)
        notices: list[Notice] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(notices) < 3:
                await link.wait(20)
                notices += link.take_notices()
        await peer.send(b"after")
        assert (await received(link))[1] == b"after"
        assert [notice.text.rpartition(": ")[2] for notice in notices] == [
            "Too many open files",
            "Invalid argument",
            "it ended with code -9",
        ]


async def test_what_the_controller_is_told_ends_no_door() -> None:
    endpoint = free_endpoint()
    async with open_router(endpoint, None) as link, peers(endpoint, 1) as (peer,):
        await peer.send(b"before")
        await received(link)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            os.kill(door_process(), number)
        await peer.send(b"after")
        assert (await received(link))[1] == b"after"
        assert link.take_notices() == ()


@pytest.mark.parametrize(
    "bind", ["tcp://127.0.0.1:{}", "tcp://[::1]:{}", "tcp://*:{}", "tcp://lo:{}", "tcp://localhost:{}"]
)
def test_where_a_controller_may_listen(bind: str) -> None:
    port = free_endpoint().rpartition(":")[2]
    with listening_at(bind.format(port)) as listener:
        assert listener.getsockname()[1] == int(port)


@pytest.mark.parametrize(
    "bind", ["tcp://192.0.2.1:7420", "tcp://no-such-interface:7420", "tcp://127.0.0.1:{}"]
)
async def test_an_address_that_cannot_be_had_is_refused(bind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        place = bind.format(other.getsockname()[1])
        with pytest.raises(
            ConfigError, match=r"cannot listen there: .*; choose an address of this host and a free port"
        ):
            async with open_router(place, None):
                pytest.fail("it listens")
