"""Step tables: what each position of a communicator sends, receives and reduces, and in which order.

A `Schedule` is made per (collective, algorithm, group size) and holds for every message size: entries name chunks,
and the engine cuts chunks into messages (`traffic/native/plan/schedule.h`) for the byte count at hand. Only the schedule of
an uneven all-to-all is made for one matrix of splits, and its lanes state their bytes themselves.

* A table is the part of one position. It has lanes; those of one channel and batch run side by side, the batches of a
  channel one after another, whatever other channels do. Lanes stand in the order of their batches.
* A lane is a sequence of entries executed strictly in order. An entry waits for the message it receives (if any)
  and for a free buffer slot of the connection it sends on (if any); executing it frees the received slot and hands
  the sent message to the connection. That is how a receive releases a send, slice by slice.
* Channels: a connection is (communicator, channel, source, destination). Within one schedule at most one lane of a
  position sends to a given (peer, channel), and at most one receives from it.
* Across lanes: an entry with `after_lane` also waits for another lane of its own table, not one of a later batch of its
  channel.
  With `after_entry` it waits until that lane has executed that entry of the same loop and slice (both lanes then have
  the same loops and slices; one that ends earlier releases what waits for more); with -1 until that lane is over, what it
  sent being acknowledged. That is how a receive on one connection releases a send on another. An entry that neither
  sends nor receives only waits.
* Lane bytes: a lane works on the `span` blocks from `part` of `parts` equal blocks of the op's B bytes:
  floor((part + span) * B / parts) - floor(part * B / parts). Where B is the block of one position (all-gather, gather)
  parts may be 1 and span up to the group's size. A lane with `lane_bytes` works on that many, whatever B is. Of these
  bytes it takes share `share` of `shares`, by `Schedule.split`: that is how data is split over channels.
* Loops: with c = chunk bytes and k = `chunks_per_loop`, loop l covers bytes [l*k*c, (l+1)*k*c) of the lane; chunk j
  of a loop with `rem` bytes left has clamp(rem - j*c, 0, c) bytes. With `shrink_last` a last loop that is not full
  uses c = align_up(ceil(rem / k), 16) instead. All entries of the lane are executed once per loop.
* Blocks: under `ChunkRule.BLOCKS` the lane's bytes are k equal blocks (sizes as for `part`), and chunk j of loop l
  covers bytes [l*c, (l+1)*c) of block j. There are as many loops as the largest block needs. Equal blocks give NCCL's
  reduce-scatter cut; with unequal ones every message has its own block's size, so both ends agree and no byte is lost.
  A share is then taken of each block.
* Gathered messages: the entries from one with `MORE` to the next one without it are one message, as long as their
  chunks together; they have one direction, and only the first may have an `after_lane`. That is how a message carries
  chunks that are not neighbours, or the chunks of a step whose number differs from the next step's.
* Slices (NCCL device/prims_simple.h genericOp): a chunk of b bytes becomes `slices` messages of
  min(left, max(align_up(ceil(b / slices), slice_align_bytes), min_slice_bytes)), empty ones included.
* A lane of zero bytes has no messages; with `empty_message` it has one empty message per entry.
* Wire: a message of b data bytes has ceil(b / line_data_bytes) * line_wire_bytes payload bytes (`Protocol`).
* Data blocks (what `Entry.block` names, for validation only): of an all-gather and a gather, block i is what position i
  puts in (a lane over the blocks of all positions, `span` = size, needs no names); of an all-to-all, where lanes work on
  the source's buffer, block `source * size + destination` (`source * chunks_per_loop + chunk` under `ChunkRule.BLOCKS`);
  of an uneven all-to-all `source * size + destination`. For all others it is only a name in errors: the bytes of the op
  that a lane works on say what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum, IntFlag
from typing import Final

from etloop.contract.base.late_dataclass import dataclass

MAX_LANE_BYTES: Final = 1 << 46
"""Most bytes a lane may state: 64 TiB, as in traffic/native/bind/schedule.cpp."""


class EntryKind(IntFlag):
    """What an entry does; REDUCE and COPY say what becomes of received bytes (no cost on the wire)."""

    SEND = 1
    RECV = 2
    REDUCE = 4
    COPY = 8
    MORE = 16
    """The message goes on with the chunk of the next entry."""
    IN_TURN = 32
    """What it receives is granted only when the entries before it and what it waits for are over, as by a blocking
    receive; others are granted as far ahead as there are slots."""


class ChunkRule(IntEnum):
    """How a lane's chunk size follows from its bytes."""

    FIXED = 0
    """`Schedule.chunk_bytes`."""
    P2P = 1
    """NCCL grouped send/recv: below 128 KiB 32 KiB, below 1 MiB 64 KiB, else 128 KiB (enqueue.cc addP2pToPlan)."""
    BLOCKS = 2
    """`Schedule.chunk_bytes`, taken from each of the lane's `chunks_per_loop` blocks."""


class Protocol(IntEnum):
    """How NCCL's kernels lay data into buffers, and with that what a message weighs on the wire (NCCL device.h)."""

    SIMPLE = 0
    LL = 1
    """A line of 16 bytes carries 8 of data and two flags."""
    LL128 = 2
    """Lines of 128 bytes carry 120 of data; 16 of them at a time."""

    @property
    def line_data_bytes(self) -> int:
        """Data bytes of one line; 0: data goes as it is."""
        return (0, 8, 1920)[self]

    @property
    def line_wire_bytes(self) -> int:
        """Bytes on the wire of one line; 0: data goes as it is."""
        return (0, 16, 2048)[self]


class Split(IntEnum):
    """How a lane's bytes are split into shares."""

    EQUAL = 0
    """Share i of n: floor((i + 1) * b / n) - floor(i * b / n)."""
    CELLS = 1
    """NCCL's cells of a collective over its channels (enqueue.cc scheduleCollTasksToPlan), by `traffic_per_byte`."""
    PAGES = 2
    """NCCL's parts of a send (enqueue.cc addP2pToPlan): ceil(b / n) rounded up to 4 KiB each, the last ones shorter or
    without any byte."""


class Handshake(IntEnum):
    """How the two ends of a message agree."""

    CTS = 0
    """The receiver grants every message by a clear-to-send write; data is a WRITE with immediate (NCCL)."""
    ONE_SIDED = 1
    """The sender writes when it has something (DeepEP): plain WRITEs, and a closing 4-byte fetch-and-add per lane."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One step of a lane. `chunk` is an index within the loop; `block` names the data it moves, for validation only."""

    kind: EntryKind
    chunk: int
    block: int
    after_lane: int = -1
    """Lane of the same table that it waits for; -1: none."""
    after_entry: int = -1
    """What that lane must have executed: this entry in the same loop and slice; -1: everything, and what it sent must
    have been acknowledged."""


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
    """Data of the lane if it does not follow from the op's bytes; -1: it does, by `part`."""
    channel: int = 0
    """Part of the key of its connections, both ways."""
    span: int = 1
    """How many of the `parts` it works on, from `part` on."""
    share: int = 0
    shares: int = 1


@dataclass(frozen=True, slots=True)
class Schedule:
    """The step tables of every position, `tables[position]` being its lanes, and how bytes are cut."""

    collective: str
    algorithm: str
    size: int
    tables: Sequence[tuple[Lane, ...]]
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
    protocol: Protocol = Protocol.SIMPLE
    channels: int = 1
    """Lanes have channels 0 to `channels` - 1."""
    split: Split = Split.EQUAL
    traffic_per_byte: int = 1
    """`Split.CELLS`: NCCL's trafficPerByte, 2 for an all-reduce, n for an all-gather or reduce-scatter, else 1; four
    times that with LL (enqueue.cc)."""
    handshake: Handshake = Handshake.CTS
