"""Decides a run from the first Hello to the last record: events in, actions out, time as an argument.

Owns the run's state, what each phase waits for and until when, and the reason if the run fails. Sockets and the clock
belong to service.py, membership to roster.py, measurements to records.py, and the explanation of stalls to stall.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from etloop.contract.base.clock import seconds_text
from etloop.contract.base.errors import Problem, ProtocolError
from etloop.contract.base.listening_clock import PAUSE_NS, ListeningClock
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.frame_streams import FrameCount
from etloop.contract.model.records import POST_RECORD
from etloop.contract.model.run import PlanTables, RunEnd, RunOutcome
from etloop.contract.protocol.machine import PREPARING, RunEvent, RunState, advance_run
from etloop.contract.protocol.messages import (
    AgentMessage,
    Arm,
    Armed,
    Assign,
    Bye,
    Captured,
    Collect,
    ControllerMessage,
    Dismissed,
    EngineEnd,
    Faulted,
    Finished,
    Flows,
    Hello,
    Loaded,
    LoadFailed,
    Pair,
    Paired,
    Pong,
    Post,
    Probe,
    Probed,
    Progress,
    QueryWaits,
    Rates,
    Refused,
    Report,
    Start,
    Started,
    Waits,
)
from etloop.controller.session import run_problems
from etloop.controller.session.actions import Action, LogLine, RefusalLog, RunProgress, Send
from etloop.controller.session.clock_map import ClockOffset
from etloop.controller.session.nic_endpoints import peers_of
from etloop.controller.session.pauses import Pauses
from etloop.controller.session.posts import Posts
from etloop.controller.session.records import OnOps, RecordSink, run_progress, sinks_of
from etloop.controller.session.roster import Roster
from etloop.controller.session.settings import SessionSettings
from etloop.controller.session.shared_cores import share_cores
from etloop.controller.session.spool import Spool, begin_spool
from etloop.controller.session.stall import explain
from etloop.controller.session.wait_query import WaitQuery

_ASSIGNED_AT_ONCE: Final = 4
"""Agents that get their assignment in one turn: heartbeats are sent in between, however large a run is."""
_COLLECTING: Final = frozenset({RunState.COLLECT, RunState.ABORTING})
_WAITING_FOR_SILENT: Final = (PREPARING - {RunState.GATHER}) | {RunState.RUN, RunState.COLLECT}
"""States whose deadlines wait for silent agents. Before, agents may be absent; after a failure it is not worth the time."""
_MOST_STARTS: Final = 3
"""Start orders after which a run that always misses its start is ended."""


class Session:
    """One run over the agents of `assignments`."""

    def __init__(
        self,
        settings: SessionSettings,
        assignments: Mapping[str, Assignment],
        tables: PlanTables,
        now_ns: int,
        spool: Spool | None = None,
        on_ops: OnOps | None = None,
        posts: Posts | None = None,
    ) -> None:
        assert assignments
        self.state = RunState.GATHER
        self._early_end = RunEnd.ABORTED
        self.reason = ""
        """Why the run failed, "" as long as it has not."""
        self.problems: tuple[Problem, ...] = ()
        """The problems of preparation, if the run failed before any traffic and was not stopped by the user."""
        self.start_ns = 0
        self._settings = settings
        self._assignments = assignments
        self._tables = tables
        self._roster = Roster(tuple(assignments), settings.welcome(len(assignments)), settings.standing_by)
        self._spool = spool
        self._sinks = sinks_of(assignments, spool, on_ops)
        self._posts = posts
        self._hellos: dict[str, Hello] = {}
        self._offsets: dict[str, ClockOffset] = {}
        self._progress: dict[str, Progress] = {}
        self._pending: set[str] = set(assignments)
        """Agents whose answer this phase still needs."""
        self._unassigned: list[str] = []
        """Agents whose assignment is still to be sent."""
        self._completed: set[str] = set()
        self._deadline_ns = now_ns + settings.gather_timeout_ns
        self._moved_ns = now_ns
        self._queries = 0
        self._refusals = RefusalLog()
        self._wait_query: WaitQuery | None = None
        self._listening = ListeningClock(now_ns)
        self._turned_ns = now_ns
        self._pauses = Pauses()
        self._late: dict[str, Started] = {}
        """Agents that got their start order after the start."""
        self._starts = 0
        self._actions: list[Action] = []
        self._unready: list[Problem] = []
        self._remarks: dict[str, list[str]] = {}
        """In which respects agents cannot do what they were asked, each with their names."""
        self._log(f"waiting at {settings.bind} for {run_problems.agent_names(tuple(assignments))}")

    # ---- events

    def frame_counts(self) -> dict[str, tuple[FrameCount, ...]]:
        """Return the streams of frames so far, by agent."""
        return {agent: progress.frames for agent, progress in self._progress.items()}

    @property
    def ended(self) -> bool:
        """Return whether the run is over and its agents have left, or had their time to."""
        return self._over and not self._pending

    @property
    def _over(self) -> bool:
        return self.state in (RunState.DONE, RunState.ABORTED)

    @property
    def due_ns(self) -> int | None:
        """Return when `on_tick` is to be called without a message, before its next turn; None: no sooner than that."""
        posts = self._begun_posts
        return None if posts is None or posts.next_ns is None else self.start_ns + posts.next_ns

    @property
    def _begun_posts(self) -> Posts | None:
        """Return the messages of a run that has started at all agents; None before, and if its programs are executed."""
        is_begun = self.state is RunState.RUN and not self._pending and not self._late
        return self._posts if is_begun else None

    def on_message(self, identity: bytes, message: AgentMessage, now_ns: int) -> tuple[Action, ...]:
        """Process a message of an agent."""
        if isinstance(message, Hello):
            self._on_hello(identity, message, now_ns)
            return self._take_actions()
        name = self._roster.note_heard(identity, now_ns)
        if name is not None and self._over:
            if isinstance(message, Bye):
                self._pending.discard(name)
        elif name is not None:
            try:
                self._on_member(name, message, now_ns)
            except ProtocolError as error:
                self._on_breach(name, error, now_ns)
        return self._take_actions()

    def on_malformed(self, identity: bytes, error: ProtocolError, now_ns: int) -> tuple[Action, ...]:
        """Process a message that violates the protocol or is of a version that cannot be decoded."""
        name = self._roster.note_heard(identity, now_ns)
        if name is None:
            self._actions += self._refusals.lines(f"refused a connection: {error}")
            self._actions.append(Send(identity, Refused(str(error))))
        elif not self._over:
            self._on_breach(name, error, now_ns)
        return self._take_actions()

    def on_stop(self, reason: str, now_ns: int) -> tuple[Action, ...]:
        """End the run at the user's request, such as Ctrl-C."""
        self._abort(f"{reason} while in {self.state.name}", now_ns, RunEnd.STOPPED)
        return self._take_actions()

    def on_closed(self, identity: bytes, now_ns: int) -> None:
        """Note that the connection of an agent is closed; the agent counts as lost if it does not return soon."""
        self._roster.note_closed(identity, now_ns)

    def on_pause(self, paused: str, pause_ns: int, now_ns: int) -> tuple[Action, ...]:
        """Process a pause of a process between this session and its agents, such as "the controller", that ended now."""
        self._roster.excuse(pause_ns, now_ns)
        self._hold(min(pause_ns, self._settings.pause_ns))
        if pause_ns >= PAUSE_NS:
            self._pauses.note(paused, pause_ns, now_ns)
            self._log(f"{paused} did not run for {seconds_text(pause_ns)}")
        return self._take_actions()

    def on_tick(self, now_ns: int) -> tuple[Action, ...]:
        """Send the heartbeats whose time has come and check deadlines at `now_ns`."""
        if missed_ns := self._listening.turn(now_ns):
            self._actions += self.on_pause("the process of the run", missed_ns, now_ns)
        elif self.state in _WAITING_FOR_SILENT and self._roster.overdue(now_ns):
            self._hold(
                now_ns - self._turned_ns
            )  # The connection may recover: answers and progress wait in it.
        self._turned_ns = now_ns
        if not self._over:
            for name, why in self._roster.lost_members(now_ns):
                self._on_silent(name, why, now_ns)
        if not self._over:
            self._actions += [Send(identity, ping) for identity, ping in self._roster.due_pings(now_ns)]
            self._assign_some()
            self._post(now_ns)
            self._check_deadlines(now_ns)
        elif now_ns > self._deadline_ns:
            self._pending.clear()
        return self._take_actions()

    # ---- results

    def progress(self) -> RunProgress:
        """Return the progress of the run."""
        progress = run_progress(self.state, self._progress, self._sinks)
        return replace(progress, missing_agents=self._roster.missing())

    def outcome(self, started_at: str) -> RunOutcome:
        """Return all records. Agents that never got a start order are left out: they measured nothing."""
        assert self._over
        agents = tuple(sink.records(hello, offset) for sink, hello, offset in self._measuring())
        state = RunEnd.DONE if self.state is RunState.DONE else self._early_end
        return RunOutcome(self._settings.run_id, state, self.reason, started_at, self.start_ns, agents)

    # ---- joining and leaving

    def _on_hello(self, identity: bytes, hello: Hello, now_ns: int) -> None:
        member = self._roster.member(hello.name)
        if hello.name in self._settings.standing_by:
            return  # A refusal would end it, and a later run of the same rig may need it.
        if self._over:
            return  # Dismissed and already asking again: the next controller answers it.
        if self.state is not RunState.GATHER and hello.name in self._assignments and member is None:
            return  # It rejoined during a run that continues without it; it keeps asking until the next controller.
        answer = self._roster.join(identity, hello, now_ns)
        self._actions.append(Send(identity, answer))
        if isinstance(answer, Refused):
            self._actions += self._refusals.lines(
                f"refused agent '{hello.name}' of {hello.host}: {answer.reason}"
            )
        elif member is None:
            missing = self._roster.missing()
            waits = f"; waiting for {run_problems.agent_names(missing)}" if missing else ""
            self._log(f"agent '{hello.name}' joined from {hello.host}{waits}")
            self._mark_answered(hello.name, now_ns)

    def _on_silent(self, name: str, why: str, now_ns: int) -> None:
        member = self._roster.member(name)
        if member is None:
            return  # The end of the run has removed it.
        overdue = self._roster.overdue(now_ns)
        if self.state is not RunState.GATHER and len(overdue) == len(self._assignments) > 1:
            self._break(now_ns, run_problems.silent_link(why, self.state))
        self._on_lost(name, why, now_ns)
        if member is not None and self.state is not RunState.GATHER:
            # An agent that was only paused reads this when it resumes, and closes its ports at once.
            dismissed = Dismissed(self._settings.run_id, aborted=True, reason=self.reason[:1000])
            self._actions.append(Send(member.identity, dismissed))

    def _on_lost(self, name: str, why: str, now_ns: int) -> None:
        self._roster.leave(name)
        if self.state is RunState.GATHER:
            self._pending.add(name)
            self._log(
                f"agent '{name}' left: {why}; waiting for {run_problems.agent_names(self._roster.missing())}"
            )
            return
        self._break(
            now_ns, run_problems.agent_loss(self._hellos[name], why, self.state, self._progress.get(name))
        )
        self._handed_over(name, now_ns)

    def _on_breach(self, name: str, error: ProtocolError, now_ns: int) -> None:
        self._break(now_ns, run_problems.breach(name, error))
        self._handed_over(name, now_ns)

    # ---- members' messages

    def _on_member(self, name: str, message: AgentMessage, now_ns: int) -> None:
        match message:
            case Hello():
                raise AssertionError("taken earlier")
            case Pong():
                if self._roster.pong(name, message, now_ns) and self.state is RunState.ARM:
                    self._deadline_ns = now_ns + self._settings.arm_timeout_ns
                self._arm_if_ready(now_ns)
            case Bye():
                self._on_lost(name, f"left: {message.reason}", now_ns)
            case _ if message.run_id != self._settings.run_id:
                raise ProtocolError(
                    f"{type(message).__name__} of run {message.run_id} during run {self._settings.run_id}"
                )
            case Report():
                self._on_report(name, message, now_ns)
            case Flows() | Rates() | Captured():
                self._take(name, message, now_ns)
            case Finished():
                self._on_finished(name, message, now_ns)
            case Waits():
                self._on_waits(name, message, now_ns)
            case Faulted():
                silences = self._roster.recent_silences(now_ns)
                self._break(
                    now_ns, run_problems.failed_engine(name, message, silences, len(self._assignments))
                )
            case Loaded() | LoadFailed() | Paired() | Probed() | Armed() | Started():
                self._on_answer(name, message, now_ns)

    def _on_answer(
        self, name: str, message: Loaded | LoadFailed | Paired | Probed | Armed | Started, now_ns: int
    ) -> None:
        if self.state is RunState.ABORTING:
            return  # Sent before the Collect order arrived.
        match message:
            case Loaded() if self.state is RunState.ASSIGN:
                self._sinks[name].take_loaded(message)
                for remark in message.degraded:
                    self._remarks.setdefault(remark, []).append(name)
                self._mark_answered(name, now_ns)
            case LoadFailed() if self.state is RunState.ASSIGN:
                self._unready += run_problems.unloadable(self._hellos[name], message)
                self._mark_answered(name, now_ns)
            case Paired() if self.state is RunState.PAIR:
                self._mark_answered(name, now_ns)
            case Probed() if self.state is RunState.CONNECT:
                self._sinks[name].take_probed(message)
                self._unready += run_problems.unreachable(name, message)
                self._mark_answered(name, now_ns)
            case Armed() if self.state is RunState.ARM:
                self._pending.discard(name)
                self._arm_if_ready(now_ns)
            case Started() if self.state is RunState.RUN:
                self._pending.discard(name)
                if message.margin_ns < 0:
                    self._late[name] = message
                self._check_starts(now_ns)
            case _:
                raise ProtocolError(f"{type(message).__name__} while the run is in {self.state.name}")

    def _on_report(self, name: str, report: Report, now_ns: int) -> None:
        if self.state is not RunState.RUN and self.state not in _COLLECTING:
            raise ProtocolError(f"Report while the run is in {self.state.name}")
        self._take(name, report, now_ns)
        earlier, latest = self._progress.get(name), report.progress
        if earlier is None or replace(earlier, quiet_ns=latest.quiet_ns) != latest:
            self._move(now_ns)
        elif now_ns - latest.quiet_ns > self._moved_ns:
            self._move(now_ns - latest.quiet_ns)
        self._progress[name] = latest
        if (posts := self._begun_posts) is not None:
            posts.take(report.ops, self._offsets[name].to_agent(self.start_ns))
            self._post(now_ns)
        if report.completed and self.state is RunState.RUN:
            self._completed.add(name)
            if self._completed == set(self._assignments):
                self._collect(RunEvent.ALL_COMPLETED, now_ns)

    def _take(self, name: str, message: Report | Flows | Rates | Captured, now_ns: int) -> None:
        self._sinks[name].take(message)
        if why := self._sinks[name].unkept:
            self._abort(why, now_ns)
        self._extend_collect(now_ns)

    def _on_finished(self, name: str, finished: Finished, now_ns: int) -> None:
        if self.state not in _COLLECTING:
            raise ProtocolError(f"Finished while the run is in {self.state.name}")
        self._sinks[name].take_finished(finished)
        problem = self._sinks[name].shortfall()
        if finished.end is not EngineEnd.DONE:
            problem = f"engine {finished.end.value} while transferring its records: {finished.failure}"
        if problem:
            self._abort(f"agent '{name}': {problem}", now_ns)
        self._handed_over(name, now_ns)

    def _mark_answered(self, name: str, now_ns: int) -> None:
        """Remove one agent from the pending ones; after the last one enter the next phase, or end the run with all problems."""
        self._pending.discard(name)
        if self._pending:
            return
        for remark, names in self._remarks.items():
            self._log(f"{run_problems.agent_names(tuple(names))}: {remark}")
        self._remarks.clear()
        if self.state is RunState.GATHER:
            self._hellos = {agent: member.hello for agent, member in self._roster.members()}
        if self._unready:
            silences = self._roster.recent_silences(now_ns) if self.state is RunState.CONNECT else ()
            self._break(now_ns, *run_problems.explain_probes(self._unready, silences, len(self._assignments)))
            return
        match self.state:
            case RunState.GATHER:
                self._enter(RunEvent.ALL_JOINED, now_ns, self._settings.load_timeout_ns)
                self._assignments = share_cores(self._assignments, self._hellos)
                self._unassigned = list(self._assignments)
                self._assign_some()
            case RunState.ASSIGN:
                self._pair_or_probe(now_ns)
            case RunState.PAIR:
                self._probe(RunEvent.ALL_PAIRED, now_ns)
            case RunState.CONNECT:
                self._enter(RunEvent.ALL_CONNECTED, now_ns, self._settings.arm_timeout_ns)
                self._roster.renew_clocks(now_ns)
                self._order(lambda _: Arm(self._settings.run_id))
            case _:
                raise AssertionError(f"no agent is awaited in {self.state.name}")

    def _pair_or_probe(self, now_ns: int) -> None:
        """Join all NIC queue pairs, if there are any, before any agent probes: a NIC drops packets to one not ready."""
        peers = peers_of(self._assignments, {name: sink.ends for name, sink in self._sinks.items()})
        if not peers:
            return self._probe(RunEvent.ALL_LOADED, now_ns)
        self._enter(RunEvent.CARDS_LOADED, now_ns, self._settings.connect_timeout_ns)
        return self._order(lambda name: Pair(self._settings.run_id, peers.get(name, ())))

    def _probe(self, event: RunEvent, now_ns: int) -> None:
        self._enter(event, now_ns, self._settings.connect_timeout_ns)
        self._order(lambda _: Probe(self._settings.run_id))

    def _assign_some(self) -> None:
        for name in self._unassigned[:_ASSIGNED_AT_ONCE]:
            if (member := self._roster.member(name)) is not None:
                self._actions.append(Send(member.identity, Assign(self._assignments[name])))
        del self._unassigned[:_ASSIGNED_AT_ONCE]

    def _arm_if_ready(self, now_ns: int) -> None:
        if self.state is not RunState.ARM or self._pending or not self._roster.clocks_fresh():
            return
        for name in self._assignments:
            offset = self._roster.offset(name, now_ns)
            assert offset is not None
            self._offsets[name] = offset
        self._starts += 1
        lead_ns = self._settings.lead_ns(len(self._assignments))
        self.start_ns = self._moved_ns = now_ns + lead_ns
        self._enter(RunEvent.ALL_ARMED, now_ns, lead_ns + self._settings.arm_timeout_ns)
        if why := begin_spool(self._spool, self._settings.run_id, self.start_ns, self._measuring()):
            self._abort(why, now_ns)
            return
        posted = self._posts is not None
        self._order(
            lambda name: Start(self._settings.run_id, self._offsets[name].to_agent(self.start_ns), posted)
        )

    def _post(self, now_ns: int) -> None:
        """Order what begins by now, in a run whose messages depend on arrivals."""
        posts = self._begun_posts
        if posts is None or posts.over:
            return
        orders = posts.act(now_ns - self.start_ns)
        if not posts.waits:
            self._move(now_ns)  # It waits for modelled compute or the next request.
        for name, member in self._roster.members():
            rows = orders.get(name, [])
            self._sinks[name].allow_ops(len(rows))
            if rows or posts.over:
                order = Post(self._settings.run_id, np.array(rows, POST_RECORD), posts.over)
                self._actions.append(Send(member.identity, order))

    def _check_starts(self, now_ns: int) -> None:
        """Order another start if no engine has started, and end the run if some have started and others were too late."""
        started = len(self._assignments) - len(self._pending) - len(self._late)
        if not self._late or (self._pending and not started):
            return
        if started or self._starts >= _MOST_STARTS:
            self._break(
                now_ns, *(run_problems.overdue_start(name, late) for name, late in self._late.items())
            )
            return
        self._enter(RunEvent.START_MISSED, now_ns, self._settings.arm_timeout_ns)
        self._log("the start orders arrived after the start everywhere; ordering another start")
        self._pending.clear()
        self._late.clear()
        self._roster.renew_clocks(now_ns)

    def _hold(self, held_ns: int) -> None:
        """Move the deadlines by a time in which answers could not arrive."""
        self._deadline_ns += held_ns
        self._moved_ns += held_ns
        if self._wait_query is not None:
            self._wait_query.deadline_ns += held_ns

    def _measuring(self) -> list[tuple[RecordSink, Hello, ClockOffset]]:
        return [(self._sinks[name], self._hellos[name], offset) for name, offset in self._offsets.items()]

    def _collect(self, event: RunEvent, now_ns: int) -> None:
        """End the traffic, after completion or failure, and request the records."""
        self._enter(event, now_ns, self._settings.collect_timeout_ns)
        self._wait_query = None
        self._pending = {name for name, _ in self._roster.members()} - set(self._unassigned)
        self._order(lambda _: Collect(self._settings.run_id))
        self._unassigned.clear()
        self._handed_over("", now_ns)

    def _handed_over(self, name: str, now_ns: int) -> None:
        """Remove an agent ("": none) from those that still hand over records, and end the run when none is left."""
        if self.state in _COLLECTING:
            self._pending.discard(name)
            self._extend_collect(now_ns)
            if not self._pending:
                self._end(RunEvent.COLLECTED, now_ns)

    def _extend_collect(self, now_ns: int) -> None:
        if self.state in _COLLECTING:
            times, aborting = self._settings, self.state is RunState.ABORTING
            self._deadline_ns = now_ns + (times.break_timeout_ns if aborting else times.collect_timeout_ns)

    def _end(self, event: RunEvent, now_ns: int) -> None:
        self.state = advance_run(self.state, event)
        self._pending = {name for name, _ in self._roster.members()}
        self._deadline_ns = now_ns + self._settings.dismiss_timeout_ns
        aborted = self.state is RunState.ABORTED
        self._order(lambda _: Dismissed(self._settings.run_id, aborted, self.reason[:1000]))

    def _enter(self, event: RunEvent, now_ns: int, timeout_ns: int) -> None:
        self.state = advance_run(self.state, event)
        self._pending = set(self._assignments)
        self._deadline_ns = now_ns + timeout_ns
        self._log(f"run {self._settings.run_id}: {self.state.name}")

    def _break(self, now_ns: int, *agent_problems: Problem) -> None:
        problems = run_problems.merge(agent_problems)
        if pauses := self._pauses.text(now_ns):
            problems = (replace(problems[0], what=f"{problems[0].what}; {pauses}"), *problems[1:])
        if self.state in PREPARING:
            self.problems = problems
        self._abort("\n".join(str(problem) for problem in problems), now_ns)

    def _abort(self, reason: str, now_ns: int, end: RunEnd = RunEnd.ABORTED) -> None:
        """End the run for a reason. The first reason is kept: later failures follow from it."""
        if self.state is RunState.ABORTING or self._over:
            return
        self.reason, self._early_end = reason, end
        if self.state is RunState.GATHER:
            self._end(RunEvent.BROKEN, now_ns)
        elif self.state is RunState.COLLECT:
            self.state = advance_run(self.state, RunEvent.BROKEN)
            self._extend_collect(now_ns)
        else:
            self._collect(RunEvent.BROKEN, now_ns)

    # ---- waiting

    def _check_deadlines(self, now_ns: int) -> None:
        query = self._wait_query
        if self.state is RunState.RUN:
            if self._pending and now_ns > self._deadline_ns:
                self._break(now_ns, *run_problems.late_answers(self._pending, "did not confirm the start"))
            elif query is not None and now_ns > query.deadline_ns:
                self._conclude(query, now_ns)
            elif query is None and now_ns - self._moved_ns > self._settings.stall_timeout_ns:
                self._query_waits(now_ns)
        elif now_ns > self._deadline_ns:
            self._give_up(now_ns)

    def _give_up(self, now_ns: int) -> None:
        match self.state:
            case RunState.GATHER:
                problems = [run_problems.absent(name, self._settings) for name in self._roster.missing()]
                self._break(now_ns, *problems)
            case RunState.ASSIGN | RunState.PAIR | RunState.CONNECT | RunState.ARM:
                self._break(now_ns, *run_problems.out_of_time(self.state, self._pending))
            case RunState.COLLECT | RunState.ABORTING:
                names = run_problems.agent_names(tuple(sorted(self._pending)))
                self.reason = self.reason or f"{names} did not transfer all records in time"
                self._end(RunEvent.GAVE_UP, now_ns)
            case RunState.RUN | RunState.DONE | RunState.ABORTED:
                raise AssertionError(f"{self.state.name} has no deadline of its own")

    # ---- stalls

    def _move(self, moved_ns: int) -> None:
        if moved_ns > self._moved_ns:
            self._moved_ns = moved_ns
            self._wait_query = None

    def _query_waits(self, now_ns: int) -> None:
        self._queries += 1
        deadline_ns = now_ns + self._settings.waits_timeout_ns
        self._wait_query = WaitQuery(self._queries, deadline_ns, {name for name, _ in self._roster.members()})
        self._log(
            f"no progress for {seconds_text(now_ns - self._moved_ns)}; querying what every rank waits for"
        )
        self._order(lambda _: QueryWaits(self._settings.run_id, self._queries))

    def _on_waits(self, name: str, waits: Waits, now_ns: int) -> None:
        query = self._wait_query
        if query is None or waits.query != query.number:
            return  # The run made progress before the answer arrived.
        query.take(name, waits)
        if not query.pending:
            self._conclude(query, now_ns)

    def _conclude(self, query: WaitQuery, now_ns: int) -> None:
        self._wait_query = None
        finding = explain(query.evidence(), self._assignments, self._tables)
        quiet = f"no progress for {seconds_text(now_ns - self._moved_ns)}"
        if finding.computing:
            self._log(f"{quiet}, but {finding.text}; continuing to wait")
            self._moved_ns = now_ns
            return
        self._break(now_ns, run_problems.stall_problem(quiet, finding.text))

    # ---- output

    def _order(self, message_for: Callable[[str], ControllerMessage]) -> None:
        """Send a message to all members that have got their assignment."""
        members = [entry for entry in self._roster.members() if entry[0] not in self._unassigned]
        self._actions += [Send(member.identity, message_for(name)) for name, member in members]

    def _log(self, text: str) -> None:
        self._actions.append(LogLine(text))

    def _take_actions(self) -> tuple[Action, ...]:
        actions, self._actions = tuple(self._actions), []
        return actions
