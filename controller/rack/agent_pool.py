"""The one place where all agents of a rack meet all its runs: which connection is idle, and which is lent to which run.

Every agent keeps one connection, a seat, idle. A run borrows an idle seat of each agent it needs; from then on all that
comes from there is the run's, undecoded, until the run has dismissed it and the agent connects anew. Messages in, actions
out, time as an argument; what a run does with its agents is `Session`'s, which jobs there are is `dispatch`'s, sockets
are the daemon's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.protocol.messages import Bye, Dismissed, Hello, Pong, Refused, Welcome
from etloop.controller.session.actions import Send, Tell
from etloop.controller.session.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from etloop.contract.base.errors import ProtocolError
    from etloop.contract.protocol.messages import AgentMessage
    from etloop.controller.session.clock_map import ClockOffset

MOST_SEATS: Final = 64
"""Runs at once on one agent: it has no more ports than that worth leasing one by one."""

GONE_AFTER_NS: Final = 30 * NS_PER_S
"""Without any connection for so long an agent holds no jobs up any more: after a run it is back within seconds."""

Action = Send | Tell
Standing = tuple[int, int, Hello | None]
"""Idle seats, lent seats, and what the agent said of itself."""


@dataclass(frozen=True, slots=True)
class LentSeat:
    """A connection that a run has borrowed, and what its agent said of itself."""

    identity: bytes
    hello: Hello


@dataclass(frozen=True, slots=True)
class AgentPresence:
    """How an agent stands to the rack."""

    name: str
    hello: Hello | None
    """What it said of itself when it last joined; None if it never did."""
    idle_seats: int
    lent_seats: int
    silent_ns: int | None
    """Since it was last heard on any idle seat; None if there is none."""
    clock: ClockOffset | None


@dataclass(frozen=True, slots=True)
class _Loan:
    run_id: str
    agent: str
    seat: int


class Hub:
    """All agents of the rack. `seats` says for every agent how many runs it may take part in at once."""

    def __init__(self, seats: Mapping[str, int], heartbeat_ns: int, lost_after_ns: int) -> None:
        assert all(1 <= count <= MOST_SEATS for count in seats.values())
        self._seats = dict(seats)
        self._idle = tuple(
            Roster(
                [name for name, count in seats.items() if count > seat], Welcome(heartbeat_ns, lost_after_ns)
            )
            for seat in range(max(seats.values(), default=1))
        )
        self._hellos: dict[str, Hello] = {}
        self._connected_ns: dict[str, int] = {}
        """When an agent was last seen to have a connection; at first, when it was first asked for."""
        self._lent: dict[bytes, _Loan] = {}
        self._returning: dict[str, set[tuple[str, int]]] = {}
        """Run that broke off -> (agent, seat) of those that have not connected anew."""

    # ---- runs

    def present(self) -> frozenset[str]:
        """Agents with an idle seat."""
        return frozenset(name for name in self._seats if self._idle_seat(name) is not None)

    def gone(self, now_ns: int) -> frozenset[str]:
        """Agents that have had no connection for `GONE_AFTER_NS`, as far as this was asked often enough to know."""
        lent = self._lent_seats()
        for name in self._seats:
            if name not in self._connected_ns or lent[name] or self._idle_seat(name) is not None:
                self._connected_ns[name] = now_ns
        return frozenset(name for name, at_ns in self._connected_ns.items() if now_ns - at_ns > GONE_AFTER_NS)

    def lend(self, run_id: str, agents: Iterable[str]) -> tuple[LentSeat, ...]:
        """Gives a run an idle seat of each of `agents`; those without one are left out, and it will miss them."""
        lent = []
        for name in agents:
            seat = self._idle_seat(name)
            if seat is None:
                continue
            member = self._idle[seat].member(name)
            assert member is not None
            self._idle[seat].leave(name)
            self._lent[member.identity] = _Loan(run_id, name, member.hello.seat)
            lent.append(LentSeat(member.identity, member.hello))
        return tuple(lent)

    def borrower(self, identity: bytes) -> str | None:
        """The run that a connection is lent to."""
        lent = self._lent.get(identity)
        return lent.run_id if lent is not None else None

    def release(self, run_id: str) -> None:
        """A run is over and has dismissed its agents. They connect anew; what still comes from their old seats is nobody's."""
        self._lent = {identity: lent for identity, lent in self._lent.items() if lent.run_id != run_id}

    def dismiss(self, run_id: str, reason: str) -> tuple[Action, ...]:
        """A run broke off without a word to its agents: they are told to stop what they do for it, see `returned`."""
        left = {identity: lent for identity, lent in self._lent.items() if lent.run_id == run_id}
        self._returning[run_id] = {(lent.agent, lent.seat) for lent in left.values()}
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
        """An agent said something on a connection that is not lent."""
        assert identity not in self._lent
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
                    return (Tell(f"agent '{name}' left: {reason}"),)
                case _:
                    pass  # No order of ours asked for it; it does no harm.
            return ()
        return ()  # The last words of a seat that its run has dismissed.

    def on_garbage(self, identity: bytes, error: ProtocolError, now_ns: int) -> tuple[Action, ...]:
        """Somebody whose connection is not lent sent what the protocol does not allow."""
        for roster in self._idle:
            name = roster.heard(identity, now_ns)
            if name is not None:
                roster.leave(name)
                return (Send(identity, Refused(str(error))), Tell(f"refused agent '{name}': {error}"))
        return (Send(identity, Refused(str(error))), Tell(f"refused a connection: {error}"))

    def on_tick(self, now_ns: int) -> tuple[Action, ...]:
        """Time passed."""
        actions: list[Action] = []
        for seat, roster in enumerate(self._idle):
            for name in roster.lost(now_ns):
                roster.leave(name)
                actions.append(Tell(f"agent '{name}' fell silent (seat {seat})"))
            actions += [Send(identity, ping) for identity, ping in roster.due_pings(now_ns)]
        return tuple(actions)

    # ---- questions

    def presence(self, now_ns: int) -> tuple[AgentPresence, ...]:
        """Every agent of the rack, in its order."""
        lent = self._lent_seats()
        return tuple(self._presence(name, lent[name], now_ns) for name in self._seats)

    def presence_of(self, name: str, now_ns: int) -> AgentPresence:
        """One agent of the rack."""
        return self._presence(name, self._lent_seats()[name], now_ns)

    def standings(self) -> dict[str, Standing]:
        """Of every agent what others are told when it changes; for asking often: clocks are left out."""
        lent = self._lent_seats()
        return {
            name: (
                sum(1 for roster in self._idle if roster.member(name) is not None),
                lent[name],
                self._hellos.get(name),
            )
            for name in self._seats
        }

    def connections(self) -> AbstractSet[bytes]:
        """Every connection of an agent that may still be said something: idle or lent."""
        return self._lent.keys() | frozenset().union(*(roster.identities() for roster in self._idle))

    # ---- inside

    def _lent_seats(self) -> Counter[str]:
        return Counter(loan.agent for loan in self._lent.values())

    def _presence(self, name: str, lent_seats: int, now_ns: int) -> AgentPresence:
        members = [member for roster in self._idle if (member := roster.member(name)) is not None]
        heard_ns = max((member.heard_ns for member in members), default=None)
        clocks = (roster.offset(name, now_ns) for roster in self._idle)
        return AgentPresence(
            name,
            self._hellos.get(name),
            len(members),
            lent_seats,
            None if heard_ns is None else now_ns - heard_ns,
            next((clock for clock in clocks if clock is not None), None),
        )

    def _on_hello(self, identity: bytes, hello: Hello, now_ns: int) -> tuple[Action, ...]:
        seats = self._seats.get(hello.name, 0)
        if seats and not 0 <= hello.seat < seats:
            why = f"agent '{hello.name}' has {seats} seats in this rack; seat {hello.seat} is none of them"
            return (Send(identity, Refused(why)), Tell(f"refused a connection: {why}"))
        roster = self._idle[hello.seat if seats else 0]
        holder = roster.member(hello.name)
        actions: list[Action] = []
        if holder is not None and holder.identity != identity and _restarted(holder.hello, hello):
            # Its predecessor cannot come back: no need to wait until it counts as silent.
            roster.leave(hello.name)
            holder = None
        answer = roster.join(identity, hello, now_ns)
        if isinstance(answer, Refused):
            actions.append(Tell(f"refused agent '{hello.name}' of {hello.host}: {answer.reason}"))
            return (Send(identity, answer), *actions)
        assert isinstance(answer, Welcome)
        self._hellos[hello.name] = hello
        for seats_away in self._returning.values():
            seats_away.discard((hello.name, hello.seat))
        if holder is None:
            actions.append(Tell(f"agent '{hello.name}' joined from {hello.host} (seat {hello.seat})"))
        return (Send(identity, replace(answer, seats=seats)), *actions)

    def _idle_seat(self, name: str) -> int | None:
        return next((seat for seat, roster in enumerate(self._idle) if roster.member(name) is not None), None)


def _restarted(before: Hello, now: Hello) -> bool:
    """Whether a Hello comes from a new process of the host that its name was on, or from the same one, connected anew."""
    return before.host == now.host
