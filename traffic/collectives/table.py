"""Step tables: what each position of a communicator sends, receives and reduces, and in which order.

A `Schedule` is made per (collective, algorithm, group size) and holds for every message size: entries name chunks,
and the engine cuts chunks into messages (`traffic/native/schedule.h`) for the byte count at hand. Only the schedule of
an uneven all-to-all is made for one matrix of splits, and its lanes state their bytes themselves.

* A table is the part of one position. It has lanes; lanes of one batch run side by side, batches one after another.
* A lane is a sequence of entries executed strictly in order. An entry waits for the message it receives (if any)
  and for a free buffer slot of the connection it sends on (if any); executing it frees the received slot and hands
  the sent message to the connection. That is how a receive releases a send, slice by slice.
* Within one schedule at most one lane of a position sends to a given peer, and at most one receives from it.
* Lane bytes: a lane works on block `part` of `parts` equal blocks of the op's B bytes:
  floor((part + 1) * B / parts) - floor(part * B / parts). A lane with `lane_bytes` works on that many, whatever B is.
* Loops: with c = chunk bytes and k = `chunks_per_loop`, loop l covers bytes [l*k*c, (l+1)*k*c) of the lane; chunk j
  of a loop with `rem` bytes left has clamp(rem - j*c, 0, c) bytes. With `shrink_last` a last loop that is not full
  uses c = align_up(ceil(rem / k), 16) instead. All entries of the lane are executed once per loop.
* Blocks: under `ChunkRule.BLOCKS` the lane's bytes are k equal blocks (sizes as for `part`), and chunk j of loop l
  covers bytes [l*c, (l+1)*c) of block j. There are as many loops as the largest block needs. Equal blocks give NCCL's
  reduce-scatter cut; with unequal ones every message has its own block's size, so both ends agree and no byte is lost.
* Slices (NCCL device/prims_simple.h genericOp): a chunk of b bytes becomes `slices` messages of
  min(left, max(align_up(ceil(b / slices), slice_align_bytes), min_slice_bytes)), empty ones included.
* A lane of zero bytes has no messages; with `empty_message` it has one empty message per entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

MAX_LANE_BYTES: Final = 1 << 46
"""Most bytes a lane may state: 64 TiB, as in traffic/native/bind_schedule.cpp."""


class EntryKind(IntFlag):
    """What an entry does; REDUCE and COPY say what becomes of received bytes (no cost on the wire)."""

    SEND = 1
    RECV = 2
    REDUCE = 4
    COPY = 8


class ChunkRule(IntEnum):
    """How a lane's chunk size follows from its bytes."""

    FIXED = 0
    """`Schedule.chunk_bytes`."""
    P2P = 1
    """NCCL grouped send/recv: below 128 KiB 32 KiB, below 1 MiB 64 KiB, else 128 KiB (enqueue.cc addP2pToPlan)."""
    BLOCKS = 2
    """`Schedule.chunk_bytes`, taken from each of the lane's `chunks_per_loop` blocks."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One step of a lane. `chunk` is an index within the loop; `block` names the data it moves, for validation only."""

    kind: EntryKind
    chunk: int
    block: int


@dataclass(frozen=True, slots=True)
class Lane:
    """Entries executed in order. All its sends go to position `send_to`, all receives come from `recv_from` (-1: none)."""

    batch: int
    send_to: int
    recv_from: int
    part: int
    parts: int
    entries: tuple[Entry, ...]
    lane_bytes: int = -1
    """Payload of the lane if it does not follow from the op's bytes; -1: it does, by `part`."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The step tables of every position, `tables[position]` being its lanes, and how bytes are cut."""

    collective: str
    algorithm: str
    size: int
    tables: tuple[tuple[Lane, ...], ...]
    chunk_rule: ChunkRule
    chunk_bytes: int
    chunks_per_loop: int
    shrink_last: bool
    slices: int
    min_slice_bytes: int
    slots: int
    """Messages of one connection and op that may be handed over and not yet acknowledged."""
    empty_message: bool
    """Whether a lane of zero bytes still sends one empty message (send/recv) or none (collectives)."""
    slice_align_bytes: int
    """What a slice is rounded up to: 16 elements in NCCL, where a copy has elements of 1 byte and a reduction, as
    modelled here, of 4 (float32). Without effect if there is one slice."""
    splits: tuple[tuple[int, ...], ...] = ()
    """Uneven all-to-all: `splits[i][j]` bytes go from position i to position j; empty for all other schedules."""
