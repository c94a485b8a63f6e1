"""Which ranks of a job are real where the others are modelled, as a user writes it: `0-15`. Pure."""

from __future__ import annotations

import re
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import QuantityError
from etloop.workload.trace.ideal_network import IdealNetwork

MOST_RANKS: Final = 1 << 16

_FORM: Final = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_REMEDY: Final = "write a rank or a range of ranks, such as 0-15"


@dataclass(frozen=True, slots=True)
class RankRange:
    """Consecutive ranks."""

    first: int
    last: int

    def __str__(self) -> str:
        """As it is written."""
        return f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"

    @staticmethod
    def parse(text: str) -> RankRange:
        """Read `7` or `0-15`. Raises `QuantityError`."""
        found = _FORM.fullmatch(text.replace(" ", ""))
        if found is None:
            raise QuantityError(f'"{text[:64]}" names no ranks', _REMEDY)
        one = RankRange(int(found[1]), int(found[2] or found[1]))
        if not one.first <= one.last < MOST_RANKS:
            raise QuantityError(f'"{text[:64]}" is no ascending range below {MOST_RANKS}', _REMEDY)
        return one


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The real ranks of a job, and the network on which their operations with the others take their time."""

    ranges: tuple[RankRange, ...]
    network: IdealNetwork = IdealNetwork()
    where: str = ""
    """File, line and key, for messages."""

    def ranks(self) -> tuple[int, ...]:
        """Return the real ranks, in ascending order."""
        return tuple(sorted({rank for one in self.ranges for rank in range(one.first, one.last + 1)}))

    def __str__(self) -> str:
        """The ranges, as they are written."""
        said = ", ".join(map(str, self.ranges[:8]))
        return f"{said}, ..." if len(self.ranges) > 8 else said
