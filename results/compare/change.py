"""A relative change or a ratio in words: per cent, or the factor if it is large. Decides wording only."""

from __future__ import annotations

import math
from typing import Final

_AS_FACTOR: Final = 100.0
"""Change from which on a factor is easier to read than per cent."""
_MOST: Final = 1e99
"""Greatest factor that is printed: an exponent has two digits."""


def change_text(change: float, digits: int) -> str:
    """Return a change, B / A - 1, as text with `digits` decimals."""
    if change < _AS_FACTOR:
        return f"{change:+.{digits}%}"
    factor = 1 + change
    return f"x {factor:.3g}" if math.isfinite(factor) and factor < _MOST else "x more than 1e+99"


def ratio_text(ratio: float | None) -> str:
    """Return a ratio, B / A, as text; "new" if A is 0."""
    if ratio is None:
        return "new"
    return f"x {ratio:.3g}" if ratio < _MOST else "x more than 1e+99"
