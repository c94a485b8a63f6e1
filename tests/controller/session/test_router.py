"""The sockets of a controller as it ends: real ones, with an agent that is late."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import zmq

from etloop.contract.protocol.messages import Bye, Hello, RefusalCause, Refused
from etloop.contract.protocol.wire import decode_from_agent, decode_from_controller, encode
from etloop.controller.session.router import RouterLink, open_router
from etloop.controller.session.settings import CurveServer
from etloop.runtime.curve_keys import make_key_pairs, read_client_keys, secure_client
from etloop.runtime.sockets.loop_socket import LoopSocket
from tests.support.ports import free_endpoint

PATIENCE_MS: Final = 10_000
LOOK_MS: Final = 20
LATE_MS: Final = 300
"""What the agent does meanwhile; less than a controller waits for the dismissed."""


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    (tmp_path / "allowed").mkdir()
    make_key_pairs(tmp_path, ("controller", "a"))
    (tmp_path / "a.key").rename(tmp_path / "allowed" / "a.key")
    return tmp_path


@contextlib.contextmanager
def dealer_to(endpoint: str, keys: Path) -> Iterator[tuple[LoopSocket, LoopSocket]]:
    """An agent's socket, and what tells that its connection broke."""
    with zmq.Context[zmq.Socket[bytes]]() as context:
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.IMMEDIATE, 1)
        secure_client(socket, read_client_keys(keys / "controller.key", keys / "a.key_secret"))
        broken = LoopSocket(socket.get_monitor_socket(zmq.EVENT_DISCONNECTED))
        socket.connect(endpoint)
        dealer = LoopSocket(socket)
        try:
            yield dealer, broken
        finally:
            socket.disable_monitor()
            broken.close(0)
            dealer.close(0)


async def heard(link: RouterLink) -> tuple[bytes, bytes]:
    for _ in range(PATIENCE_MS // LOOK_MS):
        if (found := await link.receive()) is not None:
            return found
        await link.wait(LOOK_MS)
    raise AssertionError("nothing came")


async def test_an_agent_that_is_late_still_reads_why_it_was_dismissed(keys: Path) -> None:
    """The controller ends at once. Its socket stays until the agent has gone, or has had its second."""
    endpoint = free_endpoint()
    curve = CurveServer(keys / "controller.key_secret", keys / "allowed")
    async with contextlib.AsyncExitStack() as stack:
        link = await stack.enter_async_context(open_router(endpoint, curve))
        with dealer_to(endpoint, keys) as (dealer, broken):
            while not dealer.has_room():
                await dealer.wait(1)
            dealer.send(encode(Hello("a", "here", 1, {})))
            identity, _ = await heard(link)
            (keys / "allowed" / "a.key").unlink()
            link.reload()
            gone, body = await heard(link)
            assert gone == identity
            assert isinstance(decode_from_agent(body), Bye)
            ending = asyncio.create_task(stack.pop_all().aclose())
            assert not await broken.wait(LATE_MS)
            assert dealer.has_come()
            refused = decode_from_controller(b"".join(part.bytes for part in await dealer.next()))
            assert isinstance(refused, Refused)
            assert refused.cause is RefusalCause.KEY_REVOKED
        await ending
