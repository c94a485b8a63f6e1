"""Forwards the control connection between a lab's namespaces and the host: TCP inside, TCP outside, byte for byte.

A listener in every namespace has the address at which the controller listens on the host. Data never crosses it: agents and
controller exchange only messages over it, and only the switch connects the namespaces with each other.
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
"""Concurrent connections per namespace."""


def endpoint_of(bind: str) -> tuple[str, int]:
    """Parse host and port of "tcp://127.0.0.1:7420". Raise `ConfigError` for anything but an IPv4 loopback address and port."""
    match = re.fullmatch(r"tcp://(127\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}):([0-9]{1,5})", bind)
    if match is None or not 0 < int(match[2]) < 65536 or any(int(part) > 255 for part in match[1].split(".")):
        remedy = "write a loopback address of this host, such as tcp://127.0.0.1:7420"
        raise ConfigError(
            Problem("--bind", f'"{bind[:64]}" is not a loopback address for the lab\'s controller', remedy)
        )
    return match[1], int(match[2])


async def relay_from(namespace: int, host: str, port: int) -> asyncio.Server:
    """Return a server that relays connections from the namespace until it is closed. Raise OSError if the address cannot be
    bound."""
    listener = inside(namespace, partial(socket.create_server, (host, port)))
    slots = asyncio.Semaphore(MOST_CONNECTIONS)

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if slots.locked():
            writer.close()
            return
        async with slots:
            await _relay(reader, writer, host, port)

    return await asyncio.start_server(carry, sock=listener)


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
    try:
        controller_reader, controller_writer = await asyncio.open_connection(host, port)
    except OSError:
        writer.close()  # no controller yet; the agent tries again
        return
    with contextlib.suppress(OSError, asyncio.CancelledError):
        await asyncio.gather(_copy(reader, controller_writer), _copy(controller_reader, writer))
    for stream in (writer, controller_writer):
        stream.close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while content := await source.read(CHUNK_BYTES):
            sink.write(content)
            await sink.drain()
    finally:
        sink.close()
