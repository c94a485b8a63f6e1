"""Ring all-reduce, all-gather and reduce-scatter as NCCL 2.30 runs them on one channel with the Simple protocol.

Position r receives from r - 1 and sends to r + 1. Sources: NCCL device/all_reduce.h, all_gather.h, reduce_scatter.h;
chunk, slice and slot sizes from a 4 MiB buffer of 8 steps with 4 steps a chunk and 2 steps a slice
(include/collectives.h). Which collective uses a ring, and how many channels, is decided elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from traffic.collectives.steps import (
    recv,
    recv_copy_send,
    recv_reduce_copy,
    recv_reduce_copy_send,
    recv_reduce_send,
    send,
)
from traffic.collectives.table import ChunkRule, Entry, Lane, Schedule

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK_BYTES: Final = 2 << 20
SLICES: Final = 2
MIN_SLICE_BYTES: Final = 32 << 10
SLOTS: Final = 4
"""8 buffer steps, 2 a message."""
COPY_ALIGN_BYTES: Final = 16
"""16 elements; collectives that only copy are run on bytes."""
REDUCE_ALIGN_BYTES: Final = 64
"""16 elements of float32."""


def ring_all_reduce(size: int) -> Schedule:
    """All-reduce of a buffer of B bytes: every position sends 2(n-1)/n of it. `size` is n, at least 2."""

    def entries(r: int) -> tuple[Entry, ...]:
        first = (r - 1) % size
        final = (r + 1) % size
        return (
            send(first, first),
            *(recv_reduce_send(c, c) for c in _backwards(r, range(2, size), size)),
            recv_reduce_copy_send(r, r),
            *(recv_copy_send(c, c) for c in _backwards(r, range(1, size - 1), size)),
            recv(final, final),
        )

    return _ring("all-reduce", size, entries, ChunkRule.FIXED, size, REDUCE_ALIGN_BYTES)


def ring_all_gather(size: int) -> Schedule:
    """All-gather where every position puts in B bytes: every position sends n-1 blocks of B."""

    def entries(r: int) -> tuple[Entry, ...]:
        return (
            send(0, r),
            *(recv_copy_send(0, block) for block in _backwards(r, range(1, size - 1), size)),
            recv(0, (r + 1) % size),
        )

    return _ring("all-gather", size, entries, ChunkRule.FIXED, 1, COPY_ALIGN_BYTES)


def ring_reduce_scatter(size: int) -> Schedule:
    """Reduce-scatter of an input of B bytes, of which position r keeps block r: every position sends n-1 blocks."""

    def entries(r: int) -> tuple[Entry, ...]:
        first = (r - 1) % size
        return (
            send(first, first),
            *(recv_reduce_send(c, c) for c in _backwards(r, range(2, size), size)),
            recv_reduce_copy(r, r),
        )

    return _ring("reduce-scatter", size, entries, ChunkRule.BLOCKS, size, REDUCE_ALIGN_BYTES)


def _backwards(position: int, distances: range, size: int) -> tuple[int, ...]:
    return tuple((position - distance) % size for distance in distances)


def _ring(
    collective: str,
    size: int,
    entries: Callable[[int], tuple[Entry, ...]],
    chunk_rule: ChunkRule,
    chunks_per_loop: int,
    slice_align_bytes: int,
) -> Schedule:
    assert size >= 2
    return Schedule(
        collective=collective,
        algorithm="ring",
        size=size,
        tables=tuple((Lane(0, (r + 1) % size, (r - 1) % size, 0, 1, entries(r)),) for r in range(size)),
        chunk_rule=chunk_rule,
        chunk_bytes=CHUNK_BYTES,
        chunks_per_loop=chunks_per_loop,
        # Only the all-reduce kernel spreads what is left over all chunks of its last loop.
        shrink_last=collective == "all-reduce",
        slices=SLICES,
        min_slice_bytes=MIN_SLICE_BYTES,
        slots=SLOTS,
        empty_message=False,
        slice_align_bytes=slice_align_bytes,
    )
