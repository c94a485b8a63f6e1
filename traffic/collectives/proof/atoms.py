"""The messages of every lane, each with the bytes of the collective that it moves; cut by the native cursor.

This module maps the bytes of a lane to addresses in the data of the whole collective, so that the same bytes have the
same address at all positions. For collectives over one buffer, addresses are the op's bytes; for an all-gather and a
gather the inputs one after another; for an all-to-all the send buffers one after another. An uneven all-to-all has a
space for each of its blocks, and for each channel if lanes do not share a block.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from etloop.traffic._native import StepTables
from etloop.traffic.collectives.core.columns import to_columns
from etloop.traffic.collectives.core.table import ChunkRule, EntryKind, Handshake, Lane, Schedule
from etloop.traffic.collectives.proof.outcome import EVERYONE, NOBODY, Atom, ends_of

LaneKey = tuple[int, int]
"""(position, index of the lane in its table)."""
_Range = tuple[int, int, int]
"""(space, first address, address behind the last)."""


class Move(NamedTuple):
    """A piece of a message: its operation, the block that its entry names, and its bytes as indices of atoms."""

    kind: int
    block: int
    atoms: tuple[int, ...]


class Message(NamedTuple):
    """One step of a lane.

    `kind` is that of its first entry; `after` is the (lane, step) it waits for: step -1 for the whole lane, lane -1 for
    none.
    """

    entry: int
    kind: int
    loop: int
    slice_index: int
    message_bytes: int
    moves: tuple[Move, ...]
    after: tuple[int, int]


class CutSchedule(NamedTuple):
    """A schedule cut for one byte count."""

    messages: dict[LaneKey, tuple[Message, ...]]
    atoms: tuple[Atom, ...]


class _Step(NamedTuple):
    """One message while its byte ranges are collected."""

    entry: int
    kind: int
    loop: int
    slice_index: int
    message_bytes: int
    ranges: list[tuple[int, _Range]]
    """(entry, bytes)."""


def cut_schedule(schedule: Schedule, op_bytes: int) -> CutSchedule:
    """Cut all messages of a schedule, whose indices must be in range."""
    tables = StepTables(to_columns((schedule,)))
    steps = {
        (position, index): _steps(schedule, tables, (position, index), lane, op_bytes)
        for position, table in enumerate(schedule.tables)
        for index, lane in enumerate(table)
    }
    atoms = _AtomTable(schedule, op_bytes)
    for lane_steps in steps.values():
        for step in lane_steps:
            for _, piece in step.ranges:
                atoms.add(piece)
    atoms.finish()
    messages: dict[LaneKey, tuple[Message, ...]] = {}
    for position, table in enumerate(schedule.tables):
        numbers = [_Numbers(lane, steps[position, index]) for index, lane in enumerate(table)]
        for index, lane in enumerate(table):
            messages[position, index] = tuple(
                _message(lane, step, atoms, numbers) for step in steps[position, index]
            )
    return CutSchedule(messages, tuple(atoms.atoms))


class _Numbers:
    """The numbers of a lane's steps, by loop, entry and slice."""

    def __init__(self, lane: Lane, steps: Sequence[_Step]) -> None:
        self._ordinal = []
        ordinal = 0
        for entry in lane.entries:
            self._ordinal.append(ordinal)
            ordinal += not entry.kind & EntryKind.MORE
        self._in_loop = ordinal
        self._slices = 1 + max((step.slice_index for step in steps), default=0)
        self._count = len(steps)

    def number(self, loop: int, entry: int, slice_index: int) -> int:
        """Return the number of a step or, if the lane ends before it, of its last one."""
        exact = (loop * self._in_loop + self._ordinal[entry]) * self._slices + slice_index
        return min(exact, self._count - 1)


def _message(lane: Lane, step: _Step, atoms: _AtomTable, numbers: Sequence[_Numbers]) -> Message:
    """Build a message from a step, with atoms in place of byte ranges."""
    entry = lane.entries[step.entry]
    after = (-1, -1)
    if entry.after_lane >= 0:
        after_entry = entry.after_entry
        awaited_numbers = numbers[entry.after_lane]
        after = (
            entry.after_lane,
            -1 if after_entry < 0 else awaited_numbers.number(step.loop, after_entry, step.slice_index),
        )
    moves = tuple(
        Move(int(lane.entries[entry_index].kind), lane.entries[entry_index].block, atoms.of(piece))
        for entry_index, piece in step.ranges
    )
    return Message(step.entry, step.kind, step.loop, step.slice_index, step.message_bytes, moves, after)


def _steps(schedule: Schedule, tables: StepTables, key: LaneKey, lane: Lane, op_bytes: int) -> list[_Step]:
    """Return the steps of a lane with the byte ranges they move."""
    columns = tables.lane_steps(0, *key, op_bytes)
    kinds, entries, loops, slices, sizes, _wire = (column.tolist() for column in columns)
    steps = [
        _Step(entry, kind, loop, slice_index, size, [])
        for kind, entry, loop, slice_index, size in zip(kinds, entries, loops, slices, sizes, strict=True)
    ]
    pieces = (column.tolist() for column in tables.lane_pieces(0, *key, op_bytes))
    for number, entry, address, size in zip(*pieces, strict=True):
        space, base = _place(schedule, lane, lane.entries[entry].block, op_bytes)
        steps[number].ranges.append((entry, (space, base + address, base + address + size)))
    if schedule.collective in ("all-reduce", "barrier"):
        _mark_empty(schedule, lane, steps)
    return steps


def _mark_empty(schedule: Schedule, lane: Lane, steps: Sequence[_Step]) -> None:
    """Add a range to chunks without bytes, so that they are proved too: a barrier without bytes has only such chunks."""
    filled = {(step.loop, entry) for step in steps for entry, _ in step.ranges}
    for step in steps:
        if step.slice_index or not step.kind:
            continue
        last = step.entry
        while lane.entries[last].kind & EntryKind.MORE:
            last += 1
        for entry in range(step.entry, last + 1):
            if (step.loop, entry) not in filled:
                space = -1 - (lane.entries[entry].block * schedule.channels + lane.channel)
                step.ranges.append((entry, (space, step.loop, step.loop + 1)))


def _place(schedule: Schedule, lane: Lane, block: int, op_bytes: int) -> tuple[int, int]:
    """Return the space of a lane's bytes, and the address in it at which the lane's addresses begin."""
    match schedule.collective:
        case "all-gather" | "gather" if lane.span < schedule.size:
            return 0, block * op_bytes
        case "all-to-all":
            blocks = schedule.chunks_per_loop if schedule.chunk_rule is ChunkRule.BLOCKS else schedule.size
            return 0, block // blocks * op_bytes
        case "uneven all-to-all":
            has_own_space = lane.shares == 1 and schedule.handshake is Handshake.ONE_SIDED
            return block * schedule.channels + (lane.channel if has_own_space else 0), 0
        case _:
            return 0, 0


class _AtomTable:
    """All ranges that messages move, cut at every address where one of them begins or ends."""

    def __init__(self, schedule: Schedule, op_bytes: int) -> None:
        self._schedule = schedule
        self._op_bytes = op_bytes
        self._cuts: dict[int, set[int]] = {}
        self._sorted: dict[int, list[int]] = {}
        self._first: dict[int, int] = {}
        self._known: dict[_Range, tuple[int, ...]] = {}
        self.atoms: list[Atom] = []

    def add(self, piece: _Range) -> None:
        """Add a range that a message moves."""
        if piece in self._known:
            return
        self._known[piece] = ()
        self._cuts.setdefault(piece[0], set()).update(piece[1:])

    def finish(self) -> None:
        """Cut all ranges into atoms; no range may be added after this."""
        if self._schedule.collective in ("reduce-scatter", "scatter", "all-gather", "gather", "all-to-all"):
            self._cut_at_blocks()
        for space, cuts in self._cuts.items():
            ordered = self._sorted[space] = sorted(cuts)
            self._first[space] = len(self.atoms)
            for low, high in pairwise(ordered):
                self.atoms.append(self._atom(space, low, high))
        self._known = dict.fromkeys(self._known, ())

    def of(self, piece: _Range) -> tuple[int, ...]:
        """Return the atoms of a range."""
        atoms = self._known[piece]
        if not atoms:
            space, low, high = piece
            cuts, first = self._sorted[space], self._first[space]
            atoms = tuple(range(first + bisect_left(cuts, low), first + bisect_left(cuts, high)))
            self._known[piece] = atoms
        return atoms

    def _cut_at_blocks(self) -> None:
        """Cut at block edges too: a range may contain blocks that belong to different positions."""
        size, op_bytes = self._schedule.size, self._op_bytes
        cuts = self._cuts.get(0)
        if not cuts:
            return
        low, high = min(cuts), max(cuts)
        if self._schedule.collective in ("all-gather", "gather"):
            cuts |= {block * op_bytes for block in range(size + 1) if low < block * op_bytes < high}
            return
        buffers = size if self._schedule.collective == "all-to-all" else 1
        cuts |= {
            edge
            for buffer in range(buffers)
            for block in range(size + 1)
            if low < (edge := buffer * op_bytes + block * op_bytes // size) < high
        }

    def _atom(self, space: int, low: int, high: int) -> Atom:
        """Return the atom of an address range, with its source and target."""
        schedule = self._schedule
        size = schedule.size
        if space < 0:
            return Atom(EVERYONE, EVERYONE, 0)
        if schedule.collective == "uneven all-to-all":
            source, target = divmod(space // schedule.channels, size)
            return Atom(source if source < size else NOBODY, target, high - low)
        buffers = size if schedule.collective in ("all-gather", "gather", "all-to-all") else 1
        if not 0 <= low < buffers * self._op_bytes:
            return Atom(NOBODY, NOBODY, high - low)
        return Atom(*ends_of(schedule.collective, size, self._op_bytes, low), high - low)
