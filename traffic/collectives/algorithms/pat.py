"""PAT, NCCL's parallel aggregated trees: all-gather and reduce-scatter in lg n dimensions of distance 2^d.

A block k positions away travels on the dimension of the lowest set bit of k, far dimensions first; dimension d carries
the offsets k = 2^d, 3 * 2^d, 5 * 2^d, ... below n. An all-gather sends to r - 2^d and receives from r + 2^d, a
reduce-scatter runs the same trees backwards. Every position sends and receives n-1 blocks, as in a ring, but in lg n
instead of n-1 hops. Small blocks are aggregated: a message then carries up to `aggregation` chunks of its dimension.
Sources: NCCL include/collectives.h PatAGAlgorithm, PatRSAlgorithm; S. Jeaugey, "PAT: a new algorithm for all-gather and
reduce-scatter operations at scale" (2025). NCCL uses it with one rank per host only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.draft import (
    ADD,
    FINISH,
    KEEP,
    SEND,
    LaneDraft,
    Move,
    Step,
    TableDraft,
    block_moves,
    each_channel,
    schedule_of,
)
from etloop.traffic.collectives.core.symmetric_tables import Symmetry, ahead
from etloop.traffic.collectives.core.table import Lane, Schedule


def pat(request: Request) -> Schedule:
    """Build an all-gather or reduce-scatter."""
    assert request.size >= 2
    size, aggregation = request.size, request.cutting.aggregation
    if request.collective == "all-gather":
        gather_symmetry = Symmetry(ahead(size))
        tables = each_channel(
            request, lambda position: _all_gather(position, size, aggregation), gather_symmetry
        )
        return schedule_of(request, "pat", tables)
    scatter_symmetry = Symmetry(ahead(size), ahead(size))
    tables = each_channel(
        request, lambda position: _reduce_scatter(position, size, aggregation), scatter_symmetry
    )
    return schedule_of(request, "pat", tables, blocks=size)


def dimensions(size: int) -> range:
    """Return the dimensions, the farthest first."""
    return range((size - 1).bit_length() - 1, -1, -1)


def gathered_offsets(dimension: int, size: int) -> list[int]:
    """Return the offsets of the blocks that an all-gather receives on a dimension, in order."""
    return list(range(1 << dimension, size, 2 << dimension))


def scattered_offsets(dimension: int, size: int) -> list[int]:
    """Return the offsets of the blocks that a reduce-scatter sends on a dimension; those with most dependents first."""
    bits = (size - 1).bit_length()
    return sorted(
        gathered_offsets(dimension, size), key=lambda k: int(f"{k:0{bits}b}"[::-1], 2), reverse=True
    )


def _all_gather(position: int, size: int, aggregation: int) -> tuple[Lane, ...]:
    """Return the table of a position for an all-gather."""
    table = TableDraft()
    arrived: dict[int, Step] = {}
    lanes: list[tuple[int, LaneDraft]] = []
    for d in dimensions(size):
        lanes.append((d, table.lane(send_to=(position - (1 << d)) % size)))
        receiving = table.lane(recv_from=(position + (1 << d)) % size)
        for offsets in _messages(gathered_offsets(d, size), aggregation):
            step = receiving.add(KEEP, [Move(0, (position + k) % size) for k in offsets])
            arrived |= dict.fromkeys(offsets, step)
    for d, sending in lanes:
        for offsets in _messages(gathered_offsets(d, size), aggregation):
            sent_offsets = [k - (1 << d) for k in offsets]
            after = _once(arrived[k] for k in sent_offsets if k)
            sending.add(SEND, [Move(0, (position + k) % size) for k in sent_offsets], after)
    return table.lanes()


def _reduce_scatter(position: int, size: int, aggregation: int) -> tuple[Lane, ...]:
    """Return the table of a position for a reduce-scatter."""
    table = TableDraft()
    added: dict[int, list[Step]] = {k: [] for k in range(size)}
    own_block_steps: list[Step] = []
    lanes: list[tuple[int, LaneDraft]] = []
    for d in reversed(dimensions(size)):
        receiving = table.lane(recv_from=(position - (1 << d)) % size)
        lanes.append((d, table.lane(send_to=(position + (1 << d)) % size)))
        for sent in _messages(scattered_offsets(d, size), aggregation):
            offsets = [k - (1 << d) for k in sent]
            moves = block_moves((position + k) % size for k in offsets)
            # The farthest dimension carries only the own block: it becomes final there, and no send waits for it.
            is_farthest = d == dimensions(size)[0]
            kinds = [FINISH if is_farthest else ADD for _ in offsets]
            step = receiving.add_each(
                list(zip(kinds, moves, strict=True)), _once(own_block_steps) if is_farthest else ()
            )
            for k in offsets:
                (added[k] if k else own_block_steps).append(step)
    for d, sending in lanes:
        for sent in _messages(scattered_offsets(d, size), aggregation):
            after = _once(step for k in sent for step in added[k])
            sending.add(SEND, block_moves((position + k) % size for k in sent), after)
    return table.lanes()


def _messages(offsets: Sequence[int], aggregation: int) -> list[Sequence[int]]:
    """Split offsets into messages of at most `aggregation`."""
    return [offsets[i : i + aggregation] for i in range(0, len(offsets), aggregation)]


def _once(steps: Iterable[Step]) -> list[Step]:
    """Return the steps without duplicates; of several steps in one lane only the last is kept."""
    last: dict[int, Step] = {}
    for step in steps:
        if step.lane not in last or last[step.lane].entry < step.entry:
            last[step.lane] = step
    return list(last.values())
