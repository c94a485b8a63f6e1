"""The process of one run of a rack: the pipeline of a run in a thread, and the link to the daemon in its event loop.

It is a process of its own so that reading a trace never delays a heartbeat of another run, a crash ends one run only,
and memory is bounded and given back. When the daemon ends, the process stops the run, stores its records, and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from etloop.runtime.module_loading import leave_out_pandas, quick_loading

with quick_loading():
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from etloop.contract.base.clock import NS_PER_S
    from etloop.contract.base.errors import ConfigError, EtloopError, ExitCode, NoRoom, Problem, RigError
    from etloop.contract.model.counters import CounterBatch
    from etloop.contract.protocol.frames import FrameReader, frame_of
    from etloop.contract.protocol.machine import RunState
    from etloop.controller.inputs.scenario.scenario import Scenario
    from etloop.controller.rack.port_health import blamed_ports, lacks_addresses
    from etloop.controller.rack.runs.confinement import confine, confine_files
    from etloop.controller.rack.runs.ends import end_of
    from etloop.controller.rack.runs.protocol import (
        FROM_DAEMON,
        FROM_RUN,
        Begin,
        ConnectionClosed,
        ControllerPaused,
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
    from etloop.controller.rack.transfers.trace_names import PREFIX, digests_in, file_name, with_places
    from etloop.controller.run.execute import SessionExecution
    from etloop.controller.run.out_directory import move_earlier_away
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
    from etloop.results.store.history import HISTORY_FILE, record_run
    from etloop.results.store.run_dir import RunNotWritten
    from etloop.runtime.clock import monotonic_ns
    from etloop.runtime.malloc_tuning import give_memory_back
    from etloop.runtime.stop_signals import ignore_stops

_READ_BYTES: Final = 1 << 16
_WAITING_FRAMES: Final = 256
"""Messages of agents that were read and not processed; beyond it the daemon's socket fills, and then its queue for this run."""
_MOVED_NS: Final = NS_PER_S // 4
_GONE: Final = "the controller stopped"
READ_ATTEMPTS: Final = 6
READ_AGAIN_S: Final = 2.0
"""Attempts to read a spool, and the time between two of them."""
_T = TypeVar("_T")


class DaemonLink:
    """The connection to the daemon: a `controller.session.service.Link`, and the stop orders in between."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.stops: list[str] = []
        self.stopping = asyncio.Event()
        self.begun: asyncio.Future[Begin] = asyncio.get_running_loop().create_future()
        self._reader = reader
        self._writer = writer
        self._waiting: asyncio.Queue[FromAgent] = asyncio.Queue(_WAITING_FRAMES)
        self._there = asyncio.Event()
        self._gone = False
        self._closed: set[bytes] = set()
        """Connections that do not exist any more."""
        self._pauses: list[int] = []

    async def receive_frames(self) -> None:
        """Receive frames until the daemon is gone."""
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
            case ConnectionClosed(identity):
                self._closed.add(identity)
            case ControllerPaused(pause_ns):
                self._pauses.append(pause_ns)
            case FromAgent():
                self._closed.discard(frame.identity)
                await self._waiting.put(frame)
                self._there.set()

    def _stop(self, reason: str) -> None:
        self.stops.append(reason)
        self.stopping.set()
        self._there.set()

    def send_frame(self, frame: RunFrame) -> None:
        """Send a frame to the daemon; ignored if it is gone."""
        if not self._gone:
            self._writer.write(frame_of(FROM_RUN, frame))

    async def close(self) -> None:
        """Return when all frames have been written to the daemon's socket, or the daemon is gone."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def wait(self, timeout_ms: float) -> bool:
        """Wait for a message. See `Link`."""
        if self._waiting.empty():
            self._there.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._there.wait()
        return not self._waiting.empty()

    async def receive(self) -> tuple[bytes, bytes] | None:
        """Return the next message. See `Link`."""
        try:
            frame = self._waiting.get_nowait()
        except asyncio.QueueEmpty:
            return None
        return frame.identity, frame.body

    async def send(self, identity: bytes, body: bytes) -> bool:
        """Send a message, and wait while the write buffer is full. See `Link`."""
        self.send_frame(ToAgent(identity, body))
        with contextlib.suppress(OSError):
            await self._writer.drain()
        return identity not in self._closed

    def take_pauses(self) -> tuple[int, ...]:
        """Return the pauses of the daemon. See `Link`."""
        pauses, self._pauses = tuple(self._pauses), []
        return pauses

    def name_problem(self, identity: bytes, name: str) -> str:
        """Return "": the daemon has checked the name already. See `Link`."""
        return ""

    def take_notices(self) -> tuple[Notice, ...]:
        """Return (): the daemon reports notices itself. See `Link`."""
        return ()


class DaemonCarrier:
    """Runs a session over the daemon's link, for a run in another thread. A `controller.run.execute.Carrier`."""

    def __init__(self, link: DaemonLink, loop: asyncio.AbstractEventLoop) -> None:
        self._link = link
        self._loop = loop

    @contextlib.asynccontextmanager
    async def open(
        self, _: SessionSettings, agents: tuple[str, ...]
    ) -> AsyncIterator[tuple[DaemonLink, list[str]]]:
        """Ask the daemon for the agents, which it has admitted, and yield its link."""
        self._link.send_frame(Prepared(agents))
        yield self._link, self._link.stops

    def stops(self) -> contextlib.AbstractContextManager[list[str]]:
        """Return the stop reasons that the daemon has sent. See `Carrier`."""
        return contextlib.nullcontext(self._link.stops)

    def live(self, session: Coroutine[Any, Any, _T]) -> _T:
        """Run a session in the event loop, and return its result. See `Carrier`."""
        return asyncio.run_coroutine_threadsafe(session, self._loop).result()

    def unless_stopped(self, work: Callable[[], _T]) -> _T:
        """Return the result of `work`, or raise `RunStopped`. See `Carrier`. Abandoned work ends with the process."""
        return self.live(self._first(work))

    async def _first(self, work: Callable[[], _T]) -> _T:
        stop_task = asyncio.create_task(self._link.stopping.wait())
        work_task = asyncio.create_task(asyncio.to_thread(work))
        await asyncio.wait((stop_task, work_task), return_when=asyncio.FIRST_COMPLETED)
        if stop_task.done():
            raise RunStopped
        stop_task.cancel()
        return work_task.result()


class DaemonWatcher:
    """Sends the daemon progress and log lines of a run in another thread. A `controller.run.pipeline.RunWatcher`."""

    def __init__(self, link: DaemonLink, loop: asyncio.AbstractEventLoop) -> None:
        self.step = Step.PREPARE
        self._link = link
        self._loop = loop
        self._state: RunState | None = None
        self._next_ns = 0

    def _send(self, frame: RunFrame) -> None:
        self._loop.call_soon_threadsafe(self._link.send_frame, frame)

    def report(self, line: str) -> None:
        """Send a log line. See `RunWatcher`."""
        self._send(LogLine(line))

    def enter(self, step: Step) -> None:
        """Send that traffic has ended, or that a step of storing begins. See `RunWatcher`."""
        self.step = step
        if step is Step.WRITE:
            self._send(TrafficEnded())
        elif step is not Step.EXECUTE:
            self._send(Storing(0))

    def take_counters(self, source: str, batch: CounterBatch) -> None:
        """Ignore readings of the device's counters as they arrive. See `RunWatcher`."""

    def note_stored(self, ops: int) -> None:
        """Send how many ops have been stored. See `RunWatcher`."""
        self._send(Storing(ops))

    def take_records(self, records: NDArray[np.void]) -> None:
        """Ignore op records as they arrive. See `SessionWatcher`."""

    def progress(self, progress: RunProgress) -> None:
        """Send progress, at most every `_MOVED_NS` in one state. See `RunWatcher`."""
        now_ns = monotonic_ns()
        if now_ns < self._next_ns and progress.state is self._state:
            return
        self._next_ns, self._state = now_ns + _MOVED_NS, progress.state
        self._send(progress)


def main() -> None:
    """Run the process of a run; the one argument is the descriptor of the socket to the daemon."""
    leave_out_pandas()
    give_memory_back()
    pa.set_memory_pool(pa.system_memory_pool())  # Other pools keep the memory of one table for the next.
    # These signals set the controller's log level, and may be sent to all processes of its systemd unit.
    with ignore_stops(signal.SIGUSR1, signal.SIGUSR2):
        asyncio.run(_main(socket.socket(fileno=int(sys.argv[1]))))


async def _main(link_socket: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=link_socket)
    link = DaemonLink(reader, writer)
    receive_task = asyncio.create_task(link.receive_frames())
    first: set[asyncio.Future[Any]] = {receive_task, link.begun}
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    if link.begun.done():
        link.send_frame(await _run_to_end(link, link.begun.result()))
    receive_task.cancel()
    await link.close()
    # Do not wait for the thread of an abandoned step.
    sys.stdout.flush()
    os._exit(0)


async def _run_to_end(link: DaemonLink, begin: Begin) -> Ended:
    loop = asyncio.get_running_loop()
    carrier, watcher = DaemonCarrier(link, loop), DaemonWatcher(link, loop)
    if begin.closing:
        return await asyncio.to_thread(store_from_spool, begin, watcher)
    run_task = asyncio.create_task(asyncio.to_thread(_run, begin, carrier, watcher))
    stop_task = asyncio.create_task(link.stopping.wait())
    await asyncio.wait((run_task, stop_task), return_when=asyncio.FIRST_COMPLETED)
    if not run_task.done() and watcher.step is Step.PREPARE:
        reason_text = f"{link.stops[0]} while it was being prepared"
        return Ended(ExitCode.RUN_ERROR, reason_text, stored=False, summary="")
    try:
        summary = await run_task
    except RunNotWritten as error:
        return Ended(error.exit_code, str(error), stored=False, summary="", again=True)
    except NoRoom as error:
        return Ended(error.exit_code, str(error), stored=False, summary="", held_up=str(error))
    except EtloopError as error:
        blamed = blamed_ports(error.problems) if isinstance(error, RigError) else {}
        if lacks_addresses(blamed):
            return Ended(error.exit_code, str(error), stored=False, summary="", held_up=str(error))
        return Ended(error.exit_code, str(error), stored=False, summary="", blamed=blamed)
    except MemoryError as error:
        reason_text = (
            f"it needs more memory than limits.run_memory of the rack allows: {error or 'MemoryError'}"
        )
        return Ended(ExitCode.RUN_ERROR, reason_text, stored=False, summary="")
    return end_of(summary)


def store_from_spool(begin: Begin, watcher: DaemonWatcher) -> Ended:
    """Make the results of an earlier run from its spool, and return the end.

    A spool that cannot be read is read again a few times: a disk error, or a lack of descriptors, may pass.
    """
    for attempt in range(1, READ_ATTEMPTS + 1):
        try:
            summary = close_run(Path(begin.out_dir), begin.closing, watcher)
            break
        except RunNotWritten as error:
            return Ended(error.exit_code, str(error), stored=False, summary="", again=True)
        except EtloopError as error:
            if isinstance(error.__cause__, OSError) and attempt < READ_ATTEMPTS:
                watcher.report(f"its spool is read again in {READ_AGAIN_S:g} s: {error}")
                time.sleep(READ_AGAIN_S)
                continue
            reason = f"{begin.closing}; no results can be made from its spool: {error}"
            return Ended(ExitCode.RUN_ERROR, reason, stored=False, summary="")
    if summary is None:
        return Ended(ExitCode.RUN_ERROR, begin.closing, stored=False, summary="")
    _remember(begin, watcher)
    return end_of(summary)


def _run(begin: Begin, carrier: DaemonCarrier, watcher: DaemonWatcher) -> Summary:
    prepared = prepare(*inputs_of(begin))
    options = RunOptions(Path(begin.out_dir))
    if earlier := move_earlier_away(Path(begin.out_dir)):
        # The job store was restored from before this job ran.
        watcher.report(f"the results of an earlier run of this job are kept in {earlier.name}")
    summary = run_plan(prepared, SessionExecution(carrier), options, watcher).summary
    _remember(begin, watcher)
    return summary


def _remember(begin: Begin, watcher: DaemonWatcher) -> None:
    """Add the run to the rack's history; if that fails, the run is unaffected and its log has the reason."""
    run_dir = Path(begin.out_dir)
    state_dir = run_dir.parent.parent
    try:
        record_run(run_dir, state_dir, state_dir / HISTORY_FILE)
    except (EtloopError, OSError) as error:
        watcher.report(f"not in {HISTORY_FILE}: {error}")


def inputs_of(begin: Begin) -> tuple[RunInputs, PrepareOptions]:
    """Return the inputs of a run, and its restrictions. Raises `ConfigError` for an uploaded trace that is missing."""
    root = Path(begin.scenario_root)
    roots, text = [root], begin.scenario_text
    if digests_in(text):
        # Only for a job that names one: no other job may read uploaded traces.
        traces = Path(begin.traces).absolute()
        roots.append(traces)
        remedy = "upload it again, with etloop submit --upload"
        missing_digests = sorted(
            digest for digest in digests_in(text) if not (traces / file_name(digest)).is_file()
        )
        if missing_digests:
            problem = "this rack no longer has the trace"
            raise ConfigError(*(Problem(f"{PREFIX}{digest}", problem, remedy) for digest in missing_digests))
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
        confine=partial(confine_files, *roots),
        ports=begin.ports,
        busy_threads=begin.busy_threads,
    )


if __name__ == "__main__":
    main()
