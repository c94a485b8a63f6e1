"""An event descriptor in the event loop: additions of another thread end a wait for a message."""

from __future__ import annotations

import asyncio
import os

import zmq

from etloop.runtime.sockets.event_descriptor import EventDescriptor
from etloop.runtime.sockets.loop_socket import LoopSocket

FOR_EVER_MS = 60_000


async def test_an_addition_calls_once_and_ends_the_wait_of_a_socket() -> None:
    with zmq.Context() as context:
        socket = LoopSocket(context.socket(zmq.DEALER))
        calls: list[int] = []

        def on_event() -> None:
            calls.append(1)
            socket.wake()

        descriptor = EventDescriptor(on_event)
        waiting = asyncio.create_task(socket.wait(FOR_EVER_MS))
        await asyncio.sleep(0)
        await asyncio.to_thread(os.eventfd_write, descriptor.descriptor, 3)
        assert not await waiting, "no message has come"
        assert calls == [1]
        descriptor.close()
        socket.close(0)
