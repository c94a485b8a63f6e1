"""Starts the process of a run and exchanges frames with it. A shell: processes, sockets, rlimits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum, auto
from pathlib import Path
from typing import Final, cast

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ProtocolError
from etloop.contract.protocol.frames import FrameReader, frame_of
from etloop.contract.protocol.machine import advance
from etloop.controller.rack.runs.protocol import (
    FROM_DAEMON,
    FROM_RUN,
    Begin,
    ConnectionClosed,
    ControllerPaused,
    DaemonFrame,
    FromAgent,
    RunFrame,
    Stop,
)
from etloop.controller.rack.store import locks
from etloop.runtime.own_module import own_module

_READ_BYTES: Final = 1 << 16
_LAST_LINES: Final = 40
"""Last lines of a process's standard error, kept to report why it died."""
_MOST_UNSENT_BYTES: Final = 64 << 20
"""Agents' messages queued for a run that is too slow; beyond it no agent's messages are read."""
_BEHIND_NS: Final = 15 * NS_PER_S
"""Longest time that all agents may wait for one run before it is killed: more than a pause that a run survives, less than
the silence after which they count as lost."""


class ChildState(Enum):
    """State of the process."""

    STARTING = auto()
    CONNECTED = auto()
    """The process reads the frames sent to it."""
    GONE = auto()


class ChildEvent(Enum):
    """Events that change its state."""

    STARTED = auto()
    FAILED = auto()
    """The process could not be started."""
    EXITED = auto()


CHILD_TRANSITIONS: Final[Mapping[ChildState, Mapping[ChildEvent, ChildState]]] = {
    ChildState.STARTING: {ChildEvent.STARTED: ChildState.CONNECTED, ChildEvent.FAILED: ChildState.GONE},
    ChildState.CONNECTED: {ChildEvent.EXITED: ChildState.GONE},
    ChildState.GONE: {},
}


class RunChild:
    """One run's process, from its start to its end. `on_frame` is called with every frame it sends.

    As long as it runs it holds the lock `lock_path`, by which a later daemon finds it.
    """

    def __init__(
        self, begin: Begin, lock_path: Path, memory_bytes: int, on_frame: Callable[[RunFrame], None]
    ) -> None:
        self._lock_path = lock_path
        self._memory_bytes = memory_bytes
        self._on_frame = on_frame
        self._state = ChildState.STARTING
        self._process: subprocess.Popen[bytes]
        """Set from CONNECTED on, as is the writer."""
        self._writer: asyncio.StreamWriter
        self._early: list[DaemonFrame] = [begin]
        """Frames to be sent once it is connected."""
        self._stderr: deque[str] = deque(maxlen=_LAST_LINES)
        self.unstarted = ""
        """Why the process could not be started, "" if it was."""
        self._wrong = ""
        self._behind_since_ns: int | None = None

    async def run(self) -> str:
        """Start the process and wait for its end; return "" if it ended by itself, else the cause.

        A cancelled call kills the process and ends at once.
        """
        with contextlib.ExitStack() as stack:
            try:
                own_end, reading_end, exit_descriptor = self._start(stack)
            except OSError as error:
                self._advance(ChildEvent.FAILED)
                self.unstarted = f"its process could not be started: {error.strerror}"
                return self.unstarted
            stack.callback(self._note_end)
            return await self._exchange(stack, own_end, reading_end, exit_descriptor)

    async def _exchange(
        self,
        stack: contextlib.ExitStack,
        own_end: socket.socket,
        reading_end: socket.socket,
        exit_descriptor: int,
    ) -> str:
        """Exchange frames with the started process until it ends; return the cause as `run` does."""
        with contextlib.suppress(OSError, ProcessLookupError):
            limit = (self._memory_bytes, self._memory_bytes)
            resource.prlimit(self._process.pid, resource.RLIMIT_AS, limit)
        stderr = asyncio.StreamReader()
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stderr), self._process.stderr
        )
        stack.callback(pipe.close)
        _, self._writer = await asyncio.open_connection(sock=own_end)
        stack.callback(self._writer.transport.abort)
        cast("asyncio.Transport", self._writer.transport).pause_reading()
        self._advance(ChildEvent.STARTED)
        if self._wrong:
            _kill(self._process)
        for frame in self._early:
            self._send(frame)
        await asyncio.gather(self._receive_frames(reading_end), self._read_stderr(stderr))
        await _readable(exit_descriptor)
        return self._wrong or self._death(self._process.wait())

    def _start(self, stack: contextlib.ExitStack) -> tuple[socket.socket, socket.socket, int]:
        """Start the process; return the end of its socket to write to, the one to read from, and its pidfd.

        `stack` ends the process and closes all descriptors. Nothing here awaits: asyncio's own start of a process waits
        forever if the task that connects its pipes is cancelled too, as at the end of a loop. Raises `OSError`.
        """
        lock = locks.acquire(self._lock_path)
        assert lock is not None, "job ids are used once"
        stack.callback(self._lock_path.unlink, missing_ok=True)
        try:
            own_end, child_end = socket.socketpair()
            stack.enter_context(own_end).setblocking(False)
            with child_end:
                # Read from a duplicate: a write to an ended process closes the writer, with the bytes it had not read.
                reading_end = stack.enter_context(own_end.dup())
                self._process = subprocess.Popen(
                    own_module("etloop.controller.rack.runs.process", str(child_end.fileno())),
                    # The process keeps its copy of the lock to its end.
                    pass_fds=(child_end.fileno(), lock),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    # Ctrl-C signals the daemon only, which sends Stop or closes the socket.
                    start_new_session=True,
                )
            assert self._process.stderr is not None
            stack.callback(self._process.stderr.close)
            stack.callback(_end, self._process)
            exit_descriptor = os.pidfd_open(self._process.pid)
            stack.callback(os.close, exit_descriptor)
            locks.sign(lock, self._process.pid)
        finally:
            os.close(lock)
        return own_end, reading_end, exit_descriptor

    def _note_end(self) -> None:
        is_connected = self._state is ChildState.CONNECTED
        self._advance(ChildEvent.EXITED if is_connected else ChildEvent.FAILED)

    def forward(self, identity: bytes, body: bytes) -> None:
        """Forward an agent's message to the run."""
        self._send(FromAgent(identity, body))

    def note_closed(self, identity: bytes) -> None:
        """Notify the run that the connection of one of its agents does not exist any more."""
        self._send(ConnectionClosed(identity))

    def note_pause(self, pause_ns: int) -> None:
        """Notify the run that the daemon did not run for this time."""
        self._send(ControllerPaused(pause_ns))

    def is_behind(self, now_ns: int) -> bool:
        """Return whether the run's queue is so long that no more messages should be read; kill it if that lasts."""
        if (
            self._state is not ChildState.CONNECTED
            or self._writer.transport.get_write_buffer_size() <= _MOST_UNSENT_BYTES
        ):
            self._behind_since_ns = None
            return False
        if self._behind_since_ns is None:
            self._behind_since_ns = now_ns
        if now_ns - self._behind_since_ns > _BEHIND_NS:
            self.kill("its process does not read the messages of its agents")
        return True

    def stop(self, reason: str) -> None:
        """Order the run to stop."""
        if self._state is ChildState.STARTING:
            self._early.append(Stop(reason))
        else:
            self._send(Stop(reason))

    def kill(self, why: str = "its process was killed by the controller") -> None:
        """Kill the process, or as soon as it has started; `why` is then reported as the cause."""
        if self._state is not ChildState.GONE:
            self._wrong = self._wrong or why
        if self._state is ChildState.CONNECTED:
            _kill(self._process)

    def _advance(self, event: ChildEvent) -> None:
        self._state = advance("process of a run", CHILD_TRANSITIONS, self._state, event)

    def _send(self, frame: DaemonFrame) -> None:
        if self._state is ChildState.CONNECTED and not self._writer.is_closing():
            self._writer.write(frame_of(FROM_DAEMON, frame))

    async def _receive_frames(self, reading_end: socket.socket) -> None:
        """Pass on all frames that the process has sent, also those that it sent right before its end."""
        frames, loop = FrameReader(FROM_RUN), asyncio.get_running_loop()
        try:
            while received := await loop.sock_recv(reading_end, _READ_BYTES):
                for frame in frames.feed(received):
                    self._on_frame(frame)
        except OSError:
            return  # The process is gone; its exit code is a better explanation than the socket error.
        except ProtocolError as error:
            self.kill(f"its process failed: {error}")

    async def _read_stderr(self, stderr: asyncio.StreamReader) -> None:
        with contextlib.suppress(ValueError):  # A line beyond the reader's limit.
            async for line in stderr:
                self._stderr.append(line.decode(errors="replace").rstrip())
        while await stderr.read(_READ_BYTES):
            pass

    def _death(self, code: int) -> str:
        if code == 0:
            return ""
        cause = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return f"its process {cause}{self.last_words}"

    @property
    def last_words(self) -> str:
        """Return the last lines of its standard error, each indented on a new line."""
        return "".join(f"\n  {line}" for line in self._stderr)


async def _readable(descriptor: int) -> None:
    """Wait until a descriptor is readable."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that is still alive. A thread reaps it, because one that waits for a disk may take long to end."""
    if process.returncode is None:
        _kill(process)
        threading.Thread(target=process.wait, name="etloop-reap", daemon=True).start()


def death_of(task: asyncio.Task[str]) -> str:
    """Return the result of `RunChild.live` in a finished task, or the exception as text."""
    try:
        return task.result()
    except Exception as error:  # noqa: BLE001 - a bug in one run must not end the other runs
        return f"its process could not be watched: {type(error).__name__}: {error}"
