"""Kinds of communication and the definition of bandwidth for each: the conventions of nccl-tests.

Decides what S (the size a bandwidth is quoted for) and busbw mean per kind. Grouping and timing are in `collectives.py`.
Source: NVIDIA/nccl-tests doc/PERFORMANCE.md, and src/gather.cu and src/scatter.cu for the two it does not derive.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final

from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class OpCode(IntEnum):
    """Codes of the network ops of a program, as in `PlannedOps.kind`."""

    COLLECTIVE = 1
    SEND = 2
    RECEIVE = 3


OP_NAMES: Final = {OpCode.COLLECTIVE: "collective", OpCode.SEND: "send", OpCode.RECEIVE: "receive"}


class SizeRule(Enum):
    """How S follows from the bytes that each member contributes."""

    BUFFER = "the largest buffer of a member"
    TOTAL = "all members together"
    NOTHING = "no bytes: a barrier has a time and no bandwidth"


class BusFactor(Enum):
    """busbw / algbw for n ranks: it makes busbw comparable with the speed of a link."""

    TWICE_OTHERS = "2(n-1)/n"
    OTHERS = "(n-1)/n"
    ONE = "1"


@dataclass(frozen=True, slots=True)
class Convention:
    """Name and bandwidth conventions of one kind."""

    name: str
    size: SizeRule
    factor: BusFactor


CONVENTIONS: Final = (
    Convention("all_reduce", SizeRule.BUFFER, BusFactor.TWICE_OTHERS),
    Convention("reduce", SizeRule.BUFFER, BusFactor.ONE),
    Convention("all_gather", SizeRule.TOTAL, BusFactor.OTHERS),
    Convention("gather", SizeRule.TOTAL, BusFactor.OTHERS),
    Convention("scatter", SizeRule.BUFFER, BusFactor.OTHERS),
    Convention("broadcast", SizeRule.BUFFER, BusFactor.ONE),
    Convention("all_to_all", SizeRule.BUFFER, BusFactor.OTHERS),
    Convention("reduce_scatter", SizeRule.BUFFER, BusFactor.OTHERS),
    Convention("reduce_scatter_block", SizeRule.BUFFER, BusFactor.OTHERS),
    Convention("barrier", SizeRule.NOTHING, BusFactor.ONE),
    Convention("send_recv", SizeRule.BUFFER, BusFactor.ONE),
)
"""Indexed by `CollectiveKind` (a test compares them), with one more entry for a send with its receive."""

SEND_RECV: Final = len(CONVENTIONS) - 1


def kind_label(kind: str, ranks: float) -> str:
    """Return the label of collectives of one kind and group size, such as "all_reduce, 8 ranks"."""
    return f"{kind}, {int(ranks)} ranks"


def kinds_where(size: SizeRule) -> NDArray[np.bool_]:
    """Return a bool array over `CONVENTIONS`: whether the S of a kind follows `size`."""
    import numpy as np  # Imported here because the command line needs only the names of kinds, not numpy.

    return np.array([convention.size is size for convention in CONVENTIONS])


def bus_factor(kind: NDArray[np.int64], ranks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return busbw / algbw of each row as float64; `kind` indexes `CONVENTIONS`, `ranks` is the group size (at least 1)."""
    import numpy as np

    share_of_others = (ranks - 1) / np.maximum(ranks, 1)
    by_factor = {
        BusFactor.TWICE_OTHERS: 2 * share_of_others,
        BusFactor.OTHERS: share_of_others,
        BusFactor.ONE: np.ones(len(ranks)),
    }
    factors = np.empty(len(ranks))
    for index, convention in enumerate(CONVENTIONS):
        rows = kind == index
        factors[rows] = by_factor[convention.factor][rows]
    return factors
