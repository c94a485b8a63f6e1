"""Reads the counters of a device before, during and after a run, each source by itself. I/O: event loop and clock.

Decides when is read and how long anything may take. Whatever a device does, the run begins at most `START_LIMIT_NS` later
for it, ends at most `finish_limit_ns` later, and is not touched otherwise; what could not be read is a gap in the results.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Final, TypeVar

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import CounterBatch, CounterFailure, FailureKind
from etloop.contract.model.device_counts import CountedSource, SamplePhase
from etloop.counters.base.protocol import DeviceCounters
from etloop.counters.source_log import SourceLog
from etloop.runtime.clock import monotonic_ns

if TYPE_CHECKING:
    T = TypeVar("T")

START_LIMIT_NS: Final = 5 * NS_PER_S
"""How long a run waits for the first readings of all sources together."""
DRAIN_LIMIT_NS: Final = 2 * NS_PER_S
"""How long a device that tells new values at once may take to come to rest; others three of their own intervals."""
LEAST_REST_NS: Final = 100 * NS_PER_MS
"""Between two readings that show whether a device has come to rest."""
MOST_DRAIN_READINGS: Final = 40
FIRST_RETRY_NS: Final = NS_PER_S
LAST_RETRY_NS: Final = 16 * NS_PER_S
_CLOSE_LIMIT_NS: Final = 3 * NS_PER_S


@dataclass(frozen=True, slots=True)
class Sampled:
    """One source, ready to be sampled."""

    name: str
    reader_name: str
    """Which sort of reader it is, for people."""
    reader: DeviceCounters
    interval_ns: int
    timeout_ns: int
    refresh_ns: int
    """How often the device itself brings its counters up to date; 0: at once."""
    peers: tuple[tuple[str, str], ...]
    several_devices: bool
    host_side: bool
    rig_ports: frozenset[str]
    """Of the device's ports, those that lead to the rig."""

    @property
    def drain_limit_ns(self) -> int:
        """How long after the end its counters may move."""
        return max(DRAIN_LIMIT_NS, 3 * self.refresh_ns)


class Sampling:
    """The counters of one run. `begin`, then the run, then `finish`."""

    def __init__(self, sources: tuple[Sampled, ...], print_status: Callable[[str], None]) -> None:
        """`print_status` gets a line for people when a source fails during the run, and when it comes back."""
        now_ns = monotonic_ns()
        self._sources = [_Source(sampled, now_ns, print_status) for sampled in sources]
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> tuple[str, ...]:
        """Returns when every source has given its first reading, or START_LIMIT_NS later; what failed so far, a line each.

        Sources that did not answer are tried again during the run.
        """
        self._tasks = [asyncio.create_task(source.live()) for source in self._sources]
        ready = [asyncio.create_task(source.first_answer.wait()) for source in self._sources]
        if ready:
            _, late = await asyncio.wait(ready, timeout=START_LIMIT_NS / NS_PER_S)
            for task in late:
                task.cancel()
        return tuple(
            f"counters by {source.sampled.name}: {source.trouble or 'no answer yet'}"
            for source in self._sources
            if not source.log.readings
        )

    def started(self) -> None:
        """From now on readings are of the run, and increases are not counted from them any more."""
        for source in self._sources:
            source.phase = SamplePhase.DURING

    async def finish(self, stops: list[str]) -> tuple[CountedSource, ...]:
        """Reads until the device has come to rest, or its time for that is over, or something stands in `stops`; closes all.

        Returns what every source told. May be called whatever `begin` came to.
        """
        for source in self._sources:
            source.end(stops)
        if self._tasks:
            limit_ns = max(source.finish_limit_ns for source in self._sources)
            _, stuck = await asyncio.wait(self._tasks, timeout=limit_ns / NS_PER_S)
            for source, task in zip(self._sources, self._tasks, strict=True):
                if task in stuck:
                    source.log.fail(CounterFailure(FailureKind.LATE, "given up after the run"))
            await _cancelled(stuck)
        return tuple(source.records() for source in self._sources)

    async def give_up(self) -> None:
        """Closes all sources: there was no run."""
        for source in self._sources:
            source.end(["given up"])
        await _cancelled(self._tasks)


async def _cancelled(tasks: Collection[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        done, _ = await asyncio.wait(tasks, timeout=2 * _CLOSE_LIMIT_NS / NS_PER_S)
        for task in done:
            if not task.cancelled():
                task.exception()  # looked at, so that nothing is said of it


class _Source:
    """One source while it is sampled."""

    def __init__(self, sampled: Sampled, now_ns: int, print_status: Callable[[str], None]) -> None:
        self.sampled = sampled
        self._print_status = print_status
        self._failure_logged = False
        self.log = SourceLog(sampled.name, sampled.rig_ports, now_ns)
        self.phase = SamplePhase.BEFORE
        self.first_answer = asyncio.Event()
        self.trouble = ""
        self._ending = asyncio.Event()
        self._stops: list[str] = []
        self._open = False

    @property
    def finish_limit_ns(self) -> int:
        """After which a source is given up at the end of a run: what is under way, opening again, reading, coming to rest."""
        return 4 * self.sampled.timeout_ns + self.sampled.drain_limit_ns + _CLOSE_LIMIT_NS

    def end(self, stops: list[str]) -> None:
        """Lets `live` come to its end."""
        self._stops = stops
        self._ending.set()

    def records(self) -> CountedSource:
        """What it told."""
        sampled = self.sampled
        return self.log.finish(
            monotonic_ns(),
            sampled.reader_name,
            sampled.interval_ns,
            sampled.peers,
            several=sampled.several_devices,
            host_side=sampled.host_side,
        )

    async def live(self) -> None:
        """Reads until it is told to end, then until the device is at rest."""
        try:
            await self._sample()
            await self._drain()
        finally:
            await self._close()

    async def _sample(self) -> None:
        next_ns = monotonic_ns()
        retry_ns = FIRST_RETRY_NS
        while not self._ending.is_set():
            if await self._read(self.phase):
                retry_ns = FIRST_RETRY_NS
                next_ns += self.sampled.interval_ns
                # A reading that took longer than the interval: what was missed is not made up for.
                next_ns = max(next_ns, monotonic_ns())
            else:
                next_ns = monotonic_ns() + max(retry_ns, self.sampled.interval_ns)
                retry_ns = min(2 * retry_ns, LAST_RETRY_NS)
            self.first_answer.set()
            await self._pause(next_ns - monotonic_ns(), self._ending)

    async def _drain(self) -> None:
        begun_ns = monotonic_ns()
        phase = SamplePhase.AFTER
        for _ in range(MOST_DRAIN_READINGS):
            if not await self._read(phase) and not self.log.readings:
                return  # never was there: one last look is enough
            late = monotonic_ns() - begun_ns >= self.sampled.drain_limit_ns
            # A device that refreshes once a second tells the same twice although it has not come to rest.
            fresh = monotonic_ns() - begun_ns >= self.sampled.refresh_ns
            if late or self._stops or (phase is SamplePhase.DRAINED and fresh and self.log.at_rest):
                return
            phase = SamplePhase.DRAINED
            await self._rest(max(LEAST_REST_NS, self.sampled.refresh_ns))

    async def _rest(self, time_ns: int) -> None:
        """Waits, but not for long once something stands in the stops."""
        until_ns = monotonic_ns() + time_ns
        while not self._stops and (left_ns := until_ns - monotonic_ns()) > 0:  # noqa: ASYNC110 - a signal fills a list
            await asyncio.sleep(min(left_ns, LEAST_REST_NS) / NS_PER_S)

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(_CLOSE_LIMIT_NS / NS_PER_S):
                await self.sampled.reader.close()
        except TimeoutError:
            self.log.note(f"did not close within {_CLOSE_LIMIT_NS / NS_PER_S:g} s")
        except Exception as error:  # noqa: BLE001 - as in _in_time
            self.log.note(f"closing failed: {type(error).__name__}: {str(error)[:128]}")

    @staticmethod
    async def _pause(time_ns: int, event: asyncio.Event) -> None:
        if time_ns > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(time_ns / NS_PER_S):
                    await event.wait()

    async def _read(self, phase: SamplePhase) -> bool:
        """One reading, with what has to come before it; false after a failure, which is noted."""
        result = await self._attempt()
        if isinstance(result, CounterFailure):
            self.trouble = str(result)
            if self.log.fail(result) and self.phase is SamplePhase.DURING:
                self._log_status(f"{result}; the run goes on, and the gap will be marked")
                self._failure_logged = True
            self._open = False
            await self._close()
            return False
        if self._failure_logged:
            self._log_status("read again")
            self._failure_logged = False
        # The run may have begun meanwhile: then it is no reading from before.
        self.log.add(result, self.phase if phase is SamplePhase.BEFORE else phase)
        return True

    def _log_status(self, text: str) -> None:
        self._print_status(f"counters by {self.sampled.name}: {text}")

    async def _attempt(self) -> CounterBatch | CounterFailure:
        if not self._open:
            failure = await self._in_time(self.sampled.reader.open, "nothing was there")
            if failure is not None:
                return failure
            self._open = True
        return await self._in_time(self.sampled.reader.read, "no answer")

    async def _in_time(self, act: Callable[[], Awaitable[T]], late: str) -> T | CounterFailure:
        try:
            # Not wait_for, which in Python 3.11 may forget that its task was cancelled.
            async with asyncio.timeout(self.sampled.timeout_ns / NS_PER_S):
                return await act()
        except TimeoutError:
            what = f"{late} within {self.sampled.timeout_ns / NS_PER_S:g} s"
            return CounterFailure(FailureKind.LATE, what)
        except Exception as error:  # noqa: BLE001 - a reader's defect must not take the run with it, and is told
            what = f"the reader failed: {type(error).__name__}: {str(error)[:128]}"
            return CounterFailure(FailureKind.NONSENSE, what)
