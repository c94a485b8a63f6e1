"""Step tables: what each position of a communicator sends, receives and reduces, and in which order.

A `Schedule` is built per (collective, algorithm, group size) and is valid for every message size: entries name chunks,
and the engine cuts chunks into messages (`traffic/native/plan/schedule.h`) for the byte count of the op. Only the
schedule of an uneven all-to-all is built for one matrix of splits, and its lanes state their bytes themselves.

* A table is the part of one position. It has lanes; those of one channel and batch run in parallel, the batches of a
  channel run one after another, independently of other channels. Lanes are in the order of their batches.
* A lane is a sequence of entries executed strictly in order. An entry waits for the message it receives (if any) and
  for a free buffer slot of the connection it sends on (if any); executing it frees the received slot and hands the sent
  message to the connection. In this way a receive releases a send, slice by slice.
* Channels: a connection is (communicator, channel, source, destination). Within one schedule at most one lane of a
  position sends to a given (peer, channel), and at most one receives from it.
* Across lanes: an entry with `after_lane` also waits for another lane of its own table, which must not be in a later
  batch of its channel. With `after_entry` it waits until that lane has executed that entry of the same loop and slice
  (both lanes then have the same loops and slices; a lane that ends earlier releases all further waits); with -1 it
  waits until that lane is complete and its messages are acknowledged. In this way a receive on one connection releases
  a send on another. An entry that neither sends nor receives only waits.
* Lane bytes: a lane works on the `span` blocks from `part` of `parts` equal blocks of the op's B bytes: floor((part +
  span) * B / parts) - floor(part * B / parts). If B is the block of one position (all-gather, gather), parts may be 1
  and span up to the group's size. A lane with `lane_bytes` works on that many bytes, whatever B is. It takes
  share `share` of `shares` of these bytes, by `Schedule.split`; this divides data among channels.
* Loops: with c = chunk bytes and k = `chunks_per_loop`, loop l covers bytes [l*k*c, (l+1)*k*c) of the lane; chunk j of
  a loop with `rem` bytes left has clamp(rem - j*c, 0, c) bytes. With `shrink_last` a last loop that is not full uses c
  = align_up(ceil(rem / k), 16) instead. All entries of the lane are executed once per loop.
* Blocks: under `ChunkRule.BLOCKS` the lane's bytes are k equal blocks (sizes as for `part`), and chunk j of loop l
  covers bytes [l*c, (l+1)*c) of block j. There are as many loops as the largest block needs. Equal blocks give NCCL's
  reduce-scatter cut; with unequal ones every message has the size of its own block, so both ends agree and no byte is
  lost. A share is then taken of each block.
* Gathered messages: the entries from one with `MORE` to the next one without it are one message of the length of their
  chunks together; they have one direction, and only the first may have an `after_lane`. In this way a message carries
  chunks that are not adjacent, or the chunks of a step whose number differs from the next step's.
* Slices (NCCL device/prims_simple.h genericOp): a chunk of b bytes becomes `slices` messages of min(left,
  max(align_up(ceil(b / slices), slice_align_bytes), min_slice_bytes)), empty ones included.
* A lane of zero bytes has no messages; with `empty_message` it has one empty message per entry.
* Wire: a message of b data bytes has ceil(b / line_data_bytes) * line_wire_bytes payload bytes (`Protocol`).
* Data blocks (`Entry.block`, for validation only): for an all-gather and a gather, block i is the input of position i
  (a lane over the blocks of all positions, `span` = size, needs no names); for an all-to-all, where lanes work on the
  source's buffer, block `source * size + destination` (`source * chunks_per_loop + chunk` under `ChunkRule.BLOCKS`);
  for an uneven all-to-all `source * size + destination`. For all other collectives it is only a name in errors: the
  bytes of the op that a lane works on identify the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum, IntFlag
from typing import Final

from etloop.contract.base.late_dataclass import dataclass

MAX_LANE_BYTES: Final = 1 << 46
"""Maximum bytes that a lane may state: 64 TiB, as in traffic/native/bind/schedule.cpp."""
MOST_SLOTS: Final = 64
"""Maximum messages of a connection in flight, as in traffic/native/core/message.h."""


class EntryKind(IntFlag):
    """Operation of an entry; REDUCE and COPY describe the use of received bytes (no cost on the wire)."""

    SEND = 1
    RECV = 2
    REDUCE = 4
    COPY = 8
    MORE = 16
    """The message continues with the chunk of the next entry."""
    IN_TURN = 32
    """The receive is granted only when the entries before it and its waits are complete, as by a blocking receive;
    other receives, and those of at most `Schedule.eager_bytes`, are granted as far ahead as there are slots."""


class ChunkRule(IntEnum):
    """How a lane's chunk size is derived from its bytes."""

    FIXED = 0
    """`Schedule.chunk_bytes`."""
    P2P = 1
    """NCCL grouped send/recv: below 128 KiB 32 KiB, below 1 MiB 64 KiB, else 128 KiB (enqueue.cc addP2pToPlan)."""
    BLOCKS = 2
    """`Schedule.chunk_bytes`, taken from each of the lane's `chunks_per_loop` blocks."""


class Protocol(IntEnum):
    """How NCCL's kernels lay data out in buffers, and thus the size of a message on the wire (NCCL device.h)."""

    SIMPLE = 0
    LL = 1
    """A line of 16 bytes carries 8 bytes of data and two flags."""
    LL128 = 2
    """Lines of 128 bytes carry 120 bytes of data; 16 lines at a time."""

    @property
    def line_data_bytes(self) -> int:
        """Return the data bytes of one line; 0: data is sent unchanged."""
        return (0, 8, 1920)[self]

    @property
    def line_wire_bytes(self) -> int:
        """Return the wire bytes of one line; 0: data is sent unchanged."""
        return (0, 16, 2048)[self]


class Split(IntEnum):
    """How a lane's bytes are divided into shares."""

    EQUAL = 0
    """Share i of n: floor((i + 1) * b / n) - floor(i * b / n)."""
    CELLS = 1
    """NCCL's cells of a collective over its channels (enqueue.cc scheduleCollTasksToPlan), by `traffic_per_byte`."""
    PAGES = 2
    """NCCL's parts of a send (enqueue.cc addP2pToPlan): ceil(b / n) rounded up to 4 KiB each, the last ones shorter or
    empty."""


class Completion(IntEnum):
    """Progress that an op's messages must make before the op is complete; the op also needs all data that it receives."""

    ACKNOWLEDGED = 0
    """Acknowledgement of every message: the completion of an RDMA write."""
    POSTED = 1
    """The departure of their last packet."""
    EAGER = 2
    """As POSTED for messages of at most `Schedule.eager_bytes`, as ACKNOWLEDGED for larger ones."""


class Handshake(IntEnum):
    """How the two ends of a message coordinate."""

    CTS = 0
    """The receiver grants every message by a clear-to-send write; data is a WRITE with immediate (NCCL)."""
    ONE_SIDED = 1
    """The sender writes without a grant (DeepEP): plain WRITEs, and a closing fetch-and-add per lane."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One step of a lane. `chunk` is an index within the loop; `block` names the data it moves, for validation only."""

    kind: EntryKind
    chunk: int
    block: int
    after_lane: int = -1
    """Lane of the same table that it waits for; -1: none."""
    after_entry: int = -1
    """Entry of that lane, in the same loop and slice, that it waits for; -1: all entries, with all messages
    acknowledged."""


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
    """Data bytes of the lane if they do not follow from the op's bytes; -1: they follow, by `part`."""
    channel: int = 0
    """Part of the key of its connections in both directions."""
    span: int = 1
    """Number of the `parts` it works on, from `part` on."""
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
    """Whether a lane of zero bytes sends one empty message (send/recv) or none (collectives)."""
    slice_align_bytes: int
    """Alignment of slices: 16 elements in NCCL, where a copy has elements of 1 byte and a reduction, as modelled here,
    of 4 (float32). No effect if there is one slice."""
    splits: tuple[tuple[int, ...], ...] = ()
    """Uneven all-to-all: `splits[i][j]` bytes go from position i to position j; empty for all other schedules."""
    protocol: Protocol = Protocol.SIMPLE
    channels: int = 1
    """Lanes have channels 0 to `channels` - 1."""
    split: Split = Split.EQUAL
    traffic_per_byte: int = 1
    """For `Split.CELLS`: NCCL's trafficPerByte, 2 for an all-reduce, n for an all-gather or reduce-scatter, else 1;
    four times that with LL (enqueue.cc)."""
    handshake: Handshake = Handshake.CTS
    completion: Completion = Completion.ACKNOWLEDGED
    eager_bytes: int = 0
    """Messages of at most this size are granted ahead of their turn, and ahead of their op by several ops."""
    connection_slots: int = MOST_SLOTS
    """Messages of a connection, over all its ops, that may have left and not be acknowledged. No effect under
    ACKNOWLEDGED, where no op begins before those of the op before it are."""
