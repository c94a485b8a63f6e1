"""The chi-square distribution; scipy, a quarter of a second to load, is imported at its first use, which few runs have."""

from __future__ import annotations


def chi_square_beyond(freedom: int, value: float) -> float:
    """Return the probability of more than `value` with `freedom` degrees of freedom."""
    from scipy.special import chdtrc

    return float(chdtrc(freedom, value))


def chi_square_exceeded(freedom: int, probability: float) -> float:
    """Return the value that is exceeded with this probability."""
    from scipy.special import chdtri

    return float(chdtri(freedom, probability))
