"""Mixture of experts: how many tokens each rank routes to each expert, and the all-to-alls that follow. Pure; seeded.

Decides how skew is modelled; which layers have experts, and when they run, is for the one who makes the job. Every token
goes to `top_k` different experts and is sent once for each of them, as dispatchers do that do not merge copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

Matrix = tuple[tuple[int, ...], ...]

MOST_SKEW: Final = 16
"""Far beyond any router; keeps the weights of a million experts apart from zero."""


def token_histogram(
    ranks: int, experts: int, tokens: int, top_k: int, skew: float, rng: random.Random
) -> Matrix:
    """`[rank][expert]` tokens: each row has `tokens * top_k`, and no entry more than `tokens`.

    Expert popularity falls with its place as (place + 1) ** -skew: 0 is balanced, 1 is Zipf's law. Which expert has which
    place is drawn once, as the ranks of a job see one router; how far a rank strays from it (by up to half) is drawn for
    each rank and expert, if there is any skew at all.
    """
    assert ranks >= 1
    assert 1 <= top_k <= experts
    assert tokens >= 0
    assert 0 <= skew <= MOST_SKEW
    places = list(range(experts))
    rng.shuffle(places)
    rows = []
    for _ in range(ranks):
        stray = [rng.uniform(0.5, 1.5) if skew else 1.0 for _ in range(experts)]
        weights = [(place + 1) ** -skew * own for place, own in zip(places, stray, strict=True)]
        rows.append(_apportioned(tokens * top_k, weights, tokens))
    return tuple(rows)


def dispatch_splits(histogram: Sequence[Sequence[int]], token_bytes: int) -> Matrix:
    """`[source][destination]` bytes of the all-to-all that brings tokens to their experts.

    The experts lie on the ranks in blocks: of e experts on n ranks, rank r has r * e / n to (r + 1) * e / n - 1.
    """
    ranks, experts = len(histogram), len(histogram[0])
    assert experts % ranks == 0
    each = experts // ranks
    return tuple(
        tuple(sum(row[rank * each : (rank + 1) * each]) * token_bytes for rank in range(ranks))
        for row in histogram
    )


def combine_splits(dispatch: Matrix) -> Matrix:
    """The all-to-all that brings the experts' answers back: what came is what returns."""
    return tuple(zip(*dispatch, strict=True))


def _apportioned(total: int, weights: Sequence[float], most: int) -> tuple[int, ...]:
    """Whole shares of `total` in proportion to `weights`, none above `most`; what is over goes to the largest rests."""
    shares = [0] * len(weights)
    open_ = list(range(len(weights)))
    while open_:
        left = total - sum(shares)
        whole = sum(weights[at] for at in open_)
        full = [at for at in open_ if left * weights[at] >= most * whole]
        if not full:
            exact = {at: left * weights[at] / whole for at in open_}
            for at in open_:
                shares[at] = int(exact[at])
            rest = total - sum(shares)
            by_rest = sorted(open_, key=lambda at: (shares[at] - exact[at], at))
            for at in by_rest[:rest]:
                shares[at] += 1
            break
        for at in full:
            shares[at] = most
        open_ = [at for at in open_ if at not in set(full)]
    return tuple(shares)
