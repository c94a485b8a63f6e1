"""Changes, ratios and figures of a comparison's reasons in words. Decides wording only."""

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


_SIZES: Final = {
    "ns": (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0)),
    "bytes": (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)),
    "bit/s": (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("bit/s", 1.0)),
}


def figure_text(value: float, unit: str) -> str:
    """Return a figure with four digits and a fitting unit; a count with six."""
    if unit not in _SIZES:
        return f"{value:.6g} {unit}".strip()
    name, size = next((size for size in _SIZES[unit] if abs(value) >= size[1]), _SIZES[unit][-1])
    return f"{value / size:.4g} {name}"
