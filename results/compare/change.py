"""A relative change in words: per cent, or of a large one the factor. Decides wording only."""

from __future__ import annotations

import math
from typing import Final

_AS_FACTOR: Final = 100.0
"""From which change on a factor is easier to read than per cent."""
_MOST: Final = 1e99
"""Of a factor that is written out: an exponent has two digits."""


def change_text(change: float, digits: int) -> str:
    """Return a change, B / A - 1, with `digits` after the point."""
    if change < _AS_FACTOR:
        return f"{change:+.{digits}%}"
    factor = 1 + change
    return f"x {factor:.3g}" if math.isfinite(factor) and factor < _MOST else "x more than 1e+99"
