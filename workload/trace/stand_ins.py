"""Which recorded rank stands for which ranks of a job, as a user writes it: `0-7=0`, `0-63=0-7`. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import QuantityError

MOST_RANKS: Final = 1 << 16

_FORM: Final = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?=([0-9]{1,6})(?:-([0-9]{1,6}))?")
_REMEDY: Final = "write ranks and the recorded ranks that stand for them in turn, such as 0-7=0 or 0-63=0-7"


@dataclass(frozen=True, slots=True)
class StandIn:
    """Consecutive ranks, and the consecutive recorded ranks that stand for them in turn."""

    first: int
    last: int
    first_recorded: int
    last_recorded: int

    def __str__(self) -> str:
        """As it is written."""
        return f"{_span(self.first, self.last)}={_span(self.first_recorded, self.last_recorded)}"

    @staticmethod
    def parse(text: str) -> StandIn:
        """Read `0-7=0` or `0-63=0-7`. Raises `QuantityError`."""
        found = _FORM.fullmatch(text.replace(" ", ""))
        if found is None:
            raise QuantityError(f'"{text[:64]}" says not who stands for whom', _REMEDY)
        first, recorded = int(found[1]), int(found[3])
        one = StandIn(first, int(found[2] or first), recorded, int(found[4] or recorded))
        if not one.first <= one.last < MOST_RANKS or not one.first_recorded <= one.last_recorded < MOST_RANKS:
            raise QuantityError(f'"{text[:64]}" is no ascending range below {MOST_RANKS}', _REMEDY)
        if (one.last - one.first + 1) % (one.last_recorded - one.first_recorded + 1):
            what = f'"{text[:64]}": the recorded ranks do not go into the others a whole number of times'
            raise QuantityError(what, _REMEDY)
        return one


def recorded_ranks(stand_ins: Sequence[StandIn]) -> tuple[int, ...]:
    """Return by rank of the job which recorded rank stands for it. `stand_ins` must have passed `stand_in_problem`."""
    found = _by_rank(stand_ins)
    return tuple(found[rank] for rank in range(len(found)))


def stand_in_problem(stand_ins: Sequence[StandIn]) -> str:
    """Return why these are no job, "" if they are."""
    if not stand_ins:
        return ""
    found = _by_rank(stand_ins)
    stated = sum(one.last - one.first + 1 for one in stand_ins)
    if stated != len(found):
        return "a rank is stood for twice"
    if missing := next((rank for rank in range(len(found)) if rank not in found), None):
        return f"rank {missing} is stood for by nobody, although higher ranks are"
    if 0 not in found:
        return "rank 0 is stood for by nobody"
    other = next((rank for rank in found.values() if found.get(rank) != rank), None)
    return "" if other is None else f"recorded rank {other} stands for others and not for itself"


def _by_rank(stand_ins: Sequence[StandIn]) -> dict[int, int]:
    return {
        rank: one.first_recorded + (rank - one.first) % (one.last_recorded - one.first_recorded + 1)
        for one in stand_ins
        for rank in range(one.first, one.last + 1)
    }


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
