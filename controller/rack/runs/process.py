"""The process of one run of a rack: the pipeline of every run in a thread, and next to it the daemon's link.

A process of its own, so that reading a trace never delays a heartbeat of another run, a crash ends one run, and memory is
bounded and given back. When the daemon goes away it stops the run, keeps what it has, and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from etloop.runtime.module_loading import quick_loading

with quick_loading():
    import numpy as np
    import pyarrow as pa
    from etloop.contract.base.clock import NS_PER_S
    from etloop.contract.base.errors import ConfigError, EtloopError, ExitCode, NoRoom, Problem, RigError
    from etloop.contract.protocol.frames import FrameReader, frame_of
    from etloop.contract.protocol.machine import RunState
    from etloop.controller.inputs.scenario.scenario import Scenario
    from etloop.controller.rack.exchange.trace_names import PREFIX, digests_in, file_name, with_places
    from etloop.controller.rack.port_health import blamed_ports
    from etloop.controller.rack.runs.confinement import confine, confined
    from etloop.controller.rack.runs.protocol import (
        FROM_DAEMON,
        FROM_RUN,
        Begin,
        DaemonFrame,
        Ended,
        FromAgent,
        Prepared,
        RunFrame,
        Stop,
        Storing,
        ToAgent,
        TrafficEnded,
    )
    from etloop.controller.rack.runs.submitted_code import compiling_reader, refuse_python
    from etloop.controller.run.execute import SessionExecution
    from etloop.controller.run.pipeline import (
        InputFile,
        PrepareOptions,
        RunInputs,
        RunOptions,
        RunStopped,
        Step,
        close_run,
        prepare,
        run_plan,
    )
    from etloop.controller.session.actions import LogLine, RunProgress
    from etloop.controller.session.admission import Notice
    from etloop.controller.session.settings import SessionSettings
    from etloop.results.schema.summary import Summary
    from etloop.results.schema.typed_json import to_json
    from etloop.results.store.run_dir import RunNotWritten
    from etloop.runtime.clock import monotonic_ns
    from etloop.runtime.malloc_tuning import give_memory_back
    from etloop.runtime.stop_signals import ignore_stops
    from numpy.typing import NDArray

_READ_BYTES: Final = 1 << 16
_WAITING_FRAMES: Final = 256
"""Agents' messages read and not yet taken; then the daemon's socket fills, and its queue for this run."""
_MOVED_NS: Final = NS_PER_S // 4
_GONE: Final = "the controller went away"
_T = TypeVar("_T")


class DaemonLink:
    """The daemon's end as seen from the run: a `controller.service.Link`, and the stops that come between."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.stops: list[str] = []
        self.stopping = asyncio.Event()
        self.begun: asyncio.Future[Begin] = asyncio.get_running_loop().create_future()
        self._reader = reader
        self._writer = writer
        self._waiting: asyncio.Queue[FromAgent] = asyncio.Queue(_WAITING_FRAMES)
        self._there = asyncio.Event()
        self._gone = False

    async def receive_frames(self) -> None:
        """Takes frames until the daemon is gone."""
        frames = FrameReader(FROM_DAEMON)
        with contextlib.suppress(OSError):
            while received := await self._reader.read(_READ_BYTES):
                for frame in frames.feed(received):
                    await self._take(frame)
        self._gone = True
        self._stop(_GONE)

    async def _take(self, frame: DaemonFrame) -> None:
        match frame:
            case Begin():
                self.begun.set_result(frame)
            case Stop(reason):
                self._stop(reason)
            case FromAgent():
                await self._waiting.put(frame)
                self._there.set()

    def _stop(self, reason: str) -> None:
        self.stops.append(reason)
        self.stopping.set()
        self._there.set()

    def send_frame(self, frame: RunFrame) -> None:
        """Tells the daemon; in vain if it is gone."""
        if not self._gone:
            self._writer.write(frame_of(FROM_RUN, frame))

    async def close(self) -> None:
        """Returns when the daemon's socket has taken all that was said, the last word included; or the daemon is gone."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def wait(self, timeout_ms: int) -> bool:
        """See `Link`."""
        if self._waiting.empty():
            self._there.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._there.wait(), timeout_ms / 1000)
        return not self._waiting.empty()

    async def receive(self) -> tuple[bytes, bytes] | None:
        """See `Link`."""
        try:
            frame = self._waiting.get_nowait()
        except asyncio.QueueEmpty:
            return None
        return frame.identity, frame.body

    async def send(self, identity: bytes, body: bytes) -> bool:
        """See `Link`. Returns when most of what was said has left: there is room for more."""
        self.send_frame(ToAgent(identity, body))
        with contextlib.suppress(OSError):
            await self._writer.drain()
        return True

    def misnamed(self, identity: bytes, name: str) -> str:
        """See `Link`. The daemon has looked."""
        return ""

    def take_notices(self) -> tuple[Notice, ...]:
        """See `Link`. The daemon tells them."""
        return ()


class DaemonCarrier:
    """Carries a session over the daemon's link, for a run in another thread. A `controller.run.execute.Carrier`."""

    def __init__(self, link: DaemonLink, loop: asyncio.AbstractEventLoop) -> None:
        self._link = link
        self._loop = loop

    @contextlib.asynccontextmanager
    async def open(
        self, _: SessionSettings, agents: tuple[str, ...]
    ) -> AsyncIterator[tuple[DaemonLink, list[str]]]:
        """Ask the daemon for the agents, which its socket has admitted."""
        self._link.send_frame(Prepared(agents))
        yield self._link, self._link.stops

    def stops(self) -> contextlib.AbstractContextManager[list[str]]:
        """See `Carrier`."""
        return contextlib.nullcontext(self._link.stops)

    def live(self, session: Coroutine[Any, Any, _T]) -> _T:
        """See `Carrier`."""
        return asyncio.run_coroutine_threadsafe(session, self._loop).result()

    def unless_stopped(self, work: Callable[[], _T]) -> _T:
        """See `Carrier`. Work that nobody waits for any more ends with the process."""
        return self.live(self._first(work))

    async def _first(self, work: Callable[[], _T]) -> _T:
        stopping = asyncio.create_task(self._link.stopping.wait())
        working = asyncio.create_task(asyncio.to_thread(work))
        await asyncio.wait((stopping, working), return_when=asyncio.FIRST_COMPLETED)
        if stopping.done():
            raise RunStopped
        stopping.cancel()
        return working.result()


class DaemonWatcher:
    """Sends the daemon what is to be known of a run in another thread. A `controller.run.pipeline.RunWatcher`."""

    def __init__(self, link: DaemonLink, loop: asyncio.AbstractEventLoop) -> None:
        self.step = Step.PREPARE
        self._link = link
        self._loop = loop
        self._state: RunState | None = None
        self._next_ns = 0

    def _send(self, frame: RunFrame) -> None:
        self._loop.call_soon_threadsafe(self._link.send_frame, frame)

    def report(self, line: str) -> None:
        """See `RunWatcher`."""
        self._send(LogLine(line))

    def enter(self, step: Step) -> None:
        """See `RunWatcher`."""
        self.step = step
        if step is Step.WRITE:
            self._send(TrafficEnded())
        elif step is not Step.EXECUTE:
            self._send(Storing(0))

    def stored(self, ops: int) -> None:
        """See `RunWatcher`."""
        self._send(Storing(ops))

    def measured(self, records: NDArray[np.void]) -> None:
        """See `SessionWatcher`."""

    def progress(self, progress: RunProgress) -> None:
        """See `RunWatcher`. The daemon is not told more often than it cares to know."""
        now_ns = monotonic_ns()
        if now_ns < self._next_ns and progress.state is self._state:
            return
        self._next_ns, self._state = now_ns + _MOVED_NS, progress.state
        self._send(progress)


def main() -> None:
    """Run in a process of its own; the one argument is the number of the socket to the daemon."""
    give_memory_back()
    pa.set_memory_pool(pa.system_memory_pool())  # Others keep what one table took for the next.
    # Meant for the controller's log, and sent to everything in its unit.
    with ignore_stops(signal.SIGUSR1, signal.SIGUSR2):
        asyncio.run(_main(socket.socket(fileno=int(sys.argv[1]))))


async def _main(link_socket: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=link_socket)
    link = DaemonLink(reader, writer)
    receiving = asyncio.create_task(link.receive_frames())
    first: set[asyncio.Future[Any]] = {receiving, link.begun}
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    if link.begun.done():
        link.send_frame(await _ended(link, link.begun.result()))
    receiving.cancel()
    await link.close()
    # What a step that nobody waits for still does in its thread is not worth waiting for.
    sys.stdout.flush()
    os._exit(0)


async def _ended(link: DaemonLink, begin: Begin) -> Ended:
    loop = asyncio.get_running_loop()
    carrier, watcher = DaemonCarrier(link, loop), DaemonWatcher(link, loop)
    if begin.closing:
        return await asyncio.to_thread(_closed, begin, watcher)
    running = asyncio.create_task(asyncio.to_thread(_run, begin, carrier, watcher))
    stopping = asyncio.create_task(link.stopping.wait())
    await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not running.done() and watcher.step is Step.PREPARE:
        what = f"{link.stops[0]} while it was being prepared"
        return Ended(ExitCode.RUN_ERROR, what, stored=False, summary="")
    try:
        summary = await running
    except RunNotWritten as error:
        return Ended(error.exit_code, str(error), stored=False, summary="", again=True)
    except NoRoom as error:
        return Ended(error.exit_code, str(error), stored=False, summary="", held_up=str(error))
    except EtloopError as error:
        blamed = blamed_ports(error.problems) if isinstance(error, RigError) else {}
        return Ended(error.exit_code, str(error), stored=False, summary="", blamed=blamed)
    except MemoryError as error:
        what = f"it needs more memory than limits.run_memory of the rack allows: {error or 'MemoryError'}"
        return Ended(ExitCode.RUN_ERROR, what, stored=False, summary="")
    reason = summary.reason or summary.failure
    return Ended(summary.result.exit_code, reason, stored=True, summary=to_json(summary))


def _closed(begin: Begin, watcher: DaemonWatcher) -> Ended:
    """Make the results of a run from what it left."""
    try:
        summary = close_run(Path(begin.out_dir), begin.closing, watcher)
    except RunNotWritten as error:
        return Ended(error.exit_code, str(error), stored=False, summary="", again=True)
    except EtloopError as error:
        reason = f"{begin.closing}; what it left cannot be made into results: {error}"
        return Ended(ExitCode.RUN_ERROR, reason, stored=False, summary="")
    if summary is None:
        return Ended(ExitCode.RUN_ERROR, begin.closing, stored=False, summary="")
    reason = summary.reason or summary.failure
    return Ended(summary.result.exit_code, reason, stored=True, summary=to_json(summary))


def _run(begin: Begin, carrier: DaemonCarrier, watcher: DaemonWatcher) -> Summary:
    prepared = prepare(*inputs_of(begin))
    options = RunOptions(Path(begin.out_dir))
    return run_plan(prepared, SessionExecution(carrier), options, watcher).summary


def inputs_of(begin: Begin) -> tuple[RunInputs, PrepareOptions]:
    """Return what a run is made of, and what it may not do."""
    root = Path(begin.scenario_root)
    roots, text = [root], begin.scenario_text
    if digests_in(text):
        # Only where a job names one: no other has a way to them.
        traces = Path(begin.traces).absolute()
        roots.append(traces)
        remedy = "upload it again, with etloop submit --upload"
        gone = sorted(each for each in digests_in(text) if not (traces / file_name(each)).is_file())
        if gone:
            what = "this rack has no such trace any more"
            raise ConfigError(*(Problem(f"{PREFIX}{each}", what, remedy) for each in gone))
        text = with_places(text, traces)

    def admit(scenario: Scenario) -> None:
        confine(scenario, *roots)
        refuse_python(scenario, begin.allowed_code)

    inputs = RunInputs(
        scenario=InputFile(root / "scenario", text.encode(), "scenario"),
        rig=InputFile(Path(begin.rig_root) / "rig", begin.rig_text.encode(), "the rack's rig"),
        run_id=begin.run_id,
    )
    return inputs, PrepareOptions(
        strict=begin.strict,
        read_plugin=compiling_reader(begin.allowed_code, root),
        admit=admit,
        confine=partial(confined, *roots),
        ports=begin.ports,
        busy_threads=begin.busy_threads,
    )


if __name__ == "__main__":
    main()
