"""Who is there: which agents the rig names, which have joined, when each was last heard, and how its clock stands.

Decides who may join and who counts as lost; what a loss means for a run is the session's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from etloop.contract.base.clock import NS_PER_MS
from etloop.contract.protocol.messages import Hello, Ping, Pong, RefusalCause, Refused, Welcome
from etloop.controller.session.clock_map import ClockMap, ClockOffset, ClockSample

CLOCK_BURST_SAMPLES: Final = 8
"""Pings in quick succession that begin a membership and precede a start: enough that one of them meets no queue."""
_BURST_SPACING_NS: Final = 20 * NS_PER_MS
_BURSTS_AT_ONCE: Final = 16
"""Members that are pinged in quick succession at a time: with hundreds, pings would queue behind each other and measure that."""
_OPEN_PINGS: Final = 64
"""Pings whose answer is still expected; older ones are forgotten."""


@dataclass(slots=True)
class Member:
    """An agent that has joined."""

    identity: bytes
    hello: Hello
    heard_ns: int
    clock: ClockMap = field(default_factory=ClockMap)
    next_ping_ns: int = 0
    next_sample_ns: int = 0
    """When a burst goes on: soon after an answer, or when that stays away for a heartbeat."""
    sequence: int = 0
    burst_left: int = CLOCK_BURST_SAMPLES
    """Answers still wanted in quick succession."""
    open_pings: dict[int, int] = field(default_factory=dict)
    """Sequence number -> when it was decided."""


class Roster:
    """Agents of one session by name and by connection."""

    def __init__(self, names: Sequence[str], welcome: Welcome, standing_by: Sequence[str] = ()) -> None:
        self._names = tuple(names)
        self._standing_by = tuple(standing_by)
        self._welcome = welcome
        self._members: dict[str, Member] = {}
        self._name_of: dict[bytes, str] = {}

    def join(self, identity: bytes, hello: Hello, now_ns: int) -> Welcome | Refused:
        """Takes an agent in, or says why not. A repeated Hello of a member is welcomed again, and what
        it says of itself now counts."""
        if hello.name not in self._names:
            known_names = ", ".join((*self._names, *self._standing_by))
            return Refused(f"agent '{hello.name}' is not in the rig; it names {known_names}")
        known = self._name_of.get(identity)
        if known is not None and known != hello.name:
            return Refused(f"this connection has already joined as agent '{known}'")
        holder = self._members.get(hello.name)
        if holder is not None and holder.identity != identity:
            return Refused(
                f"agent '{hello.name}' has already joined from {holder.hello.host} (process {holder.hello.pid}); "
                "give every agent of the rig its own name, or stop the other one",
                RefusalCause.NAME_TAKEN,
            )
        if holder is None:
            self._members[hello.name] = Member(identity, hello, now_ns)
            self._name_of[identity] = hello.name
        self._members[hello.name].hello = hello
        return self._welcome

    def serve(self, names: Sequence[str]) -> tuple[Member, ...]:
        """The rig names these from now on; the members that it names no more, who have left by that."""
        self._names = tuple(names)
        gone = tuple(name for name in self._members if name not in self._names)
        members = tuple(self._members[name] for name in gone)
        for name in gone:
            self.leave(name)
        return members

    def name_of(self, identity: bytes) -> str | None:
        """The member of a connection; None for a stranger."""
        return self._name_of.get(identity)

    def heard(self, identity: bytes, now_ns: int) -> str | None:
        """Notes a sign of life; the member's name, None for a stranger."""
        name = self._name_of.get(identity)
        if name is not None:
            self._members[name].heard_ns = now_ns
        return name

    def pong(self, name: str, pong: Pong, now_ns: int) -> bool:
        """Takes a clock sample; whether a burst needed it. Answers to pings never sent, or sent long ago, are ignored."""
        member = self._members[name]
        sent_ns = member.open_pings.pop(pong.sequence, None)
        if sent_ns is None:
            return False
        # The socket's shell stamps a ping as it leaves, a little later than it was decided.
        sent_ns = pong.controller_ns if sent_ns <= pong.controller_ns <= now_ns else sent_ns
        member.next_sample_ns = sent_ns + _BURST_SPACING_NS
        kept = member.clock.add(ClockSample(sent_ns, pong.receive_ns, pong.send_ns, now_ns))
        wanted = kept and member.burst_left > 0
        member.burst_left -= wanted
        return wanted

    def leave(self, name: str) -> None:
        """Forgets a member; the same name may join again."""
        member = self._members.pop(name)
        del self._name_of[member.identity]

    def missing(self) -> tuple[str, ...]:
        """Agents of the rig that have not joined, in the rig's order."""
        return tuple(name for name in self._names if name not in self._members)

    def members(self) -> tuple[tuple[str, Member], ...]:
        """Who has joined, in the rig's order."""
        return tuple((name, self._members[name]) for name in self._names if name in self._members)

    def member(self, name: str) -> Member | None:
        """The member of that name."""
        return self._members.get(name)

    def lost(self, now_ns: int) -> tuple[str, ...]:
        """Members silent for too long."""
        return tuple(
            name for name, member in self.members() if now_ns - member.heard_ns > self._welcome.lost_after_ns
        )

    def overdue(self, now_ns: int) -> tuple[tuple[str, int], ...]:
        """Members that missed two heartbeats, with their silence in nanoseconds: suspects when something broke."""
        silences = ((name, now_ns - member.heard_ns) for name, member in self.members())
        return tuple(
            (name, silent_ns) for name, silent_ns in silences if silent_ns > 2 * self._welcome.heartbeat_ns
        )

    def due_pings(self, now_ns: int) -> tuple[tuple[bytes, Ping], ...]:
        """Heartbeats to send now; each is counted as sent."""
        pings = []
        bursts = 0
        for _, member in self.members():
            bursts += member.burst_left > 0
            sampled = member.burst_left > 0 and bursts <= _BURSTS_AT_ONCE and now_ns >= member.next_sample_ns
            if now_ns < member.next_ping_ns and not sampled:
                continue
            member.sequence += 1
            member.open_pings[member.sequence] = now_ns
            if len(member.open_pings) > _OPEN_PINGS:
                del member.open_pings[next(iter(member.open_pings))]
            member.next_ping_ns = member.next_sample_ns = now_ns + self._welcome.heartbeat_ns
            pings.append((member.identity, Ping(member.sequence, now_ns)))
        return tuple(pings)

    def renew_clocks(self, now_ns: int) -> None:
        """Asks for fresh clock samples of everybody at once."""
        for _, member in self.members():
            member.burst_left = CLOCK_BURST_SAMPLES
            member.next_sample_ns = now_ns

    def clocks_fresh(self) -> bool:
        """Whether every member has answered its last burst."""
        return all(member.burst_left == 0 for _, member in self.members())

    def offset(self, name: str, now_ns: int) -> ClockOffset | None:
        """How the clock of a member stands to the controller's."""
        member = self._members.get(name)
        return member.clock.offset(now_ns) if member is not None else None
