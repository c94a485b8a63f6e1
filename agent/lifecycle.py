"""Decides an agent's life: orders of the controller and events of the engine in, actions out, time as an argument.

Owns the agent's state, the silence after which the controller counts as gone, and when the agent ends. The socket, the
clock and the engine itself belong to service.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.agent.hello_retry import Asking
from etloop.agent.lifecycle_actions import (
    Action,
    CloseEngine,
    HandedOver,
    HandOver,
    JoinEnds,
    Leave,
    Log,
    OpenEngine,
    PostOps,
    QueryEngineWaits,
    Reconnect,
    SendMessage,
    StartEngine,
    StartProbe,
)
from etloop.agent.round_trips import least_round_trips
from etloop.contract.base.clock import seconds_text
from etloop.contract.base.errors import ExitCode, Problem, ProtocolError
from etloop.contract.base.ip_address import ip_text
from etloop.contract.base.listening_clock import PAUSE_NS, ListeningClock
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.engine import EnginePhase, EngineStatus, ProbeOutcome
from etloop.contract.protocol.machine import AgentEvent, AgentState, IllegalTransition, advance_agent
from etloop.contract.protocol.message_set import VersionMismatch
from etloop.contract.protocol.messages import (
    CLOSED_AFTER_NS,
    LASTING_REFUSALS,
    MAX_BATCH_BYTES,
    REPORT_NS,
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
    Ping,
    Pong,
    Post,
    Probe,
    Probed,
    ProbeFailure,
    Progress,
    QueryWaits,
    QueuePairEnd,
    Rates,
    Refused,
    Report,
    Start,
    Started,
    Waits,
    Welcome,
    clip,
)

_MAX_REPORTED_FAILURES: Final = 64
"""Probe failures reported by name; with a cut link thousands fail for one reason."""
_NO_PROGRESS: Final = Progress(0, 0, 0, 0, 0)


class AgentLife:
    """The life of one agent process, over any number of runs and controllers."""

    def __init__(self, hello: Hello, controller: str, *, once: bool, now_ns: int) -> None:
        self.state = AgentState.JOINING
        self._hello = hello
        self._controller = controller
        self._once = once
        self._assignment: Assignment
        """Set in the states of `_IN_RUN`."""
        self._lost_after_ns = 0
        self.report_ns = REPORT_NS
        """Least time between two progress reports of a run."""
        self.slots = 1
        """Number of runs at once that the controller may assign to this agent."""
        self._heard_ns = now_ns
        self._closed_ns: int | None = None
        """When the connection was found closed; None: something was heard since."""
        self._listening = ListeningClock(now_ns)
        self._asking = Asking(f"{hello.name} {hello.process} {hello.slot}", now_ns)
        self._ops_sent = 0
        self._wait_query = 0
        self._last = _NO_PROGRESS
        self._actions: list[Action] = [Log(f"waiting for a controller at {controller}")]

    @property
    def watches_engine(self) -> bool:
        """Return whether `on_status` should be called with the engine's status."""
        return self.state in _WITH_ENGINE

    @property
    def in_run(self) -> bool:
        """Return whether the agent has an assignment, so that this connection is taken."""
        return self.state in _IN_RUN

    @property
    def settled(self) -> bool:
        """Return whether the agent has a controller and nothing to do."""
        return self.state is AgentState.IDLE

    @property
    def pairing(self) -> bool:
        """Return whether the engine's queue pairs are to be joined with those of network cards."""
        return self.state is AgentState.PAIRING

    @property
    def probing(self) -> bool:
        """Return whether the engine's probe outcomes are wanted."""
        return self.state is AgentState.PROBING

    # ---- the controller

    def on_hello_changed(self, hello: Hello) -> tuple[Action, ...]:
        """Store this agent's new Hello; an idle agent sends it at once, in other states the next join does."""
        self._hello = hello
        if self.state is AgentState.IDLE:
            self._send(hello)
        return self._take_actions()

    def on_hello_unsent(self) -> None:
        """Retry Hello at the next tick, since there was no connection to send it on."""
        self._asking.unsent()

    def on_turned_away(self, why: str, now_ns: int) -> tuple[Action, ...]:
        """Schedule a new connection after a handshake failed for good: ZeroMQ does not retry by itself."""
        if self.state is AgentState.JOINING and self._asking.turned_away(why, now_ns):
            self._say_refused(why)
        return self._take_actions()

    def on_keys_changed(self, now_ns: int) -> tuple[Action, ...]:
        """Connect again after the keys were read again, except in a run: a connection keeps the keys that it began with."""
        if self.state is AgentState.JOINING:
            self._asking.connect_anew(now_ns)
        elif not self.in_run:  # A run keeps its connection; the new keys apply to the next one.
            self._send(Bye("reloading its keys"))
            self._do(Log("reconnecting with the reloaded keys"))
            self._ask_again(now_ns, linger=True)
        return self._take_actions()

    def on_message(self, message: ControllerMessage, now_ns: int) -> tuple[Action, ...]:
        """Carry out a message of the controller; an order that is illegal in this state is refused and faults the run."""
        self._heard_ns, self._closed_ns = now_ns, None
        try:
            self._on_order(message, now_ns)
        except IllegalTransition as error:
            self._do(Log(f"refused an order: {error}"))
            if self.in_run:
                self._send(Faulted(self._assignment.run_id, str(error)))
        return self._take_actions()

    def on_malformed(self, error: ProtocolError, now_ns: int) -> tuple[Action, ...]:
        """Leave the controller after it violated the protocol; end the process if its version differs."""
        if self.state is not AgentState.JOINING:
            own_versions = ", ".join(f"{name} {version}" for name, version in self._hello.versions.items())
            self._send(Bye(clip(f"cannot decode the message: {error}; this agent runs {own_versions}")))
        if isinstance(error, VersionMismatch):
            self._do(Log(f"controller at {self._controller}: {error}"))
            self._leave(ExitCode.PREPARATION_FAILED)
        else:
            why = f"protocol error of the controller: {error}"
            self._part(why, ExitCode.RUN_ERROR, now_ns, linger=True)
        return self._take_actions()

    def on_tick(self, now_ns: int) -> tuple[Action, ...]:
        """Handle the passing of time: send Hello while joining; leave a controller that has been silent for too long."""
        self._note_pause(self._listening.turn(now_ns))
        if self.state is AgentState.JOINING:
            self._keep_asking(now_ns)
        elif now_ns - self._heard_ns > self._lost_after_ns:
            silence = f"the controller has been silent for {seconds_text(self._lost_after_ns)}"
            self._part(silence, ExitCode.RUN_ERROR, now_ns)
        elif self._closed_ns is not None and now_ns - self._closed_ns > CLOSED_AFTER_NS:
            closed_text = "the connection to the controller is closed, and the controller has been silent for"
            self._part(f"{closed_text} {seconds_text(CLOSED_AFTER_NS)}", ExitCode.RUN_ERROR, now_ns)
        return self._take_actions()

    def on_closed(self, now_ns: int) -> None:
        """Note that the connection was closed: the controller has ended, or ZeroMQ connects again by itself."""
        if self._closed_ns is None:
            self._closed_ns = now_ns

    def _note_pause(self, missed_ns: int) -> None:
        """Leave a time in which this process did not run out of the controller's silence."""
        self._heard_ns += missed_ns
        if self._closed_ns is not None:
            self._closed_ns += missed_ns
        if missed_ns >= PAUSE_NS:
            self._do(Log(f"this process did not run for {seconds_text(missed_ns)}"))

    def on_stop(self, reason: str) -> tuple[Action, ...]:
        """End the agent on request of the user, such as Ctrl-C."""
        in_run = self.in_run
        self._do(Log(f"{reason} while {self.state.name}"))
        if self.state is not AgentState.JOINING:
            self._send(Bye(reason))
        self._leave(ExitCode.RUN_ERROR if in_run else ExitCode.PASS)
        return self._take_actions()

    def _on_order(self, message: ControllerMessage, now_ns: int) -> None:
        match message:
            case Ping(sequence, controller_ns):
                self._send(Pong(sequence, controller_ns, now_ns, now_ns))
            case Welcome():
                # The controller of a run that leases this agent sends Welcome again, perhaps with a longer timeout.
                self._lost_after_ns = message.lost_after_ns
                self.report_ns = max(REPORT_NS, message.report_ns)
                self._asking.note_welcome()
                if (
                    self.state is AgentState.JOINING
                ):  # Repeated Hellos are each answered with a Welcome; only the first one counts.
                    self._do(Log(f"joined the controller at {self._controller}"))
                    self._advance(AgentEvent.WELCOMED)
                    self.slots = message.slots
                else:  # The rack's rig may have more ports on this host than before.
                    self.slots = max(self.slots, message.slots)
            case Refused(reason, cause):
                if self._once or cause in LASTING_REFUSALS:
                    self._do(Log(f"the controller at {self._controller} refused: {reason}"))
                    self._leave(ExitCode.PREPARATION_FAILED)
                else:
                    self._on_refused(reason, now_ns)
            case Dismissed():
                how = f"aborted: {message.reason}" if message.aborted else "done"
                code = ExitCode.RUN_ERROR if message.aborted else ExitCode.PASS
                self._send(Bye("dismissed"))
                self._part(f"run {message.run_id} {how}", code, now_ns, linger=True)
            case Assign(assignment):
                self._on_assign(assignment)
            case _ if not self.in_run or message.run_id != self._assignment.run_id:
                refusal = f"{type(message).__name__} for run {message.run_id}, which was not assigned here"
                self._do(Log(f"refused an order: {refusal}"), SendMessage(Faulted(message.run_id, refusal)))
            case Pair() | Probe() | Arm() | Start() | Post() | QueryWaits() | Collect():
                self._on_run_order(message, now_ns)

    def _on_assign(self, assignment: Assignment) -> None:
        self._advance(AgentEvent.ASSIGNED)
        self._assignment = assignment
        self._ops_sent = 0
        self._do(Log(f"run {assignment.run_id}: {len(assignment.ranks)} ranks, opening sockets"))
        self._do(OpenEngine(assignment))

    def _on_run_order(
        self, message: Pair | Probe | Arm | Start | Post | QueryWaits | Collect, now_ns: int
    ) -> None:
        match message:
            case Pair(_, peers):
                self._advance(AgentEvent.PAIR_ORDERED)
                self._do(JoinEnds(peers))
            case Probe():
                self._advance(AgentEvent.PROBE_ORDERED)
                self._do(StartProbe())
            case Arm(run_id):
                self._advance(AgentEvent.ARM_ORDERED)
                self._send(Armed(run_id))
            case Start(run_id, start_ns, _) if start_ns < now_ns and self.state is AgentState.ARMED:
                # Ranks that begin late look like a slow network. The controller orders another start, or ends the run.
                self._do(Log(f"the start order arrived {seconds_text(now_ns - start_ns)} after the start"))
                self._send(Started(run_id, start_ns - now_ns))
            case Start(run_id, start_ns, posted):
                self._advance(AgentEvent.START_ORDERED)
                self._do(StartEngine(start_ns, posted), SendMessage(Started(run_id, start_ns - now_ns)))
            case Post(_, posts, last):
                # An engine that failed, or is being emptied, begins nothing; the controller learns of it by another message.
                if self.state is AgentState.RUNNING:
                    self._do(PostOps(posts, last))
            case QueryWaits(_, query):
                self._wait_query = query
                self._do(QueryEngineWaits())
            case Collect():
                loading = self.state is AgentState.LOADING
                self._advance(AgentEvent.COLLECT_ORDERED)
                if not loading:  # An engine that is still being built is handed over once it is there.
                    self._do(HandOver())

    # ---- the engine

    def on_opened(
        self,
        degraded: tuple[str, ...],
        ends: tuple[QueuePairEnd, ...] = (),
        capabilities: tuple[str, ...] = (),
    ) -> tuple[Action, ...]:
        """Report that the engine is built, or close it if it is no longer wanted."""
        if self.state is AgentState.LOADING:
            self._advance(AgentEvent.OPENED)
            self._do(*(Log(text) for text in degraded))
            degraded_texts, capability_texts = (
                tuple(clip(text) for text in texts) for texts in (degraded, capabilities)
            )
            self._send(Loaded(self._assignment.run_id, degraded_texts, ends, capability_texts))
        elif self.state is AgentState.COLLECTING:
            self._do(HandOver())
        else:
            self._do(CloseEngine())
        return self._take_actions()

    def on_open_failed(self, problems: tuple[Problem, ...]) -> tuple[Action, ...]:
        """Report the problems because of which the engine could not be built."""
        self._do(*(Log(str(problem)) for problem in problems))
        if self.state is AgentState.LOADING:
            self._advance(AgentEvent.FAULT)
            reported = (
                Problem(clip(problem.where), clip(problem.what), clip(problem.remedy)) for problem in problems
            )
            self._send(LoadFailed(self._assignment.run_id, tuple(reported)[:_MAX_REPORTED_FAILURES]))
        elif self.state is AgentState.COLLECTING:
            self._do(HandOver())
        return self._take_actions()

    def on_paired(self) -> tuple[Action, ...]:
        """Report that the engine's queue pairs are joined with those of network cards."""
        if self.state is AgentState.PAIRING:
            self._advance(AgentEvent.PAIRED)
            self._send(Paired(self._assignment.run_id))
        return self._take_actions()

    def on_probed(self, outcomes: Sequence[ProbeOutcome]) -> tuple[Action, ...]:
        """Report the outcomes of the engine's probes; any failed probe faults the run."""
        if self.state is not AgentState.PROBING:
            return self._take_actions()
        failed = [outcome for outcome in outcomes if not outcome.ok]
        failures = tuple(
            _probe_failure(outcome, self._assignment) for outcome in failed[:_MAX_REPORTED_FAILURES]
        )
        self._advance(AgentEvent.FAULT if failed else AgentEvent.PROBED)
        self._do(Log(f"{len(outcomes) - len(failed)} of {len(outcomes)} queue pairs answered their probe"))
        round_trips = least_round_trips(outcomes)
        self._send(Probed(self._assignment.run_id, len(outcomes), len(failed), failures, round_trips))
        return self._take_actions()

    def on_status(self, status: EngineStatus, ops: NDArray[np.void], now_ns: int) -> tuple[Action, ...]:
        """Report progress with the ops completed since the last call; act on a failed or completed engine."""
        if self.state not in _WITH_ENGINE:
            return self._take_actions()
        if self.state in (AgentState.RUNNING, AgentState.FINISHED):
            self._report(status, ops, now_ns)
        if status.phase is EnginePhase.FAILED:
            self._advance(AgentEvent.FAULT)
            self._do(Log(f"engine failed: {status.failure}"))
            self._send(Faulted(self._assignment.run_id, clip(status.failure)))
        elif status.phase is EnginePhase.DONE and self.state is AgentState.RUNNING:
            self._advance(AgentEvent.COMPLETED)
            self._do(Log("all operations complete"))
        return self._take_actions()

    def on_engine_error(self, error: str) -> tuple[Action, ...]:
        """Fault the run after a call into the engine raised something that the engine does not report as its state."""
        self._do(Log(f"engine error: {error}"))
        if self.state in _WITH_ENGINE:
            self._advance(AgentEvent.FAULT)
            self._send(Faulted(self._assignment.run_id, clip(f"engine error: {error}")))
        return self._take_actions()

    def on_waits(self, waits: NDArray[np.void]) -> tuple[Action, ...]:
        """Send the engine's waits to the controller, in batches."""
        if self.in_run:
            batches = list(_batches(waits))
            for number, batch in enumerate(batches, 1):
                last = number == len(batches)
                self._send(Waits(self._assignment.run_id, self._wait_query, last, batch))
        return self._take_actions()

    def on_handed_over(self, left: HandedOver) -> tuple[Action, ...]:
        """Send all records and counters of the closed engine, then Finished, and forget the run."""
        if self.state is not AgentState.COLLECTING:
            return self._take_actions()
        run_id = self._assignment.run_id
        for batch in _batches(left.ops):
            if len(batch):
                self._ops_sent += len(batch)
                self._send(Report(run_id, self._last, left.end is EngineEnd.DONE, batch))
        self._do(*(SendMessage(Flows(run_id, batch)) for batch in _batches(left.flows) if len(batch)))
        self._do(*(SendMessage(Rates(run_id, batch)) for batch in _batches(left.rates) if len(batch)))
        for port, records in left.captured.items():
            parts = range(0, len(records), MAX_BATCH_BYTES)
            self._do(
                *(SendMessage(Captured(run_id, port, records[at : at + MAX_BATCH_BYTES])) for at in parts)
            )
        self._send(
            Finished(
                run_id,
                left.end,
                clip(left.failure),
                self._ops_sent,
                len(left.flows),
                left.ports,
                len(left.rates),
                left.streams,
                left.frames,
            )
        )
        self._advance(AgentEvent.HANDED_OVER)
        self._forget_run()
        return self._take_actions()

    # ---- inside

    def _report(self, status: EngineStatus, ops: NDArray[np.void], now_ns: int) -> None:
        quiet_ns = max(0, now_ns - status.last_progress_ns)
        progress = Progress(
            status.ops_done,
            status.ops_total,
            status.wire_tx_bytes,
            status.wire_rx_bytes,
            quiet_ns,
            status.threads,
            status.frames,
        )
        self._last = progress
        completed = status.phase is EnginePhase.DONE
        batches = list(_batches(ops))
        for number, batch in enumerate(batches, 1):
            self._ops_sent += len(batch)
            last = number == len(batches)
            self._send(Report(self._assignment.run_id, progress, completed and last, batch))

    def _on_refused(self, reason: str, now_ns: int) -> None:
        """Keep sending Hello after a refusal whose cause may be removed elsewhere."""
        if self.state is not AgentState.JOINING:
            self._ask_again(now_ns, linger=False)
        if self._asking.note_refusal(reason, now_ns):
            self._say_refused(reason)

    def _say_refused(self, why: str) -> None:
        self._do(Log(f"refused by the controller at {self._controller}: {why}; retrying every few seconds"))

    def _keep_asking(self, now_ns: int) -> None:
        if self._asking.wants_connection(now_ns):
            self._do(Reconnect(linger=False))
        if self._asking.says_hello(now_ns):
            self._send(self._hello)
        if self._asking.reminds(now_ns):
            self._do(
                Log(
                    f"no answer from {self._controller} yet: no controller runs there, it is busy with a run, "
                    "or --controller-key is not its key; still retrying"
                )
            )

    def _part(self, why: str, code: ExitCode, now_ns: int, *, linger: bool = False) -> None:
        """Give up this controller and the run, if any; with `once` the process ends with `code`."""
        if self.state is AgentState.JOINING:
            return
        self._do(Log(why))
        if self._once:
            self._leave(code)
            return
        self._ask_again(now_ns, linger=linger)

    def _ask_again(self, now_ns: int, *, linger: bool) -> None:
        if self.in_run:
            self._do(CloseEngine())
            self._forget_run()
        self._advance(AgentEvent.PARTED)
        self._closed_ns = None
        self._asking.begin(now_ns)
        self._do(Reconnect(linger), Log(f"waiting for a controller at {self._controller}"))

    def _leave(self, code: ExitCode) -> None:
        if self.in_run:
            self._do(CloseEngine())
        self._do(Leave(code))

    def _forget_run(self) -> None:
        del self._assignment
        self._last = _NO_PROGRESS

    def _advance(self, event: AgentEvent) -> None:
        self.state = advance_agent(self.state, event)

    def _do(self, *actions: Action) -> None:
        self._actions += actions

    def _send(self, message: AgentMessage) -> None:
        self._actions.append(SendMessage(message))

    def _take_actions(self) -> tuple[Action, ...]:
        actions, self._actions = tuple(self._actions), []
        return actions


_IN_RUN: Final = frozenset(AgentState) - {AgentState.JOINING, AgentState.IDLE}
_WITH_ENGINE: Final = frozenset(
    {
        AgentState.LOADED,
        AgentState.PAIRING,
        AgentState.PROBING,
        AgentState.CONNECTED,
        AgentState.ARMED,
        AgentState.RUNNING,
        AgentState.FINISHED,
    }
)


def _batches(records: NDArray[np.void]) -> Iterator[NDArray[np.void]]:
    """Split the records into batches that fit in a message; yield at least one, so that an empty answer is sent."""
    step = MAX_BATCH_BYTES // records.dtype.itemsize
    for begin in range(0, max(1, len(records)), step):
        yield records[begin : begin + step]


def _probe_failure(outcome: ProbeOutcome, assignment: Assignment) -> ProbeFailure:
    columns, row = assignment.connections, outcome.connection
    return ProbeFailure(
        src_rank=int(columns.src_rank[row]),
        dst_rank=int(columns.dst_rank[row]),
        src_address=ip_text(columns.src_ip[row]),
        dst_address=ip_text(columns.dst_ip[row]),
        problem=clip(outcome.problem),
    )
