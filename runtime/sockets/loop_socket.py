"""A ZeroMQ socket in the event loop: its calls never block, and one reader on its descriptor wakes the waiting task.

pyzmq's own asyncio sockets make futures and callbacks for every call, also for one that does not wait. The descriptor
of a socket (ZMQ_FD) signals by an edge that a message may have arrived. ZMQ_EVENTS gives the state; it is read after
every edge and before every wait, because any other call may have consumed the edge (zmq_getsockopt(3)).
"""

from __future__ import annotations

import asyncio
from typing import Final

import zmq

_MS_PER_S: Final = 1000


class LoopSocket:
    """A socket of the running event loop. One task at a time waits for it."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.socket = socket
        """For options, and to bind or connect."""
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[None] | None = None
        self._loop.add_reader(int(socket.getsockopt(zmq.FD)), self._on_edge)

    def has_come(self) -> bool:
        """Return whether there is a message to receive."""
        return bool(int(self.socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)

    def has_room(self) -> bool:
        """Return whether a message can be sent."""
        return bool(int(self.socket.getsockopt(zmq.EVENTS)) & zmq.POLLOUT)

    def receive(self) -> list[zmq.Frame] | None:
        """Return the frames of the next message; None if none has arrived."""
        try:
            return self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None

    def send(self, *frames: bytes) -> None:
        """Queue a message for sending. Raises `zmq.Again` if the queue is full, `zmq.ZMQError` for any other failure."""
        self.socket.send_multipart(frames, zmq.NOBLOCK)
        # It may have consumed the edge for which a task waits, if it was called by another one.
        if self._waiting is not None and self.has_come():
            self.wake()

    async def wait(self, timeout_ms: float | None = None) -> bool:
        """Wait until a message has arrived, at most `timeout_ms` (None: without limit); return whether one has."""
        if self.has_come():
            return True
        assert self._waiting is None, "two tasks wait for the same socket"
        self._waiting = self._loop.create_future()
        timer = None
        if timeout_ms is not None:
            timer = self._loop.call_later(timeout_ms / _MS_PER_S, self.wake)
        try:
            await self._waiting
        finally:
            self._waiting = None
            if timer is not None:
                timer.cancel()
        return self.has_come()

    async def next(self) -> list[zmq.Frame]:
        """Return the frames of the next message, waiting for it if needed."""
        # Give other tasks their turn between two messages of a flood.
        await asyncio.sleep(0)
        while (frames := self.receive()) is None:
            await self.wait()
        return frames

    def close(self, linger_ms: int) -> None:
        """Close the socket; queued messages may take up to `linger_ms` to leave."""
        self._loop.remove_reader(int(self.socket.getsockopt(zmq.FD)))
        self.socket.close(linger=linger_ms)

    def _on_edge(self) -> None:
        # Read the state even if no task waits: otherwise the descriptor stays readable, and the loop spins.
        if self.has_come():
            self.wake()

    def wake(self) -> None:
        """End the wait of the task that waits for this socket, if one does."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
