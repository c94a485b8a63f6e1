"""Result of a condition that holds however the emulator's weakness acted within its bounds, and these bounds in words.

Decides which bounds are shown: those of each compared value that the weakness affects.
"""

from __future__ import annotations

import numpy as np

from etloop.contract.base.units import approximate_bytes, approximate_duration
from etloop.results.verdict.evaluation import UNKNOWN, Results
from etloop.results.verdict.interval import Bounded, bound
from etloop.results.verdict.parser import Condition, Vocabulary, dimension_of
from etloop.results.verdict.terms import Dimension, Node, comparisons_of, names_of
from etloop.results.verdict.weakness import OwnShare, Weakness


def certain_result(tree: Node, results: Results, own: OwnShare | None, weak: Weakness) -> bool | None:
    """Return whether a condition certainly holds or certainly fails; None if that depends on the emulator's weakness."""
    bounds = bound(tree, results, own, weak)
    truths = np.atleast_1d(bounds.low)
    is_selected = np.ones(truths.shape, bool) if bounds.chosen is None else bounds.chosen == 1
    if (is_selected & (truths == 0)).any():
        return False
    return None if (truths == 0).any() or (truths == UNKNOWN).any() else True


def bounds_words(
    condition: Condition, evaluated: tuple[Results, Vocabulary], own: OwnShare | None, weak: Weakness
) -> str:
    """Describe the bounds of the compared values without the emulator's weakness; "" if it affects none of them."""
    results, vocabulary = evaluated
    words = []
    for comparison in comparisons_of(condition.tree):
        for side in (comparison.left, comparison.right):
            bounds = bound(side, results, own, weak)
            if not bounds.is_exact and names_of(side):
                words.append(_range_words(bounds, condition.words(side), dimension_of(side, vocabulary)))
    return "; ".join(dict.fromkeys(words))


def _range_words(bounds: Bounded, name: str, dimension: Dimension) -> str:
    """Describe the bounds of `name`, of the row with the widest interval if it is a column."""
    low, high = (np.atleast_1d(end.astype(np.float64)) for end in (bounds.low, bounds.high))
    is_known = ~np.isnan(low) & ~np.isnan(high)
    if not is_known.any():
        return f"{name} is absent"
    with np.errstate(invalid="ignore"):
        # For a column, show the row with the widest interval.
        widest = int(np.argmax(np.where(is_known, high - low, -1.0)))
    least, most = float(low[widest]), float(high[widest])
    row = " in the row that is touched most" if bounds.low.shape else ""
    if np.isinf(least) and np.isinf(most):
        return f"no bound is known of {name} without our own share"
    if np.isinf(most):
        return f"{name} is {quantity(least, dimension)} or anything above without our own share{row}"
    if np.isinf(least) or least <= 0 < most:
        return f"{name} is anything up to {quantity(most, dimension)} without our own share{row}"
    return f"{name} is {quantity(least, dimension)} to {quantity(most, dimension)} without our own share{row}"


def quantity(value: object, dimension: Dimension) -> str:
    """Return a value as text with the unit that a reader expects."""
    if value is None or (isinstance(value, float | np.floating) and np.isnan(value)):
        return "absent"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, np.int8):
        return {1: "true", 0: "false"}.get(int(value), "absent")
    number = float(value)  # type: ignore[arg-type]
    match dimension:
        case Dimension.TIME:
            return approximate_duration(round(number))
        case Dimension.BYTES:
            return approximate_bytes(round(number))
        case Dimension.RATE:
            return f"{number / 1e9:.6g} Gbit/s"
        case _:
            return f"{number:.6g}"
