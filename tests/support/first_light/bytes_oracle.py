"""How many bytes a replay moves from whom to whom, by the closed forms of the algorithms.

With n members of a collective and S bytes put in by each: a ring all-reduce moves 2S(n-1) in all, an all-gather Sn(n-1),
a reduce-scatter and an all-to-all S(n-1), a broadcast and a reduction S(n-1) along a chain, a message S. Per pair of
neighbours these are exact shares, but for an all-reduce whose buffer n does not divide: there the blocks differ as NCCL
cuts them (2 MiB chunks; what is left over in chunks of a multiple of 16 bytes).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from tests.support.first_light.trace_oracle import Op

RING_CHUNK_BYTES: Final = 2 << 20
ALIGNMENT_BYTES: Final = 16

Pair = tuple[int, int]


def total_bytes(kind: str, size_bytes: int, members: int) -> int:
    """What one collective, or one message, moves in all."""
    hops = members - 1
    match kind:
        case "all_reduce" | "barrier":
            return 2 * size_bytes * hops
        case "all_gather":
            return size_bytes * members * hops
        case "reduce_scatter" | "all_to_all" | "broadcast" | "reduce":
            return size_bytes * hops
        case _:
            return size_bytes


def ring_blocks(size_bytes: int, members: int) -> list[int]:
    """Bytes of the blocks that a ring all-reduce turns its buffer into."""
    full_loops, left = divmod(size_bytes, members * RING_CHUNK_BYTES)
    chunk = -(-left // (members * ALIGNMENT_BYTES)) * ALIGNMENT_BYTES
    return [
        full_loops * RING_CHUNK_BYTES + max(0, min(chunk, left - block * chunk)) for block in range(members)
    ]


def ring_of(op: Op) -> tuple[int, ...]:
    """Members in the order of the first channel's ring: through every other host backwards, so that links between hosts
    join ranks of the same place in their hosts. A group with unequal or scattered hosts keeps its own order."""
    hosts = [list(those) for _, those in groupby(op.members, key=lambda rank: rank // op.ranks_per_host)]
    numbers = {those[0] // op.ranks_per_host for those in hosts}
    if len(numbers) != len(hosts) or len({len(those) for those in hosts}) > 1:
        return op.members
    return tuple(rank for turn, those in enumerate(hosts) for rank in (those[::-1] if turn % 2 else those))


def sent_by(op: Op) -> dict[int, int]:
    """Receiving rank -> bytes that the rank of this op sends it for this op."""
    ring = ring_of(op)
    position, n, size_bytes = ring.index(op.rank), len(ring), op.message_bytes
    following = ring[(position + 1) % n]
    match op.kind:
        case "all_reduce" | "barrier":
            blocks = ring_blocks(size_bytes, n)
            return {following: 2 * size_bytes - blocks[position] - blocks[(position + 1) % n]}
        case "all_gather":
            return {following: size_bytes * (n - 1)}
        case "reduce_scatter":
            assert size_bytes % n == 0
            return {following: size_bytes // n * (n - 1)}
        case "all_to_all":
            assert size_bytes % n == 0
            return {peer: size_bytes // n for peer in op.members if peer != op.rank}
        case "broadcast":
            return {following: size_bytes} if position != n - 1 else {}
        case "reduce":
            return {following: size_bytes} if position != 0 else {}
        case "send":
            return {op.members[1]: size_bytes}
        case _:
            return {}


def pair_bytes(ops: Iterable[Op]) -> Counter[Pair]:
    """(from, to) -> bytes over all operations."""
    found: Counter[Pair] = Counter()
    for op in ops:
        for receiver, moved_bytes in sent_by(op).items():
            found[op.rank, receiver] += moved_bytes
    return found


def received_by(ops: Iterable[Op]) -> Counter[tuple[int, str]]:
    """(rank, kind) -> bytes that arrive at a rank; those of a message count as "receive"."""
    found: Counter[tuple[int, str]] = Counter()
    for op in ops:
        for receiver, moved_bytes in sent_by(op).items():
            found[receiver, "receive" if op.kind == "send" else op.kind] += moved_bytes
    return found
