"""A whole control plane in virtual time: one session, several agents with clocks of their own, and links with delay.

Only the engine and the sockets are played; what is said goes through the real codec, and all decisions are the real ones.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from etloop.agent.lifecycle import AgentLife
from etloop.agent.lifecycle_actions import Action as LifeAction
from etloop.agent.lifecycle_actions import (
    CloseEngine,
    HandedOver,
    HandOver,
    JoinEnds,
    Leave,
    Log,
    OpenEngine,
    QueryEngineWaits,
    Reconnect,
    SendMessage,
    StartEngine,
    StartProbe,
)
from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.contract.base.errors import ExitCode, Problem
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.engine import EnginePhase, EngineStatus, ProbeOutcome
from etloop.contract.model.records import FLOW_RECORD, OP_RECORD, PORT_RECORD, WAIT_RECORD, WaitKind
from etloop.contract.protocol.form_digest import MESSAGES, messages_digest
from etloop.contract.protocol.messages import EngineEnd, Hello, QueuePairEnd
from etloop.contract.protocol.wire import decode_from_agent, decode_from_controller, encode
from etloop.controller.session.actions import Action, LogLine, Send
from etloop.controller.session.session import Session
from etloop.controller.session.settings import SessionSettings
from tests.support.control_plane.control_plane_by_hand import ring_assignments, ring_tables

STEP_NS = 10 * NS_PER_MS
OP_NS = 50 * NS_PER_MS
OPS = 20
NEVER_NS = 1 << 62


@dataclass(slots=True)
class PlayedEngine:
    """Completes one op every `OP_NS` of the agent's clock, as far as `stops_at` allows."""

    assignment: Assignment
    stops_at: int = OPS
    fails: bool = False
    start_ns: int | None = None
    taken: int = 0

    def done(self, now_ns: int) -> int:
        return 0 if self.start_ns is None else min(self.stops_at, max(0, now_ns - self.start_ns) // OP_NS)

    def status(self, now_ns: int) -> EngineStatus:
        done = self.done(now_ns)
        phase = EnginePhase.RUNNING if self.start_ns is not None else EnginePhase.READY
        if done == OPS:
            phase = EnginePhase.DONE
        elif self.fails and done == self.stops_at:
            phase = EnginePhase.FAILED
        failure = "queue pair 0x1: no acknowledgement" if phase is EnginePhase.FAILED else ""
        return EngineStatus(phase, done, OPS, done, done, (self.start_ns or 0) + done * OP_NS, failure)

    def take(self, now_ns: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        done = self.done(now_ns)
        records = np.zeros(done - self.taken, OP_RECORD)
        records["op"] = np.arange(self.taken, done)
        self.taken = done
        return records


@dataclass(slots=True)
class PlayedAgent:
    """An agent process: its life, its clock, and whether it is alive and connected."""

    name: str
    clock_ahead_ns: int
    life: AgentLife
    alive: bool = True
    paused: bool = False
    """Does nothing, while what is sent to it waits in its socket."""
    unread: list[bytes] = field(default_factory=list)
    connection: int = 0
    engine: PlayedEngine | None = None
    stops_at: int = OPS
    fails: bool = False
    keeps_records: bool = False
    """It lives, and never hands over its records."""
    cannot_open: bool = False
    card_ends: tuple[QueuePairEnd, ...] = ()
    """What its engine has on network cards."""
    joins_for_ns: int = 0
    """How long its queue pairs take to join those of network cards; `NEVER_NS`: they never do."""
    joined_ns: int | None = None
    """When they will have, by the controller's clock; None: nobody asked for it."""
    peers: tuple[QueuePairEnd, ...] = ()
    """What it was told of network cards."""
    probed_ns: int | None = None
    cannot_probe: bool = False
    exit_code: ExitCode | None = None
    log: list[str] = field(default_factory=list)

    @property
    def identity(self) -> bytes:
        return f"{self.name}{self.connection}".encode()


class Rehearsal:
    """Advances everything in steps of 10 ms; `now_ns` is the controller's clock."""

    def __init__(
        self, *names: str, settings: SessionSettings | None = None, seed: int = 1, once: bool = False
    ) -> None:
        self.now_ns = 1_000 * NS_PER_S
        self.settings = settings or SessionSettings("r1", "tcp://127.0.0.1:1", lost_after_ns=3 * NS_PER_S)
        self.log: list[str] = []
        self.delay_ns: Callable[[], int] = lambda: self._chance.randrange(50_000, 400_000)
        self._chance = random.Random(seed)
        self._number = itertools.count()
        self.mail: list[tuple[int, int, str, bytes, bytes]] = []
        """What is on its way: arrival, number, to whom ("": the controller), connection, body."""
        self._last_arrival_ns: dict[tuple[str, bytes], int] = {}
        assignments = ring_assignments(*names, ops=OPS)
        self.session = Session(self.settings, assignments, ring_tables(*names, ops=OPS), self.now_ns)
        self.agents: dict[str, PlayedAgent] = {}
        for name in names:
            self.add_agent(name, once=once)

    def add_agent(self, name: str, *, key: str | None = None, once: bool = False) -> PlayedAgent:
        ahead_ns = self._chance.randrange(-(10**15), 10**15)
        hello = Hello(name, f"host-{name}", 1, {"etloop": "0", MESSAGES: messages_digest()})
        life = AgentLife(hello, self.settings.bind, once=once, now_ns=self.now_ns + ahead_ns)
        agent = PlayedAgent(name, ahead_ns, life)
        self.agents[key or name] = agent
        return agent

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Lets time pass; less if `until` comes true."""
        end_ns = self.now_ns + round(seconds * NS_PER_S)
        while self.now_ns < end_ns and not until():
            self.step()

    def run_to_end(self, seconds: float = 60) -> None:
        """Lets the session end; that it does within the time is part of every test."""
        self.run(seconds, lambda: self.session.ended)
        assert self.session.ended, f"still {self.session.state.name} after {seconds} s"
        self.run(1)

    def step(self) -> None:
        end_ns = self.now_ns + STEP_NS
        while self.mail and self.mail[0][0] <= end_ns:
            self.now_ns, _, to, sender, body = heapq.heappop(self.mail)
            self._deliver(to, sender, body)
        self.now_ns = end_ns
        self.act(self.session.on_tick(self.now_ns))
        for agent in self.agents.values():
            if agent.alive and not agent.paused:
                self._tick(agent)

    def stop(self, reason: str) -> None:
        self.act(self.session.on_stop(reason, self.now_ns))

    def resume(self, name: str) -> None:
        """A paused agent goes on: it reads what came meanwhile before it looks at the clock."""
        agent = self.agents[name]
        agent.paused = False
        for body in agent.unread:
            now_ns = self.now_ns + agent.clock_ahead_ns
            self._do(name, agent, agent.life.on_message(decode_from_controller(body), now_ns))
        agent.unread.clear()

    def pause_controller(self, seconds: float) -> None:
        """The controller does nothing for a time, while agents go on; what they send waits in its socket."""
        end_ns = self.now_ns + round(seconds * NS_PER_S)
        unread: list[tuple[bytes, bytes]] = []
        while self.now_ns < end_ns:
            self.now_ns += STEP_NS
            while self.mail and self.mail[0][0] <= self.now_ns:
                _, _, to, sender, body = heapq.heappop(self.mail)
                if to:
                    self._deliver(to, sender, body)
                else:
                    unread.append((sender, body))
            for agent in self.agents.values():
                if agent.alive and not agent.paused:
                    self._tick(agent)
        self.act(self.session.on_tick(self.now_ns))
        for sender, body in unread:
            self._deliver("", sender, body)

    def say_raw(self, identity: bytes, body: bytes) -> None:
        """Somebody sends bytes to the controller."""
        self._post("", identity, body)

    # ---- links

    def _post(self, to: str, sender: bytes, body: bytes) -> None:
        arrives_ns = max(self.now_ns + self.delay_ns(), self._last_arrival_ns.get((to, sender), 0))
        self._last_arrival_ns[to, sender] = arrives_ns  # a connection keeps the order
        heapq.heappush(self.mail, (arrives_ns, next(self._number), to, sender, body))

    def _deliver(self, to: str, identity: bytes, body: bytes) -> None:
        if not to:
            self.act(self.session.on_message(identity, decode_from_agent(body), self.now_ns))
            return
        agent = self.agents[to]
        if agent.paused and agent.identity == identity:
            agent.unread.append(body)
        elif agent.alive and agent.identity == identity:
            now_ns = self.now_ns + agent.clock_ahead_ns
            self._do(to, agent, agent.life.on_message(decode_from_controller(body), now_ns))

    def act(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            match action:
                case LogLine(text):
                    self.log.append(text)
                case Send(identity, message):
                    for key, agent in self.agents.items():
                        if agent.identity == identity:
                            self._post(key, identity, encode(message))

    # ---- agents

    def _tick(self, agent: PlayedAgent) -> None:
        key = next(key for key, each in self.agents.items() if each is agent)
        now_ns = self.now_ns + agent.clock_ahead_ns
        self._do(key, agent, agent.life.on_tick(now_ns))
        if agent.life.pairing and agent.joined_ns is not None and self.now_ns >= agent.joined_ns:
            self._do(key, agent, agent.life.on_paired())
        if agent.engine is not None and agent.life.watches_engine:
            ops = agent.engine.take(now_ns)
            self._do(key, agent, agent.life.on_status(agent.engine.status(now_ns), ops, now_ns))

    def _do(self, key: str, agent: PlayedAgent, actions: tuple[LifeAction, ...]) -> None:
        life, now_ns = agent.life, self.now_ns + agent.clock_ahead_ns
        for action in actions:
            match action:
                case SendMessage(message):
                    self._post("", agent.identity, encode(message))
                case Log(text):
                    agent.log.append(text)
                case Leave(code):
                    agent.exit_code, agent.alive = code, False
                case Reconnect(_):
                    agent.connection += 1
                case OpenEngine(assignment):
                    if agent.cannot_open:
                        self._do(
                            key, agent, life.on_open_failed((Problem("port 4791", "is taken", "free it"),))
                        )
                    else:
                        agent.engine = PlayedEngine(assignment, agent.stops_at, agent.fails)
                        self._do(key, agent, life.on_opened(("slow clock",), agent.card_ends))
                case JoinEnds(peers):
                    agent.peers, agent.joined_ns = peers, self.now_ns + agent.joins_for_ns
                case StartProbe():
                    agent.probed_ns = self.now_ns
                    good = not agent.cannot_probe
                    self._do(
                        key, agent, life.on_probed([ProbeOutcome(0, 0, good, 9, "" if good else "no reply")])
                    )
                case StartEngine(start_ns):
                    assert agent.engine is not None
                    agent.engine.start_ns = start_ns
                case QueryEngineWaits():
                    self._do(key, agent, life.on_waits(self._waits(agent)))
                case HandOver() if agent.keeps_records:
                    pass
                case HandOver():
                    self._do(key, agent, life.on_handed_over(self._handed_over(agent, now_ns)))
                    agent.engine = None
                case CloseEngine():
                    agent.engine = None

    def _waits(self, agent: PlayedAgent) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        assert agent.engine is not None
        rank = agent.engine.assignment.ranks[0].rank
        op = agent.engine.done(self.now_ns + agent.clock_ahead_ns)
        return np.array([(rank, op, 0, WaitKind.ACKNOWLEDGEMENT, 1 - rank, -1, 0, 0, 1, 5)], WAIT_RECORD)

    def _handed_over(self, agent: PlayedAgent, now_ns: int) -> HandedOver:
        engine, none = agent.engine, np.zeros(0, FLOW_RECORD)
        if engine is None or engine.start_ns is None:
            end = EngineEnd.NEVER_STARTED
            return HandedOver(end, "", np.zeros(0, OP_RECORD), none, np.zeros(0, PORT_RECORD))
        ends = {EnginePhase.DONE: EngineEnd.DONE, EnginePhase.FAILED: EngineEnd.FAILED}
        end = ends.get(engine.status(now_ns).phase, EngineEnd.STOPPED)
        return HandedOver(end, "", engine.take(now_ns), np.zeros(2, FLOW_RECORD), np.zeros(1, PORT_RECORD))
