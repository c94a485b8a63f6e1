"""The one place where all agents of a rack meet all its runs: which connection is idle, and which is leased to which run.

Every agent keeps one connection, a slot, idle. A run leases an idle slot of each agent it needs; from then on all that
comes from there is the run's, undecoded, until the run has dismissed it and the agent connects anew. Messages in, actions
out, time as an argument; what a run does with its agents is `Session`'s, which jobs there are is `dispatch`'s, sockets
are the daemon's.
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
    clipped,
)
from etloop.controller.session.actions import Action, LogLine, Send
from etloop.controller.session.clock_map import ClockOffset
from etloop.controller.session.roster import Roster

MOST_SLOTS: Final = 64
"""Runs at once on one agent: it has no more ports than that worth leasing one by one."""

GONE_AFTER_NS: Final = 30 * NS_PER_S
"""Without any connection for so long an agent holds no jobs up any more: after a run it is back within seconds."""

_NOT_NAMED: Final = "the rig of the rack names this agent no more; put it back, or stop this agent"

Standing = tuple[int, int, Hello | None]
"""Idle slots, leased slots, and what the agent said of itself."""


@dataclass(frozen=True, slots=True)
class LeasedSlot:
    """A connection that a run has leased, and what its agent said of itself."""

    identity: bytes
    hello: Hello


@dataclass(frozen=True, slots=True)
class AgentPresence:
    """How an agent stands to the rack."""

    name: str
    hello: Hello | None
    """What it said of itself when it last joined; None if it never did."""
    idle_slots: int
    leased_slots: int
    silent_ns: int | None
    """Since it was last heard on any idle slot; None if there is none."""
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
    """A connection of the process that has a name which another one says."""

    identity: bytes
    hello: Hello
    heard_ns: int


class Hub:
    """All agents of the rack. `slots` says for every agent how many runs it may take part in at once."""

    def __init__(self, slots: Mapping[str, int], heartbeat_ns: int, lost_after_ns: int) -> None:
        self._slots: dict[str, int] = {}
        self._welcome = Welcome(heartbeat_ns, lost_after_ns)
        self._idle: tuple[Roster, ...] = ()
        self._hellos: dict[str, Hello] = {}
        self._connected_ns: dict[str, int] = {}
        """When an agent was last seen to have a connection; at first, when it was first asked for."""
        self._leases: dict[bytes, _SlotLease] = {}
        self._returning: dict[str, set[tuple[str, int]]] = {}
        """Run that broke off -> (agent, slot) of those that have not connected anew."""
        self._claims: dict[str, int] = {}
        """Name that a second process says -> since when: whoever has it is asked whether it lives."""
        self.serve(slots)

    def serve(self, slots: Mapping[str, int]) -> tuple[Action, ...]:
        """The rig has these agents from now on; what is to be said to those that are connected and idle.

        One that has fewer slots than before may go on asking for as many: there are no jobs for more than it has ports.
        """
        assert all(1 <= count <= MOST_SLOTS for count in slots.values())
        before = self._slots
        self._slots = {name: max(count, before.get(name, 0)) for name, count in slots.items()}
        for gone in before.keys() - self._slots.keys():
            self._hellos.pop(gone, None)
            self._connected_ns.pop(gone, None)
            self._claims.pop(gone, None)
        missing = max(self._slots.values(), default=1) - len(self._idle)
        self._idle = (*self._idle, *(Roster((), self._welcome) for _ in range(missing)))
        actions: list[Action] = []
        for slot, roster in enumerate(self._idle):
            left = roster.serve([name for name, count in self._slots.items() if count > slot])
            actions += (_refusal(each.identity, _NOT_NAMED, RefusalCause.NOT_NAMED) for each in left)
            actions += (
                Send(member.identity, replace(self._welcome, slots=self._slots[name]))
                for name, member in roster.members()
                if self._slots[name] > before.get(name, 0)
            )
        return tuple(actions)

    # ---- runs

    def present(self) -> frozenset[str]:
        """Agents with an idle slot."""
        return frozenset(name for name in self._slots if self._idle_slot(name) is not None)

    def machine_of(self, name: str, host: str) -> str:
        """What shares cores with an agent: its machine, nobody if its cores were named, its `host` if it never said."""
        hello = self._hellos.get(name)
        if hello is None or not hello.capabilities.machine:
            return f"host {host}"
        return f"cores of {name}" if hello.capabilities.cores_named else hello.capabilities.machine

    def gone(self, now_ns: int) -> frozenset[str]:
        """Agents that have had no connection for `GONE_AFTER_NS`, as far as this was asked often enough to know."""
        leased = self._leased_slots()
        for name in self._slots:
            if name not in self._connected_ns or leased[name] or self._idle_slot(name) is not None:
                self._connected_ns[name] = now_ns
        return frozenset(name for name, at_ns in self._connected_ns.items() if now_ns - at_ns > GONE_AFTER_NS)

    def lease(self, run_id: str, agents: Iterable[str]) -> tuple[LeasedSlot, ...]:
        """Gives a run an idle slot of each of `agents`; those without one are left out, and it will miss them."""
        leased = []
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
            leased.append(LeasedSlot(member.identity, member.hello))
        return tuple(leased)

    def holder(self, identity: bytes, now_ns: int) -> str | None:
        """The run that a connection is leased to, of which something came now."""
        leased = self._leases.get(identity)
        if leased is None:
            return None
        leased.heard_ns = now_ns
        return leased.run_id

    def release(self, run_id: str) -> None:
        """A run is over and has dismissed its agents. They connect anew; what still comes from their old slots is nobody's."""
        self._leases = {
            identity: leased for identity, leased in self._leases.items() if leased.run_id != run_id
        }

    def dismiss(self, run_id: str, reason: str) -> tuple[Action, ...]:
        """A run broke off without a word to its agents: they are told to stop what they do for it, see `returned`."""
        left = {identity: leased for identity, leased in self._leases.items() if leased.run_id == run_id}
        self._returning[run_id] = {(leased.agent, leased.slot) for leased in left.values()}
        self.release(run_id)
        return tuple(
            Send(identity, Dismissed(run_id, aborted=True, reason=reason[:1000])) for identity in left
        )

    def returned(self, run_id: str) -> bool:
        """Whether every agent of a dismissed run has connected anew, its ports closed."""
        return not self._returning.get(run_id)

    def give_up(self, run_id: str) -> None:
        """Forgets who has not returned."""
        self._returning.pop(run_id, None)

    # ---- events

    def on_message(self, identity: bytes, message: AgentMessage, now_ns: int) -> tuple[Action, ...]:
        """An agent said something on a connection that is not leased."""
        assert identity not in self._leases
        if isinstance(message, Hello):
            return self._on_hello(identity, message, now_ns)
        for roster in self._idle:
            name = roster.heard(identity, now_ns)
            if name is None:
                continue
            match message:
                case Pong():
                    roster.pong(name, message, now_ns)
                case Bye(reason):
                    roster.leave(name)
                    return (LogLine(f"agent '{name}' left: {reason[:256]}", kind=f"agent '{name}' left"),)
                case _:
                    pass  # No order of ours asked for it; it does no harm.
            return ()
        return ()  # The last words of a slot that its run has dismissed.

    def on_malformed(self, identity: bytes, error: ProtocolError, now_ns: int) -> tuple[Action, ...]:
        """Somebody whose connection is not leased sent what the protocol does not allow."""
        for roster in self._idle:
            name = roster.heard(identity, now_ns)
            if name is not None:
                roster.leave(name)
                line = LogLine(f"refused agent '{name}': {error}", kind=f"refused agent '{name}'")
                return (_refusal(identity, str(error), RefusalCause.PROTOCOL), line)
        line = LogLine(f"refused a connection: {error}", kind="refused a connection")
        return (_refusal(identity, str(error), RefusalCause.PROTOCOL), line)

    def on_unreachable(self, identity: bytes) -> None:
        """A connection is not there any more. One that may heal keeps its place, unless another process asks for it."""
        for roster in self._idle:
            name = roster.name_of(identity)
            if name in self._claims:
                roster.leave(name)
                return

    def on_tick(self, now_ns: int) -> tuple[Action, ...]:
        """Time passed."""
        actions: list[Action] = []
        for slot, roster in enumerate(self._idle):
            for name in roster.lost(now_ns):
                roster.leave(name)
                actions.append(
                    LogLine(f"agent '{name}' fell silent (slot {slot})", kind=f"agent '{name}' silent")
                )
            actions += [Send(identity, ping) for identity, ping in roster.due_pings(now_ns)]
        return tuple(actions)

    # ---- questions

    def presence(self, now_ns: int) -> tuple[AgentPresence, ...]:
        """Every agent of the rack, in its order."""
        leased = self._leased_slots()
        return tuple(self._presence(name, leased[name], now_ns) for name in self._slots)

    def presence_of(self, name: str, now_ns: int) -> AgentPresence:
        """One agent of the rack."""
        return self._presence(name, self._leased_slots()[name], now_ns)

    def standings(self) -> dict[str, Standing]:
        """Of every agent what others are told when it changes; for asking often: clocks are left out."""
        leased = self._leased_slots()
        return {
            name: (
                sum(1 for roster in self._idle if roster.member(name) is not None),
                leased[name],
                self._hellos.get(name),
            )
            for name in self._slots
        }

    # ---- inside

    def _leased_slots(self) -> Counter[str]:
        return Counter(lease.agent for lease in self._leases.values())

    def _presence(self, name: str, leased_slots: int, now_ns: int) -> AgentPresence:
        members = [member for roster in self._idle if (member := roster.member(name)) is not None]
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
            why = f"agent '{hello.name}' has {slots} slots in this rack; slot {hello.slot} is none of them"
            line = LogLine(f"refused a connection: {why}", kind="refused a connection")
            return (_refusal(identity, why), line)
        if rivals := self._rivals(hello):
            return self._on_claim(identity, hello, rivals, now_ns)
        self._claims.pop(hello.name, None)
        roster = self._idle[hello.slot if slots else 0]
        holder = roster.member(hello.name)
        actions: list[Action] = []
        if holder is not None and holder.identity != identity:
            # The same process, connected anew: its predecessor cannot come back.
            roster.leave(hello.name)
            holder = None
        answer = roster.join(identity, hello, now_ns)
        if isinstance(answer, Refused):
            if not slots:
                answer = replace(answer, cause=RefusalCause.NOT_NAMED)
            kind = f"refused agent '{hello.name}'" if slots else "refused a connection"
            said = f"refused agent '{hello.name}' of {hello.host}: {answer.reason}"
            return (Send(identity, answer), LogLine(said, kind=kind))
        assert isinstance(answer, Welcome)
        self._hellos[hello.name] = hello
        for slots_away in self._returning.values():
            slots_away.discard((hello.name, hello.slot))
        if holder is None:
            joined = f"agent '{hello.name}' joined"
            actions.append(LogLine(f"{joined} from {hello.host} (slot {hello.slot})", kind=joined))
        return (Send(identity, replace(answer, slots=slots)), *actions)

    def _rivals(self, hello: Hello) -> tuple[_Rival, ...]:
        """Connections of another process that has the name of this one."""
        members = (roster.member(hello.name) for roster in self._idle)
        idle = [_Rival(each.identity, each.hello, each.heard_ns) for each in members if each is not None]
        leased = [
            _Rival(identity, each.hello, each.heard_ns)
            for identity, each in self._leases.items()
            if each.agent == hello.name
        ]
        return tuple(each for each in (*idle, *leased) if _process(each.hello) != _process(hello))

    def _on_claim(
        self, identity: bytes, hello: Hello, rivals: tuple[_Rival, ...], now_ns: int
    ) -> tuple[Action, ...]:
        """A second process says a name. It may be the first one's successor: only one that was heard since keeps it out.

        Until that is known it gets no answer, and asks again.
        """
        name = hello.name
        since_ns = self._claims.get(name)
        if since_ns is None:
            self._claims[name] = now_ns
            return tuple(Send(rival.identity, Ping(0, now_ns)) for rival in rivals)
        living = next((rival for rival in rivals if rival.heard_ns > since_ns), None)
        if living is None:
            return ()
        del self._claims[name]
        there = f"{living.hello.host} (process {living.hello.pid})"
        why = (
            f"agent '{name}' has already joined from {there}; "
            "give every agent of the rig its own name, or stop the other one"
        )
        said = f"refused a second agent '{name}', of {hello.host} (process {hello.pid}): {why}"
        return (
            _refusal(identity, why, RefusalCause.NAME_TAKEN),
            LogLine(said, kind=f"refused a second agent '{name}'"),
        )

    def _idle_slot(self, name: str) -> int | None:
        return next((slot for slot, roster in enumerate(self._idle) if roster.member(name) is not None), None)


def _process(hello: Hello) -> tuple[str, int, str]:
    return hello.host, hello.pid, hello.process


def _refusal(identity: bytes, why: str, cause: RefusalCause = RefusalCause.MISTAKE) -> Send:
    return Send(identity, Refused(clipped(why), cause))
