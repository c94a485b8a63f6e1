"""The link between a rack's daemon and the process of a run: nothing that was said is lost, however the process ends."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import Future

from etloop.contract.protocol.frames import FrameReader
from etloop.controller.rack.runs.process import DaemonLink
from etloop.controller.rack.runs.protocol import FROM_RUN, Ended

SUMMARY = "x" * 3_000_000
"""More than any socket holds: most of it still waits when the run has said its last word."""


def heard(ours: socket.socket, may_read: threading.Event) -> Future[list[object]]:
    """The frames that come on a socket until its end, read by a daemon that is busy at first."""
    future: Future[list[object]] = Future()

    def read() -> None:
        may_read.wait(30)
        unpacker = FrameReader(FROM_RUN)
        frames: list[object] = []
        while received := ours.recv(1 << 16):
            frames += unpacker.feed(received)
        future.set_result(frames)

    threading.Thread(target=read, daemon=True).start()
    return future


def test_the_last_word_of_a_run_arrives_whole_at_a_daemon_that_is_busy() -> None:
    ours, theirs = socket.socketpair()
    may_read = threading.Event()
    future = heard(ours, may_read)
    last = Ended(0, "", stored=True, summary=SUMMARY)

    async def run() -> None:
        link = DaemonLink(*await asyncio.open_connection(sock=theirs))
        link.send_frame(last)
        asyncio.get_running_loop().call_later(0.05, may_read.set)
        await link.close()

    asyncio.run(run())
    # The process ends here: what its buffers still held would be gone.
    theirs.close()
    assert future.result(30) == [last]
    ours.close()


def test_a_daemon_that_is_gone_holds_nothing_up() -> None:
    ours, theirs = socket.socketpair()

    async def run() -> None:
        link = DaemonLink(*await asyncio.open_connection(sock=theirs))
        ours.close()
        link.send_frame(Ended(0, "", stored=True, summary=SUMMARY))
        async with asyncio.timeout(30):
            await link.close()

    asyncio.run(run())
