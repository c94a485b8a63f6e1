"""A position's table while it is written down: lanes that are filled entry by entry and name each other's steps.

Algorithms say in it what waits for what; `TableDraft.lanes` gives the table. `on_channels` puts tables side by
side, `schedule_of` makes the schedule with the cut that was asked for. Who talks to whom is the algorithms' matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, NamedTuple

from etloop.traffic.collectives.core.cutting import Cutting, Request
from etloop.traffic.collectives.core.lazy_tables import LazyTables
from etloop.traffic.collectives.core.symmetric_tables import Symmetry, symmetric_tables
from etloop.traffic.collectives.core.table import ChunkRule, Entry, EntryKind, Lane, Schedule

SEND: Final = EntryKind.SEND
RECV: Final = EntryKind.RECV
"""Take in what is only to be passed on."""
KEEP: Final = EntryKind.RECV | EntryKind.COPY
"""Take in the final content of a block that this position wants."""
ADD: Final = EntryKind.RECV | EntryKind.REDUCE
"""Add what comes to what is here; more is to come."""
FINISH: Final = EntryKind.RECV | EntryKind.REDUCE | EntryKind.COPY
"""Add what comes to what is here, which makes it final."""
IN_TURN: Final = EntryKind.IN_TURN
"""With one of the above: not granted before its turn, as by a library whose receives block."""
_MORE: Final = int(EntryKind.MORE)

COPY_ALIGN_BYTES: Final = 16
"""16 elements; collectives that only copy are run on bytes (NCCL device/prims_simple.h)."""
REDUCE_ALIGN_BYTES: Final = 64
"""16 elements of float32."""
_REDUCING: Final = frozenset({"all-reduce", "barrier", "reduce-scatter", "reduce"})
_DISTINCT_MAX: Final = 1 << 16
_DISTINCT_MESSAGES: Final = 1 << 13


class Step(NamedTuple):
    """An entry of a lane of the same table, which another one may wait for; entry -1: all of the lane."""

    lane: int
    entry: int


class Move(NamedTuple):
    """What a message takes along: a chunk of its lane, and the data block that it is."""

    chunk: int
    block: int


WHOLE: Final = Move(0, 0)
"""All bytes of a lane of one chunk, where they are one block."""
ONE: Final = (WHOLE,)


@lru_cache(_DISTINCT_MAX)
def _entry(kind: int, chunk: int, block: int, after_lane: int, after_entry: int) -> Entry:
    # Tables of a thousand positions have millions of entries, but few different ones.
    return Entry(EntryKind(kind), chunk, block, after_lane=after_lane, after_entry=after_entry)


def entry(kind: EntryKind, chunk: int, block: int) -> Entry:
    """Return the entry that waits for nothing; equal ones are one value."""
    return _entry(int(kind), chunk, block, -1, -1)


@lru_cache(_DISTINCT_MESSAGES)
def _gathered(kind: int, moves: tuple[Move, ...]) -> tuple[Entry, ...]:
    """The entries of one message. Positions of one half of a group send the same ones, of hundreds of blocks."""
    last = len(moves) - 1
    return tuple(
        _entry(kind | _MORE if i < last else kind, chunk, block, -1, -1)
        for i, (chunk, block) in enumerate(moves)
    )


@dataclass(slots=True)
class LaneDraft:
    """One lane; `lane` is its final form but for the entries."""

    index: int
    lane: Lane
    entries: list[Entry] = field(default_factory=list)

    @property
    def done(self) -> Step:
        """The lane has executed everything and what it sent has been acknowledged."""
        return Step(self.index, -1)

    def add(self, kind: EntryKind, moves: Sequence[Move] = ONE, after: Iterable[Step] = ()) -> Step:
        """One message that carries `moves`, once every step of `after` is over; those of this lane are anyway."""
        return self._message(_gathered(int(kind), tuple(moves)), after)

    def add_each(self, moves: Sequence[tuple[EntryKind, Move]], after: Iterable[Step] = ()) -> Step:
        """One message whose moves are of different kinds, such as to keep and to pass on; of one direction."""
        kinds = [int(kind) | _MORE for kind, _ in moves]
        kinds[-1] ^= _MORE
        entries = [_entry(kind, *move, -1, -1) for kind, (_, move) in zip(kinds, moves, strict=True)]
        return self._message(entries, after)

    def wait(self, after: Iterable[Step]) -> None:
        """Go no further in this loop before the steps are over."""
        for step in after:
            if step.lane != self.index:
                self.entries.append(_entry(0, 0, 0, *step))

    def _message(self, entries: Sequence[Entry], after: Iterable[Step]) -> Step:
        assert entries
        before = [step for step in after if step.lane != self.index]
        if before:
            self.wait(before[:-1])
            first, *others = entries
            self.entries.append(_entry(int(first.kind), first.chunk, first.block, *before[-1]))
            self.entries += others
        else:
            self.entries += entries
        return Step(self.index, len(self.entries) - 1)


@dataclass(slots=True)
class TableDraft:
    """The table of one position."""

    drafts: list[LaneDraft] = field(default_factory=list)

    def lane(self, send_to: int = -1, recv_from: int = -1, batch: int = 0) -> LaneDraft:
        """A further lane, on all bytes of the op."""
        return self.add(Lane(batch, send_to, recv_from, 0, 1, ()))

    def add(self, lane: Lane) -> LaneDraft:
        """A further lane with the peers, bytes and channel of `lane`, as yet without its entries."""
        draft = LaneDraft(len(self.drafts), lane)
        self.drafts.append(draft)
        return draft

    def lanes(self) -> tuple[Lane, ...]:
        """The table."""
        return tuple(replace(draft.lane, entries=tuple(draft.entries)) for draft in self.drafts)


def on_channels(tables: Sequence[tuple[Lane, ...]]) -> tuple[Lane, ...]:
    """One table of a table for every channel, each with its share of the bytes: `tables[c]` goes on channel c."""
    if len(tables) == 1:
        return tables[0]
    keys = [(channel, index) for channel, lanes in enumerate(tables) for index in range(len(lanes))]
    # A table has its batches in order, so that all channels begin with their first.
    keys.sort(key=lambda key: tables[key[0]][key[1]].batch)
    place_of = {key: place for place, key in enumerate(keys)}
    found: list[Lane] = []
    for channel, index in keys:
        lane = tables[channel][index]
        entries = _placed(lane.entries, channel, place_of)
        found.append(replace(lane, channel=channel, share=channel, shares=len(tables), entries=entries))
    return tuple(found)


def _placed(
    entries: tuple[Entry, ...], channel: int, place_of: Mapping[tuple[int, int], int]
) -> tuple[Entry, ...]:
    """Entries that wait for the lanes of their channel where these now are."""
    if all(entry.after_lane < 0 for entry in entries):
        return entries
    return tuple(
        entry
        if entry.after_lane < 0
        else _entry(
            int(entry.kind),
            entry.chunk,
            entry.block,
            place_of[channel, entry.after_lane],
            entry.after_entry,
        )
        for entry in entries
    )


def each_channel(
    request: Request, lanes: Callable[[int], tuple[Lane, ...]], symmetry: Symmetry | None = None
) -> LazyTables:
    """Tables of all positions: the same `lanes(position)` on every channel, each with its share of the bytes.

    With `symmetry` columns are made of position 0's table alone, which it must turn into that of any other.
    """

    def table(position: int) -> tuple[Lane, ...]:
        return on_channels([lanes(position)] * request.cutting.channels)

    if symmetry is None:
        return LazyTables(request.size, table)
    return LazyTables(request.size, table, lambda positions: symmetric_tables(table(0), symmetry, positions))


def schedule_of(
    request: Request,
    algorithm: str,
    tables: Sequence[tuple[Lane, ...]],
    *,
    blocks: int = 0,
    chunks_per_loop: int = 1,
    shrink_last: bool = False,
) -> Schedule:
    """The schedule with the request's cut. `blocks`: chunks are taken from so many equal blocks of a lane; 0: from its
    start, `chunks_per_loop` at a time."""
    cutting: Cutting = request.cutting
    return Schedule(
        collective=request.collective,
        algorithm=algorithm,
        size=request.size,
        tables=tables,
        chunk_rule=ChunkRule.BLOCKS if blocks else ChunkRule.FIXED,
        chunk_bytes=cutting.chunk_bytes,
        chunks_per_loop=blocks or chunks_per_loop,
        shrink_last=shrink_last,
        slices=cutting.slices,
        min_slice_bytes=cutting.min_slice_bytes,
        slots=cutting.slots,
        empty_message=request.collective == "barrier",
        slice_align_bytes=REDUCE_ALIGN_BYTES if request.collective in _REDUCING else COPY_ALIGN_BYTES,
        splits=request.splits,
        protocol=cutting.protocol,
        channels=cutting.channels,
        split=cutting.split,
        traffic_per_byte=cutting.traffic_per_byte,
        handshake=cutting.handshake,
    )


def block_moves(blocks: Iterable[int]) -> tuple[Move, ...]:
    """Blocks that are chunks of the lane with the same number."""
    return _window(blocks) if isinstance(blocks, range) else tuple(Move(block, block) for block in blocks)


@lru_cache(_DISTINCT_MESSAGES)
def _window(blocks: range) -> tuple[Move, ...]:
    return tuple(Move(block, block) for block in blocks)
