"""Tests whether a fair hash would spread streams over links as unevenly as they are, and which header fields a hash uses.

Decides the null: each stream takes a link at random, in proportion to the weights. The statistic is
Σ (B_l - w_l B)² / (w_l S) with the bytes B_l of link l, their sum B, and the sum S of the squared bytes of streams. For equal
weights it rises with the Σ bytes² of links. Its distribution is drawn for few streams, and is chi-square for many.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.diagnosis.chi_square import chi_square_beyond, chi_square_exceeded

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Rows = NDArray[np.int64]

DRAWS: Final = 10_000
_SEED: Final = 7
_DRAWS_KEPT: Final = 64
"""Of 80 kB each."""
_FEWEST_BEYOND: Final = 10
"""Draws beyond a value from which on their share is its probability; below, the tail of a chi-square distribution is."""
_MANY_PER_LINK: Final = 200
"""Streams per link from which on the distribution is chi-square."""
_MOST_SIZES: Final = 64
"""Distinct sizes of streams that are drawn one by one; more are rounded."""


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """Streams of one group of links, and the bytes of each link."""

    link_bytes: Floats
    weights: Floats
    stream_bytes: Floats
    """Bytes of one stream of each row."""
    stream_count: Rows
    """Equal streams of each row."""

    @property
    def streams(self) -> int:
        """Return the number of streams."""
        return int(self.stream_count.sum())

    @property
    def effective_links(self) -> float:
        """Return the number of links that would carry the bytes if they were equally loaded: 1 / Σ share²."""
        shares = self.link_bytes / self.link_bytes.sum()
        return float(1 / np.square(shares).sum())

    @property
    def statistic(self) -> float:
        """Return how uneven the links are, as the module defines it."""
        return float(_statistic(self.link_bytes, self.weights, self._squares()))

    @property
    def max_to_mean(self) -> float:
        """Return the load of the busiest link, by its weight, per mean load."""
        return float((self.link_bytes / self.weights).max() / self.link_bytes.sum())

    def _squares(self) -> float:
        return float((np.square(self.stream_bytes) * self.stream_count).sum())


def _statistic(link_bytes: Floats, weights: Floats, squares: float) -> Floats:
    total = link_bytes.sum(axis=-1, keepdims=True)
    deviations: Floats = (np.square(link_bytes - weights * total) / weights).sum(axis=-1) / squares
    return deviations


def spread_probability(load: Load) -> float:
    """Return the probability that a fair hash spreads the streams of `load` as unevenly or more."""
    links = len(load.link_bytes)
    if load.streams >= _MANY_PER_LINK * links:
        return chi_square_beyond(links - 1, load.statistic)
    drawn = _draw(load)
    beyond = int((drawn >= load.statistic * (1 - 1e-9)).sum())
    if beyond >= _FEWEST_BEYOND:
        return beyond / DRAWS
    # Few streams are less even than a chi-square distribution has it: stretch it to meet the draws.
    near = float(np.quantile(drawn, 0.999))
    stretch = max(near / chi_square_exceeded(links - 1, 0.001), 1.0)
    return max(chi_square_beyond(links - 1, load.statistic / stretch), 1e-300)


def _draw(load: Load) -> Floats:
    """Return the statistic of `DRAWS` random spreads of the same streams."""
    sizes, row = np.unique(_round_sizes(load.stream_bytes), return_inverse=True)
    counts = np.bincount(row.reshape(-1), load.stream_count, len(sizes)).astype(np.int64)
    return _kept_draws(tuple(sizes.tolist()), tuple(counts.tolist()), tuple(load.weights.tolist()))


# Cached because the groups of a run, and the runs of a sweep, have streams that are alike.
@lru_cache(maxsize=_DRAWS_KEPT)
def _kept_draws(sizes: tuple[float, ...], counts: tuple[int, ...], weights: tuple[float, ...]) -> Floats:
    random = np.random.Generator(np.random.PCG64(_SEED))
    link_bytes = np.zeros((DRAWS, len(weights)))
    for size, count in zip(sizes, counts, strict=True):
        link_bytes += size * random.multinomial(count, weights, size=DRAWS)
    squares = float((np.square(sizes) * counts).sum())
    return _statistic(link_bytes, np.array(weights), squares)


def _round_sizes(sizes: Floats) -> Floats:
    """Return sizes, rounded to fewer digits as long as there are more than `_MOST_SIZES` distinct ones."""
    scale = float(sizes.max()) or 1.0
    for steps in (1 << 20, 1 << 12, 1 << 6):
        rounded = np.rint(sizes / scale * steps) / steps * scale
        if len(np.unique(rounded)) <= _MOST_SIZES:
            return rounded
    return rounded


def chance_of_function(keys: Rows, link: Rows, count: Rows, weights: Floats) -> float | None:
    """Return the probability that all streams with equal keys share a link by chance; None if some do not.

    `keys`, `link` and `count` (streams, all on that link) have one row for each stream, or for several equal ones.
    """
    _, first, row = np.unique(keys, return_index=True, return_inverse=True)
    if (link != link[first][row.reshape(-1)]).any():
        return None
    together = np.bincount(row.reshape(-1), count, len(first))
    return float(np.exp((together * np.log(weights[link[first]]) - np.log(weights[link[first]])).sum()))
