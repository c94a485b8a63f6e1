"""Starts the process of a run and speaks with it. A shell: processes, sockets, rlimits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ProtocolError
from etloop.contract.protocol.frames import FrameReader, frame_of
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

if TYPE_CHECKING:
    from collections.abc import Callable

_READ_BYTES: Final = 1 << 16
_LAST_LINES: Final = 40
"""Of what a process wrote to standard error, kept to say why it died."""
_MOST_UNSENT_BYTES: Final = 64 << 20
"""Agents' messages waiting for a run that takes them more slowly than they come; with more no others are read."""
_BEHIND_NS: Final = 2 * NS_PER_S
"""So long others may wait for a run, less than the silence after which an agent counts as gone; then it is killed."""


class RunChild:
    """One run's process, from its start until it is gone. `on_frame` gets everything it says.

    As long as it lives it holds the lock `lock_path`, by which a daemon that comes after this one knows of it.
    """

    def __init__(
        self, begin: Begin, lock_path: Path, memory_bytes: int, on_frame: Callable[[RunFrame], None]
    ) -> None:
        self._begin = begin
        self._lock_path = lock_path
        self._memory_bytes = memory_bytes
        self._on_frame = on_frame
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._stderr: deque[str] = deque(maxlen=_LAST_LINES)
        self._wrong = ""
        self._stopped = ""
        self._behind_since_ns: int | None = None

    async def live(self) -> str:
        """Starts the process and returns when it is gone: "" if it ended by itself, else what happened."""
        try:
            ours = await self._start()
        except OSError as error:
            return f"its process could not be started: {error.strerror}"
        assert self._process is not None
        with contextlib.suppress(OSError, ProcessLookupError):
            limit = (self._memory_bytes, self._memory_bytes)
            resource.prlimit(self._process.pid, resource.RLIMIT_AS, limit)
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._send(self._begin)
        if self._stopped:
            self.stop(self._stopped)
        try:
            await asyncio.gather(self._receive_frames(reader), self._read_stderr())
            code = await self._process.wait()
        finally:
            self.kill()
            self._writer.close()
            self._lock_path.unlink(missing_ok=True)
        return self._wrong or self._death(code)

    async def _start(self) -> socket.socket:
        lock = locks.take(self._lock_path)
        assert lock is not None, "job ids are used once"
        ours, theirs = socket.socketpair()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *own_module("etloop.controller.rack.runs.process", str(theirs.fileno())),
                # The process keeps its copy of the lock to its end.
                pass_fds=(theirs.fileno(), lock),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                # Ctrl-C is the daemon's; the run is told by it, or sees it go.
                start_new_session=True,
            )
            locks.sign(lock, self._process.pid)
        except OSError:
            ours.close()
            self.kill()
            self._lock_path.unlink(missing_ok=True)
            raise
        finally:
            theirs.close()
            os.close(lock)
        return ours

    @property
    def pid(self) -> int | None:
        """Process id, once there is one."""
        return self._process.pid if self._process is not None else None

    def forward(self, identity: bytes, body: bytes) -> None:
        """Hands an agent's message on."""
        self._send(FromAgent(identity, body))

    def is_behind(self, now_ns: int) -> bool:
        """Whether so much waits for it that no more should be read; if that lasts it is beyond help, and killed."""
        writer = self._writer
        if writer is None or writer.transport.get_write_buffer_size() <= _MOST_UNSENT_BYTES:
            self._behind_since_ns = None
            return False
        if self._behind_since_ns is None:
            self._behind_since_ns = now_ns
        if now_ns - self._behind_since_ns > _BEHIND_NS:
            self.kill("its process does not take the messages of its agents")
        return True

    def stop(self, reason: str) -> None:
        """Asks the run to wind up."""
        self._stopped = reason
        self._send(Stop(reason))

    def kill(self, why: str = "") -> None:
        """Ends the process at once, if it still lives; `why` is then what it died of."""
        self._wrong = self._wrong or why
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)

    def _send(self, frame: DaemonFrame) -> None:
        if self._writer is not None and not self._writer.is_closing():
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
            self._wrong = f"its process broke off: {error}"
            self.kill()

    async def _read_stderr(self) -> None:
        assert self._process is not None
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
