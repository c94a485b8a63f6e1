"""Every (algorithm, collective) with its closed forms, and cuts to build it with: what the tests of algorithms share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.traffic._native import StepTables
from etloop.traffic.collectives.algorithms.halving_doubling import Folding
from etloop.traffic.collectives.algorithms.registry import ALGORITHMS
from etloop.traffic.collectives.core.columns import to_columns
from etloop.traffic.collectives.core.cutting import KIB, Cutting, PeerParts, Request
from etloop.traffic.collectives.core.table import Protocol, Schedule, Split
from etloop.traffic.collectives.nccl.rails import RAILED
from etloop.traffic.collectives.proof.outcome import share_bytes

WHOLE_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Shape:
    """A group: `size` positions on hosts of `ranks_per_host`."""

    size: int
    ranks_per_host: int = 1

    @property
    def hosts(self) -> int:
        return -(-self.size // self.ranks_per_host)


@dataclass(frozen=True, slots=True)
class Case:
    """What an algorithm moves for a collective, in closed form. `total` is what all positions send together of an op of
    B bytes; `messages` what they send in messages if a step's data is one message."""

    algorithm: str
    collective: str
    total: Callable[[Shape, int], int]
    messages: Callable[[Shape], int]

    @property
    def name(self) -> str:
        return f"{self.algorithm}-{self.collective}"

    def request(self, shape: Shape, cutting: Cutting) -> Request:
        return Request(self.collective, shape.size, min(shape.ranks_per_host, shape.size), cutting)

    def serves(self, shape: Shape, cutting: Cutting) -> bool:
        return not ALGORITHMS[self.algorithm].limit(self.request(shape, cutting))

    def build(self, shape: Shape, cutting: Cutting) -> Schedule:
        return ALGORITHMS[self.algorithm].build(self.request(shape, cutting))


def whole(
    *,
    channels: int = 1,
    window: int = 0,
    aggregation: int = 1 << 20,
    segments: int = 0,
    chunk_bytes: int = WHOLE_BYTES,
    slots: int = 8,
) -> Cutting:
    """A step's data is one message on each channel."""
    return Cutting(
        Protocol.SIMPLE,
        channels,
        chunk_bytes,
        1,
        0,
        slots,
        window=window,
        aggregation=aggregation,
        segments=segments,
    )


def nccl_ring(channels: int = 1) -> Cutting:
    """NCCL's ring on Simple: chunks of 2 MiB in two slices, split over channels by cells."""
    split = Split.CELLS if channels > 1 else Split.EQUAL
    return Cutting(Protocol.SIMPLE, channels, 2048 * KIB, 2, 32 * KIB, 4, split)


def nccl_p2p(channels: int = 1, parts: int = 1) -> Cutting:
    """NCCL's grouped sends: chunks by size, parts of 4 KiB pages over channels."""
    peers = PeerParts(channels, 1, parts, 64 * KIB, 128 * KIB)
    return Cutting(
        Protocol.SIMPLE, channels, 128 * KIB, 1, 16 * KIB, 8, Split.PAGES, peers=peers, parts=parts
    )


def ones(size: int) -> int:
    """Set bits of all numbers below `size`: hops of binomial trees and of Bruck's all-to-all."""
    return sum(number.bit_count() for number in range(size))


def lg_ceil(size: int) -> int:
    return (size - 1).bit_length()


def _all_reduce(shape: Shape, b: int) -> int:
    return 2 * (shape.size - 1) * b


def _all_gather(shape: Shape, b: int) -> int:
    return shape.size * (shape.size - 1) * b


def _once_less(shape: Shape, b: int) -> int:
    return (shape.size - 1) * b


def _halving_reduce_scatter(shape: Shape, b: int) -> int:
    # What folded positions hand over, they also get back: their own block.
    folded = Folding(shape.size).folded
    return (shape.size - 1) * b + sum(share_bytes(b, 2 * i, shape.size) for i in range(folded))


def _recursive_all_reduce(shape: Shape, b: int) -> int:
    fold = Folding(shape.size)
    return (fold.inside * fold.steps + 2 * fold.folded) * b


def _two_levels(shape: Shape, b: int) -> int:
    """Blocks for another place of a host move inside, blocks for another host between hosts."""
    return (shape.size - shape.hosts) * b + (shape.size - shape.ranks_per_host) * b


def _scatter(shape: Shape, b: int) -> int:
    return b - share_bytes(b, 0, shape.size)


def _binomial_scatter(shape: Shape, b: int) -> int:
    return sum(position.bit_count() * share_bytes(b, position, shape.size) for position in range(shape.size))


def _fold_messages(each: int) -> Callable[[Shape], int]:
    """`each` messages per step and position inside, and two for every folded one."""

    def messages(shape: Shape) -> int:
        fold = Folding(shape.size)
        return each * fold.steps * fold.inside + 2 * fold.folded

    return messages


def _pairs(shape: Shape) -> int:
    return shape.size * (shape.size - 1)


def _two_rings(shape: Shape) -> int:
    return 2 * _pairs(shape)


def _dimensions(shape: Shape) -> int:
    return shape.size * lg_ceil(shape.size)


CASES: Final = (
    Case("ring", "all-reduce", _all_reduce, _two_rings),
    Case("ring", "barrier", _all_reduce, _two_rings),
    Case("ring", "all-gather", _all_gather, _pairs),
    Case("ring", "reduce-scatter", _once_less, _pairs),
    Case("bidirectional_ring", "all-reduce", _all_reduce, lambda s: 2 * _two_rings(s)),
    Case("bidirectional_ring", "barrier", _all_reduce, lambda s: 2 * _two_rings(s)),
    Case("bidirectional_ring", "all-gather", _all_gather, lambda s: 2 * _pairs(s)),
    Case("bidirectional_ring", "reduce-scatter", _once_less, lambda s: 2 * _pairs(s)),
    Case("tree", "all-reduce", _all_reduce, lambda s: 2 * (s.size - 1)),
    Case("tree", "barrier", _all_reduce, lambda s: 2 * (s.size - 1)),
    Case("halving_doubling", "all-reduce", _all_reduce, _fold_messages(2)),
    Case("halving_doubling", "barrier", _all_reduce, _fold_messages(2)),
    Case("halving_doubling", "reduce-scatter", _halving_reduce_scatter, _fold_messages(1)),
    Case("recursive_doubling", "all-reduce", _recursive_all_reduce, _fold_messages(1)),
    Case("recursive_doubling", "barrier", _recursive_all_reduce, _fold_messages(1)),
    Case("recursive_doubling", "all-gather", _all_gather, _fold_messages(1)),
    Case("pat", "all-gather", _all_gather, _dimensions),
    Case("pat", "reduce-scatter", _once_less, _dimensions),
    Case("direct", "all-reduce", _all_reduce, lambda s: 2 * _pairs(s)),
    Case("direct", "barrier", _all_reduce, lambda s: 2 * _pairs(s)),
    Case("direct", "all-gather", _all_gather, _pairs),
    Case("direct", "reduce-scatter", _once_less, _pairs),
    Case("direct", "all-to-all", _once_less, _pairs),
    Case("bruck", "all-gather", _all_gather, _dimensions),
    Case("bruck", "all-to-all", lambda s, b: ones(s.size) * b, _dimensions),
    Case("pairwise", "reduce-scatter", _once_less, _pairs),
    Case("pairwise", "all-to-all", _once_less, _pairs),
    Case("scattered", "all-to-all", _once_less, _pairs),
    Case("p2p", "all-to-all", _once_less, _pairs),
    # 2^20 bytes over n: a write for every token of 7,408 bytes.
    Case("deepep", "all-to-all", _once_less, lambda s: _pairs(s) * -(-(1 << 20) // s.size // 7408)),
    Case("gloo_ring", "all-reduce", _all_reduce, lambda s: 2 * _two_rings(s)),
    Case("gloo_ring", "barrier", _all_reduce, lambda s: 2 * _two_rings(s)),
    Case("chain", "broadcast", _once_less, lambda s: s.size - 1),
    Case("chain", "reduce", _once_less, lambda s: s.size - 1),
    Case("binomial", "broadcast", _once_less, lambda s: s.size - 1),
    Case("binomial", "reduce", _once_less, lambda s: s.size - 1),
    Case("binomial", "gather", lambda s, b: ones(s.size) * b, lambda s: s.size - 1),
    Case("binomial", "scatter", _binomial_scatter, lambda s: s.size - 1),
    Case("linear", "gather", _once_less, lambda s: s.size - 1),
    Case("linear", "scatter", _scatter, lambda s: s.size - 1),
    Case(
        "hierarchical",
        "all-reduce",
        _all_reduce,
        lambda s: 2 * s.size * (s.ranks_per_host - 1 + s.hosts - 1),
    ),
    Case(
        "hierarchical",
        "barrier",
        _all_reduce,
        lambda s: 2 * s.size * (s.ranks_per_host - 1 + s.hosts - 1),
    ),
    Case("hierarchical", "all-to-all", _two_levels, lambda s: s.size * (s.ranks_per_host - 1 + s.hosts - 1)),
    Case(
        "pxn",
        "all-to-all",
        _two_levels,
        lambda s: (s.ranks_per_host - 1) * s.hosts * s.size + (s.hosts - 1) * s.ranks_per_host * s.size,
    ),
    Case("rail_ring", "all-gather", _all_gather, _pairs),
    Case("ce_direct", "all-gather", _all_gather, _pairs),
    Case("ce_ring", "all-gather", _all_gather, lambda s: 2 * _pairs(s)),
    Case("ce_direct", "all-to-all", _once_less, _pairs),
    Case(
        "rail_a2a",
        "reduce-scatter",
        lambda s, b: b * ((s.ranks_per_host - 1) * s.hosts + s.hosts - 1),
        lambda s: s.size * ((s.ranks_per_host - 1) * s.hosts + s.hosts - 1),
    ),
)


def least_channels(case: Case) -> int:
    """A bidirectional ring has a channel for each direction."""
    return 2 if case.algorithm in ("bidirectional_ring", "ce_ring") else 1


def shapes_of(case: Case, size: int) -> list[Shape]:
    """Groups of that size that an algorithm serves; hosts matter to few algorithms."""
    hosts = () if size > 24 else (2, 3, 4, 8)
    hosts = hosts if case.algorithm in ("hierarchical", "pxn", "tree", "p2p", "ring", *RAILED) else ()
    cutting = whole(channels=least_channels(case))
    shapes = [Shape(size), *(Shape(size, ranks) for ranks in hosts if ranks < size)]
    return [shape for shape in shapes if case.serves(shape, cutting)]


@dataclass(frozen=True, slots=True)
class Moved:
    """What the lanes of a schedule move for one byte count, by the native cursor: a row a lane."""

    position: NDArray[np.int64]
    send_to: NDArray[np.int64]
    recv_from: NDArray[np.int64]
    tx_messages: NDArray[np.int64]
    tx_bytes: NDArray[np.int64]
    rx_messages: NDArray[np.int64]
    rx_bytes: NDArray[np.int64]

    def sent_by(self, size: int) -> list[int]:
        """Bytes that each position sends."""
        return _by_position(size, self.position, self.tx_bytes)

    def received_by(self, size: int) -> list[int]:
        """Bytes that each position receives."""
        return _by_position(size, self.position, self.rx_bytes)

    def sent_between(self) -> dict[tuple[int, int], tuple[int, int]]:
        """(messages, bytes) by (source, destination), as the senders have it."""
        return _by_pair(self.position, self.send_to, self.tx_messages, self.tx_bytes)

    def received_between(self) -> dict[tuple[int, int], tuple[int, int]]:
        """(messages, bytes) by (source, destination), as the receivers have it."""
        return _by_pair(self.recv_from, self.position, self.rx_messages, self.rx_bytes)


def moved(schedule: Schedule, op_bytes: int) -> Moved:
    """Totals of all lanes of a schedule."""
    return moved_each(schedule, (op_bytes,))[0]


def moved_each(schedule: Schedule, sizes: Sequence[int]) -> list[Moved]:
    """The same for several byte counts, with the tables made once."""
    tables = StepTables(to_columns([schedule]))
    return [Moved(*tables.schedule_totals(0, op_bytes)) for op_bytes in sizes]


def _by_position(size: int, positions: NDArray[np.int64], sizes: NDArray[np.int64]) -> list[int]:
    found = [0] * size
    for position, moved_bytes in zip(positions.tolist(), sizes.tolist(), strict=True):
        found[position] += moved_bytes
    return found


def _by_pair(
    source: NDArray[np.int64],
    destination: NDArray[np.int64],
    messages: NDArray[np.int64],
    sizes: NDArray[np.int64],
) -> dict[tuple[int, int], tuple[int, int]]:
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for s, d, m, b in zip(
        source.tolist(), destination.tolist(), messages.tolist(), sizes.tolist(), strict=True
    ):
        if s >= 0 and d >= 0:
            before = found.get((s, d), (0, 0))
            found[s, d] = (before[0] + m, before[1] + b)
    return found
