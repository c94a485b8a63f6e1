"""Reads counters of interfaces of a Linux host, local or remote, through a process there that answers line by line. I/O.

`linux_process` is that process; `linux_names` interprets its answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Final

from etloop.contract.model.counters import CounterBatch, CounterFailure, FailureKind
from etloop.counters.readers.linux_names import NotCounters, linux_readings
from etloop.runtime.clock import monotonic_ns
from etloop.runtime.own_module import own_module

MOST_RESPONSE_BYTES: Final = 1 << 24
MOST_LAST_WORDS: Final = 4096
END_S: Final = 2


class LinuxCounters:
    """The source `linux`; see `protocol.DeviceCounters`."""

    def __init__(self, command: tuple[str, ...], interfaces: tuple[str, ...]) -> None:
        """Read `interfaces`. `command` runs where they are and reads as `etloop dut linux-counters` does; () reads on this
        host."""
        self._here = not command
        self._command = (*(command or own_module("etloop.counters.readers.linux_process")), *interfaces)
        self._process: asyncio.subprocess.Process | None = None

    async def open(self) -> CounterFailure | None:
        """See `DeviceCounters`."""
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=MOST_RESPONSE_BYTES,
                start_new_session=True,  # Ctrl-C ends the run, which ends this process
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            return CounterFailure(FailureKind.UNREACHABLE, f"cannot start {self._command[0][:64]}: {reason}")
        return None

    async def read(self) -> CounterBatch | CounterFailure:
        """See `DeviceCounters`."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        begun_ns = monotonic_ns()
        line = b""
        try:
            process.stdin.write(b"read\n")
            await process.stdin.drain()
            line = await process.stdout.readline()
        except OSError:
            pass  # reported below as the end of the process
        except ValueError:
            return CounterFailure(FailureKind.NONSENSE, f"an answer of more than {MOST_RESPONSE_BYTES} bytes")
        if not line.endswith(b"\n"):
            return CounterFailure(FailureKind.ENDED, await self._last_words(process))
        ended_ns = monotonic_ns()
        try:
            readings, complaints = linux_readings(json.loads(line))
        except (ValueError, RecursionError, NotCounters) as error:
            return CounterFailure(FailureKind.NONSENSE, f"{self._command[0][:64]} wrote {str(error)[:128]}")
        return CounterBatch(begun_ns, ended_ns, readings, complaints)

    async def _last_words(self, process: asyncio.subprocess.Process) -> str:
        assert process.stderr is not None
        last_lines = (
            (await process.stderr.read(MOST_LAST_WORDS)).decode(errors="replace").strip().splitlines()
        )
        words = (
            "".join(character if character.isprintable() else "?" for character in last_lines[-1][:200])
            if last_lines
            else ""
        )
        return f"{self._command[0][:64]} ended{f': {words}' if words else ' without a message'}"

    async def close(self) -> None:
        """See `DeviceCounters`."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await process.wait()
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
