"""Defines an excerpt of a job: the ranks that are real, in a scenario's notation `0-15`, while all other ranks are
modelled. Pure."""

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
        """Return the notation that `parse` reads."""
        return f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"

    @staticmethod
    def parse(text: str) -> RankRange:
        """Parse `7` or `0-15`. Raises `QuantityError`."""
        match = _FORM.fullmatch(text.replace(" ", ""))
        if match is None:
            raise QuantityError(f'"{text[:64]}" is not a list of ranks', _REMEDY)
        rank_range = RankRange(int(match[1]), int(match[2] or match[1]))
        if not rank_range.first <= rank_range.last < MOST_RANKS:
            raise QuantityError(f'"{text[:64]}" is not an ascending range below {MOST_RANKS}', _REMEDY)
        return rank_range


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The real ranks of a job, and the ideal network that gives the times of their operations with modelled ranks."""

    ranges: tuple[RankRange, ...]
    network: IdealNetwork = IdealNetwork()
    where: str = ""
    """File, line and key in the scenario, for messages."""

    def ranks(self) -> tuple[int, ...]:
        """Return the real ranks, in ascending order."""
        return tuple(
            sorted(
                {rank for rank_range in self.ranges for rank in range(rank_range.first, rank_range.last + 1)}
            )
        )

    def __str__(self) -> str:
        """Return the ranges in a scenario's notation, at most 8 of them."""
        range_words = ", ".join(map(str, self.ranges[:8]))
        return f"{range_words}, ..." if len(self.ranges) > 8 else range_words
