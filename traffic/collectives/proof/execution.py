"""Executes a schedule without time: every lane in order, messages in queues, at most `slots` messages in each.

Lanes wait only for messages, for free slots, for other lanes and for the previous batch on their channel, so the order
in which lanes advance does not change how far they get: if one order ends in a deadlock, all do. The data that they
carry could depend on the order if a wait is missing. So an entry that reads a block must come after all entries that
brought it, by the waits of its own table (`Waits`), and a second order, in which all sends are executed as early as
possible, must give the same result.

As in the engine, a lane is complete when all its messages are acknowledged: its receiver has begun, and has no pending
in-turn receive before them. A connection holds `slots` messages here; in the engine it holds as many on each side, so
whatever completes here completes there. Timing and loss are the engine's subject; byte counts other than the given one
are checked by `lane_deadlock`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING

from etloop.traffic.collectives.core.table import EntryKind, Handshake, Lane, Schedule
from etloop.traffic.collectives.proof.outcome import Holding

if TYPE_CHECKING:
    from etloop.traffic.collectives.proof.atoms import LaneKey, Message, Move

Connection = tuple[int, int, int]
"""(source, destination, channel)."""
_RECV = int(EntryKind.RECV)
_SEND = int(EntryKind.SEND)
_REDUCE = int(EntryKind.REDUCE)
_COPY = int(EntryKind.COPY)
_IN_TURN = int(EntryKind.IN_TURN)


class Order(Enum):
    """Order in which lanes that can advance do so; a network may cause any order."""

    FORWARDS = 0
    """Every lane as far as possible, in order of readiness."""
    SENDS_FIRST = 1
    """Everything that can be sent is sent before a message is received."""


@dataclass(slots=True)
class Waits:
    """For each message of a lane, how many messages of the other lanes of its table certainly precede it."""

    _since: list[int] = field(default_factory=list)
    """Messages at which the known predecessors grow."""
    _certain: list[dict[int, int]] = field(default_factory=list)
    """From each of those on: lane -> number of its messages that precede."""

    def of(self, message: int) -> dict[int, int]:
        """Return lane -> number of messages that certainly precede the execution of a message."""
        count = bisect_right(self._since, message)
        return self._certain[count - 1] if count else {}

    def learn(self, message: int, lane: int, count: int, before: dict[int, int]) -> None:
        """Record that a message waited for the first `count` messages of a lane, which came after `before`."""
        certain = dict(self.of(message))
        for other_lane, other_count in (*before.items(), (lane, count)):
            certain[other_lane] = max(other_count, certain.get(other_lane, 0))
        self._since.append(message)
        self._certain.append(certain)


@dataclass(slots=True)
class _LaneState:
    """Progress of one lane."""

    key: LaneKey
    lane: Lane
    messages: tuple[Message, ...]
    out: deque[tuple[int, ...]] | None
    """Messages in flight to the peer, each as the origins of its atoms."""
    into: deque[tuple[int, ...]] | None
    sender: LaneKey | None = None
    receiver: LaneKey | None = None
    dependents: list[LaneKey] = field(default_factory=list)
    next: int = 0
    open: bool = False
    over: bool = False
    waits: Waits = field(default_factory=Waits)


@dataclass(slots=True)
class Execution:
    """Progress of a schedule. `run` ends when all lanes are complete or none can advance."""

    schedule: Schedule
    messages: dict[LaneKey, tuple[Message, ...]]
    holdings: tuple[Holding, ...]
    wrong: list[tuple[str, str]] = field(default_factory=list)
    """(where, what) in the order of detection."""
    _lanes: dict[LaneKey, _LaneState] = field(default_factory=dict)
    _batches: dict[tuple[int, int], dict[int, set[LaneKey]]] = field(default_factory=dict)
    """Incomplete lanes by (position, channel) and batch, the running batch first."""
    _ready: deque[LaneKey] = field(default_factory=deque)
    _brought: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)
    """(position, atom) -> lane -> its last message that received part of it."""

    def run(self, order: Order = Order.FORWARDS) -> None:
        """Execute until no lane can advance."""
        self._prepare()
        for channel_key in self._batches:
            self._open_batch(channel_key)
        if order is Order.FORWARDS:
            while self._ready:
                self._advance(self._lanes[self._ready.popleft()])
            return
        receiving: deque[LaneKey] = deque()
        while self._ready or receiving:
            is_last_resort = not self._ready
            key = self._ready.popleft() if self._ready else receiving.popleft()
            if not is_last_resort and self._takes_in_next(self._lanes[key]):
                receiving.append(key)
            else:
                self._advance(self._lanes[key], most=1)

    def _takes_in_next(self, state: _LaneState) -> bool:
        """Return whether the next message of a lane is a receive."""
        return state.next < len(state.messages) and bool(state.messages[state.next].kind & _RECV)

    def stuck(self) -> Iterator[tuple[str, str]]:
        """Yield (where, what) for every lane that is not complete."""
        for key in self.messages:
            state = self._lanes[key]
            if state.over or not state.messages:
                continue
            message_index = min(state.next, len(state.messages) - 1)
            yield step_name(key, state.messages[message_index].entry), self._waits_for(state)

    def _prepare(self) -> None:
        """Create the states of all lanes and join senders with receivers."""
        queues: dict[Connection, deque[tuple[int, ...]]] = {}
        senders: dict[Connection, LaneKey] = {}
        receivers: dict[Connection, LaneKey] = {}
        for position, table in enumerate(self.schedule.tables):
            for index, lane in sorted(enumerate(table), key=lambda numbered: numbered[1].batch):
                key = (position, index)
                messages = self.messages[key]
                state = self._lanes[key] = _LaneState(key, lane, messages, None, None)
                batches = self._batches.setdefault((position, lane.channel), {})
                batches.setdefault(lane.batch, set()).add(key)
                if lane.send_to >= 0:
                    connection = (position, lane.send_to, lane.channel)
                    senders[connection] = key
                    state.out = queues.setdefault(connection, deque())
                if lane.recv_from >= 0:
                    connection = (lane.recv_from, position, lane.channel)
                    receivers[connection] = key
                    state.into = queues.setdefault(connection, deque())
        for connection, key in senders.items():
            self._lanes[key].receiver = receivers.get(connection)
        for connection, key in receivers.items():
            self._lanes[key].sender = senders.get(connection)
        for (position, index), state in self._lanes.items():
            for number in {entry.after_lane for entry in state.lane.entries} - {-1}:
                self._lanes[position, number].dependents.append((position, index))

    def _open_batch(self, place: tuple[int, int]) -> None:
        """Start the first remaining batch of a (position, channel)."""
        for key in next(iter(self._batches[place].values()), ()):
            state = self._lanes[key]
            state.open = True
            self._ready.append(key)
            if state.sender is not None:
                self._ready.append(state.sender)

    def _advance(self, state: _LaneState, most: int = 0) -> None:
        """Execute the messages of a lane that are possible (at most `most`, unless 0); queue the lanes this releases."""
        if state.over or not state.open:
            return
        first = state.next
        while state.next < len(state.messages) and not self._is_blocked(state):
            self._execute(state, state.messages[state.next])
            state.next += 1
            if state.next == first + most:
                self._ready.append(state.key)
                break
        progressed = state.next > first
        if progressed:
            self._ready.extend(key for key in (state.sender, state.receiver) if key is not None)
        if state.next == len(state.messages) and self._is_acknowledged(state):
            state.over = True
            self._close(state)
            progressed = True
        if progressed:
            self._ready.extend(state.dependents)

    def _is_acknowledged(self, state: _LaneState) -> bool:
        """Return whether all messages that a lane sent are acknowledged: its receiver has begun and has granted them."""
        if state.receiver is None or not state.out or self.schedule.handshake is Handshake.ONE_SIDED:
            return True
        receiver = self._lanes[state.receiver]
        return receiver.open and not self._keeps_waiting(receiver, len(state.out))

    def _keeps_waiting(self, receiver: _LaneState, messages: int) -> bool:
        """Return whether one of the next `messages` messages to a lane is an in-turn receive, which is not granted yet.

        An in-turn receive whose turn has come counts too until it is executed; only a blocked send on the same lane
        delays it.
        """
        remaining = messages
        for message in islice(receiver.messages, receiver.next, None):
            if message.kind & _RECV:
                if message.kind & _IN_TURN:
                    return True
                remaining -= 1
                if not remaining:
                    break
        return False

    def _close(self, state: _LaneState) -> None:
        """Remove a complete lane from its batch, and start the next batch after its last lane."""
        channel_key = (state.key[0], state.lane.channel)
        batches = self._batches[channel_key]
        batch = next(iter(batches))
        batches[batch].remove(state.key)
        if not batches[batch]:
            del batches[batch]
            self._open_batch(channel_key)

    def _is_blocked(self, state: _LaneState) -> bool:
        """Return whether the next message of a lane has to wait."""
        message = state.messages[state.next]
        if message.kind & _RECV and not state.into:
            return True
        if message.kind & _SEND and self._is_full(state):
            return True
        number, step = message.after
        if number < 0:
            return False
        awaited_lane = self._lanes[state.key[0], number]
        return not awaited_lane.over and (step < 0 or awaited_lane.next <= step)

    def _is_full(self, state: _LaneState) -> bool:
        """Return whether the lane's connection has no free slot."""
        # One-sided writes are acknowledged even if the receiving lane has not processed them.
        granted = self.schedule.handshake is not Handshake.ONE_SIDED
        return granted and state.out is not None and len(state.out) >= self.schedule.slots

    def _waits_for(self, state: _LaneState) -> str:
        """Return what a lane waits for, as text."""
        lane = state.lane
        if not state.open:
            running = next(iter(self._batches[state.key[0], lane.channel]))
            return f"waits for batch {running} of channel {lane.channel} of its position"
        if state.next == len(state.messages):
            assert state.receiver is not None
            if self._lanes[state.receiver].open:
                return (
                    f"has sent all, but position {lane.send_to} has not reached the matching in-order receive"
                )
            return f"has sent all, but position {lane.send_to} has not begun to receive it"
        message = state.messages[state.next]
        if message.kind & _RECV and not state.into:
            return f"waits for a message from position {lane.recv_from}"
        number, step = message.after
        awaited_lane = self._lanes.get((state.key[0], number))
        if awaited_lane is not None and not awaited_lane.over and (step < 0 or awaited_lane.next <= step):
            awaited = "all" if step < 0 else f"entry {awaited_lane.messages[step].entry}"
            return f"waits for {awaited} of lane {number}"
        return f"waits for one of {self.schedule.slots} slots towards position {lane.send_to}"

    def _execute(self, state: _LaneState, message: Message) -> None:
        """Execute one message of a lane: receive, combine, and send its atoms."""
        position = state.key[0]
        number, waited = message.after
        if number >= 0:
            awaited_lane = self._lanes[position, number]
            last = waited if waited >= 0 else len(awaited_lane.messages) - 1
            state.waits.learn(state.next, number, last + 1, awaited_lane.waits.of(last))
        if not message.kind & (_RECV | _SEND):
            return
        step = step_name(state.key, message.entry)
        carried: list[int] = []
        if message.kind & _RECV:
            assert state.into
            arrived = iter(state.into.popleft())
            for move in message.moves:
                carried += self._receive(state, step, move, arrived)
        else:
            holding = self.holdings[position]
            for move in message.moves:
                self._read(state, step, move)
                carried += [holding.to_send(atom) for atom in move.atoms]
        if message.kind & _SEND and state.out is not None:
            if not all(carried):
                self._sends_nothing(step, message.moves, carried)
            state.out.append(tuple(carried))

    def _receive(self, state: _LaneState, step: str, move: Move, arrived: Iterator[int]) -> Iterator[int]:
        """Receive the atoms of a move and yield their new origins."""
        position, index = state.key
        holding = self.holdings[position]
        if move.kind & _REDUCE and move.kind & (_SEND | _COPY):
            self._read(state, step, move)
        for atom in move.atoms:
            if not move.kind & _REDUCE:
                # It replaces the previous content.
                self._brought.pop((position, atom), None)
            self._brought.setdefault((position, atom), {})[index] = state.next
            origins, mistake = holding.receive(move.kind, atom, next(arrived), step, move.block)
            if mistake:
                self.wrong.append((step, mistake))
            yield origins

    @staticmethod
    def _may_run_with(lane: Lane, other: Lane) -> bool:
        """Return whether two lanes can run concurrently: on different channels, or in the same batch."""
        return lane.channel != other.channel or lane.batch == other.batch

    def _read(self, state: _LaneState, step: str, move: Move) -> None:
        """Record a mistake if an atom that is sent or completed was received by a lane that this one does not wait for.

        Its content would depend on which of two messages comes first.
        """
        position, index = state.key
        racing = {
            lane
            for atom in move.atoms
            for lane, message in self._brought.get((position, atom), {}).items()
            if lane != index
            and state.waits.of(state.next).get(lane, 0) <= message
            and self._may_run_with(self._lanes[position, lane].lane, state.lane)
        }
        for lane in sorted(racing):
            self.wrong.append(
                (step, f"uses block {move.block} without waiting for lane {lane}, which receives it")
            )

    def _sends_nothing(self, step: str, moves: tuple[Move, ...], carried: list[int]) -> None:
        """Record a mistake for blocks that are sent without any content."""
        blocks = [move.block for move in moves for _ in move.atoms]
        for block in dict.fromkeys(
            block for block, origins in zip(blocks, carried, strict=True) if not origins
        ):
            self.wrong.append((step, f"sends block {block}, of which it has no data"))


def step_name(key: LaneKey, entry: int) -> str:
    """Return the name of a step for error messages."""
    return f"position {key[0]}, lane {key[1]}, entry {entry}"
