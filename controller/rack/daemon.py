"""The daemon of a rack: one event loop around the agents' connections, the rack's jobs and the processes of its runs.

Carries out what `Rack` and `Hub` decide, and reads the clock. It outlives every run, agent and client; only a signal,
an unusable address or state directory, or a full disk at the start ends it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S, seconds_text
from etloop.contract.base.errors import ExitCode, ProtocolError
from etloop.contract.base.listening_clock import PAUSE_NS, ListeningClock
from etloop.contract.protocol.machine import RunState
from etloop.contract.protocol.messages import Hello, Refused
from etloop.contract.protocol.wire import decode_from_agent, encode
from etloop.controller.rack.agent_pool import AgentPresence, Hub, Standing
from etloop.controller.rack.api import Rack
from etloop.controller.rack.config import RackConfig
from etloop.controller.rack.dispatch import Start
from etloop.controller.rack.events import AgentChanged, JobMoved, RackState
from etloop.controller.rack.gateways import Gateway, serving
from etloop.controller.rack.job import Job, JobEvent
from etloop.controller.rack.log import RackLog
from etloop.controller.rack.loop_troubles import LoopTroubles
from etloop.controller.rack.member_lines import MemberLines
from etloop.controller.rack.readiness import DISK, PROCESSES, STORE, Obstacles
from etloop.controller.rack.rig.served_rig import ServedRig
from etloop.controller.rack.runs.ends import end_on_disk
from etloop.controller.rack.runs.orders import artifacts_of, to_close, to_run
from etloop.controller.rack.runs.protocol import (
    Begin,
    Ended,
    Prepared,
    RunFrame,
    Storing,
    ToAgent,
    TrafficEnded,
)
from etloop.controller.rack.runs.run_state import (
    CLOSE_AGAIN_NS,
    NEVER_NS,
    STOP_NS,
    RackRun,
    RackRunEvent,
    RackRunState,
)
from etloop.controller.rack.runs.supervisor import RunChild, death_of
from etloop.controller.rack.store import artifacts
from etloop.controller.rack.store.job_store import JobStore, StoreFailed
from etloop.controller.rack.store.orphaned_runs import InheritedRuns, lock_of
from etloop.controller.rack.store.retention import Retaining
from etloop.controller.rack.telemetry.metrics import Tallies
from etloop.controller.rack.thread_numbers import number_threads
from etloop.controller.run.kept_run import has_records, tidy_ended
from etloop.controller.session.actions import Action, LogLine, RunProgress, Send
from etloop.controller.session.router import RouterLink, open_router
from etloop.controller.session.service import perform, refusal_of_name
from etloop.controller.session.settings import LOST_AFTER_NS, CurveServer
from etloop.runtime.clock import monotonic_ns, wall_ns
from etloop.runtime.garbage_collection import collect_cycles
from etloop.runtime.service_manager import ServiceManager
from etloop.runtime.stop_signals import reload_calls, stop_reasons

_TICK_MS: Final = 20
_RECEIVE_BURST: Final = 256
_DISPATCH_NS: Final = 50 * NS_PER_MS
_HOUSEKEEPING_NS: Final = 5 * NS_PER_S
HEARTBEAT_NS: Final = 500 * NS_PER_MS
_RETRY_NS: Final = NS_PER_S
"""Time between two attempts to write to a job store that failed."""
_RETURN_NS: Final = 5 * NS_PER_S
"""Time for agents to close their ports after their run broke off, in addition to that after which they count as silent."""


@dataclass(slots=True)
class Daemon:
    """The daemon of one rack; `run` serves it until it ends."""

    config: RackConfig
    rig: ServedRig
    store: JobStore
    rack: Rack
    hub: Hub
    log: RackLog
    lock: int
    """Descriptor of the state directory's lock, closed at the end."""
    _runs: dict[str, RackRun] = field(default_factory=dict)
    _known: dict[str, Standing] = field(default_factory=dict)
    _outgoing: list[ToAgent] = field(default_factory=list)
    tallies: Tallies = field(default_factory=Tallies)
    _gateways: tuple[Gateway, ...] = ()
    _drain_until_ns: int = NEVER_NS
    _next_dispatch_ns: int = 0
    _next_housekeeping_ns: int = 0
    _turn_ns: int = 0
    _service_manager: ServiceManager = field(default_factory=ServiceManager)
    _listening: ListeningClock = field(default_factory=lambda: ListeningClock(monotonic_ns()))
    _lines: MemberLines = field(init=False)
    obstacles: Obstacles = field(init=False)
    _inherited: InheritedRuns = field(init=False)
    _retaining: Retaining = field(init=False)

    def __post_init__(self) -> None:
        state_dir = self.config.state_dir
        self._lines = MemberLines(self.log, self.tallies)
        self.obstacles = Obstacles(self.config, self.log)
        self._inherited = InheritedRuns(self.rack, state_dir, self.log)
        self._retaining = Retaining(self.rack, self.config.retention, state_dir / "artifacts", self.log)

    async def run(self) -> ExitCode:
        """Serve until ordered to end, and wind up. Raises `ConfigError` if it cannot listen."""
        try:
            return await self._run_service()
        finally:
            self.store.close()
            os.close(self.lock)

    async def _run_service(self) -> ExitCode:
        LoopTroubles(self.log).install()
        rig = self.rig.now
        async with open_router(rig.bind, CurveServer.of(rig.security)) as link:
            with stop_reasons() as stops, reload_calls(link.reload, self.rig.ask):
                self._inherited.take_over(monotonic_ns())
                self.log.rack("ready", bind=rig.bind, rack=self.config.rack, ports=len(self.rack.ports))
                self._service_manager.ready()
                try:
                    async with serving(self._gateways, self.log):
                        while self.rack.state is not RackState.STOPPED:
                            await self._try_turn(link, stops)
                finally:
                    self._service_manager.stopping()
                    await self._retaining.end()
                    await self.rig.end()
                    await self._abandon()
        return ExitCode.PASS

    def open_gateway(self, gateway: Gateway) -> None:
        """Add a gateway, to be served by `run`."""
        self._gateways = (*self._gateways, gateway)

    # ---- the loop

    async def _try_turn(self, link: RouterLink, stops: list[str]) -> None:
        """Take a turn of the loop; log an `OSError` that breaks it off, so that the next turn tries again."""
        try:
            await self._turn(link, stops)
        except OSError as error:
            self._lines.write("a turn failed", f"a turn of the loop failed: {error}", monotonic_ns())
            await asyncio.sleep(_TICK_MS / 1000)

    async def _turn(self, link: RouterLink, stops: list[str]) -> None:
        now_ns = monotonic_ns()
        self._note_pause(self._listening.turn(now_ns), now_ns)
        if self._turn_ns:
            self.tallies.lag.saw(max(0, now_ns - self._turn_ns - _TICK_MS * NS_PER_MS) / NS_PER_S, now_ns)
        self._turn_ns = now_ns
        self._service_manager.turn(now_ns)
        await self._perform(link, (*self.hub.on_tick(now_ns), *self.rig.look()))
        self._lines.look(link, now_ns)
        while stops:
            self._on_signal(stops.pop(0), now_ns)
        for run in list(self._runs.values()):
            await self._perform(link, self._look_at(run, now_ns))
        if now_ns >= self._next_dispatch_ns:
            self._next_dispatch_ns = now_ns + _DISPATCH_NS
            self._publish_agents(now_ns)  # First: a port may have lost its address.
            self._dispatch(now_ns)
        if now_ns >= self._next_housekeeping_ns:
            self._next_housekeeping_ns = now_ns + _HOUSEKEEPING_NS
            self._housekeep(now_ns)
        if self.rack.state is RackState.DRAINING and not self._runs:
            self.rack.enter(RackState.STOPPED)
            self.log.rack("stopped")
            return
        await self._flush(link)
        # Awaiting a ready message does not yield; yield here so that gateways and runs get their turn under any load.
        await asyncio.sleep(0)
        if await link.wait(_TICK_MS):
            await self._receive(link)
            await self._flush(link)

    async def _receive(self, link: RouterLink) -> None:
        for _ in range(_RECEIVE_BURST):
            if self._is_run_behind():
                # Unread messages wait at their agents, which keep measuring and send later.
                await asyncio.sleep(_TICK_MS / 1000)
                return
            received = await link.receive()
            if received is None:
                return
            identity, body = received
            now_ns = monotonic_ns()
            holder = self.hub.holder(identity, now_ns)
            run = self._runs.get(holder) if holder is not None else None
            if run is not None:
                run.child.forward(identity, body)
                continue
            try:
                message = decode_from_agent(body)
                refusal = refusal_of_name(link, identity, message)
                actions = refusal or self.hub.on_message(identity, message, now_ns)
            except ProtocolError as error:
                actions = self.hub.on_malformed(identity, error, now_ns)
            await self._perform(link, actions)

    def _is_run_behind(self) -> bool:
        now_ns = monotonic_ns()
        return any(run.child.is_behind(now_ns) for run in self._runs.values())

    async def _perform(self, link: RouterLink, actions: tuple[Action, ...]) -> None:
        remaining: list[Action] = []
        for action in actions:
            match action:
                case Send(_, Refused(_, cause)):
                    self.tallies.refused_connections[cause.value] += 1
                    remaining.append(action)
                case LogLine(text, kind) if kind:
                    self._lines.write(kind, text, monotonic_ns())
                case _:
                    remaining.append(action)
        for identity in await perform(tuple(remaining), link, self.log.rack):
            self.hub.on_unreachable(identity, monotonic_ns())

    async def _flush(self, link: RouterLink) -> None:
        outgoing, self._outgoing = self._outgoing, []
        for message in outgoing:
            if await link.send(message.identity, message.body):
                continue
            self.hub.on_unreachable(message.identity, monotonic_ns())
            run = self._runs.get(self.hub.lease_of(message.identity) or "")
            if run is not None:
                run.child.note_closed(message.identity)

    def _note_pause(self, missed_ns: int, now_ns: int) -> None:
        """Leave a time in which this process did not run out of all silences; report it if it was long."""
        if not missed_ns:
            return
        self.hub.excuse(missed_ns, now_ns)
        for run in self._runs.values():
            run.excuse(missed_ns, now_ns)
            run.child.note_pause(missed_ns)
        if missed_ns >= PAUSE_NS:
            self._lines.write("pause", f"the controller did not run for {seconds_text(missed_ns)}", now_ns)

    def _on_signal(self, reason: str, now_ns: int) -> None:
        if self.rack.state is RackState.READY:
            self.log.rack("draining", reason=reason, runs=len(self._runs))
            self.rack.enter(RackState.DRAINING)
            self._drain_until_ns = now_ns + self.config.limits.drain_ns
        else:
            self.log.rack("stopping", reason=reason, runs=len(self._runs))
            self._drain_until_ns = now_ns

    # ---- runs

    def _dispatch(self, now_ns: int) -> None:
        try:
            self._inherited.look(now_ns)
            for job_id in self._inherited.to_close():
                self._close_inherited(job_id, now_ns)
            self.rack.hold("; ".join(self.obstacles.texts()))
            if not self.obstacles:
                for start in self.rack.starts(
                    self.hub.present(), self.hub.absent_agents(now_ns), now_ns, wall_ns()
                ):
                    self._start(start)
        except StoreFailed as error:
            self.obstacles.note(STORE, str(error))
            self._next_dispatch_ns = now_ns + _RETRY_NS

    def _start(self, start: Start) -> None:
        job = self.rack.begin(start)
        rig = self.rig.now
        ports, hosts = rig.ports, {agent.name: agent.host for agent in rig.agents}
        threads: Counter[str] = Counter()
        for label in start.ports:
            threads[label.partition("/")[0]] += ports[label].most_threads
        machines = {name: self.hub.machine_of(name, hosts[name]) for name in threads}
        busy, thread_numbers = number_threads(
            threads, machines, (other.threads for other in self._runs.values())
        )
        limit_ns = job.request.time_limit_ns or self.config.limits.job_time_ns
        child, task = self._child(to_run(self.config, self.rig.text, job, busy))
        self._runs[job.job_id] = RackRun(job.job_id, thread_numbers, monotonic_ns(), limit_ns, child, task)
        self.log.job(job.job_id, "starting", ports=list(start.ports), priority=job.request.priority)

    def _child(self, begin: Begin) -> tuple[RunChild, asyncio.Task[str]]:
        """Start the process of a run, or one that closes a run."""

        def on_frame(frame: RunFrame) -> None:
            self._on_frame(self._runs[begin.run_id], frame)

        lock_path = lock_of(self.config.state_dir, begin.run_id)
        child = RunChild(begin, lock_path, self.config.limits.run_memory_bytes, on_frame)
        return child, asyncio.create_task(self._wait_for_exit(child, begin.run_id))

    async def _wait_for_exit(self, child: RunChild, job_id: str) -> str:
        """Wait for a process to end, see `RunChild.live`, and remove files of its run that are of no further use."""
        death = await child.run()
        try:
            await asyncio.to_thread(tidy_ended, artifacts_of(self.config, job_id))
        except OSError as error:  # Not the run's fault, and no reason of its end.
            self.log.job(job_id, "its temporary files stay", why=str(error))
        return death

    def _close(self, run: RackRun, now_ns: int) -> None:
        """Start a process that makes the results of a run from its spool."""
        run.child, run.task = self._child(to_close(self.config, run.job_id, run.outcome.reason))
        run.note_closing(now_ns)
        run.advance(RackRunEvent.CLOSE, now_ns)
        self.log.job(run.job_id, "storing results from its spool", reason=run.outcome.reason)

    def _close_inherited(self, job_id: str, now_ns: int) -> None:
        child, task = self._child(to_close(self.config, job_id, "the controller stopped"))
        self._runs[job_id] = RackRun.inherit(job_id, child, task, now_ns)
        self.log.job(job_id, "storing results of an earlier controller's run from its spool")

    def _on_frame(self, run: RackRun, frame: RunFrame) -> None:
        run.heard_ns = monotonic_ns()
        match frame:
            case Prepared(agents):
                run.wanted.update(agents)
                self._lease_slots(run)
            case ToAgent():
                self._outgoing.append(frame)
            case LogLine(text, _):
                self.log.job(run.job_id, text)
            case RunProgress():
                if frame.state is RunState.RUN:
                    self._note(run, JobEvent.GATHERED)
                self.rack.publish(JobMoved(run.job_id, frame))
            case TrafficEnded() if run.state is not RackRunState.CLOSING:
                self._note(run, JobEvent.TRAFFIC_ENDED)
                # Last messages to the agents still leave through `_outgoing`; their slots are free now.
                self.hub.release(run.job_id)
            case Storing() | TrafficEnded():
                pass  # Only counts as a sign of life. A closed run's traffic ended with its first process.
            case Ended():
                run.outcome = frame
                if run.state is not RackRunState.CLOSING:
                    run.advance(RackRunEvent.REPORT, monotonic_ns())

    def _note(self, run: RackRun, event: JobEvent) -> None:
        """Record an event of a run. Skip it if the store fails: only the run's end must not be lost."""
        try:
            self.rack.note(run.job_id, event)
        except StoreFailed as error:
            self.obstacles.note(STORE, str(error))

    def _lease_slots(self, run: RackRun) -> None:
        for slot in self.hub.lease(run.job_id, sorted(run.wanted)):
            run.wanted.discard(slot.hello.name)
            run.child.forward(slot.identity, encode(slot.hello))

    def _look_at(self, run: RackRun, now_ns: int) -> tuple[Action, ...]:
        match run.state:
            case RackRunState.LIVING | RackRunState.STOPPING | RackRunState.REPORTED if run.task.done():
                return self._on_exit(run, death_of(run.task), now_ns)
            case RackRunState.CLOSING if run.task.done():
                self._on_closed(run, death_of(run.task), now_ns)
            case RackRunState.LIVING:
                self._lease_slots(run)
                if why := self._why_stop(run, now_ns):
                    run.advance(RackRunEvent.STOP_ORDERED, now_ns)
                    run.child.stop(why)
            case RackRunState.STOPPING | RackRunState.REPORTED | RackRunState.CLOSING:
                if why := run.silence(now_ns):
                    run.child.kill(why)
            case RackRunState.RETURNING:
                if self.hub.has_returned(run.job_id) or now_ns - run.since_ns > LOST_AFTER_NS + _RETURN_NS:
                    self.hub.give_up(run.job_id)
                    run.advance(RackRunEvent.RETURNED, now_ns)
                    self._store_end(run, now_ns)
            case RackRunState.UNSTORED:
                self._store_end(run, now_ns)
            case RackRunState.STORED:
                raise AssertionError("stored runs are removed from the table")
        return ()

    def _on_closed(self, run: RackRun, death: str, now_ns: int) -> None:
        run.advance(RackRunEvent.EXIT, now_ns)
        if run.child.unstarted:
            self.obstacles.note(PROCESSES, run.child.unstarted)
        run.note_closed(death)
        self._store_end(run, now_ns)

    def _may_be_closed(self, run: RackRun, now_ns: int) -> bool:
        """Have a run's results made from its spool, if that is possible; return whether its end must wait for it."""
        if not run.may_be_closed or not has_records(artifacts_of(self.config, run.job_id)):
            return False
        if now_ns > self._drain_until_ns:
            # The next controller finds the job unfinished, with its records.
            del self._runs[run.job_id]
            self.log.job(run.job_id, "left its results to the next controller", reason=run.outcome.reason)
        elif now_ns >= run.close_again_ns and DISK not in self.obstacles:
            self._close(run, now_ns)
        else:
            self.rack.waits_to_end(run.job_id, f"its results wait: {run.outcome.reason}")
        return True

    def _on_exit(self, run: RackRun, death: str, now_ns: int) -> tuple[Action, ...]:
        if run.child.unstarted:
            self._put_back(run, run.child.unstarted, now_ns)
            return ()
        run.advance(RackRunEvent.EXIT, now_ns)
        if run.state is RackRunState.UNSTORED:
            self.hub.release(run.job_id)
            self._store_end(run, now_ns)
            return ()
        reason = death or f"{run.outcome.reason}{run.child.last_words}"
        run.outcome = replace(run.outcome, reason=reason)
        return self.hub.dismiss(run.job_id, reason)

    def _why_stop(self, run: RackRun, now_ns: int) -> str:
        who = self.rack.cancel_requests().get(run.job_id)
        if who is not None:
            return f"cancelled by {who}"
        if now_ns >= self._drain_until_ns:
            return "the controller is shutting down"
        return run.note_time(now_ns)

    def _store_end(self, run: RackRun, now_ns: int) -> None:
        if now_ns < run.store_again_ns:
            return
        if run.outcome.held_up and not run.closings:
            self._put_back(run, run.outcome.held_up, now_ns)
            return
        try:
            self._look_for_end(run)
            ended = run.outcome
            if self._may_be_closed(run, now_ns):
                return
            job = self._record_end(run)
        except (StoreFailed, OSError) as error:
            if isinstance(error, StoreFailed):
                self.obstacles.note(STORE, str(error))
            self._lines.write(
                f"end of {run.job_id}", f"job {run.job_id} cannot be ended yet: {error}", now_ns
            )
            self.rack.waits_to_end(run.job_id, f"its end cannot be recorded: {error}")
            run.store_again_ns = now_ns + _RETRY_NS
            if now_ns > self._drain_until_ns + STOP_NS:
                # The next controller finds the job unfinished, with its results.
                del self._runs[run.job_id]
                self.log.job(run.job_id, "its end could not be recorded", reason=run.outcome.reason)
            return
        run.advance(RackRunEvent.STORE, now_ns)
        del self._runs[run.job_id]
        self.log.job(job.job_id, str(job.state), exit_code=int(ended.exit_code), reason=job.reason)
        self.tallies.ended_job(
            job, (now_ns - run.began_ns) / NS_PER_S, json.loads(ended.summary) if ended.summary else None
        )

    def _look_for_end(self, run: RackRun) -> None:
        """Take the end of a run whose process did not report it from the results that it had stored. Raises `OSError`."""
        directory = artifacts_of(self.config, run.job_id)
        if not run.outcome.stored and not run.is_inherited and (text := artifacts.summary_text(directory)):
            run.outcome = end_on_disk(run.outcome, text, is_judged=(directory / "report.html").is_file())

    def _record_end(self, run: RackRun) -> Job:
        """Record the end of a run. Raises `StoreFailed`, and `OSError` if its directory cannot be read."""
        ended, directory = run.outcome, artifacts_of(self.config, run.job_id)
        # Count incomplete results too: retention has to know every directory.
        kept_bytes = artifacts.size_bytes(directory)
        summary = ended.summary or artifacts.summary_text(directory)
        if run.is_inherited:
            return self.rack.interrupt(run.job_id, summary, kept_bytes)
        for reason_text in self.rack.note_unprepared(run.job_id, ended.blamed):
            self.log.rack("a port is out of service", why=reason_text)
        code, reason, at_limit = ExitCode(ended.exit_code), ended.reason, run.is_at_limit
        return self.rack.finish(run.job_id, code, reason, summary, kept_bytes, at_limit=at_limit)

    def _put_back(self, run: RackRun, why: str, now_ns: int) -> None:
        """Put the job of a run that the rack could not begin back into the queue for a while."""
        if run.child.unstarted:
            self.obstacles.note(PROCESSES, why)
        self.hub.release(run.job_id)
        try:
            self.rack.put_back(run.job_id, why, now_ns + CLOSE_AGAIN_NS)
        except StoreFailed as error:
            self.obstacles.note(STORE, str(error))
            return
        del self._runs[run.job_id]
        self.log.job(run.job_id, "put back", why=why)

    async def _abandon(self) -> None:
        """Kill the processes of all runs, so that none outlives the daemon."""
        for run in self._runs.values():
            run.child.kill()
        if self._runs:
            await asyncio.wait([run.task for run in self._runs.values()], timeout=5)

    def presence(self) -> tuple[AgentPresence, ...]:
        """Return the state of every agent of the rack now."""
        return self.hub.presence(monotonic_ns())

    def summary_of(self, job: Job) -> str:
        """Return summary.json of a job; "" if there is none. Raises `OSError`."""
        return artifacts.summary_text(artifacts_of(self.config, job.job_id)) if job.run_directory else ""

    # ---- housekeeping

    def _publish_agents(self, now_ns: int) -> None:
        for name, status in self.hub.standings().items():
            known = self._known.get(name, (0, 0, None))
            if known != status:
                self._known[name] = status
                self._note_host(name, known[2], status[2])
                self.rack.publish(AgentChanged(self.hub.presence_of(name, now_ns)))

    def _note_host(self, agent: str, before: Hello | None, now: Hello | None) -> None:
        """Return ports to service after their agent reports a changed host."""
        if now is None or (before is not None and before.capabilities == now.capabilities):
            return
        for reason_text in self.rack.note_host(now):
            self.log.rack("a port is out of service", why=reason_text)
        if before is None:
            return
        for label in self.rack.host_changed(agent):
            self.log.rack("a port is back in service", port=label, why="its host has changed")

    def _housekeep(self, now_ns: int) -> None:
        collect_cycles()
        self.obstacles.look()
        try:
            self._retaining.look(now_ns)
            if STORE in self.obstacles:
                self.store.probe()
                self.obstacles.note(STORE, "")
        except StoreFailed as error:
            self.obstacles.note(STORE, str(error))
        except OSError as error:
            self._lines.write("retention", f"cannot scan the results of jobs: {error}", now_ns)
