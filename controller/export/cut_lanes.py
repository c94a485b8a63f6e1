"""Step tables of one schedule at one byte count, cut into the messages that another simulator is to send.

Decides which steps of a lane are one message: consecutive sends that nothing separates, at either end, such as the chunks
of a point-to-point send. Leaves the order of operations to `message_graph`.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final, NamedTuple

from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic._native import StepTables
from etloop.traffic.collectives.core.table import EntryKind, Lane, Schedule

_SEND: Final = int(EntryKind.SEND)
_RECV: Final = int(EntryKind.RECV)
_IN_TURN: Final = int(EntryKind.IN_TURN)

LaneStep = tuple[int, int]
"""(lane, step) of one table."""


class Step(NamedTuple):
    """One step of a lane: the messages that it sends and receives, by their numbers on the connection; -1: none."""

    sends: int
    receives: int
    in_turn: bool
    after: LaneStep | None
    """Step it waits for; step -1: the whole lane. None: it waits for none."""


@dataclass(frozen=True, slots=True)
class CutLane:
    """A lane as the messages it sends and receives, in order."""

    channel: int
    batch: int
    send_to: int
    recv_from: int
    steps: tuple[Step, ...]
    sent_bytes: tuple[int, ...]
    """Payload on the wire of each message it sends."""


@dataclass(slots=True)
class _RawLane:
    """The steps of a lane before they are joined."""

    lane: Lane
    kinds: list[int]
    wire_bytes: list[int]
    places: list[tuple[int, int, int]]
    """(first entry, loop, slice) of each step."""
    after: list[LaneStep | None] = field(default_factory=list)
    """By step: the step it waits for."""
    awaited: set[int] = field(default_factory=set)
    """Steps that another lane waits for."""
    joins: list[bool] = field(default_factory=list)
    """By step: whether it belongs to the message of the step before it."""

    def steps_of(self, kind: int) -> list[int]:
        """Return the numbers of the steps that send or receive."""
        return [number for number, step_kind in enumerate(self.kinds) if step_kind & kind]

    def may_join(self, step: int, kind: int) -> bool:
        """Return whether a step may belong to the message of the step before it, as seen from this end."""
        if step == 0 or self.after[step] is not None or step - 1 in self.awaited:
            return False
        both = (self.kinds[step] | self.kinds[step - 1]) & (_SEND | _RECV | _IN_TURN)
        return both == kind and bool(self.kinds[step - 1] & kind)


def cut_lanes(
    schedule: Schedule, tables: StepTables, number: int, op_bytes: int
) -> tuple[tuple[CutLane, ...], ...]:
    """Return the cut lanes of every position. `number` is the schedule's place in `tables`."""
    raw = [
        [
            _raw_lane(tables, (number, position, index), lane, op_bytes)
            for index, lane in enumerate(schedule.tables[position])
        ]
        for position in range(schedule.size)
    ]
    for lanes in raw:
        _set_waits(lanes)
    receivers = {
        (lane.lane.recv_from, position, lane.lane.channel): lane
        for position, lanes in enumerate(raw)
        for lane in lanes
        if lane.lane.recv_from >= 0 and lane.steps_of(_RECV)
    }
    for position, lanes in enumerate(raw):
        for lane in lanes:
            receiver = receivers.get((position, lane.lane.send_to, lane.lane.channel))
            if lane.lane.send_to >= 0 and receiver is not None:
                _join(lane, receiver)
    return tuple(tuple(_cut(lane) for lane in lanes) for lanes in raw)


def _raw_lane(tables: StepTables, key: tuple[int, int, int], lane: Lane, op_bytes: int) -> _RawLane:
    columns = tables.lane_steps(*key, op_bytes)
    kinds, entries, loops, slices, _, wire = (column.tolist() for column in columns)
    places = list(zip(entries, loops, slices, strict=True))
    return _RawLane(lane, kinds, wire, places, [None] * len(kinds), joins=[False] * len(kinds))


def _set_waits(lanes: list[_RawLane]) -> None:
    """Find the steps that steps wait for, in the other lanes of a table."""
    indices = []
    for raw in lanes:
        first_entry, first = [], 0
        for index, entry in enumerate(raw.lane.entries):
            first_entry.append(first)
            if not entry.kind & EntryKind.MORE:
                first = index + 1
        indices.append((first_entry, {place: step for step, place in enumerate(raw.places)}))
    for raw in lanes:
        for step, (entry_number, loop, slice_index) in enumerate(raw.places):
            entry = raw.lane.entries[entry_number]
            if entry.after_lane < 0:
                continue
            awaited = -1
            if entry.after_entry >= 0:
                first_entry, step_at = indices[entry.after_lane]
                exact = step_at.get((first_entry[entry.after_entry], loop, slice_index))
                awaited = len(lanes[entry.after_lane].kinds) - 1 if exact is None else exact
            raw.after[step] = (entry.after_lane, awaited)
            lanes[entry.after_lane].awaited.add(awaited)


def _join(sender: _RawLane, receiver: _RawLane) -> None:
    sends, receives = sender.steps_of(_SEND), receiver.steps_of(_RECV)
    assert len(sends) == len(receives), "both ends of a connection have the same messages"
    for sent, received in zip(sends[1:], receives[1:], strict=True):
        if sender.may_join(sent, _SEND) and receiver.may_join(received, _RECV):
            sender.joins[sent] = receiver.joins[received] = True


def _cut(raw: _RawLane) -> CutLane:
    steps: list[Step] = []
    sent_bytes: list[int] = []
    received = 0
    for kind, wire, after, joins in zip(raw.kinds, raw.wire_bytes, raw.after, raw.joins, strict=True):
        sends, receives = -1, -1
        if joins:
            if kind & _SEND:
                sent_bytes[-1] += wire
        else:
            if kind & _SEND:
                sends = len(sent_bytes)
                sent_bytes.append(wire)
            if kind & _RECV:
                receives, received = received, received + 1
        steps.append(Step(sends, receives, bool(kind & _IN_TURN), after))
    lane = raw.lane
    return CutLane(lane.channel, lane.batch, lane.send_to, lane.recv_from, tuple(steps), tuple(sent_bytes))
