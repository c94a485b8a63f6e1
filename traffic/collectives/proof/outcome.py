"""What a collective must leave at every position, and what has come together there so far.

Data is told apart by `Atom`s, ranges of bytes that no message cuts through. The content of an atom is told by its
origins: the set of positions whose input has been added to it, as a bit mask. Which bytes of the whole collective a
lane's bytes are is decided in `atoms`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from etloop.traffic.collectives.core.table import EntryKind

EVERYONE: Final = -1
"""As a source: every position puts its own in, and they are added up. As a target: every position wants the result."""
ALL_OTHERS: Final = -2
"""As a target: every position but the source."""
NOBODY: Final = -3

SUPPORTED: Final = frozenset(
    (
        *(
            "all-reduce",
            "barrier",
            "reduce-scatter",
            "reduce",
            "all-gather",
            "gather",
            "broadcast",
            "scatter",
        ),
        *("all-to-all", "uneven all-to-all", "point-to-point"),
    )
)
"""Values of `Schedule.collective` that have a known outcome."""


class Atom(NamedTuple):
    """A range of bytes of the collective: whose input it is, who must get it, how many bytes."""

    source: int
    target: int
    size_bytes: int


def share_bytes(op_bytes: int, part: int, parts: int) -> int:
    """Bytes of block `part` of `parts`, as in `traffic/collectives/core/table.py`."""
    return (part + 1) * op_bytes // parts - part * op_bytes // parts


def block_at(op_bytes: int, parts: int, address: int) -> int:
    """The block of `parts` equal ones of `op_bytes` that a byte is in."""
    block = (address * parts + parts - 1) // op_bytes
    while block * op_bytes // parts > address:
        block -= 1
    while (block + 1) * op_bytes // parts <= address:
        block += 1
    return block


def ends_of(collective: str, size: int, op_bytes: int, address: int) -> tuple[int, int]:
    """(source, target) of the byte at an address of the whole collective; of an uneven all-to-all its block says it."""
    match collective:
        case "all-reduce" | "barrier":
            return EVERYONE, EVERYONE
        case "reduce-scatter":
            return EVERYONE, block_at(op_bytes, size, address)
        case "reduce":
            return EVERYONE, 0
        case "all-gather" | "gather":
            return address // op_bytes, ALL_OTHERS if collective == "all-gather" else 0
        case "scatter":
            return 0, block_at(op_bytes, size, address)
        case "all-to-all":
            return address // op_bytes, block_at(op_bytes, size, address % op_bytes)
        case _:
            return 0, ALL_OTHERS


def wanted_bytes(collective: str, size: int, position: int, op_bytes: int) -> int:
    """Bytes of result that a position must get from others. Those of an uneven all-to-all stand in its splits."""
    match collective:
        case "all-reduce" | "barrier":
            return op_bytes
        case "reduce-scatter":
            return share_bytes(op_bytes, position, size)
        case "reduce":
            return op_bytes if position == 0 else 0
        case "all-gather":
            return op_bytes * (size - 1)
        case "gather":
            return op_bytes * (size - 1) if position == 0 else 0
        case "scatter":
            return share_bytes(op_bytes, position, size) if position != 0 else 0
        case "all-to-all":
            return share_bytes(op_bytes, position, size) * (size - 1)
        case _:
            return op_bytes if position != 0 else 0


@dataclass(slots=True)
class Holding:
    """What one position has: partial sums and what is under way through it, and the result as far as it is stored."""

    collective: str
    size: int
    position: int
    atoms: Sequence[Atom]
    splits: tuple[tuple[int, ...], ...] = ()
    """`Schedule.splits`."""
    _partial: dict[int, int] = field(default_factory=dict)
    _result: dict[int, int] = field(default_factory=dict)
    _stored_by: dict[int, tuple[str, int]] = field(default_factory=dict)
    """The step that stored an atom last, and the block it named."""

    def to_send(self, atom: int) -> int:
        """Origins of what this position sends of an atom that it does not receive in the same entry."""
        stored = self._result.get(atom)
        return stored if stored is not None else self._sum(atom)

    def receive(self, kind: int, atom: int, origins: int, step: str, block: int) -> tuple[int, str]:
        """Take in an atom; returns the origins it has become and what is wrong with that ("": nothing)."""
        wrong = ""
        if kind & EntryKind.REDUCE:
            partial = self._sum(atom)
            if partial & origins:
                wrong = f"adds block {block} from {positions(partial & origins)} a second time"
            origins |= partial
        if kind & EntryKind.COPY:
            wrong = self._store(atom, origins, step, block) or wrong
        if kind & EntryKind.REDUCE or not kind & EntryKind.COPY:
            self._partial[atom] = origins
        return origins, wrong

    def unfinished(self, op_bytes: int) -> Iterator[tuple[str, str]]:
        """(where, what) of everything that the result lacks."""
        for atom, origins in self._result.items():
            missing = self._wanted(atom) & ~origins
            if missing:
                step, block = self._stored_by[atom]
                yield step, f"block {block} ends without the contribution of {positions(missing)}"
        where = f"position {self.position}"
        if self.collective == "uneven all-to-all":
            yield from self._unfinished_splits(where)
            return
        if self.collective == "barrier" and not self._result:
            yield where, "it has not heard from all others"
        got = sum(self.atoms[atom].size_bytes for atom in self._result)
        wanted = wanted_bytes(self.collective, self.size, self.position, op_bytes)
        if got != wanted:
            yield where, f"its result has {got} bytes instead of {wanted}"

    def _unfinished_splits(self, where: str) -> Iterator[tuple[str, str]]:
        got: Counter[int] = Counter()
        for atom in self._result:
            got[self.atoms[atom].source] += self.atoms[atom].size_bytes
        for source, row in enumerate(self.splits):
            wanted = row[self.position] if source != self.position else 0
            if got[source] != wanted:
                yield where, f"it gets {got[source]} bytes from position {source} instead of {wanted}"

    def _sum(self, atom: int) -> int:
        known = self._partial.get(atom)
        if known is not None:
            return known
        source = self.atoms[atom].source
        return 1 << self.position if source in (EVERYONE, self.position) else 0

    def _wanted(self, atom: int) -> int:
        source, target, _ = self.atoms[atom]
        wants = target in (EVERYONE, self.position) or (target == ALL_OTHERS and source != self.position)
        if not wants or source < EVERYONE:
            return 0
        return (1 << self.size) - 1 if source == EVERYONE else 1 << source

    def _store(self, atom: int, origins: int, step: str, block: int) -> str:
        wanted = self._wanted(atom)
        held = self._result.get(atom, 0)
        self._result[atom] = held | origins
        self._stored_by[atom] = (step, block)
        if held & origins:
            return f"stores block {block} from {positions(held & origins)} a second time"
        if origins & ~wanted:
            return f"stores block {block} with the contribution of {positions(origins & ~wanted)}, not wanted here"
        return ""


def positions(origins: int) -> str:
    """The positions of a mask in words."""
    named = [str(bit) for bit in range(origins.bit_length()) if origins >> bit & 1]
    if len(named) > 8:
        named = [*named[:8], f"{len(named) - 8} more"]
    return f"position {named[0]}" if len(named) == 1 else f"positions {', '.join(named)}"
