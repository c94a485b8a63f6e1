"""Reads counters of a lab's switches over the lab's Unix socket (docs/lab.md). I/O; `lab_values` interprets an answer."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from etloop.contract.base.errors import ProtocolError, RigError
from etloop.contract.model.counters import CounterBatch, CounterFailure, FailureKind
from etloop.contract.protocol.lab import FROM_LAB, MAX_RESPONSE_BYTES, TO_LAB, CountersRequest, LabCounters
from etloop.counters.readers.lab_values import lab_readings
from etloop.runtime.clock import monotonic_ns
from etloop.runtime.lab_directory import SOCKET_FILE, connect_problem, lab_directory
from etloop.runtime.sockets.unix_socket import short_path


class SoftSwitchCounters:
    """The source `soft_switch`; see `protocol.DeviceCounters`."""

    def __init__(self, lab: str, socket_path: Path | None = None) -> None:
        """Read the lab of this user with the name `lab`, over its socket in the lab's directory unless `socket_path` is given."""
        self._lab = lab
        self._socket_path = socket_path
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> CounterFailure | None:
        """See `DeviceCounters`."""
        try:
            socket_path = self._socket_path or lab_directory(self._lab) / SOCKET_FILE
            with short_path(socket_path) as short:
                self._reader, self._writer = await asyncio.open_unix_connection(
                    short, limit=MAX_RESPONSE_BYTES
                )
        except RigError as error:
            return CounterFailure(FailureKind.REFUSED, str(error.problems[0]))
        except OSError as error:
            return CounterFailure(FailureKind.UNREACHABLE, connect_problem(self._lab, error).what)
        return None

    async def read(self) -> CounterBatch | CounterFailure:
        """See `DeviceCounters`."""
        assert self._reader is not None
        assert self._writer is not None
        begun_ns = monotonic_ns()
        try:
            self._writer.write(TO_LAB.encode(CountersRequest()))
            await self._writer.drain()
            line = await self._reader.readline()
        except ConnectionError:
            line = b""
        except OSError as error:
            return CounterFailure(
                FailureKind.ENDED, f'the socket of lab "{self._lab}" failed: {error.strerror}'
            )
        except ValueError:
            return CounterFailure(FailureKind.NONSENSE, f"an answer of more than {MAX_RESPONSE_BYTES} bytes")
        if not line.endswith(b"\n"):
            return CounterFailure(FailureKind.ENDED, f'the lab "{self._lab}" ended')
        ended_ns = monotonic_ns()
        try:
            answer = FROM_LAB.decode(line)
        except ProtocolError as error:
            return CounterFailure(FailureKind.NONSENSE, f"an invalid answer of the lab: {str(error)[:256]}")
        if not isinstance(answer, LabCounters):
            return CounterFailure(FailureKind.NONSENSE, f"the answer {type(answer).__name__}, not counters")
        readings, complaints = lab_readings(answer)
        # A lab runs on this machine and reports by the same clock when it counted.
        if begun_ns <= answer.at_ns <= ended_ns:
            begun_ns = ended_ns = answer.at_ns
        return CounterBatch(begun_ns, ended_ns, readings, complaints)

    async def close(self) -> None:
        """See `DeviceCounters`."""
        writer, self._reader, self._writer = self._writer, None, None
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
