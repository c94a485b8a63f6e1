"""What a collective must leave at every position, in blocks and in bytes, and what has come together there so far.

A block's content is told by its origins: the set of positions whose input has been added to it, as a bit mask.
Of an uneven all-to-all, block i is what position i sends, to each other position another part of it: how many bytes
of it must come to whom is in the splits.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from traffic.collectives.table import EntryKind

if TYPE_CHECKING:
    from collections.abc import Iterator

Piece = tuple[int, int, int]
"""(block, loop, slice): what one message moves."""

SUPPORTED: Final = frozenset(
    {
        "all-reduce",
        "barrier",
        "reduce-scatter",
        "reduce",
        "all-gather",
        "broadcast",
        "all-to-all",
        "uneven all-to-all",
        "point-to-point",
    }
)
"""Values of `Schedule.collective` that have a known outcome."""
_REDUCING: Final = frozenset({"all-reduce", "barrier", "reduce-scatter", "reduce", "all-to-all"})


def share_bytes(op_bytes: int, part: int, parts: int) -> int:
    """Bytes of block `part` of `parts`, as in `traffic/collectives/table.py`."""
    return (part + 1) * op_bytes // parts - part * op_bytes // parts


def input_origins(collective: str, position: int, block: int) -> int:
    """What a position holds of a block before anything has moved."""
    if collective in _REDUCING:
        return 1 << position
    owner = block if collective in ("all-gather", "uneven all-to-all") else 0
    return 1 << position if position == owner else 0


def wanted_origins(collective: str, size: int, position: int, block: int) -> int:
    """Origins that must have come together in a block at a position in the end; 0: it is not to receive that block."""
    everyone = (1 << size) - 1
    match collective:
        case "all-reduce" | "barrier":
            return everyone
        case "reduce-scatter":
            return everyone if block == position else 0
        case "reduce":
            return everyone if position == 0 else 0
        case "all-gather" | "uneven all-to-all":
            return 1 << block if block != position else 0
        case "all-to-all":
            return everyone & ~(1 << position) if block == position else 0
        case _:
            return 1 if position != 0 else 0


def wanted_bytes(collective: str, size: int, position: int, op_bytes: int) -> int:
    """Bytes of result that a position must get, each counted once however many origins it has.

    Those of an uneven all-to-all do not follow from `op_bytes`; `Holding` takes them from the splits.
    """
    match collective:
        case "all-reduce" | "barrier":
            return op_bytes
        case "reduce-scatter" | "all-to-all":
            return share_bytes(op_bytes, position, size)
        case "reduce":
            return op_bytes if position == 0 else 0
        case "all-gather":
            return op_bytes * (size - 1)
        case _:
            return op_bytes if position != 0 else 0


@dataclass(frozen=True, slots=True)
class Stored:
    """Result bytes of one piece at one position: which origins are in it and which step stored it last."""

    origins: int
    stored_bytes: int
    step: str


@dataclass(slots=True)
class Holding:
    """What one position has: partial sums, and the result as far as it has been stored."""

    collective: str
    size: int
    position: int
    splits: tuple[tuple[int, ...], ...] = ()
    """`Schedule.splits`."""
    _partial: dict[Piece, int] = field(default_factory=dict)
    _result: dict[Piece, Stored] = field(default_factory=dict)

    def to_send(self, piece: Piece) -> int:
        """Origins of what this position sends of a piece that it does not receive in the same entry."""
        stored = self._result.get(piece)
        return stored.origins if stored is not None else self._sum(piece)

    def receive(
        self, kind: int, piece: Piece, origins: int, message_bytes: int, step: str
    ) -> tuple[int, str]:
        """Take in a message; returns the origins it has become and what is wrong with that ("": nothing)."""
        wrong = ""
        if kind & EntryKind.REDUCE:
            partial = self._sum(piece)
            if partial & origins:
                wrong = f"adds block {piece[0]} from {positions(partial & origins)} a second time"
            origins |= partial
            self._partial[piece] = origins
        if kind & EntryKind.COPY:
            wrong = self._store(piece, origins, message_bytes, step) or wrong
        return origins, wrong

    def unfinished(self, op_bytes: int) -> Iterator[tuple[str, str]]:
        """(where, what) of everything that the result lacks."""
        for piece, stored in self._result.items():
            missing = wanted_origins(self.collective, self.size, self.position, piece[0]) & ~stored.origins
            if missing:
                yield stored.step, f"block {piece[0]} ends without the contribution of {positions(missing)}"
        if self.collective == "uneven all-to-all":
            yield from self._unfinished_splits()
            return
        got = sum(stored.stored_bytes for stored in self._result.values())
        wanted = wanted_bytes(self.collective, self.size, self.position, op_bytes)
        if got != wanted:
            yield f"position {self.position}", f"its result has {got} bytes instead of {wanted}"

    def _unfinished_splits(self) -> Iterator[tuple[str, str]]:
        got: Counter[int] = Counter()
        for piece, stored in self._result.items():
            got[piece[0]] += stored.stored_bytes
        for source, row in enumerate(self.splits):
            wanted = row[self.position] if source != self.position else 0
            if got[source] != wanted:
                where = f"position {self.position}"
                yield where, f"it gets {got[source]} bytes from position {source} instead of {wanted}"

    def _sum(self, piece: Piece) -> int:
        return self._partial.get(piece, input_origins(self.collective, self.position, piece[0]))

    def _store(self, piece: Piece, origins: int, message_bytes: int, step: str) -> str:
        wanted = wanted_origins(self.collective, self.size, self.position, piece[0])
        before = self._result.get(piece)
        held = before.origins if before is not None else 0
        self._result[piece] = Stored(held | origins, message_bytes, step)
        if held & origins:
            return f"stores block {piece[0]} from {positions(held & origins)} a second time"
        if origins & ~wanted:
            return f"stores block {piece[0]} with the contribution of {positions(origins & ~wanted)}, not wanted here"
        return ""


def positions(origins: int) -> str:
    """The positions of a mask in words."""
    named = [str(bit) for bit in range(origins.bit_length()) if origins >> bit & 1]
    if len(named) > 8:
        named = [*named[:8], f"{len(named) - 8} more"]
    return f"position {named[0]}" if len(named) == 1 else f"positions {', '.join(named)}"
