"""Carries the control connection between a lab's namespaces and the host: TCP in there, TCP out here, byte for byte.

A listener in every namespace stands at the address where the controller listens on the host. Data never crosses it: agents
and controller exchange only messages over it, and the network between namespaces stays the switch's alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from functools import partial
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.lab.namespaces import inside

CHUNK_BYTES: Final = 1 << 16
MOST_CONNECTIONS: Final = 256
"""At a time, of a namespace."""


def endpoint_of(bind: str) -> tuple[str, int]:
    """Host and port of "tcp://127.0.0.1:7420". Raises `ConfigError` for anything but an IPv4 loopback address and a port."""
    match = re.fullmatch(r"tcp://(127\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}):([0-9]{1,5})", bind)
    if match is None or not 0 < int(match[2]) < 65536 or any(int(part) > 255 for part in match[1].split(".")):
        remedy = "write a loopback address of this host, such as tcp://127.0.0.1:7420"
        raise ConfigError(
            Problem("--bind", f'"{bind[:64]}" is not where a lab\'s controller may listen', remedy)
        )
    return match[1], int(match[2])


async def relay_from(namespace: int, host: str, port: int) -> asyncio.Server:
    """Serves until the server is closed. Raises OSError where the address cannot be bound."""
    listener = inside(namespace, partial(socket.create_server, (host, port)))
    room = asyncio.Semaphore(MOST_CONNECTIONS)

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if room.locked():
            writer.close()
            return
        async with room:
            await _carry(reader, writer, host, port)

    return await asyncio.start_server(carry, sock=listener)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
    try:
        there, back = await asyncio.open_connection(host, port)
    except OSError:
        writer.close()  # no controller yet; who asks comes again
        return
    with contextlib.suppress(OSError, asyncio.CancelledError):
        await asyncio.gather(_copy(reader, back), _copy(there, writer))
    for one in (writer, back):
        one.close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while content := await source.read(CHUNK_BYTES):
            sink.write(content)
            await sink.drain()
    finally:
        sink.close()
