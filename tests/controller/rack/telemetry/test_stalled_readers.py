"""A client that does not read its answer loses its connection after a stated time; one that reads slowly keeps it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web

from etloop.controller.rack.telemetry.connections import Connections

ANSWER_BYTES = 32 << 20
STALL_S = 0.3


@contextlib.asynccontextmanager
async def serving_a_file(path: Path, connections: Connections) -> AsyncIterator[int]:
    """Serve a file, by sendfile and by pieces, with the limits of a rack's server; yield its port."""

    async def in_pieces(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(ANSWER_BYTES)})
        await response.prepare(request)
        for _ in range(ANSWER_BYTES >> 18):
            await response.write(bytes(1 << 18))
        return response

    async def as_file(request: web.Request) -> web.StreamResponse:
        response = web.FileResponse(path)
        await response.prepare(request)
        return response

    app = web.Application(middlewares=[connections.middleware])
    app.add_routes([web.get("/file", as_file), web.get("/pieces", in_pieces)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    assert runner.server is not None
    protocols = connections.factory(runner.server)
    server = await asyncio.get_running_loop().create_server(protocols, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await runner.cleanup()


async def let_time_pass(time_s: float) -> None:
    """Return after a time: the server measures how long a client takes no byte."""
    await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=time_s)


async def test_a_client_that_reads_nothing_is_closed_and_one_that_reads_slowly_is_not(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(ANSWER_BYTES))
    connections = Connections(stall_timeout_s=STALL_S)
    async with serving_a_file(path, connections) as port:

        async def ask(name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
            writer.write(f"GET /{name} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            return reader, writer

        stalled = [await ask("file"), await ask("pieces")]
        slow = [await ask("file"), await ask("pieces")]
        for _, writer in stalled:
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # the transport of a socket
        taken = [0, 0]
        while min(taken) < ANSWER_BYTES:
            for row, (reader, _) in enumerate(slow):
                taken[row] += len(await reader.read(1 << 20))
            await let_time_pass(STALL_S / 50)  # a slow reader
        for _ in range(100):
            if connections.closed == len(stalled):
                break
            await let_time_pass(STALL_S / 10)
        assert connections.closed == len(stalled)
        for _, writer in (*stalled, *slow):
            writer.close()
