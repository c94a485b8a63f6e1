"""The agents of a session: which ones the rig names, which have joined, when each was last heard, and its clock offset.

Decides which agents may join and which count as lost. The session decides what a loss means for a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S, seconds_text
from etloop.contract.protocol.messages import (
    CLOSED_AFTER_NS,
    Hello,
    Ping,
    Pong,
    RefusalCause,
    Refused,
    Welcome,
)
from etloop.controller.session.clock_map import ClockMap, ClockOffset, ClockSample

CLOCK_BURST_SAMPLES: Final = 8
"""Pings sent in quick succession after a join and before a start: enough that one of them meets no queue."""
_BURST_SPACING_NS: Final = 20 * NS_PER_MS
_BURSTS_AT_ONCE: Final = 16
"""Members pinged in quick succession at a time: with hundreds, pings would queue behind each other and the delay
measured would be that of this queue."""
_RECENT_NS: Final = 10 * NS_PER_S
"""How long after a member's silence a failure may follow from it: longer than an engine repeats packets."""
_OPEN_PINGS: Final = 64
"""Pings whose answer is still expected, per member; older ones are forgotten."""


@dataclass(slots=True)
class Member:
    """An agent that has joined."""

    identity: bytes
    hello: Hello
    heard_ns: int
    clock: ClockMap = field(default_factory=ClockMap)
    next_ping_ns: int = 0
    next_sample_ns: int = 0
    """When the next ping of a burst is sent: soon after an answer, or after a heartbeat without one."""
    sequence: int = 0
    burst_left: int = CLOCK_BURST_SAMPLES
    """Answers still wanted in the current burst."""
    open_pings: dict[int, int] = field(default_factory=dict)
    """Sequence number -> time at which the ping was decided."""
    closed_ns: int | None = None
    """When its connection was found closed; None: it is open, or was opened again."""
    silence_ns: int = 0
    """Length of its last silence of more than two heartbeats."""
    silence_end_ns: int = 0
    """When it was heard again after that."""


class Roster:
    """Agents of one session, by name and by connection."""

    def __init__(self, names: Sequence[str], welcome: Welcome, standing_by: Sequence[str] = ()) -> None:
        self._names = tuple(names)
        self._standing_by = tuple(standing_by)
        self._welcome = welcome
        self._members: dict[str, Member] = {}
        self._name_of: dict[bytes, str] = {}

    def join(self, identity: bytes, hello: Hello, now_ns: int) -> Welcome | Refused:
        """Admit an agent, or return why it is refused.

        A repeated Hello of a member is welcomed again, and its content replaces that of the earlier one.
        """
        if hello.name not in self._names:
            known_names = ", ".join((*self._names, *self._standing_by))
            return Refused(f"agent '{hello.name}' is not in the rig, which has {known_names}")
        joined_name = self._name_of.get(identity)
        if joined_name is not None and joined_name != hello.name:
            return Refused(f"this connection has already joined as agent '{joined_name}'")
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
        """Replace the rig's agent names, remove the members that it names no longer, and return them."""
        self._names = tuple(names)
        removed_names = tuple(name for name in self._members if name not in self._names)
        removed = tuple(self._members[name] for name in removed_names)
        for name in removed_names:
            self.leave(name)
        return removed

    def name_of(self, identity: bytes) -> str | None:
        """Return the member name of a connection; None for an unknown connection."""
        return self._name_of.get(identity)

    def note_heard(self, identity: bytes, now_ns: int) -> str | None:
        """Note that a connection is alive, and return its member's name; None for an unknown connection."""
        name = self._name_of.get(identity)
        if name is not None:
            member = self._members[name]
            silence_ns = now_ns - member.heard_ns
            if silence_ns > 2 * self._welcome.heartbeat_ns:
                member.silence_ns, member.silence_end_ns = silence_ns, now_ns
            member.heard_ns, member.closed_ns = now_ns, None
        return name

    def note_closed(self, identity: bytes, now_ns: int) -> None:
        """Note that the connection of a member does not exist any more; the member may open it again."""
        if (name := self._name_of.get(identity)) is not None and self._members[name].closed_ns is None:
            self._members[name].closed_ns = now_ns

    def excuse(self, missed_ns: int, now_ns: int) -> None:
        """Leave a time in which this side did not listen out of every member's silence."""
        for member in self._members.values():
            member.heard_ns = min(now_ns, member.heard_ns + missed_ns)
            if member.closed_ns is not None:
                member.closed_ns = min(now_ns, member.closed_ns + missed_ns)

    def pong(self, name: str, pong: Pong, now_ns: int) -> bool:
        """Add a clock sample and return whether a burst needed it. Ignore answers to pings unknown or forgotten."""
        member = self._members[name]
        sent_ns = member.open_pings.pop(pong.sequence, None)
        if sent_ns is None:
            return False
        # `service` stamps a ping when it leaves, a little later than it was decided.
        sent_ns = pong.controller_ns if sent_ns <= pong.controller_ns <= now_ns else sent_ns
        member.next_sample_ns = sent_ns + _BURST_SPACING_NS
        is_valid = member.clock.add(ClockSample(sent_ns, pong.receive_ns, pong.send_ns, now_ns))
        was_needed = is_valid and member.burst_left > 0
        member.burst_left -= was_needed
        return was_needed

    def leave(self, name: str) -> None:
        """Remove a member; the same name may join again."""
        member = self._members.pop(name)
        del self._name_of[member.identity]

    def missing(self) -> tuple[str, ...]:
        """Return the agents of the rig that have not joined, in the rig's order."""
        return tuple(name for name in self._names if name not in self._members)

    def members(self) -> tuple[tuple[str, Member], ...]:
        """Return the names and members that have joined, in the rig's order."""
        return tuple((name, self._members[name]) for name in self._names if name in self._members)

    def member(self, name: str) -> Member | None:
        """Return the member of that name; None if it has not joined."""
        return self._members.get(name)

    def lost_members(self, now_ns: int) -> tuple[tuple[str, str], ...]:
        """Return the members that count as lost, each with the reason.

        They have been silent for longer than the welcome's `lost_after_ns`, or their connection has been closed for
        longer than `CLOSED_AFTER_NS`.
        """
        lost_after_ns = self._welcome.lost_after_ns
        lost = []
        for name, member in self.members():
            if now_ns - member.heard_ns > lost_after_ns:
                lost.append((name, f"no heartbeat for {seconds_text(lost_after_ns)}"))
            elif member.closed_ns is not None and now_ns - member.closed_ns > CLOSED_AFTER_NS:
                closed_text = (
                    f"its connection is closed, and it has not returned for {seconds_text(CLOSED_AFTER_NS)}"
                )
                lost.append((name, closed_text))
        return tuple(lost)

    def overdue(self, now_ns: int) -> tuple[tuple[str, int], ...]:
        """Return the members that missed two heartbeats, with their silence in ns: suspects when something else failed."""
        silences = ((name, now_ns - member.heard_ns) for name, member in self.members())
        return tuple(
            (name, silent_ns) for name, silent_ns in silences if silent_ns > 2 * self._welcome.heartbeat_ns
        )

    def recent_silences(self, now_ns: int) -> tuple[tuple[str, str], ...]:
        """Return each member that is overdue, or was until a few seconds ago, with its silence in words."""
        overdue = dict(self.overdue(now_ns))
        texts = []
        for name, member in self.members():
            ago_ns = now_ns - member.silence_end_ns
            if name in overdue:
                texts.append((name, f"has not been heard for {seconds_text(overdue[name])}"))
            elif member.silence_ns and ago_ns <= _RECENT_NS:
                silence_text = seconds_text(member.silence_ns)
                texts.append((name, f"was not heard for {silence_text} until {seconds_text(ago_ns)} before"))
        return tuple(texts)

    def due_pings(self, now_ns: int) -> tuple[tuple[bytes, Ping], ...]:
        """Return the heartbeats to send now, as (connection, ping), and count each as sent."""
        pings = []
        open_bursts = 0
        for _, member in self.members():
            open_bursts += member.burst_left > 0
            continues_burst = (
                member.burst_left > 0 and open_bursts <= _BURSTS_AT_ONCE and now_ns >= member.next_sample_ns
            )
            if now_ns < member.next_ping_ns and not continues_burst:
                continue
            member.sequence += 1
            member.open_pings[member.sequence] = now_ns
            if len(member.open_pings) > _OPEN_PINGS:
                del member.open_pings[next(iter(member.open_pings))]
            member.next_ping_ns = member.next_sample_ns = now_ns + self._welcome.heartbeat_ns
            pings.append((member.identity, Ping(member.sequence, now_ns)))
        return tuple(pings)

    def renew_clocks(self, now_ns: int) -> None:
        """Request a new burst of clock samples from every member."""
        for _, member in self.members():
            member.burst_left = CLOCK_BURST_SAMPLES
            member.next_sample_ns = now_ns

    def clocks_fresh(self) -> bool:
        """Return whether every member has answered its last burst."""
        return all(member.burst_left == 0 for _, member in self.members())

    def offset(self, name: str, now_ns: int) -> ClockOffset | None:
        """Return the offset of a member's clock to the controller's; None without samples or if it has not joined."""
        member = self._members.get(name)
        return member.clock.offset(now_ns) if member is not None else None
