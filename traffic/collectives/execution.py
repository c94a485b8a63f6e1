"""Executes a schedule in no time at all: every lane in order, messages in queues, at most `slots` in each.

Lanes wait only for messages and for free slots, so the order in which they are taken does not change what happens:
if one order ends in a deadlock, all do. Timing, acknowledgements and loss are the engine's.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from traffic.collectives.outcome import Holding, Piece
from traffic.collectives.table import EntryKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from traffic.collectives.table import Schedule


class Message(NamedTuple):
    """One message of a lane, as the native cursor cuts it, with the entry it belongs to."""

    entry: int
    kind: int
    piece: Piece
    message_bytes: int


LaneKey = tuple[int, int]
"""(position, index of the lane in its table)."""


@dataclass(slots=True)
class Execution:
    """State of a schedule under way. `run` ends with all lanes done or with nothing able to move."""

    schedule: Schedule
    messages: dict[LaneKey, tuple[Message, ...]]
    holdings: tuple[Holding, ...]
    wrong: list[tuple[str, str]] = field(default_factory=list)
    """(where, what) in the order found."""
    _next: dict[LaneKey, int] = field(default_factory=dict)
    _queues: dict[tuple[int, int], deque[int]] = field(default_factory=dict)
    """Origins of the messages under way, by (source, destination)."""
    _open: dict[int, dict[int, set[LaneKey]]] = field(default_factory=dict)
    """Unfinished lanes by position and batch, the batch that runs first."""

    def run(self) -> None:
        """Execute until nothing moves."""
        for position, table in enumerate(self.schedule.tables):
            batches: dict[int, set[LaneKey]] = {}
            for index, lane in sorted(enumerate(table), key=lambda numbered: numbered[1].batch):
                self._next[position, index] = 0
                if lane.send_to >= 0:
                    self._queues[position, lane.send_to] = deque()
                if self.messages[position, index]:
                    batches.setdefault(lane.batch, set()).add((position, index))
            self._open[position] = batches
        peers = self._peers()
        ready = deque(self._next)
        while ready:
            key = ready.popleft()
            if self._advance(key):
                ready.extend(peers[key])
                ready.extend(self._close(key))

    def stuck(self) -> Iterator[tuple[str, str]]:
        """(where, what) of every lane that is not done."""
        for key, messages in self.messages.items():
            if self._next[key] < len(messages):
                yield step_name(key, messages[self._next[key]].entry), self._waits_for(key)

    def _peers(self) -> dict[LaneKey, tuple[LaneKey, ...]]:
        """The lanes at the other ends of each lane: what may be able to move after it did."""
        senders = {}
        receivers = {}
        for position, table in enumerate(self.schedule.tables):
            for index, lane in enumerate(table):
                senders[position, lane.send_to] = (position, index)
                receivers[lane.recv_from, position] = (position, index)
        peers = {}
        for position, table in enumerate(self.schedule.tables):
            for index, lane in enumerate(table):
                ends = (receivers.get((position, lane.send_to)), senders.get((lane.recv_from, position)))
                peers[position, index] = tuple(key for key in ends if key is not None)
        return peers

    def _advance(self, key: LaneKey) -> bool:
        """Execute what a lane can; whether that was anything."""
        messages = self.messages[key]
        first = self._next[key]
        while self._next[key] < len(messages) and not self._waits_for(key):
            self._execute(key, messages[self._next[key]])
            self._next[key] += 1
        return self._next[key] > first

    def _close(self, key: LaneKey) -> tuple[LaneKey, ...]:
        """Take a lane that is done out of its batch; the lanes that may begin because it was the last one."""
        batches = self._open[key[0]]
        if self._next[key] < len(self.messages[key]):
            return ()
        batch = next(iter(batches))
        batches[batch].remove(key)
        if batches[batch]:
            return ()
        del batches[batch]
        return tuple(next(iter(batches.values()), ()))

    def _waits_for(self, key: LaneKey) -> str:
        position, index = key
        lane = self.schedule.tables[position][index]
        message = self.messages[key][self._next[key]]
        batch = next(iter(self._open[position]))
        if lane.batch != batch:
            return f"waits for batch {batch} of its position"
        if message.kind & EntryKind.RECV and not self._queues[lane.recv_from, position]:
            return f"waits for a message from position {lane.recv_from}"
        if message.kind & EntryKind.SEND and len(self._queues[position, lane.send_to]) >= self.schedule.slots:
            return f"waits for one of {self.schedule.slots} slots towards position {lane.send_to}"
        return ""

    def _execute(self, key: LaneKey, message: Message) -> None:
        position, index = key
        lane = self.schedule.tables[position][index]
        holding = self.holdings[position]
        step = step_name(key, message.entry)
        if message.kind & EntryKind.RECV:
            arrived = self._queues[lane.recv_from, position].popleft()
            origins, wrong = holding.receive(
                message.kind, message.piece, arrived, message.message_bytes, step
            )
            if wrong:
                self.wrong.append((step, wrong))
        else:
            origins = holding.to_send(message.piece)
        if message.kind & EntryKind.SEND:
            if not origins:
                self.wrong.append((step, f"sends block {message.piece[0]}, of which it has nothing"))
            self._queues[position, lane.send_to].append(origins)


def step_name(key: LaneKey, entry: int) -> str:
    """How an error names a step."""
    return f"position {key[0]}, lane {key[1]}, entry {entry}"
