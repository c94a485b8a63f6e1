"""Limits connections to the rack's HTTP server in number and time. A shell around an asyncio protocol.

A client that sends nothing, or one byte now and then, occupies a descriptor of the controller. So a connection has
limited time to send a whole request, an answer limited time to be received and less to be received any further, and
beyond the highest number of connections the one that has waited longest with its request is closed. Each connection
carries one request. aiohttp itself only limits the time between two requests.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import termios
from collections.abc import Awaitable, Callable
from typing import Final, cast

from aiohttp import web

MOST_CONNECTIONS: Final = 64
REQUEST_TIMEOUT_S: Final = 10.0
"""From the connection until a request is complete."""
ANSWER_TIMEOUT_S: Final = 600.0
"""Until an answer is received: enough for the largest file of a run over a slow line."""
STALL_TIMEOUT_S: Final = 15.0
"""Longest time in which a client takes no byte of an answer that waits for it."""
_TCP_INFO_BYTES: Final = 128
_BYTES_ACKED: Final = 120
"""Offset of `tcpi_bytes_acked`, 64 bits, in `struct tcp_info` (linux/tcp.h)."""


class Connections:
    """The open connections of one server."""

    def __init__(
        self,
        most: int = MOST_CONNECTIONS,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        stall_timeout_s: float = STALL_TIMEOUT_S,
    ) -> None:
        self._most = most
        self._request_timeout_s = request_timeout_s
        self._answer_timeout_s = answer_timeout_s
        self._waiting: dict[asyncio.BaseTransport, asyncio.TimerHandle] = {}
        """Connections without a complete request, oldest first."""
        self._stall_timeout_s = stall_timeout_s
        self._progress: dict[asyncio.BaseTransport, asyncio.TimerHandle] = {}
        """Checks of the connections that are answered."""
        self._answered: dict[asyncio.BaseTransport, asyncio.TimerHandle] = {}
        self.closed = 0
        """Number of connections closed for exceeding a limit."""

    def factory(self, protocol: Callable[[], asyncio.BaseProtocol]) -> Callable[[], asyncio.BaseProtocol]:
        """Return a factory that wraps a server's protocols with these limits."""
        return lambda: _Watched(self, cast("asyncio.Protocol", protocol()))

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Answer a complete request within the time limit for answers, and close the connection after it."""
        transport = request.transport
        if transport is not None and transport in self._waiting:
            self.forget(transport)
            self._place(transport, self._answered, self._answer_timeout_s)
            self._watch(transport, None)
        try:
            response = await handler(request)
        except web.HTTPException as refusal:
            refusal.force_close()
            raise
        response.force_close()
        return response

    def add(self, transport: asyncio.BaseTransport) -> None:
        """Register a new connection; close the longest-waiting one if there are too many."""
        if len(self._waiting) + len(self._answered) >= self._most and self._waiting:
            self._end(next(iter(self._waiting)))
        self._place(transport, self._waiting, self._request_timeout_s)
        if len(self._waiting) + len(self._answered) > self._most:
            self._end(transport)

    def forget(self, transport: asyncio.BaseTransport) -> None:
        """Forget a connection that was closed by either end."""
        for timers in (self._waiting, self._answered, self._progress):
            if timer := timers.pop(transport, None):
                timer.cancel()

    def _watch(self, transport: asyncio.BaseTransport, acked_bytes: int | None) -> None:
        """Close a connection whose client took no byte since it had taken `acked_bytes`, else check again later."""
        now_bytes, unsent_bytes = _acked_and_unsent(transport)
        if unsent_bytes and now_bytes == acked_bytes:
            self._end(transport)
            return
        loop = asyncio.get_running_loop()
        self._progress[transport] = loop.call_later(self._stall_timeout_s, self._watch, transport, now_bytes)

    def _place(
        self,
        transport: asyncio.BaseTransport,
        where: dict[asyncio.BaseTransport, asyncio.TimerHandle],
        timeout_s: float,
    ) -> None:
        where[transport] = asyncio.get_running_loop().call_later(timeout_s, self._end, transport)

    def _end(self, transport: asyncio.BaseTransport) -> None:
        self.closed += 1
        self.forget(transport)
        cast("asyncio.Transport", transport).abort()


def _acked_and_unsent(transport: asyncio.BaseTransport) -> tuple[int, int]:
    """Return the bytes that a client has acknowledged, and those that the kernel holds for it."""
    endpoint = transport.get_extra_info("socket")
    info = endpoint.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    held = fcntl.ioctl(endpoint.fileno(), termios.TIOCOUTQ, bytes(4))
    return int.from_bytes(info[_BYTES_ACKED:], "little"), int.from_bytes(held, "little")


class _Watched(asyncio.Protocol):
    """A protocol that registers its connection."""

    def __init__(self, connections: Connections, inner: asyncio.Protocol) -> None:
        self._connections = connections
        self._inner = inner
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._inner.connection_made(transport)
        self._connections.add(transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._connections.forget(self._transport)
        self._inner.connection_lost(error)

    def data_received(self, received: bytes) -> None:
        self._inner.data_received(received)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
