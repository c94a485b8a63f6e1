"""Defines which recorded rank represents which ranks of a job, in a scenario's notation `0-7=0`, `0-63=0-7`. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import QuantityError

MOST_RANKS: Final = 1 << 16

_FORM: Final = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?=([0-9]{1,6})(?:-([0-9]{1,6}))?")
_REMEDY: Final = "write RANKS=RECORDED, such as 0-7=0 or 0-63=0-7; the recorded ranks repeat in turn"


@dataclass(frozen=True, slots=True)
class StandIn:
    """Consecutive ranks, and the consecutive recorded ranks that represent them in turn."""

    first: int
    last: int
    first_recorded: int
    last_recorded: int

    def __str__(self) -> str:
        """Return the notation that `parse` reads."""
        return f"{_span(self.first, self.last)}={_span(self.first_recorded, self.last_recorded)}"

    @staticmethod
    def parse(text: str) -> StandIn:
        """Parse `0-7=0` or `0-63=0-7`. Raises `QuantityError`."""
        match = _FORM.fullmatch(text.replace(" ", ""))
        if match is None:
            raise QuantityError(f'"{text[:64]}" is not RANKS=RECORDED', _REMEDY)
        first, recorded = int(match[1]), int(match[3])
        stand_in = StandIn(first, int(match[2] or first), recorded, int(match[4] or recorded))
        if (
            not stand_in.first <= stand_in.last < MOST_RANKS
            or not stand_in.first_recorded <= stand_in.last_recorded < MOST_RANKS
        ):
            raise QuantityError(f'"{text[:64]}" is not an ascending range below {MOST_RANKS}', _REMEDY)
        if (stand_in.last - stand_in.first + 1) % (stand_in.last_recorded - stand_in.first_recorded + 1):
            problem = f'"{text[:64]}": the number of ranks is not a multiple of the number of recorded ranks'
            raise QuantityError(problem, _REMEDY)
        return stand_in


def recorded_ranks(stand_ins: Sequence[StandIn]) -> tuple[int, ...]:
    """Return the recorded rank that represents each rank of the job, by rank. `stand_ins` must pass `stand_in_problem`."""
    recorded_by_rank = _by_rank(stand_ins)
    return tuple(recorded_by_rank[rank] for rank in range(len(recorded_by_rank)))


def stand_in_problem(stand_ins: Sequence[StandIn]) -> str:
    """Return why these do not cover a job, "" if they do: every rank from 0 exactly once, each recorded rank for itself
    too."""
    if not stand_ins:
        return ""
    recorded_by_rank = _by_rank(stand_ins)
    rank_count = sum(stand_in.last - stand_in.first + 1 for stand_in in stand_ins)
    if rank_count != len(recorded_by_rank):
        return "lists a rank twice"
    if missing := next((rank for rank in range(len(recorded_by_rank)) if rank not in recorded_by_rank), None):
        return f"rank {missing} has no recorded rank, but higher ranks do"
    if 0 not in recorded_by_rank:
        return "rank 0 has no recorded rank"
    not_for_itself = next(
        (rank for rank in recorded_by_rank.values() if recorded_by_rank.get(rank) != rank), None
    )
    return (
        ""
        if not_for_itself is None
        else f"recorded rank {not_for_itself} is used for other ranks but not for itself"
    )


def _by_rank(stand_ins: Sequence[StandIn]) -> dict[int, int]:
    return {
        rank: entry.first_recorded + (rank - entry.first) % (entry.last_recorded - entry.first_recorded + 1)
        for entry in stand_ins
        for rank in range(entry.first, entry.last + 1)
    }


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
