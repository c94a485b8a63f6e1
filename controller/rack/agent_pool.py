"""Connects all agents of a rack with all its runs: which connection is idle, and which is leased to which run.

Every agent keeps one connection, a slot, idle. A run leases an idle slot of each agent that it needs; from then on all
messages of that connection are forwarded to the run, undecoded, until the run has dismissed the agent and it connects
anew. Messages in, actions out, time as an argument. `Session` decides what a run does with its agents, `dispatch` which
jobs start; the daemon owns the sockets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ProtocolError
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.protocol.messages import (
    AgentMessage,
    Bye,
    Dismissed,
    Hello,
    Ping,
    Pong,
    RefusalCause,
    Refused,
    Welcome,
    clip,
)
from etloop.controller.session.actions import Action, LogLine, Send
from etloop.controller.session.clock_map import ClockOffset
from etloop.controller.session.roster import Member, Roster

MOST_SLOTS: Final = 64
"""Most runs at once on one agent: no agent has more ports that are worth leasing one by one."""

ANSWERING_NS: Final = 3 * NS_PER_S
"""Silence after which an idle agent gets no job and counts as absent, until it is heard again."""
_ORDER_AGAIN_NS: Final = NS_PER_S
"""Interval of repeated orders to the agents of a run that broke off: a closed connection is found by sending on it."""

GONE_AFTER_NS: Final = 30 * NS_PER_S
"""An agent without any connection for this long keeps no ports for waiting jobs: after a run it is back within seconds."""

_NOT_NAMED: Final = "the rack's rig no longer lists this agent; add it to the rig, or stop this agent"

Standing = tuple[int, int, Hello | None]
"""Idle slots, leased slots, and the agent's last Hello."""


@dataclass(frozen=True, slots=True)
class LeasedSlot:
    """A connection leased by a run, and its agent's Hello."""

    identity: bytes
    hello: Hello


@dataclass(frozen=True, slots=True)
class AgentPresence:
    """State of an agent's connections to the rack."""

    name: str
    hello: Hello | None
    """Last Hello of the agent; None if it never joined."""
    idle_slots: int
    leased_slots: int
    silent_ns: int | None
    """Time since the last message on any idle slot; None without an idle slot."""
    clock: ClockOffset | None


@dataclass(slots=True)
class _SlotLease:
    run_id: str
    agent: str
    slot: int
    hello: Hello
    heard_ns: int


@dataclass(frozen=True, slots=True)
class _Rival:
    """A connection of another process whose agent has the same name."""

    identity: bytes
    hello: Hello
    heard_ns: int


class Hub:
    """All agents of the rack. `slots` maps each agent to the most runs that it may take part in at once."""

    def __init__(self, slots: Mapping[str, int], heartbeat_ns: int, lost_after_ns: int) -> None:
        self._slots: dict[str, int] = {}
        self._welcome = Welcome(heartbeat_ns, lost_after_ns)
        self._idle: tuple[Roster, ...] = ()
        self._hellos: dict[str, Hello] = {}
        self._connected_ns: dict[str, int] = {}
        """Agent -> when it was last seen with a connection, or when it was first queried."""
        self._leases: dict[bytes, _SlotLease] = {}
        self._returning: dict[str, dict[bytes, tuple[str, int]]] = {}
        """Run that broke off -> connections that are still open -> (agent, slot), as long as it has not connected anew."""
        self._order_again_ns = 0
        self._now_ns = 0
        """Time of the last tick."""
        self._claims: dict[str, int] = {}
        """Agent name -> since when a second process uses it; the present holder is pinged meanwhile."""
        self.serve(slots)

    def serve(self, slots: Mapping[str, int]) -> tuple[Action, ...]:
        """Replace the rack's agents, and return the messages for connected idle ones.

        An agent whose number of slots decreases keeps the higher one: it gets no more jobs than it has ports anyway.
        """
        assert all(1 <= count <= MOST_SLOTS for count in slots.values())
        old_slots = self._slots
        self._slots = {name: max(count, old_slots.get(name, 0)) for name, count in slots.items()}
        for removed_agent in old_slots.keys() - self._slots.keys():
            self._hellos.pop(removed_agent, None)
            self._connected_ns.pop(removed_agent, None)
            self._claims.pop(removed_agent, None)
        missing = max(self._slots.values(), default=1) - len(self._idle)
        self._idle = (*self._idle, *(Roster((), self._welcome) for _ in range(missing)))
        actions: list[Action] = []
        for slot, roster in enumerate(self._idle):
            removed_members = roster.serve([name for name, count in self._slots.items() if count > slot])
            actions += (
                _refusal(member.identity, _NOT_NAMED, RefusalCause.NOT_NAMED) for member in removed_members
            )
            actions += (
                Send(member.identity, replace(self._welcome, slots=self._slots[name]))
                for name, member in roster.members()
                if self._slots[name] > old_slots.get(name, 0)
            )
        return tuple(actions)

    # ---- runs

    def present(self) -> frozenset[str]:
        """Return the agents with an idle slot."""
        return frozenset(name for name in self._slots if self._idle_slot(name) is not None)

    def machine_of(self, name: str, host: str) -> str:
        """Return a key of the cores that an agent shares: agents with equal keys share cores.

        Its machine; a key of its own if its cores were named; `host` if it never joined or does not know its machine.
        """
        hello = self._hellos.get(name)
        if hello is None or not hello.capabilities.machine:
            return f"host {host}"
        return f"cores of {name}" if hello.capabilities.cores_named else hello.capabilities.machine

    def absent_agents(self, now_ns: int) -> frozenset[str]:
        """Return the agents without a connection for `GONE_AFTER_NS`. Call it often: connections are sampled here."""
        leased = self._leased_slots()
        for name in self._slots:
            if name not in self._connected_ns or leased[name] or self._connected_slot(name) is not None:
                self._connected_ns[name] = now_ns
        return frozenset(name for name, at_ns in self._connected_ns.items() if now_ns - at_ns > GONE_AFTER_NS)

    def lease(self, run_id: str, agents: Iterable[str]) -> tuple[LeasedSlot, ...]:
        """Lease an idle slot of each of `agents` to a run. Agents without one are left out; the run keeps waiting for them."""
        leased_slots = []
        for name in agents:
            slot = self._idle_slot(name)
            if slot is None:
                continue
            member = self._idle[slot].member(name)
            assert member is not None
            self._idle[slot].leave(name)
            self._leases[member.identity] = _SlotLease(
                run_id, name, member.hello.slot, member.hello, member.heard_ns
            )
            leased_slots.append(LeasedSlot(member.identity, member.hello))
        return tuple(leased_slots)

    def holder(self, identity: bytes, now_ns: int) -> str | None:
        """Return the run to which a connection is leased, None if it is idle; note that a message arrived on it now."""
        lease = self._leases.get(identity)
        if lease is None:
            return None
        lease.heard_ns = now_ns
        return lease.run_id

    def release(self, run_id: str) -> None:
        """End the leases of a run that has dismissed its agents.

        They connect anew; late messages from their old connections are ignored.
        """
        self._leases = {identity: lease for identity, lease in self._leases.items() if lease.run_id != run_id}

    def dismiss(self, run_id: str, reason: str) -> tuple[Action, ...]:
        """End the leases of a run that broke off, and return the orders for its agents to stop. See `returned`."""
        run_leases = {identity: lease for identity, lease in self._leases.items() if lease.run_id == run_id}
        self._returning[run_id] = {
            identity: (lease.agent, lease.slot) for identity, lease in run_leases.items()
        }
        self.release(run_id)
        return tuple(
            Send(identity, Dismissed(run_id, aborted=True, reason=reason[:1000])) for identity in run_leases
        )

    def lease_of(self, identity: bytes) -> str | None:
        """Return the run to which a connection is leased; None if it is not."""
        lease = self._leases.get(identity)
        return lease.run_id if lease is not None else None

    def has_returned(self, run_id: str) -> bool:
        """Return whether every slot of a dismissed run has connected anew or is closed, so that its ports are closed."""
        return not self._returning.get(run_id)

    def give_up(self, run_id: str) -> None:
        """Stop waiting for the slots of a dismissed run."""
        self._returning.pop(run_id, None)

    # ---- events

    def on_message(self, identity: bytes, message: AgentMessage, now_ns: int) -> tuple[Action, ...]:
        """Process a message on a connection that is not leased."""
        assert identity not in self._leases
        if isinstance(message, Hello):
            return self._on_hello(identity, message, now_ns)
        for roster in self._idle:
            name = roster.note_heard(identity, now_ns)
            if name is None:
                continue
            match message:
                case Pong():
                    roster.pong(name, message, now_ns)
                case Bye(reason):
                    roster.leave(name)
                    return (LogLine(f"agent '{name}' left: {reason[:256]}", kind=f"agent '{name}' left"),)
                case _:
                    pass  # Not requested, and harmless.
            return ()
        return ()  # A late message of a slot that its run has dismissed.

    def on_malformed(self, identity: bytes, error: ProtocolError, now_ns: int) -> tuple[Action, ...]:
        """Refuse a connection that is not leased after it violated the protocol."""
        for roster in self._idle:
            name = roster.note_heard(identity, now_ns)
            if name is not None:
                roster.leave(name)
                line = LogLine(f"refused agent '{name}': {error}", kind=f"refused agent '{name}'")
                return (_refusal(identity, str(error), RefusalCause.PROTOCOL), line)
        line = LogLine(f"refused a connection: {error}", kind="refused a connection")
        return (_refusal(identity, str(error), RefusalCause.PROTOCOL), line)

    def on_unreachable(self, identity: bytes, now_ns: int) -> None:
        """Note that a connection does not exist any more.

        It may recover and so keeps its place for a few seconds, unless another process has asked for its name.
        """
        for open_connections in self._returning.values():
            open_connections.pop(identity, None)  # An agent closes its engine before its connection.
        for roster in self._idle:
            name = roster.name_of(identity)
            if name in self._claims:
                roster.leave(name)
                return
            roster.note_closed(identity, now_ns)

    def excuse(self, missed_ns: int, now_ns: int) -> None:
        """Leave a time in which the controller did not run out of every agent's silence."""
        for roster in self._idle:
            roster.excuse(missed_ns, now_ns)
        self._claims = {name: min(now_ns, since_ns + missed_ns) for name, since_ns in self._claims.items()}

    def on_tick(self, now_ns: int) -> tuple[Action, ...]:
        """Remove silent agents, and send the heartbeats whose time has come at `now_ns`."""
        actions: list[Action] = []
        self._now_ns = now_ns
        if now_ns >= self._order_again_ns:
            self._order_again_ns = now_ns + _ORDER_AGAIN_NS
            actions += (
                Send(identity, Dismissed(run_id, aborted=True, reason="the run broke off"))
                for run_id, open_connections in self._returning.items()
                for identity in open_connections
            )
        for slot, roster in enumerate(self._idle):
            for name, why in roster.lost_members(now_ns):
                roster.leave(name)
                actions.append(
                    LogLine(f"agent '{name}' is gone: {why} (slot {slot})", kind=f"agent '{name}' silent")
                )
            actions += [Send(identity, ping) for identity, ping in roster.due_pings(now_ns)]
        return tuple(actions)

    # ---- questions

    def presence(self, now_ns: int) -> tuple[AgentPresence, ...]:
        """Return the state of every agent, in the rack's order."""
        leased = self._leased_slots()
        return tuple(self._presence(name, leased[name], now_ns) for name in self._slots)

    def presence_of(self, name: str, now_ns: int) -> AgentPresence:
        """Return the state of one agent."""
        return self._presence(name, self._leased_slots()[name], now_ns)

    def standings(self) -> dict[str, Standing]:
        """Return for each agent what its listeners are notified of when it changes. Cheap: clocks are left out."""
        leased = self._leased_slots()
        return {
            name: (
                len(self._answering(name)),
                leased[name],
                self._hellos.get(name),
            )
            for name in self._slots
        }

    # ---- inside

    def _leased_slots(self) -> Counter[str]:
        return Counter(lease.agent for lease in self._leases.values())

    def _presence(self, name: str, leased_slots: int, now_ns: int) -> AgentPresence:
        members = self._answering(name)
        heard_ns = max((member.heard_ns for member in members), default=None)
        clocks = (roster.offset(name, now_ns) for roster in self._idle)
        return AgentPresence(
            name,
            self._hellos.get(name),
            len(members),
            leased_slots,
            None if heard_ns is None else now_ns - heard_ns,
            next((clock for clock in clocks if clock is not None), None),
        )

    def _on_hello(self, identity: bytes, hello: Hello, now_ns: int) -> tuple[Action, ...]:
        slots = self._slots.get(hello.name, 0)
        if slots and not 0 <= hello.slot < slots:
            why = f"agent '{hello.name}' has slots 0 to {slots - 1} in this rack; got slot {hello.slot}"
            line = LogLine(f"refused a connection: {why}", kind="refused a connection")
            return (_refusal(identity, why), line)
        if rivals := self._rivals(hello):
            return self._on_claim(identity, hello, rivals, now_ns)
        self._claims.pop(hello.name, None)
        roster = self._idle[hello.slot if slots else 0]
        holder = roster.member(hello.name)
        actions: list[Action] = []
        if holder is not None and holder.identity != identity:
            # The same process has connected anew: its earlier connection cannot come back.
            roster.leave(hello.name)
            holder = None
        answer = roster.join(identity, hello, now_ns)
        if isinstance(answer, Refused):
            if not slots:
                answer = replace(answer, cause=RefusalCause.NOT_NAMED)
            kind = f"refused agent '{hello.name}'" if slots else "refused a connection"
            line_text = f"refused agent '{hello.name}' of {hello.host}: {answer.reason}"
            return (Send(identity, answer), LogLine(line_text, kind=kind))
        assert isinstance(answer, Welcome)
        self._hellos[hello.name] = hello
        for run_id, open_connections in self._returning.items():
            self._returning[run_id] = {
                connection: place
                for connection, place in open_connections.items()
                if place != (hello.name, hello.slot)
            }
        if holder is None:
            joined = f"agent '{hello.name}' joined"
            actions.append(LogLine(f"{joined} from {hello.host} (slot {hello.slot})", kind=joined))
        return (Send(identity, replace(answer, slots=slots)), *actions)

    def _rivals(self, hello: Hello) -> tuple[_Rival, ...]:
        """Return the connections of other processes that use the same name."""
        members = (roster.member(hello.name) for roster in self._idle)
        idle = [
            _Rival(member.identity, member.hello, member.heard_ns) for member in members if member is not None
        ]
        leased = [
            _Rival(identity, lease.hello, lease.heard_ns)
            for identity, lease in self._leases.items()
            if lease.agent == hello.name
        ]
        return tuple(rival for rival in (*idle, *leased) if _process(rival.hello) != _process(hello))

    def _on_claim(
        self, identity: bytes, hello: Hello, rivals: tuple[_Rival, ...], now_ns: int
    ) -> tuple[Action, ...]:
        """Decide about a second process that uses an agent's name.

        It may be the successor of the first one, so it is refused only if a rival has answered a ping since. Until then
        its Hello is not answered, and it asks again.
        """
        name = hello.name
        since_ns = self._claims.get(name)
        if since_ns is None:
            self._claims[name] = now_ns
            return tuple(Send(rival.identity, Ping(0, now_ns)) for rival in rivals)
        living = next((rival for rival in rivals if rival.heard_ns > since_ns), None)
        if living is None:
            if now_ns - since_ns > ANSWERING_NS:
                for roster in self._idle:
                    if roster.member(name) is not None:
                        roster.leave(
                            name
                        )  # Its host is gone: the kernel of a living one would have closed the connection.
            return ()
        del self._claims[name]
        rival_place = f"{living.hello.host} (process {living.hello.pid})"
        why = (
            f"agent '{name}' has already joined from {rival_place}; "
            "give every agent of the rig its own name, or stop the other one"
        )
        line_text = f"refused a second agent '{name}', of {hello.host} (process {hello.pid}): {why}"
        return (
            _refusal(identity, why, RefusalCause.NAME_TAKEN),
            LogLine(line_text, kind=f"refused a second agent '{name}'"),
        )

    def _answering(self, name: str) -> tuple[Member, ...]:
        """Return the idle connections of an agent that were heard lately."""
        return tuple(
            member
            for roster in self._idle
            if (member := roster.member(name)) is not None and self._answers(member)
        )

    def _answers(self, member: Member) -> bool:
        return member.closed_ns is None and self._now_ns - member.heard_ns <= ANSWERING_NS

    def _idle_slot(self, name: str) -> int | None:
        return next(
            (
                slot
                for slot, roster in enumerate(self._idle)
                if (member := roster.member(name)) is not None and self._answers(member)
            ),
            None,
        )

    def _connected_slot(self, name: str) -> int | None:
        return next((slot for slot, roster in enumerate(self._idle) if roster.member(name) is not None), None)


def _process(hello: Hello) -> tuple[str, int, str]:
    return hello.host, hello.pid, hello.process


def _refusal(identity: bytes, why: str, cause: RefusalCause = RefusalCause.MISTAKE) -> Send:
    return Send(identity, Refused(clip(why), cause))
