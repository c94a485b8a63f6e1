"""Random numbers of serving workloads: streams of PCG64's raw numbers, and distributions over them. Pure.

One stream per purpose, so that a change of one setting leaves the other draws alone, and so that the same seed gives the same
requests with every version of numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np


def uniforms(*seeds: int) -> Callable[[], float]:
    """Return a source of numbers in (0, 1]."""
    bits = np.random.PCG64(list(seeds))
    numbers: Iterator[int] = iter(())

    def draw() -> float:
        nonlocal numbers
        raw = next(numbers, None)
        if raw is None:
            numbers = iter(bits.random_raw(4096).tolist())
            raw = next(numbers)
        return float((raw >> 11) + 1) / float(1 << 53)

    return draw


def normal(uniform: Callable[[], float]) -> float:
    """Draw from the standard normal distribution (Box and Muller)."""
    return math.sqrt(-2 * math.log(uniform())) * math.cos(2 * math.pi * uniform())


def weibull(shape: float, uniform: Callable[[], float]) -> float:
    """Draw from a Weibull distribution of scale 1."""
    return float((-math.log(uniform())) ** (1 / shape))


def gamma(shape: float, uniform: Callable[[], float]) -> float:
    """Draw from a gamma distribution of scale 1 (Marsaglia and Tsang, 2000)."""
    if shape < 1:
        share: float = uniform() ** (1 / shape)
        return gamma(shape + 1, uniform) * share
    d = shape - 1 / 3
    c = 1 / math.sqrt(9 * d)
    while True:
        x = normal(uniform)
        v = (1 + c * x) ** 3
        if v > 0 and math.log(uniform()) < x * x / 2 + d - d * v + d * math.log(v):
            return float(d * v)
