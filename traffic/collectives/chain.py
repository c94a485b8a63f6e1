"""Broadcast and reduce along the ring as NCCL 2.30 runs them on one channel with the Simple protocol.

Position 0 is the root. Data flows in the ring's direction: a broadcast 0 -> 1 -> ... -> n-1, a reduction
1 -> 2 -> ... -> n-1 -> 0. Sources: NCCL device/broadcast.h, reduce.h; one 512 KiB buffer step a chunk and a slice.
"""

from __future__ import annotations

from typing import Final

from traffic.collectives.steps import recv, recv_copy_send, recv_reduce_copy, recv_reduce_send, send
from traffic.collectives.table import ChunkRule, Entry, Lane, Schedule

CHUNK_BYTES: Final = 512 << 10
MIN_SLICE_BYTES: Final = 16 << 10
SLOTS: Final = 8
SLICE_ALIGN_BYTES: Final = 16


def chain_broadcast(size: int) -> Schedule:
    """Broadcast of B bytes from position 0: every position but the last sends B."""
    last = size - 1
    lanes = [_lane(1, -1, send(0, 0))]
    lanes += [_lane(r + 1, r - 1, recv_copy_send(0, 0)) for r in range(1, last)]
    lanes.append(_lane(-1, last - 1, recv(0, 0)))
    return _chain("broadcast", size, lanes)


def chain_reduce(size: int) -> Schedule:
    """Reduction of B bytes onto position 0: every position but the root sends B."""
    last = size - 1
    lanes = [_lane(-1, last, recv_reduce_copy(0, 0)), _lane(2 % size, -1, send(0, 0))]
    lanes += [_lane((r + 1) % size, r - 1, recv_reduce_send(0, 0)) for r in range(2, size)]
    return _chain("reduce", size, lanes)


def _lane(send_to: int, recv_from: int, entry: Entry) -> Lane:
    return Lane(batch=0, send_to=send_to, recv_from=recv_from, part=0, parts=1, entries=(entry,))


def _chain(collective: str, size: int, lanes: list[Lane]) -> Schedule:
    assert size >= 2
    assert len(lanes) == size
    return Schedule(
        collective=collective,
        algorithm="chain",
        size=size,
        tables=tuple((lane,) for lane in lanes),
        chunk_rule=ChunkRule.FIXED,
        chunk_bytes=CHUNK_BYTES,
        chunks_per_loop=1,
        shrink_last=False,
        slices=1,
        min_slice_bytes=MIN_SLICE_BYTES,
        slots=SLOTS,
        empty_message=False,
        slice_align_bytes=SLICE_ALIGN_BYTES,
    )
