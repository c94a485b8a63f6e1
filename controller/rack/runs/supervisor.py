"""Starts the process of a run and speaks with it. A shell: processes, sockets, rlimits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum, auto
from pathlib import Path
from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ProtocolError
from etloop.contract.protocol.frames import FrameReader, frame_of
from etloop.contract.protocol.machine import advance
from etloop.controller.rack.runs.protocol import (
    FROM_DAEMON,
    FROM_RUN,
    Begin,
    DaemonFrame,
    FromAgent,
    RunFrame,
    Stop,
)
from etloop.controller.rack.store import locks
from etloop.runtime.own_module import own_module

_READ_BYTES: Final = 1 << 16
_LAST_LINES: Final = 40
"""Of what a process wrote to standard error, kept to say why it died."""
_MOST_UNSENT_BYTES: Final = 64 << 20
"""Agents' messages waiting for a run that takes them more slowly than they come; with more no others are read."""
_BEHIND_NS: Final = 2 * NS_PER_S
"""So long others may wait for a run, less than the silence after which an agent counts as gone; then it is killed."""


class ChildState(Enum):
    """Where the process stands."""

    STARTING = auto()
    CONNECTED = auto()
    """It hears what it is sent."""
    GONE = auto()


class ChildEvent(Enum):
    """What moves it on."""

    STARTED = auto()
    FAILED = auto()
    """It could not be started."""
    EXITED = auto()


CHILD_TRANSITIONS: Final[Mapping[ChildState, Mapping[ChildEvent, ChildState]]] = {
    ChildState.STARTING: {ChildEvent.STARTED: ChildState.CONNECTED, ChildEvent.FAILED: ChildState.GONE},
    ChildState.CONNECTED: {ChildEvent.EXITED: ChildState.GONE},
    ChildState.GONE: {},
}


class RunChild:
    """One run's process, from its start until it is gone. `on_frame` gets everything it says.

    As long as it lives it holds the lock `lock_path`, by which a daemon that comes after this one knows of it.
    """

    def __init__(
        self, begin: Begin, lock_path: Path, memory_bytes: int, on_frame: Callable[[RunFrame], None]
    ) -> None:
        self._lock_path = lock_path
        self._memory_bytes = memory_bytes
        self._on_frame = on_frame
        self._state = ChildState.STARTING
        self._process: asyncio.subprocess.Process
        """From CONNECTED on, as is the writer."""
        self._writer: asyncio.StreamWriter
        self._early: list[DaemonFrame] = [begin]
        """What is to be sent once it is connected."""
        self._stderr: deque[str] = deque(maxlen=_LAST_LINES)
        self.unstarted = ""
        """Why there was no process at all; nothing was begun."""
        self._wrong = ""
        self._behind_since_ns: int | None = None

    async def live(self) -> str:
        """Starts the process and returns when it is gone: "" if it ended by itself, else what happened."""
        try:
            self._process, ours = await self._start()
        except OSError as error:
            self._advance(ChildEvent.FAILED)
            self.unstarted = f"its process could not be started: {error.strerror}"
            return self.unstarted
        with contextlib.suppress(OSError, ProcessLookupError):
            limit = (self._memory_bytes, self._memory_bytes)
            resource.prlimit(self._process.pid, resource.RLIMIT_AS, limit)
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._advance(ChildEvent.STARTED)
        if self._wrong:
            _kill(self._process)
        for frame in self._early:
            self._send(frame)
        try:
            await asyncio.gather(self._receive_frames(reader), self._read_stderr())
            code = await self._process.wait()
        finally:
            _kill(self._process)
            self._advance(ChildEvent.EXITED)
            self._writer.close()
            self._lock_path.unlink(missing_ok=True)
        return self._wrong or self._death(code)

    async def _start(self) -> tuple[asyncio.subprocess.Process, socket.socket]:
        """Return the process and our end of the socket to it. Raises `OSError`, and leaves nothing then."""
        lock = locks.take(self._lock_path)
        assert lock is not None, "job ids are used once"
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                *own_module("etloop.controller.rack.runs.process", str(theirs.fileno())),
                # The process keeps its copy of the lock to its end.
                pass_fds=(theirs.fileno(), lock),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                # Ctrl-C is the daemon's; the run is told by it, or sees it go.
                start_new_session=True,
            )
            self._sign(lock, process)
        except OSError:
            ours.close()
            self._lock_path.unlink(missing_ok=True)
            raise
        finally:
            theirs.close()
            os.close(lock)
        return process, ours

    @staticmethod
    def _sign(lock: int, process: asyncio.subprocess.Process) -> None:
        try:
            locks.sign(lock, process.pid)
        except OSError:
            _kill(process)
            raise

    def forward(self, identity: bytes, body: bytes) -> None:
        """Hands an agent's message on."""
        self._send(FromAgent(identity, body))

    def is_behind(self, now_ns: int) -> bool:
        """Whether so much waits for it that no more should be read; if that lasts it is beyond help, and killed."""
        if (
            self._state is not ChildState.CONNECTED
            or self._writer.transport.get_write_buffer_size() <= _MOST_UNSENT_BYTES
        ):
            self._behind_since_ns = None
            return False
        if self._behind_since_ns is None:
            self._behind_since_ns = now_ns
        if now_ns - self._behind_since_ns > _BEHIND_NS:
            self.kill("its process does not take the messages of its agents")
        return True

    def stop(self, reason: str) -> None:
        """Asks the run to wind up."""
        if self._state is ChildState.STARTING:
            self._early.append(Stop(reason))
        else:
            self._send(Stop(reason))

    def kill(self, why: str = "its process was killed by the controller") -> None:
        """Ends the process at once if it still lives, or as soon as it does; `why` is then what it died of."""
        if self._state is not ChildState.GONE:
            self._wrong = self._wrong or why
        if self._state is ChildState.CONNECTED:
            _kill(self._process)

    def _advance(self, event: ChildEvent) -> None:
        self._state = advance("process of a run", CHILD_TRANSITIONS, self._state, event)

    def _send(self, frame: DaemonFrame) -> None:
        if self._state is ChildState.CONNECTED and not self._writer.is_closing():
            self._writer.write(frame_of(FROM_DAEMON, frame))

    async def _receive_frames(self, reader: asyncio.StreamReader) -> None:
        frames = FrameReader(FROM_RUN)
        try:
            while received := await reader.read(_READ_BYTES):
                for frame in frames.feed(received):
                    self._on_frame(frame)
        except OSError:
            return  # It is gone, and what it died of says more than the socket can.
        except ProtocolError as error:
            self.kill(f"its process broke off: {error}")

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        with contextlib.suppress(ValueError):  # A line beyond the reader's limit.
            async for line in self._process.stderr:
                self._stderr.append(line.decode(errors="replace").rstrip())
        while await self._process.stderr.read(_READ_BYTES):
            pass

    def _death(self, code: int) -> str:
        if code == 0:
            return ""
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return f"its process {how}{self.last_words}"

    @property
    def last_words(self) -> str:
        """What the process said last on standard error, as lines to be put under another."""
        return "".join(f"\n  {line}" for line in self._stderr)


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)


def death_of(task: asyncio.Task[str]) -> str:
    """Return what `RunChild.live` came to in a task that is done, whatever that was."""
    try:
        return task.result()
    except Exception as error:  # noqa: BLE001 - a mistake of ours in one run must not end the others
        return f"its process could not be followed: {type(error).__name__}: {error}"
