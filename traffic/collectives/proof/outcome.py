"""The result that a collective must produce at every position, and the contributions collected there so far.

Data is identified by `Atom`s, byte ranges that every message moves as a whole. The content of an atom is identified by
its origins: the set of positions whose input has been added to it, as a bit mask. `atoms` maps the bytes of a lane to
bytes of the collective.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from etloop.traffic.collectives.core.table import EntryKind

EVERYONE: Final = -1
"""As a source: every position contributes its own input, and inputs are added up. As a target: every position needs the
result."""
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
    """A byte range of the collective: the position whose input it is, the position that must get it, its size."""

    source: int
    target: int
    size_bytes: int


def share_bytes(op_bytes: int, part: int, parts: int) -> int:
    """Return the bytes of block `part` of `parts`, as in `traffic/collectives/core/table.py`."""
    return (part + 1) * op_bytes // parts - part * op_bytes // parts


def block_at(op_bytes: int, parts: int, address: int) -> int:
    """Return which of `parts` equal blocks of `op_bytes` contains a byte address."""
    block = (address * parts + parts - 1) // op_bytes
    while block * op_bytes // parts > address:
        block -= 1
    while (block + 1) * op_bytes // parts <= address:
        block += 1
    return block


def ends_of(collective: str, size: int, op_bytes: int, address: int) -> tuple[int, int]:
    """Return (source, target) of the byte at an address of the whole collective; not for an uneven all-to-all."""
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
    """Return the result bytes that a position must get from other positions; not for an uneven all-to-all."""
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
    """The data at one position: partial sums and data passed on, and the result stored so far."""

    collective: str
    size: int
    position: int
    atoms: Sequence[Atom]
    splits: tuple[tuple[int, ...], ...] = ()
    """`Schedule.splits`."""
    _partial: dict[int, int] = field(default_factory=dict)
    _result: dict[int, int] = field(default_factory=dict)
    _stored_by: dict[int, tuple[str, int]] = field(default_factory=dict)
    """The step that stored an atom last, and the block that it named."""

    def to_send(self, atom: int) -> int:
        """Return the origins that this position sends of an atom, unless it receives it in the same entry."""
        origins = self._result.get(atom)
        return origins if origins is not None else self._sum(atom)

    def receive(self, kind: int, atom: int, origins: int, step: str, block: int) -> tuple[int, str]:
        """Process a received atom; return its new origins, and a description of the mistake or ""."""
        mistake = ""
        if kind & EntryKind.REDUCE:
            partial = self._sum(atom)
            if partial & origins:
                mistake = f"adds block {block} from {positions(partial & origins)} a second time"
            origins |= partial
        if kind & EntryKind.COPY:
            mistake = self._store(atom, origins, step, block) or mistake
        if kind & EntryKind.REDUCE or not kind & EntryKind.COPY:
            self._partial[atom] = origins
        return origins, mistake

    def missing_parts(self, op_bytes: int) -> Iterator[tuple[str, str]]:
        """Yield (where, what) for everything that the result lacks."""
        for atom, origins in self._result.items():
            missing = self._wanted_origins(atom) & ~origins
            if missing:
                step, block = self._stored_by[atom]
                yield step, f"block {block} ends without the contribution of {positions(missing)}"
        where = f"position {self.position}"
        if self.collective == "uneven all-to-all":
            yield from self._unfinished_splits(where)
            return
        if self.collective == "barrier" and not self._result:
            yield where, "it has no message from some positions"
        received_bytes = sum(self.atoms[atom].size_bytes for atom in self._result)
        expected_bytes = wanted_bytes(self.collective, self.size, self.position, op_bytes)
        if received_bytes != expected_bytes:
            yield where, f"its result has {received_bytes} bytes instead of {expected_bytes}"

    def _unfinished_splits(self, where: str) -> Iterator[tuple[str, str]]:
        """Yield (where, what) for sources whose bytes differ from the splits."""
        received_bytes: Counter[int] = Counter()
        for atom in self._result:
            received_bytes[self.atoms[atom].source] += self.atoms[atom].size_bytes
        for source, row in enumerate(self.splits):
            expected_bytes = row[self.position] if source != self.position else 0
            if received_bytes[source] != expected_bytes:
                yield (
                    where,
                    f"it gets {received_bytes[source]} bytes from position {source} instead of {expected_bytes}",
                )

    def _sum(self, atom: int) -> int:
        """Return the origins of the partial sum of an atom; at first the own input, if it is a source."""
        partial = self._partial.get(atom)
        if partial is not None:
            return partial
        source = self.atoms[atom].source
        return 1 << self.position if source in (EVERYONE, self.position) else 0

    def _wanted_origins(self, atom: int) -> int:
        """Return the origins that the result of an atom must have here; 0 if it is not part of the result."""
        source, target, _ = self.atoms[atom]
        is_target = target in (EVERYONE, self.position) or (target == ALL_OTHERS and source != self.position)
        if not is_target or source < EVERYONE:
            return 0
        return (1 << self.size) - 1 if source == EVERYONE else 1 << source

    def _store(self, atom: int, origins: int, step: str, block: int) -> str:
        """Store an atom in the result; return a description of the mistake or ""."""
        wanted_origins = self._wanted_origins(atom)
        stored = self._result.get(atom, 0)
        self._result[atom] = stored | origins
        self._stored_by[atom] = (step, block)
        if stored & origins:
            return f"stores block {block} from {positions(stored & origins)} a second time"
        if origins & ~wanted_origins:
            return (
                f"stores block {block} with the contribution of "
                f"{positions(origins & ~wanted_origins)}, which does not belong here"
            )
        return ""


def positions(origins: int) -> str:
    """Return the positions of a bit mask as text, at most 8 by number."""
    listed = [str(bit) for bit in range(origins.bit_length()) if origins >> bit & 1]
    if len(listed) > 8:
        listed = [*listed[:8], f"{len(listed) - 8} more"]
    return f"position {listed[0]}" if len(listed) == 1 else f"positions {', '.join(listed)}"
