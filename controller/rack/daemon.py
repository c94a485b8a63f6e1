"""The daemon of a rack: one event loop around the hub, the rack's jobs and the processes of its runs.

Carries out what `Rack` and `Hub` decide and keeps time. It outlives every run, agent and client; what ends it is a signal,
an address or a state directory that cannot be used, or its disk.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S, seconds_text
from etloop.contract.base.errors import ExitCode, ProtocolError
from etloop.contract.protocol.machine import RunState
from etloop.contract.protocol.messages import Refused
from etloop.contract.protocol.wire import decode_from_agent, encode
from etloop.controller.inputs.rig import Rig
from etloop.controller.rack.agent_pool import AgentPresence, Hub, Standing
from etloop.controller.rack.api import Rack
from etloop.controller.rack.config import RackConfig
from etloop.controller.rack.dispatch import Start
from etloop.controller.rack.events import AgentChanged, JobMoved, RackState
from etloop.controller.rack.job import Job, JobEvent
from etloop.controller.rack.log import RackLog
from etloop.controller.rack.loop_troubles import LoopTroubles
from etloop.controller.rack.runs.protocol import (
    Begin,
    Ended,
    Prepared,
    RunFrame,
    ToAgent,
    TrafficEnded,
)
from etloop.controller.rack.runs.run_state import RackRun, RackRunEvent, RackRunState
from etloop.controller.rack.runs.supervisor import RunChild
from etloop.controller.rack.store import artifacts
from etloop.controller.rack.store.job_store import JobStore, StoreFailed
from etloop.controller.rack.store.orphaned_runs import InheritedRuns, lock_of
from etloop.controller.rack.store.retention import Retaining
from etloop.controller.rack.telemetry.metrics import Tallies
from etloop.controller.rack.thread_numbers import number_threads
from etloop.controller.session.actions import Action, LogLine, RunProgress, Send
from etloop.controller.session.log_limit import WINDOW_NS, LogLimit
from etloop.controller.session.router import RouterLink, open_router
from etloop.controller.session.service import perform, refusal_of_name
from etloop.controller.session.settings import CurveServer
from etloop.runtime.clock import monotonic_ns
from etloop.runtime.garbage_collection import collect_cycles
from etloop.runtime.stop_signals import reload_calls, stop_reasons
from etloop.runtime.task_shutdown import end, is_ending

_TICK_MS: Final = 20
_RECEIVE_BURST: Final = 256
_DISPATCH_NS: Final = 50 * NS_PER_MS
_HOUSEKEEPING_NS: Final = 5 * NS_PER_S
HEARTBEAT_NS: Final = 500 * NS_PER_MS
LOST_AFTER_NS: Final = 3 * NS_PER_S
_STOP_NS: Final = 30 * NS_PER_S
"""How long a run that was told to stop may take to collect and store before its process is killed."""
_NEVER_NS: Final = 1 << 63
_GATEWAY_PAUSE_S: Final = 5.0
_RETRY_NS: Final = NS_PER_S
"""Between two attempts to write what the job store did not take."""
_RETURN_NS: Final = 5 * NS_PER_S
"""How long agents may take, beyond counting as silent, to close their ports after their run broke off."""


class Gateway(Protocol):
    """A way to the rack from outside, such as a broker. It outlives its own failures."""

    async def live(self) -> None:
        """Serves until it is cancelled."""

    async def farewell(self) -> None:
        """Says that the controller ends; takes a moment at most."""


@dataclass(slots=True)
class Daemon:
    """Everything of one rack. `run` is its life."""

    config: RackConfig
    rig: Rig
    rig_text: str
    store: JobStore
    rack: Rack
    hub: Hub
    log: RackLog
    lock: int
    """Of the state directory, given back at the end."""
    _runs: dict[str, RackRun] = field(default_factory=dict)
    _known: dict[str, Standing] = field(default_factory=dict)
    _outgoing: list[ToAgent] = field(default_factory=list)
    tallies: Tallies = field(default_factory=Tallies)
    _gateways: tuple[Gateway, ...] = ()
    _drain_until_ns: int = _NEVER_NS
    _next_dispatch_ns: int = 0
    _next_housekeeping_ns: int = 0
    _obstacles: dict[str, str] = field(default_factory=dict)
    """Why no job starts: what about -> what people should know."""
    _turn_ns: int = 0
    _lines: LogLimit = field(default_factory=LogLimit)
    _refused: dict[str, int] = field(default_factory=dict)
    """Connections that the link had refused when it was last asked."""
    _inherited: InheritedRuns = field(init=False)
    _retaining: Retaining = field(init=False)

    def __post_init__(self) -> None:
        state_dir = self.config.state_dir
        self._inherited = InheritedRuns(self.rack, state_dir, self.log)
        self._retaining = Retaining(
            self.rack, self.config.retention, state_dir / "artifacts", self.log, monotonic_ns()
        )

    async def run(self) -> ExitCode:
        """Serves until it is told to end and has wound up. Raises `ConfigError` if it cannot listen."""
        try:
            return await self._served()
        finally:
            self.store.close()
            os.close(self.lock)

    async def _served(self) -> ExitCode:
        LoopTroubles(self.log).install()
        async with open_router(self.rig.bind, CurveServer.of(self.rig.security)) as link:
            with stop_reasons() as stops, reload_calls(link.reload):
                self._inherited.take_over(monotonic_ns())
                self.log.rack("ready", bind=self.rig.bind, rack=self.config.rack, ports=len(self.rack.ports))
                gateways = [asyncio.create_task(self._travelled(gateway)) for gateway in self._gateways]
                try:
                    while self.rack.state is not RackState.STOPPED:
                        await self._turn(link, stops)
                finally:
                    await asyncio.gather(
                        *(gateway.farewell() for gateway in self._gateways), return_exceptions=True
                    )
                    await end(gateways)
                    await self._retaining.end()
                    await self._abandon()
        return ExitCode.PASS

    def open_gateway(self, gateway: Gateway) -> None:
        """Adds a way to the rack, to be served by `run`."""
        self._gateways = (*self._gateways, gateway)

    async def _travelled(self, gateway: Gateway) -> None:
        while True:
            try:
                await gateway.live()
            except Exception as error:  # noqa: BLE001 - a mistake of ours on one gateway must not end runs and agents
                self.log.rack(
                    "a gateway failed", gateway=type(gateway).__name__, why=f"{type(error).__name__}: {error}"
                )
            if is_ending():
                return  # It failed because it was told to end.
            await asyncio.sleep(_GATEWAY_PAUSE_S)

    # ---- the loop

    async def _turn(self, link: RouterLink, stops: list[str]) -> None:
        now_ns = monotonic_ns()
        if self._turn_ns:
            self.tallies.lag.saw(max(0, now_ns - self._turn_ns - _TICK_MS * NS_PER_MS) / NS_PER_S, now_ns)
        self._turn_ns = now_ns
        await self._perform(link, self.hub.on_tick(now_ns))
        self._tell_admission(link, now_ns)
        while stops:
            self._on_signal(stops.pop(0), now_ns)
        for run in list(self._runs.values()):
            await self._perform(link, self._look_at(run, now_ns))
        if now_ns >= self._next_dispatch_ns:
            self._next_dispatch_ns = now_ns + _DISPATCH_NS
            self._dispatch(now_ns)
            self._publish_agents(now_ns)
        if now_ns >= self._next_housekeeping_ns:
            self._next_housekeeping_ns = now_ns + _HOUSEKEEPING_NS
            self._housekeep(now_ns)
        if self.rack.state is RackState.DRAINING and not self._runs:
            self.rack.enter(RackState.STOPPED)
            self.log.rack("stopped")
            return
        await self._flush(link)
        # What is ready is awaited without a pause: gateways and runs get their turn here, however much agents say.
        await asyncio.sleep(0)
        if await link.wait(_TICK_MS):
            await self._receive(link)
            await self._flush(link)

    async def _receive(self, link: RouterLink) -> None:
        for _ in range(_RECEIVE_BURST):
            if self._is_run_behind():
                # What is not read waits at its sender, which then measures on and sends later.
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
                turned_away = refusal_of_name(link, identity, message)
                actions = turned_away or self.hub.on_message(identity, message, now_ns)
            except ProtocolError as error:
                actions = self.hub.on_malformed(identity, error, now_ns)
            await self._perform(link, actions)

    def _is_run_behind(self) -> bool:
        now_ns = monotonic_ns()
        return any(run.child.is_behind(now_ns) for run in self._runs.values())

    async def _perform(self, link: RouterLink, actions: tuple[Action, ...]) -> None:
        told: list[Action] = []
        for action in actions:
            match action:
                case Send(_, Refused(_, cause)):
                    self.tallies.refused_connections[cause.value] += 1
                    told.append(action)
                case LogLine(text, kind) if kind:
                    self._log_member(kind, text)
                case _:
                    told.append(action)
        for identity in await perform(tuple(told), link, self.log.rack):
            self.hub.on_unreachable(identity)

    def _log_member(self, kind: str, text: str) -> None:
        """A line that somebody outside may bring about as often as he likes."""
        if self._lines.takes(kind, monotonic_ns()):
            self.log.rack(text)

    def _tell_admission(self, link: RouterLink, now_ns: int) -> None:
        for notice in link.take_notices():
            self._log_member(notice.kind, notice.text)
        self.tallies.refused_connections.update(
            {why: count - self._refused.get(why, 0) for why, count in link.refused.items()}
        )
        self._refused = dict(link.refused)
        for kind, count in self._lines.left_out(now_ns):
            self.log.rack("lines left out", about=kind, lines=count, in_s=WINDOW_NS // NS_PER_S)

    async def _flush(self, link: RouterLink) -> None:
        outgoing, self._outgoing = self._outgoing, []
        for message in outgoing:
            await link.send(message.identity, message.body)

    def _on_signal(self, reason: str, now_ns: int) -> None:
        if self.rack.state is RackState.READY:
            self.log.rack("draining", reason=reason, runs=len(self._runs))
            self.rack.enter(RackState.DRAINING)
            self._drain_until_ns = now_ns + self.config.drain_ns
        else:
            self.log.rack("stopping", reason=reason, runs=len(self._runs))
            self._drain_until_ns = now_ns

    def _stuck(self, about: str, what: str) -> None:
        """Something keeps jobs from starting; "" if not any more. Said once."""
        if self._obstacles.get(about, "") == what:
            return
        if what:
            self._obstacles[about] = what
            self.log.rack("no job starts", why=what)
        else:
            self.log.rack("fixed", what=self._obstacles.pop(about))

    # ---- runs

    def _dispatch(self, now_ns: int) -> None:
        try:
            self._inherited.look(now_ns)
            if not self._obstacles:
                for start in self.rack.starts(self.hub.present(), self.hub.gone(now_ns)):
                    self._start(start)
        except StoreFailed as error:
            self._stuck("store", str(error))
            self._next_dispatch_ns = now_ns + _RETRY_NS

    def _start(self, start: Start) -> None:
        job = self.rack.begin(start)
        ports, hosts = self.rig.ports, {agent.name: agent.host for agent in self.rig.agents}
        threads: Counter[str] = Counter()
        for label in start.ports:
            threads[label.partition("/")[0]] += ports[label].most_threads
        machines = {name: self.hub.machine_of(name, hosts[name]) for name in threads}
        busy, taken = number_threads(threads, machines, (other.threads for other in self._runs.values()))
        begin = Begin(
            run_id=job.job_id,
            scenario_text=job.request.scenario_text,
            scenario_root=str(self.config.scenario_root),
            rig_text=self.rig_text,
            rig_root=str(self.config.rig.parent),
            ports=start.ports,
            out_dir=str(self._directory(job.job_id)),
            allowed_code=self.config.allowed_code,
            busy_threads=busy,
            strict=job.request.strict,
        )

        def on_frame(frame: RunFrame) -> None:
            self._on_frame(run, frame)

        lock_path = lock_of(self.config.state_dir, job.job_id)
        child = RunChild(begin, lock_path, self.config.run_memory_bytes, on_frame)
        limit_ns = job.request.time_limit_ns or self.config.limits.job_time_ns
        run = RackRun(job.job_id, taken, monotonic_ns(), limit_ns, child, asyncio.create_task(child.live()))
        self._runs[job.job_id] = run
        self.log.job(job.job_id, "starting", ports=list(start.ports), priority=job.request.priority)

    def _on_frame(self, run: RackRun, frame: RunFrame) -> None:
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
            case TrafficEnded():
                self._note(run, JobEvent.TRAFFIC_ENDED)
                # What the agents are told last still leaves by `_outgoing`; their slots are theirs again.
                self.hub.release(run.job_id)
            case Ended():
                run.outcome = frame
                run.advance(RackRunEvent.REPORT, monotonic_ns())

    def _note(self, run: RackRun, event: JobEvent) -> None:
        """Notes where a run stands. What the store does not take is left out: its end is what must not be lost."""
        try:
            self.rack.note(run.job_id, event)
        except StoreFailed as error:
            self._stuck("store", str(error))

    def _lease_slots(self, run: RackRun) -> None:
        for slot in self.hub.lease(run.job_id, sorted(run.wanted)):
            run.wanted.discard(slot.hello.name)
            run.child.forward(slot.identity, encode(slot.hello))

    def _look_at(self, run: RackRun, now_ns: int) -> tuple[Action, ...]:
        match run.state:
            case RackRunState.LIVING | RackRunState.STOPPING | RackRunState.REPORTED if run.task.done():
                return self._on_exit(run, _death(run.task), now_ns)
            case RackRunState.LIVING:
                self._lease_slots(run)
                if why := self._why_stop(run, now_ns):
                    run.advance(RackRunEvent.STOP_ORDERED, now_ns)
                    run.child.stop(why)
            case RackRunState.STOPPING | RackRunState.REPORTED:
                if now_ns - run.since_ns > _STOP_NS:
                    told = "was told to stop" if run.state is RackRunState.STOPPING else "said how it ended"
                    run.child.kill(f"its process {told} and had not ended {seconds_text(_STOP_NS)} later")
            case RackRunState.RETURNING:
                patience_ns = LOST_AFTER_NS + _RETURN_NS
                if self.hub.returned(run.job_id) or now_ns - run.since_ns > patience_ns:
                    self.hub.give_up(run.job_id)
                    run.advance(RackRunEvent.RETURNED, now_ns)
                    self._store_end(run, now_ns)
            case RackRunState.UNSTORED:
                self._store_end(run, now_ns)
            case RackRunState.STORED:
                raise AssertionError("a run that is stored is forgotten")
        return ()

    def _on_exit(self, run: RackRun, death: str, now_ns: int) -> tuple[Action, ...]:
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
        if now_ns - run.began_ns > run.time_limit_ns:
            return f"stopped at its time limit of {seconds_text(run.time_limit_ns)}"
        return ""

    def _store_end(self, run: RackRun, now_ns: int) -> None:
        if now_ns < run.store_again_ns:
            return
        ended = run.outcome
        try:
            job = self.rack.finish(
                run.job_id,
                ExitCode(ended.exit_code),
                ended.reason,
                summary=ended.summary,
                # Not only what is whole: retention has to know of every directory there is.
                artifact_bytes=artifacts.size_bytes(self._directory(run.job_id)),
            )
        except StoreFailed as error:
            self._stuck("store", str(error))
            run.store_again_ns = now_ns + _RETRY_NS
            given_up = now_ns > self._drain_until_ns + _STOP_NS
            if given_up:
                # The next controller finds the job unfinished, and what was stored of it.
                del self._runs[run.job_id]
                self.log.job(run.job_id, "its end could not be noted", reason=ended.reason)
            return
        run.advance(RackRunEvent.STORE, now_ns)
        del self._runs[run.job_id]
        self.log.job(job.job_id, str(job.state), exit_code=int(ended.exit_code), reason=job.reason)
        took_s = (monotonic_ns() - run.began_ns) / NS_PER_S
        self.tallies.ended_job(job, took_s, json.loads(ended.summary) if ended.summary else None)

    def _directory(self, job_id: str) -> Path:
        return self.config.state_dir / "artifacts" / job_id

    async def _abandon(self) -> None:
        """Nothing of ours outlives the daemon, whatever ended it."""
        for run in self._runs.values():
            run.child.kill()
        if self._runs:
            await asyncio.wait([run.task for run in self._runs.values()], timeout=5)

    def presence(self) -> tuple[AgentPresence, ...]:
        """Every agent of the rack as it stands."""
        return self.hub.presence(monotonic_ns())

    def summary_of(self, job: Job) -> str:
        """summary.json of a job; "" if there is none."""
        return artifacts.summary_text(self._directory(job.job_id)) if job.run_directory else ""

    def obstacles(self) -> tuple[str, ...]:
        """Why no job would start, for /healthz."""
        return tuple(self._obstacles.values())

    def free_disk_bytes(self) -> int:
        """Where jobs and results are kept."""
        return shutil.disk_usage(self.config.state_dir).free

    # ---- housekeeping

    def _publish_agents(self, now_ns: int) -> None:
        for name, stands in self.hub.standings().items():
            if self._known.get(name, (0, 0, None)) != stands:
                self._known[name] = stands
                self.rack.publish(AgentChanged(self.hub.presence_of(name, now_ns)))

    def _housekeep(self, now_ns: int) -> None:
        collect_cycles()
        try:
            short = self.free_disk_bytes() < self.config.free_disk_bytes
            self._stuck("disk", "the disk is full" if short else "")
        except OSError as error:
            self._stuck("disk", f"{self.config.state_dir} cannot be used: {error.strerror}")
        try:
            self._retaining.look(now_ns)
            if "store" in self._obstacles:
                self.store.probe()
                self._stuck("store", "")
        except StoreFailed as error:
            self._stuck("store", str(error))


def _death(task: asyncio.Task[str]) -> str:
    try:
        return task.result()
    except Exception as error:  # noqa: BLE001 - a mistake of ours in one run must not end the others
        return f"its process could not be followed: {type(error).__name__}: {error}"
