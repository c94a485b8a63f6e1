"""A position's table under construction: lanes that are filled entry by entry, and steps that later entries wait for.

Algorithms express their dependencies with it; `TableDraft.lanes` returns the table. `on_channels` combines the tables
of several channels, `schedule_of` builds the schedule with the requested cut. Algorithms decide who sends to whom.
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
"""Receive a block that is only passed on."""
KEEP: Final = EntryKind.RECV | EntryKind.COPY
"""Receive the final content of a block that this position needs."""
ADD: Final = EntryKind.RECV | EntryKind.REDUCE
"""Add the received block to the local one; more contributions follow."""
FINISH: Final = EntryKind.RECV | EntryKind.REDUCE | EntryKind.COPY
"""Add the received block to the local one, which is then final."""
IN_TURN: Final = EntryKind.IN_TURN
"""Combined with one of the above: not granted before its turn, as in a library with blocking receives."""
_MORE: Final = int(EntryKind.MORE)

COPY_ALIGN_BYTES: Final = 16
"""16 elements; collectives that only copy are run on bytes (NCCL device/prims_simple.h)."""
REDUCE_ALIGN_BYTES: Final = 64
"""16 elements of float32."""
_REDUCING: Final = frozenset({"all-reduce", "barrier", "reduce-scatter", "reduce"})
_DISTINCT_MAX: Final = 1 << 16
_DISTINCT_MESSAGES: Final = 1 << 13


class Step(NamedTuple):
    """An entry of a lane of the same table that other entries can wait for; entry -1: the whole lane."""

    lane: int
    entry: int


class Move(NamedTuple):
    """One part of a message: a chunk of its lane, and the data block in it."""

    chunk: int
    block: int


WHOLE: Final = Move(0, 0)
"""All bytes of a lane that has one chunk, as one block."""
ONE: Final = (WHOLE,)


@lru_cache(_DISTINCT_MAX)
def _entry(kind: int, chunk: int, block: int, after_lane: int, after_entry: int) -> Entry:
    """Return an entry from a cache of equal ones."""
    # Tables of a thousand positions have millions of entries, but few different ones.
    return Entry(EntryKind(kind), chunk, block, after_lane=after_lane, after_entry=after_entry)


def entry(kind: EntryKind, chunk: int, block: int) -> Entry:
    """Return an entry without a wait; equal entries are one object."""
    return _entry(int(kind), chunk, block, -1, -1)


@lru_cache(_DISTINCT_MESSAGES)
def _message_entries(kind: int, moves: tuple[Move, ...]) -> tuple[Entry, ...]:
    """Return the entries of one message, cached: positions of one half of a group send the same hundreds of blocks."""
    last = len(moves) - 1
    return tuple(
        _entry(kind | _MORE if i < last else kind, chunk, block, -1, -1)
        for i, (chunk, block) in enumerate(moves)
    )


@dataclass(slots=True)
class LaneDraft:
    """One lane under construction; `lane` is its final form without entries."""

    index: int
    lane: Lane
    entries: list[Entry] = field(default_factory=list)

    @property
    def done(self) -> Step:
        """Return the step at which the lane has executed all its entries and its messages are acknowledged."""
        return Step(self.index, -1)

    def add(self, kind: EntryKind, moves: Sequence[Move] = ONE, after: Iterable[Step] = ()) -> Step:
        """Add one message that carries `moves`, sent or received after all steps of `after`; return its step.

        Steps of this lane in `after` are ignored, because a lane is in order anyway.
        """
        return self._message(_message_entries(int(kind), tuple(moves)), after)

    def add_each(self, moves: Sequence[tuple[EntryKind, Move]], after: Iterable[Step] = ()) -> Step:
        """Add one message whose moves differ in kind, such as KEEP and RECV, but not in direction; return its step."""
        kinds = [int(kind) | _MORE for kind, _ in moves]
        kinds[-1] ^= _MORE
        entries = [_entry(kind, *move, -1, -1) for kind, (_, move) in zip(kinds, moves, strict=True)]
        return self._message(entries, after)

    def wait(self, after: Iterable[Step]) -> None:
        """Add entries that wait for steps of other lanes in this loop."""
        for step in after:
            if step.lane != self.index:
                self.entries.append(_entry(0, 0, 0, *step))

    def _message(self, entries: Sequence[Entry], after: Iterable[Step]) -> Step:
        """Append the entries of a message, preceded by its waits; return its step."""
        assert entries
        waits = [step for step in after if step.lane != self.index]
        if waits:
            self.wait(waits[:-1])
            first, *remaining = entries
            self.entries.append(_entry(int(first.kind), first.chunk, first.block, *waits[-1]))
            self.entries += remaining
        else:
            self.entries += entries
        return Step(self.index, len(self.entries) - 1)


@dataclass(slots=True)
class TableDraft:
    """The table of one position under construction."""

    drafts: list[LaneDraft] = field(default_factory=list)

    def lane(self, send_to: int = -1, recv_from: int = -1, batch: int = 0) -> LaneDraft:
        """Add a lane on all bytes of the op."""
        return self.add(Lane(batch, send_to, recv_from, 0, 1, ()))

    def add(self, lane: Lane) -> LaneDraft:
        """Add a lane with the peers, bytes and channel of `lane`; its entries are added later."""
        draft = LaneDraft(len(self.drafts), lane)
        self.drafts.append(draft)
        return draft

    def lanes(self) -> tuple[Lane, ...]:
        """Return the finished table."""
        return tuple(replace(draft.lane, entries=tuple(draft.entries)) for draft in self.drafts)


def on_channels(tables: Sequence[tuple[Lane, ...]]) -> tuple[Lane, ...]:
    """Combine one table per channel into one table: `tables[c]` is on channel c with its share of the bytes."""
    if len(tables) == 1:
        return tables[0]
    keys = [(channel, index) for channel, lanes in enumerate(tables) for index in range(len(lanes))]
    # Lanes of a table are in batch order, so all channels begin with their first batch.
    keys.sort(key=lambda key: tables[key[0]][key[1]].batch)
    index_of = {key: place for place, key in enumerate(keys)}
    combined: list[Lane] = []
    for channel, index in keys:
        lane = tables[channel][index]
        entries = _renumber_waits(lane.entries, channel, index_of)
        combined.append(replace(lane, channel=channel, share=channel, shares=len(tables), entries=entries))
    return tuple(combined)


def _renumber_waits(
    entries: tuple[Entry, ...], channel: int, place_of: Mapping[tuple[int, int], int]
) -> tuple[Entry, ...]:
    """Return the entries with waits renumbered to the new indices of their channel's lanes."""
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
    """Return the tables of all positions: the same `lanes(position)` on every channel, each with its share of bytes.

    With `symmetry`, columns are derived from position 0's table alone; it must transform that into the table of any
    other position.
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
    """Build a schedule with the cut of the request.

    `blocks`: chunks are taken from this many equal blocks of a lane; 0: from its start, `chunks_per_loop` at a time.
    """
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
        completion=cutting.completion,
        eager_bytes=cutting.eager_bytes,
        connection_slots=cutting.connection_slots,
    )


def block_moves(blocks: Iterable[int]) -> tuple[Move, ...]:
    """Return moves of blocks that are the lane's chunks of the same number."""
    return _window(blocks) if isinstance(blocks, range) else tuple(Move(block, block) for block in blocks)


@lru_cache(_DISTINCT_MESSAGES)
def _window(blocks: range) -> tuple[Move, ...]:
    """Return moves of consecutive blocks, cached."""
    return tuple(Move(block, block) for block in blocks)
