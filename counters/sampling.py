"""Reads the counters of a device before, during and after a run, each source independently. I/O: event loop and clock.

Decides when to read and how long each step may take. Whatever a device does, it delays the start of the run by at most
`START_LIMIT_NS` and the end by at most `finish_limit_ns`; a reading that failed is a gap in the results.
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
"""How long a device whose counters are always current may take to come to rest; others get three refresh intervals."""
LEAST_REST_NS: Final = 100 * NS_PER_MS
"""Shortest time between two readings that are compared to see whether a device has come to rest."""
MOST_DRAIN_READINGS: Final = 40
FIRST_RETRY_NS: Final = NS_PER_S
LAST_RETRY_NS: Final = 16 * NS_PER_S
_CLOSE_LIMIT_NS: Final = 3 * NS_PER_S


@dataclass(frozen=True, slots=True)
class Sampled:
    """One source, ready to be sampled."""

    name: str
    reader_name: str
    """The kind of reader, for display."""
    reader: DeviceCounters
    interval_ns: int
    timeout_ns: int
    refresh_ns: int
    """How often the device itself updates its counters; 0: at once."""
    peers: tuple[tuple[str, str], ...]
    several_devices: bool
    host_side: bool
    rig_ports: frozenset[str]
    """The device's ports that are connected to the rig."""

    @property
    def drain_limit_ns(self) -> int:
        """Return how long after the end of a run the source waits for its counters to come to rest."""
        return max(DRAIN_LIMIT_NS, 3 * self.refresh_ns)


class Sampling:
    """The counters of one run. Call `begin`, then run, then `finish`."""

    def __init__(
        self,
        sources: tuple[Sampled, ...],
        print_status: Callable[[str], None],
        counted: Callable[[str, CounterBatch], None] | None = None,
    ) -> None:
        """Prepare to sample the sources. `print_status` gets a line when a source fails during the run, and when it recovers;
        `counted` gets the name of a source of the device itself with each of its readings."""
        now_ns = monotonic_ns()
        self._sources = [_Source(sampled, now_ns, print_status, counted) for sampled in sources]
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> tuple[str, ...]:
        """Start all sources; return once each has given its first reading, at the latest after START_LIMIT_NS.

        Return a line for each source without a reading so far. These sources are tried again during the run.
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

    def note_start(self) -> None:
        """Mark the start of the run: later readings are of the run, and no longer the baseline of increases."""
        for source in self._sources:
            source.phase = SamplePhase.DURING

    async def finish(self, stops: list[str]) -> tuple[CountedSource, ...]:
        """Read until the device has come to rest, its time for that is over or `stops` is not empty; then close and return all
        records.

        It may be called whatever `begin` returned.
        """
        for source in self._sources:
            source.end(stops)
        if self._tasks:
            limit_ns = max(source.finish_limit_ns for source in self._sources)
            _, stuck = await asyncio.wait(self._tasks, timeout=limit_ns / NS_PER_S)
            for source, task in zip(self._sources, self._tasks, strict=True):
                if task in stuck:
                    source.log.fail(CounterFailure(FailureKind.LATE, "abandoned after the run"))
            await _cancel(stuck)
        return tuple(source.records() for source in self._sources)

    async def give_up(self) -> None:
        """Close all sources, without a run."""
        for source in self._sources:
            source.end(["abandoned"])
        await _cancel(self._tasks)


async def _cancel(tasks: Collection[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        done, _ = await asyncio.wait(tasks, timeout=2 * _CLOSE_LIMIT_NS / NS_PER_S)
        for task in done:
            if not task.cancelled():
                task.exception()  # retrieved, so that asyncio does not log it as never retrieved


class _Source:
    """One source while it is sampled."""

    def __init__(
        self,
        sampled: Sampled,
        now_ns: int,
        print_status: Callable[[str], None],
        counted: Callable[[str, CounterBatch], None] | None,
    ) -> None:
        self.sampled = sampled
        self._print_status = print_status
        self._counted = counted
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
        """Return the time after which a source is given up at the end of a run: the current step, reopening, reading, coming to
        rest."""
        return 4 * self.sampled.timeout_ns + self.sampled.drain_limit_ns + _CLOSE_LIMIT_NS

    def end(self, stops: list[str]) -> None:
        """Ask `live` to finish."""
        self._stops = stops
        self._ending.set()

    def records(self) -> CountedSource:
        """Return all that was recorded of the source."""
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
        """Read until `end` is called, then until the device is at rest."""
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
                # After a reading that took longer than the interval, missed readings are skipped.
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
                return  # never answered: one last attempt is enough
            late = monotonic_ns() - begun_ns >= self.sampled.drain_limit_ns
            # A device that refreshes once a second gives the same values twice although it has not come to rest.
            fresh = monotonic_ns() - begun_ns >= self.sampled.refresh_ns
            if late or self._stops or (phase is SamplePhase.DRAINED and fresh and self.log.at_rest):
                return
            phase = SamplePhase.DRAINED
            await self._rest(max(LEAST_REST_NS, self.sampled.refresh_ns))

    async def _rest(self, time_ns: int) -> None:
        """Wait, but not for long once `_stops` is not empty."""
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
        """Make one reading, opening the reader first if needed; return False after a failure, which is recorded."""
        result = await self._attempt()
        if isinstance(result, CounterFailure):
            self.trouble = str(result)
            if self.log.fail(result) and self.phase is SamplePhase.DURING:
                self._log_status(f"{result}; the run continues and the gap is recorded")
                self._failure_logged = True
            self._open = False
            await self._close()
            return False
        if self._failure_logged:
            self._log_status("readings resumed")
            self._failure_logged = False
        # The run may have started during the reading: then it is not a reading from before.
        self.log.add(result, self.phase if phase is SamplePhase.BEFORE else phase)
        if self._counted is not None and not self.sampled.host_side:
            self._counted(self.sampled.name, result)
        return True

    def _log_status(self, text: str) -> None:
        self._print_status(f"counters by {self.sampled.name}: {text}")

    async def _attempt(self) -> CounterBatch | CounterFailure:
        if not self._open:
            failure = await self._in_time(self.sampled.reader.open, "no connection")
            if failure is not None:
                return failure
            self._open = True
        return await self._in_time(self.sampled.reader.read, "no answer")

    async def _in_time(self, act: Callable[[], Awaitable[T]], late: str) -> T | CounterFailure:
        try:
            # Not wait_for, which in Python 3.11 may lose the cancellation of its task.
            async with asyncio.timeout(self.sampled.timeout_ns / NS_PER_S):
                return await act()
        except TimeoutError:
            problem = f"{late} within {self.sampled.timeout_ns / NS_PER_S:g} s"
            return CounterFailure(FailureKind.LATE, problem)
        except Exception as error:  # noqa: BLE001 - a reader's defect must not end the run; it is reported
            problem = f"the reader failed: {type(error).__name__}: {str(error)[:128]}"
            return CounterFailure(FailureKind.NONSENSE, problem)
