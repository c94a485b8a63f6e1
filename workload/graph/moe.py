"""Models mixture of experts: the tokens that each rank routes to each expert, and the resulting all-to-alls. Pure;
seeded.

Decides how skew is modelled. Leaves which layers have experts, and when they run, to the generator of the job. Every
token goes to `top_k` different experts and is sent once for each, as by dispatchers that do not merge copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

Matrix = tuple[tuple[int, ...], ...]

MOST_SKEW: Final = 16
"""Largest skew; far beyond any router, yet the weights of a million experts stay above zero."""


def token_histogram(
    ranks: int, experts: int, tokens: int, top_k: int, skew: float, rng: random.Random
) -> Matrix:
    """Return tokens by `[rank][expert]`: each row sums to `tokens * top_k`, and no entry exceeds `tokens`.

    Expert popularity falls with its place as (place + 1) ** -skew: 0 is balanced, 1 is Zipf's law. The place of each
    expert is drawn once, because all ranks of a job share one router. With a skew above 0, each rank's weight of an
    expert deviates from it by a drawn factor of 0.5 to 1.5.
    """
    assert ranks >= 1
    assert 1 <= top_k <= experts
    assert tokens >= 0
    assert 0 <= skew <= MOST_SKEW
    places = list(range(experts))
    rng.shuffle(places)
    rows = []
    for _ in range(ranks):
        factors = [rng.uniform(0.5, 1.5) if skew else 1.0 for _ in range(experts)]
        weights = [(place + 1) ** -skew * factor for place, factor in zip(places, factors, strict=True)]
        rows.append(_apportion(tokens * top_k, weights, tokens))
    return tuple(rows)


def dispatch_splits(histogram: Sequence[Sequence[int]], token_bytes: int) -> Matrix:
    """Return `[source][destination]` bytes of the all-to-all that sends tokens to their experts.

    Experts are placed on the ranks in blocks: with e experts on n ranks, rank r has those from r * e / n to below (r
    + 1) * e / n.
    """
    ranks, experts = len(histogram), len(histogram[0])
    assert experts % ranks == 0
    experts_per_rank = experts // ranks
    return tuple(
        tuple(
            sum(row[rank * experts_per_rank : (rank + 1) * experts_per_rank]) * token_bytes
            for rank in range(ranks)
        )
        for row in histogram
    )


def combine_splits(dispatch: Matrix) -> Matrix:
    """Return the splits of the all-to-all that returns the experts' outputs: the transpose of `dispatch`."""
    return tuple(zip(*dispatch, strict=True))


def _apportion(total: int, weights: Sequence[float], most: int) -> tuple[int, ...]:
    """Divide `total` into whole shares proportional to `weights`, none above `most`; the remainder goes to the largest
    fractions."""
    shares = [0] * len(weights)
    open_ = list(range(len(weights)))
    while open_:
        unassigned = total - sum(shares)
        open_weight = sum(weights[index] for index in open_)
        capped = [index for index in open_ if unassigned * weights[index] >= most * open_weight]
        if not capped:
            exact = {index: unassigned * weights[index] / open_weight for index in open_}
            for index in open_:
                shares[index] = int(exact[index])
            remainder = total - sum(shares)
            by_fraction = sorted(open_, key=lambda index: (shares[index] - exact[index], index))
            for index in by_fraction[:remainder]:
                shares[index] += 1
            break
        for index in capped:
            shares[index] = most
        open_ = [index for index in open_ if index not in set(capped)]
    return tuple(shares)
