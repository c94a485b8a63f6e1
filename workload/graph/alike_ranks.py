"""Partitions the ranks of a job into classes that run alike, so that a job is ordered and timed once for each class.

Ranks of a class have the same operations, delays and dependencies, and each of their operations meets ranks of the same
classes: the partition is equitable. A job whose ranks wait in a circle does so by class too, and an order of the classes'
operations is one of the ranks'. Refined from the columns of the ranks by the classes of their peers and communicators, as in
colour refinement, until no class splits.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.trace.program import OpKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.workload.graph.matching import Matching
    from etloop.workload.graph.network_ops import RankOps

MOST_ROUNDS: Final = 256
"""Limit of refinements, each of which takes time for all ranks. A long chain of ranks with one odd end needs one for each
rank."""


@dataclass(frozen=True, slots=True, eq=False)
class AlikeRanks:
    """Classes of ranks, and of communicators; a class is numbered by its lowest rank, or communicator."""

    of_rank: NDArray[np.int64]
    """Class of each rank, 0 to classes - 1."""
    first_rank: NDArray[np.int64]
    """Lowest rank of each class, ascending."""
    first_communicator: NDArray[np.int64]
    """Per communicator: the lowest communicator of its class."""

    def canonical(self, matching: Matching, items: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return, for items of a matching, those of the first rank or communicator of the class, int64 of the same shape."""
        messages = items >= matching.collective_count
        if not len(items):
            return items
        of_communicator = np.searchsorted(matching.first_collective, items, side="right") - 1
        of_rank = np.searchsorted(matching.first_message, items, side="right") - 1
        # Communicators and ranks without items begin where the next one does; the last of them has the item.
        shift = np.zeros(len(items), dtype=np.int64)
        collectives = ~messages
        own = of_communicator[collectives]
        first = matching.first_collective
        shift[collectives] = first[self.first_communicator[own]] - first[own]
        own = of_rank[messages]
        first = matching.first_message
        shift[messages] = first[self.first_rank[self.of_rank[own]]] - first[own]
        return items + shift


def every_rank(ranks: int, communicators: int) -> AlikeRanks:
    """Return the partition in which each rank is a class of its own."""
    return AlikeRanks(np.arange(ranks), np.arange(ranks), np.arange(communicators))


def alike_ranks(
    ops: Sequence[RankOps],
    slots: Sequence[NDArray[np.int64]],
    communicator_of: Sequence[NDArray[np.int32]],
    communicators: int,
    initial: Sequence[Hashable],
) -> AlikeRanks:
    """Return the coarsest such partition of the ranks of a job whose operations match.

    `slots` numbers the communicators of each rank's operations by first appearance, -1 for none. Ranks are alike only if they
    share these columns and those of `ops`, and have equal `initial` values. After `MOST_ROUNDS`, every rank is a class.
    """
    members = _members(slots, communicator_of)
    peers = _peers(ops)
    slot_span = int(members.slot.max()) + 1 if len(members.slot) else 1
    by_communicator = np.argsort(members.communicator, kind="stable")
    member_counts = np.bincount(members.communicator, minlength=communicators)
    color = _number_by_appearance(
        (value, id(column), rank_ops.identity())
        for value, column, rank_ops in zip(initial, slots, ops, strict=True)
    )
    for _ in range(MOST_ROUNDS):
        member_color = color[members.rank] * slot_span + members.slot
        order = by_communicator[
            np.lexsort((member_color[by_communicator], members.communicator[by_communicator]))
        ]
        communicator_color = _number_by_appearance(_rows(member_color[order], member_counts))
        features = np.concatenate([color, communicator_color[members.communicator], color[peers.peer]])
        owner = np.concatenate([np.arange(len(ops)), members.rank, peers.rank])
        by_owner = np.argsort(owner, kind="stable")
        refined = _number_by_appearance(_rows(features[by_owner], np.bincount(owner, minlength=len(ops))))
        if refined.max(initial=-1) == color.max(initial=-1):
            return AlikeRanks(color, _firsts(color), _firsts(communicator_color)[communicator_color])
        color = refined
    return every_rank(len(ops), communicators)


@dataclass(frozen=True, slots=True, eq=False)
class _Members:
    """Each use of a communicator by a rank, by rank and slot."""

    rank: NDArray[np.int64]
    slot: NDArray[np.int64]
    communicator: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _Peers:
    """Each pair of a rank and one of its peers, by rank and distance."""

    rank: NDArray[np.int64]
    peer: NDArray[np.int64]


def _members(slots: Sequence[NDArray[np.int64]], communicator_of: Sequence[NDArray[np.int32]]) -> _Members:
    first_use: dict[int, NDArray[np.int64]] = {}
    ranks, numbers, communicators = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for rank, (column, communicator) in enumerate(zip(slots, communicator_of, strict=True)):
        if id(column) not in first_use:
            distinct, first = np.unique(column, return_index=True)
            first_use[id(column)] = first[distinct >= 0]
        first = first_use[id(column)]
        ranks.append(np.full(len(first), rank))
        numbers.append(np.arange(len(first)))
        communicators.append(communicator[first].astype(np.int64))
    return _Members(np.concatenate(ranks), np.concatenate(numbers), np.concatenate(communicators))


def _peers(ops: Sequence[RankOps]) -> _Peers:
    steps_of: dict[tuple[int, int], NDArray[np.int64]] = {}
    ranks, peers = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for rank_ops in ops:
        key = id(rank_ops.kind), id(rank_ops.peer_step)
        if key not in steps_of:
            steps_of[key] = np.unique(rank_ops.peer_step[rank_ops.kind != OpKind.COLLECTIVE])
        ranks.append(np.full(len(steps_of[key]), rank_ops.rank))
        peers.append(rank_ops.rank + steps_of[key])
    return _Peers(np.concatenate(ranks), np.concatenate(peers))


def _rows(values: NDArray[np.int64], counts: NDArray[np.int64]) -> Iterable[bytes]:
    """Yield the bytes of consecutive rows with `counts` values each."""
    content, size_bytes = values.tobytes(), values.itemsize
    end = 0
    for count in counts.tolist():
        begin, end = end, end + count * size_bytes
        yield content[begin:end]


def _number_by_appearance(values: Iterable[Hashable]) -> NDArray[np.int64]:
    """Return the number of each value by first appearance, int64 [values]."""
    number: dict[Hashable, int] = {}
    return np.array([number.setdefault(value, len(number)) for value in values], dtype=np.int64)


def _firsts(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first index of each number, for numbers by first appearance."""
    return np.unique(numbers, return_index=True)[1].astype(np.int64)
