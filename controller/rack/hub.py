"""The one place where all agents of a rack meet all its runs: which connection is idle, and which belongs to which run.

Every agent keeps one connection, a seat, idle. A run borrows an idle seat of each agent it needs; from then on what
comes from there is the run's, until the run dismisses it and the agent connects anew. Messages in, actions out, time as
an argument; what a run does with its agents is `Session`'s, which jobs there are is `dispatch`'s, sockets are daemon's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from contract.errors import ProtocolError
from contract.messages import Bye, Hello, Pong, Refused, Welcome
from controller.roster import Roster
from controller.session import Action, Send, Session, Tell

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from contract.messages import AgentMessage
    from controller.clock_map import ClockOffset

MOST_SEATS: Final = 64
"""Runs at once on one agent: it has no more ports than that worth leasing one by one."""


@dataclass(frozen=True, slots=True)
class Told:
    """Something for people: about a run, or about the rack (`run_id` "")."""

    run_id: str
    text: str


HubAction = Send | Told


@dataclass(frozen=True, slots=True)
class AgentPresence:
    """How an agent stands to the rack."""

    name: str
    hello: Hello | None
    """What it said of itself when it last joined; None if it never did."""
    idle_seats: int
    busy_seats: int
    silent_ns: int | None
    """Since it was last heard on any idle seat; None if there is none."""
    clock: ClockOffset | None


class Hub:
    """All agents of the rack. `seats` says for every agent how many runs it may take part in at once."""

    def __init__(self, seats: Mapping[str, int], heartbeat_ns: int, lost_after_ns: int) -> None:
        assert all(1 <= count <= MOST_SEATS for count in seats.values())
        self._seats = dict(seats)
        self._lost_after_ns = lost_after_ns
        self._idle = tuple(
            Roster([name for name, count in seats.items() if count > seat], heartbeat_ns, lost_after_ns)
            for seat in range(max(seats.values(), default=1))
        )
        self._hellos: dict[str, Hello] = {}
        self._sessions: dict[str, Session] = {}
        self._borrower: dict[bytes, str] = {}
        """Connection -> run that has borrowed it."""
        self._borrowed_name: dict[bytes, str] = {}

    # ---- runs

    def present(self) -> frozenset[str]:
        """Agents with an idle seat."""
        return frozenset(name for name in self._seats if self._idle_seat(name) is not None)

    def begin(
        self, session: Session, run_id: str, agents: Iterable[str], now_ns: int
    ) -> tuple[HubAction, ...]:
        """Gives a session an idle seat of each of `agents`; those without one are missed when it gathers."""
        assert run_id not in self._sessions
        self._sessions[run_id] = session
        actions: list[HubAction] = []
        for name in agents:
            seat = self._idle_seat(name)
            if seat is None:
                continue
            member = self._idle[seat].member(name)
            assert member is not None
            self._idle[seat].leave(name)
            self._borrower[member.identity] = run_id
            self._borrowed_name[member.identity] = name
            actions += self._of(run_id, session.on_message(member.identity, member.hello, now_ns))
        return tuple(actions)

    def stop(self, run_id: str, reason: str, now_ns: int) -> tuple[HubAction, ...]:
        """Tells a run to wind up."""
        return self._of(run_id, self._sessions[run_id].on_stop(reason, now_ns))

    def end(self, run_id: str) -> None:
        """Takes a session out that has ended. Its agents connect anew; what still comes from their old seats is dropped."""
        assert self._sessions[run_id].ended
        del self._sessions[run_id]
        for identity in [each for each, borrower in self._borrower.items() if borrower == run_id]:
            del self._borrower[identity]
            del self._borrowed_name[identity]

    # ---- events

    def on_message(self, identity: bytes, message: AgentMessage, now_ns: int) -> tuple[HubAction, ...]:
        """An agent said something."""
        run_id = self._borrower.get(identity)
        if run_id is not None:
            # The seat was welcomed before it was lent; a Hello that crossed that welcome says nothing new.
            if isinstance(message, Hello):
                return ()
            return self._of(run_id, self._sessions[run_id].on_message(identity, message, now_ns))
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
                    return (Told("", f"agent '{name}' left: {reason}"),)
                case _:
                    pass  # The last words of a run that this seat has been dismissed from.
            return ()
        return ()

    def on_garbage(self, identity: bytes, error: ProtocolError, now_ns: int) -> tuple[HubAction, ...]:
        """Somebody sent what the protocol does not allow."""
        run_id = self._borrower.get(identity)
        if run_id is not None:
            return self._of(run_id, self._sessions[run_id].on_garbage(identity, error, now_ns))
        for roster in self._idle:
            name = roster.heard(identity, now_ns)
            if name is not None:
                roster.leave(name)
                return (Send(identity, Refused(str(error))), Told("", f"agent '{name}' refused: {error}"))
        return (Send(identity, Refused(str(error))), Told("", f"refused a connection: {error}"))

    def on_tick(self, now_ns: int) -> tuple[HubAction, ...]:
        """Time passed."""
        actions: list[HubAction] = []
        for run_id, session in self._sessions.items():
            actions += self._of(run_id, session.on_tick(now_ns))
        for seat, roster in enumerate(self._idle):
            for name in roster.lost(now_ns):
                roster.leave(name)
                actions.append(Told("", f"agent '{name}' fell silent on seat {seat}"))
            actions += [Send(identity, ping) for identity, ping in roster.due_pings(now_ns)]
        return tuple(actions)

    # ---- questions

    def presence(self, now_ns: int) -> tuple[AgentPresence, ...]:
        """Every agent of the rack, in its order."""
        found = []
        for name in self._seats:
            members = [member for roster in self._idle if (member := roster.member(name)) is not None]
            heard = max((member.heard_ns for member in members), default=None)
            clocks = (roster.offset(name, now_ns) for roster in self._idle)
            found.append(
                AgentPresence(
                    name,
                    self._hellos.get(name),
                    len(members),
                    sum(1 for lent in self._borrowed_name.values() if lent == name),
                    None if heard is None else now_ns - heard,
                    next((clock for clock in clocks if clock is not None), None),
                )
            )
        return tuple(found)

    # ---- inside

    def _on_hello(self, identity: bytes, hello: Hello, now_ns: int) -> tuple[HubAction, ...]:
        seats = self._seats.get(hello.name, 0)
        if seats and not 0 <= hello.seat < seats:
            why = f"agent '{hello.name}' has {seats} seats in this rack; seat {hello.seat} is none of them"
            return (Send(identity, Refused(why)), Told("", f"refused a connection: {why}"))
        roster = self._idle[hello.seat if seats else 0]
        known = roster.member(hello.name)
        answer = roster.join(identity, hello, now_ns)
        if isinstance(answer, Welcome):
            self._hellos[hello.name] = hello
            send = Send(identity, replace(answer, seats=seats))
            if known is not None:
                return (send,)
            return (send, Told("", f"agent '{hello.name}' joined from {hello.host} (seat {hello.seat})"))
        return (
            Send(identity, answer),
            Told("", f"refused agent '{hello.name}' of {hello.host}: {answer.reason}"),
        )

    def _idle_seat(self, name: str) -> int | None:
        return next((seat for seat, roster in enumerate(self._idle) if roster.member(name) is not None), None)

    @staticmethod
    def _of(run_id: str, actions: Iterable[Action]) -> tuple[HubAction, ...]:
        return tuple(Told(run_id, action.text) if isinstance(action, Tell) else action for action in actions)
