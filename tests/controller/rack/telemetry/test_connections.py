"""Who connects to a rack's HTTP gateway and keeps it waiting is sent away; who asks is answered, however many the others are."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from etloop.controller.rack.telemetry.connections import Connections

PATIENCE_S = 20
ASKED = b"GET /figure HTTP/1.1\r\nHost: rack\r\n\r\n"


@contextlib.asynccontextmanager
async def serving(connections: Connections, answer: bytes = b"42\n") -> AsyncIterator[int]:
    """A server of one page below these limits; its port."""

    async def figure(_: web.Request) -> web.Response:
        return web.Response(body=answer)

    app = web.Application(middlewares=[connections.middleware])
    app.add_routes([web.get("/figure", figure)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    assert runner.server is not None
    loop = asyncio.get_running_loop()
    server = await loop.create_server(connections.factory(runner.server), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await runner.cleanup()


@contextlib.asynccontextmanager
async def connection(
    port: int, limit: int = 1 << 16
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=limit)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def answered(port: int, request: bytes = ASKED) -> bytes:
    """What a request brings until the connection ends."""
    async with asyncio.timeout(PATIENCE_S), connection(port) as (reader, writer):
        writer.write(request)
        return await reader.read()


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the other side ends the connection, which it has to."""
    async with asyncio.timeout(PATIENCE_S):
        with contextlib.suppress(ConnectionError):
            return await reader.read() == b""
        return True


async def test_who_asks_is_answered_and_the_connection_ends() -> None:
    connections = Connections()
    async with serving(connections) as port:
        received = await answered(port)
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert b"Connection: close" in received
    assert received.endswith(b"42\n")
    assert connections.closed == 0


@pytest.mark.parametrize("path", [b"/none", b"/" + 4000 * b"x"])
async def test_refusals_end_the_connection_too(path: bytes) -> None:
    async with serving(Connections()) as port:
        received = await answered(port, ASKED.replace(b"/figure", path))
    assert received.startswith(b"HTTP/1.1 404")
    assert b"Connection: close" in received


async def test_who_says_nothing_whole_is_sent_away() -> None:
    """However often a byte comes."""
    connections = Connections(request_timeout_s=0.2)
    async with (
        serving(connections) as port,
        connection(port) as (silent, _),
        connection(port) as (reader, writer),
    ):
        dripping = asyncio.create_task(ended(reader))
        writer.write(b"GET /figure HTTP/1.1\r\nWaiting: ")
        with contextlib.suppress(ConnectionError):
            while not dripping.done():
                writer.write(b"x")
                await writer.drain()
                await asyncio.wait([dripping], timeout=0.02)
        assert await dripping
        assert await ended(silent)
    assert connections.closed == 2


async def test_beyond_the_most_whoever_waits_longest_goes_and_who_asks_is_served() -> None:
    connections = Connections(most=8)
    async with serving(connections) as port, contextlib.AsyncExitStack() as stack:
        idle = [await stack.enter_async_context(connection(port)) for _ in range(50)]
        assert b"42" in await answered(port)
        gone = [asyncio.create_task(ended(reader)) for reader, _ in idle[:43]]
        assert all(await asyncio.gather(*gone))
        left = [reader for reader, _ in idle[43:]]
        assert not any(reader.at_eof() for reader in left), "the last seven may stay"
        assert connections.closed == 43


class Noticing(Connections):
    """Says when it is through with a connection."""

    def __init__(self) -> None:
        super().__init__(answer_timeout_s=0.2)
        self.gone = asyncio.Event()

    def forget(self, transport: asyncio.BaseTransport) -> None:
        super().forget(transport)
        if self.closed:
            self.gone.set()


async def test_who_does_not_take_his_answer_is_sent_away() -> None:
    connections = Noticing()
    async with serving(connections, bytes(64 << 20)) as port, connection(port, 1 << 12) as (reader, writer):
        writer.write(ASKED)
        async with asyncio.timeout(PATIENCE_S):
            await connections.gone.wait()
        with contextlib.suppress(ConnectionError):
            assert len(await reader.read()) < 64 << 20
    assert connections.closed == 1
