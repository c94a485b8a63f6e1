"""The process of one run of a rack: plans, lives a session over the daemon's link, stores what was measured.

A process of its own, so that reading a trace never delays a heartbeat of another run, a crash ends one run, and memory is
bounded and given back. When the daemon goes away it stops the run, keeps what it has, and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError, EtloopError, ExitCode, Problem
from etloop.contract.protocol.frames import FrameReader, frame_of
from etloop.controller.inputs.rig import Rig, parse_rig
from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.controller.plan.jobs import with_all_schedule_files
from etloop.controller.rack.runs.confinement import confine, confined
from etloop.controller.rack.runs.protocol import (
    FROM_DAEMON,
    FROM_RUN,
    Begin,
    DaemonFrame,
    Ended,
    FromAgent,
    LogLine,
    Moved,
    Prepared,
    RunFrame,
    Stop,
    ToAgent,
    TrafficEnded,
)
from etloop.controller.rack.runs.submitted_code import AllowedCode, compiling_reader, refuse_python
from etloop.controller.run.device_counters import counted_run, counting_of, device_basis
from etloop.controller.run.execute import FinishedRun, iterations_reached, kept_beside
from etloop.controller.run.expectation import DescribedDevice, check_device, expect
from etloop.controller.run.prepare import lay_out, read_device
from etloop.controller.run.verdict import add_verdict, basis_of, requested_checks
from etloop.controller.session.service import check_sendable, drive
from etloop.controller.session.session import Session
from etloop.controller.session.settings import SessionSettings
from etloop.results.schema.typed_json import to_json
from etloop.results.store.run_dir import RunNotWritten, add_device, write_run
from etloop.results.text.table import render
from etloop.runtime.clock import monotonic_ns, wall_time_text

if TYPE_CHECKING:
    from etloop.contract.model.run import RunOutcome
    from etloop.controller.inputs.scenario.scenario import Scenario
    from etloop.controller.plan.plan import Plan
    from etloop.controller.session.actions import RunProgress

_READ_BYTES: Final = 1 << 16
_WAITING_FRAMES: Final = 256
"""Agents' messages read and not yet taken; then the daemon's socket fills, and its queue for this run."""
_MOVED_NS: Final = NS_PER_S // 4
_GONE: Final = "the controller went away"


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

    async def flush(self) -> None:
        """Waits until most of what was said has left: there is room for more."""
        with contextlib.suppress(OSError):
            await self._writer.drain()

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

    async def send(self, identity: bytes, body: bytes) -> None:
        """See `Link`."""
        self.send_frame(ToAgent(identity, body))
        await self.flush()


def main() -> None:
    """Runs in a process of its own; the one argument is the number of the socket to the daemon."""
    link_socket = socket.socket(fileno=int(sys.argv[1]))
    asyncio.run(_main(link_socket))
    # What a cancelled preparation still does in its thread is not worth waiting for.
    sys.stdout.flush()
    os._exit(0)


async def _main(link_socket: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=link_socket)
    link = DaemonLink(reader, writer)
    receiving = asyncio.create_task(link.receive_frames())
    first: set[asyncio.Future[Any]] = {receiving, link.begun}
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    if link.begun.done():
        link.send_frame(await _run(link, link.begun.result()))
    receiving.cancel()
    await link.close()


async def _run(link: DaemonLink, begin: Begin) -> Ended:
    preparing = asyncio.create_task(asyncio.to_thread(prepare, begin))
    stopping = asyncio.create_task(link.stopping.wait())
    await asyncio.wait((preparing, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not preparing.done():
        return Ended(
            ExitCode.RUN_ERROR, f"{link.stops[0]} while it was being prepared", stored=False, summary=""
        )
    try:
        scenario, rig, plan, device = preparing.result()
        link.send_frame(Prepared(tuple(plan.assignments)))
        return await _measured(link, begin, scenario, rig, plan, device)
    except EtloopError as error:
        return Ended(error.exit_code, str(error), stored=False, summary="")
    except MemoryError as error:
        what = f"it needs more memory than limits.run_memory of the rack allows: {error or 'MemoryError'}"
        return Ended(ExitCode.RUN_ERROR, what, stored=False, summary="")


def prepare(begin: Begin) -> tuple[Scenario, Rig, Plan, DescribedDevice | None]:
    root = Path(begin.scenario_root)
    allowed = AllowedCode(**dict.fromkeys(begin.allowed_code, True))
    reader = compiling_reader(allowed, root)
    scenario = parse_scenario(begin.scenario_text.encode(), "scenario", root, reader)
    confine(scenario, root)
    refuse_python(scenario, allowed)
    rig = _leased(parse_rig(begin.rig_text.encode(), "the rack's rig", Path(begin.rig_root)), begin.ports)
    with confined(root):
        scenario = with_all_schedule_files(scenario)
        plan = lay_out(scenario, rig, begin.run_id)
        device = read_device(scenario.twin)
    if scenario.twin is None:
        # The rack's own file, wherever it lies.
        device = read_device(rig.topology)
    if device is not None:
        check_device(plan, device)
    if scenario.timeline:
        what = "a rack has no way to take links of its device down"
        raise ConfigError(Problem(scenario.timeline[0].where, what, "remove the timeline"))
    host_of = {agent.name: agent.host for agent in rig.agents}
    for name, assignment in plan.assignments.items():
        others = begin.host_threads.get(host_of[name], 0)
        plan.assignments[name] = replace(
            assignment,
            first_host_thread=assignment.first_host_thread + others,
            host_engine_threads=assignment.host_engine_threads + others,
        )
    check_sendable(plan.assignments)
    return scenario, rig, plan, device


def _leased(rig: Rig, labels: tuple[str, ...]) -> Rig:
    """The rig as far as this run may use it."""
    agents = []
    for agent in rig.agents:
        ports = tuple(port for port in agent.ports if f"{agent.name}/{port.name}" in labels)
        if ports:
            agents.append(replace(agent, ports=ports))
    if not agents:
        raise ConfigError(Problem("ports", "none of the leased ports is in the rig", "submit the job again"))
    return replace(rig, agents=tuple(agents))


async def _measured(
    link: DaemonLink,
    begin: Begin,
    scenario: Scenario,
    rig: Rig,
    plan: Plan,
    device: DescribedDevice | None,
) -> Ended:
    settings = SessionSettings(
        run_id=begin.run_id,
        bind=rig.bind,
        # The daemon's socket has admitted these agents.
        insecure=True,
        gather_timeout_ns=scenario.gather_timeout_ns,
        stall_timeout_ns=scenario.stall_timeout_ns,
        lost_after_ns=scenario.lost_after_ns,
    )
    started_at = wall_time_text()
    session = Session(settings, plan.assignments, plan.tables, monotonic_ns())
    counting = counting_of(rig)

    async def lived() -> RunOutcome:
        await drive(
            session, link, link.stops, _progress_sender(link), lambda text: link.send_frame(LogLine(text))
        )
        return session.outcome(started_at)

    outcome, counted = await counted_run(
        counting, lived, lambda text: link.send_frame(LogLine(text)), link.stops
    )
    if session.problems:
        problems = "\n".join(str(problem) for problem in session.problems)
        return Ended(ExitCode.PREPARATION_FAILED, problems, stored=False, summary="")
    link.send_frame(TrafficEnded())
    await link.flush()
    out_dir = Path(begin.out_dir)
    await asyncio.to_thread(
        write_run,
        out_dir,
        outcome,
        plan.tables,
        begin.scenario_text,
        f"# Ports leased to this run: {', '.join(begin.ports)}\n{begin.rig_text}",
        plan.connection_rows,
        plan.port_names,
    )
    notes: list[str] = []
    await _hold_beside(link, plan, device, out_dir, outcome, notes)
    if counted is not None:
        await asyncio.to_thread(add_device, out_dir, counted, device_basis(scenario, rig, outcome))
    requested = requested_checks(scenario, rig, notes.append)
    summary = await asyncio.to_thread(add_verdict, out_dir, requested, basis_of(scenario, rig, plan))
    for text in notes:
        link.send_frame(LogLine(text))
    finished = FinishedRun(summary, render(summary, begin.out_dir))
    reason = session.reason or finished.reason
    return Ended(finished.exit_code, reason, stored=True, summary=to_json(summary))


async def _hold_beside(
    link: DaemonLink,
    plan: Plan,
    device: DescribedDevice | None,
    out_dir: Path,
    outcome: RunOutcome,
    notes: list[str],
) -> None:
    """Adds what was to be expected of a run; not of one that is told to stop, which somebody waits for."""
    reached = iterations_reached(outcome)
    stopping = asyncio.create_task(link.stopping.wait())
    expecting = asyncio.create_task(asyncio.to_thread(expect, plan, device, iterations=reached))
    await asyncio.wait((stopping, expecting), return_when=asyncio.FIRST_COMPLETED)
    if stopping.done():
        notes.append("stopped: the run is kept, without ideal and twin beside it")
        return
    stopping.cancel()
    try:
        await asyncio.to_thread(kept_beside, plan, out_dir, outcome, expecting.result())
    except (MemoryError, RunNotWritten) as error:
        notes.append(f"{error or 'out of memory'}: the run is kept, without ideal and twin beside it")


def _progress_sender(link: DaemonLink) -> Callable[[RunProgress], None]:
    """Tells the daemon how far the run is, not more often than it cares to know."""
    next_ns = 0
    state = None

    def send_progress(progress: RunProgress) -> None:
        nonlocal next_ns, state
        now_ns = monotonic_ns()
        if now_ns < next_ns and progress.state is state:
            return
        next_ns, state = now_ns + _MOVED_NS, progress.state
        link.send_frame(
            Moved(
                progress.state.name,
                progress.ops_done,
                progress.ops_total,
                progress.wire_tx_bytes,
                progress.wire_rx_bytes,
            )
        )

    return send_progress


if __name__ == "__main__":
    main()
