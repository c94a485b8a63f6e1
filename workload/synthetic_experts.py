"""How the tokens of a mixture-of-experts layer spread over its ranks when some experts are liked better than others.

Decides the matrix of bytes between ranks from a skew and a seed: popularity falls as a power of an expert's place
(Zipf), and the seed decides in every layer and micro-batch which rank holds which place. A function of its arguments
only: every rank's file is made alone and they must agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

MAX_SKEW_PERCENT = 400
"""Exponent 4: the most popular of 8 ranks already gets 93% of all tokens."""


@dataclass(frozen=True, slots=True)
class Routing:
    """How uneven, and which draw."""

    skew_percent: int
    """100 x the Zipf exponent; 0 is even."""
    seed: int


def dispatch_bytes(
    routing: Routing, members: int, source_bytes: int, token_bytes: int, *draw: int
) -> tuple[tuple[int, ...], ...]:
    """Bytes from position i to position j: whole tokens, every row adds up to `source_bytes`.

    `draw` tells layers and micro-batches apart. The way back (combine) is the transpose.
    """
    weights = _popularity(routing, members, draw)
    tokens, rest = divmod(source_bytes, token_bytes)
    row = _shares(tokens, weights)
    # What is less than a token goes to the most popular one.
    most = max(range(members), key=lambda position: weights[position])
    sizes = tuple(
        count * token_bytes + (rest if position == most else 0) for position, count in enumerate(row)
    )
    return (sizes,) * members


def _popularity(routing: Routing, members: int, draw: tuple[int, ...]) -> list[float]:
    order = sorted(range(members), key=lambda position: _drawn(routing.seed, position, draw))
    weights = [0.0] * members
    for place, position in enumerate(order):
        weights[position] = (place + 1) ** (-routing.skew_percent / 100)
    return weights


def _drawn(seed: int, position: int, draw: tuple[int, ...]) -> bytes:
    return blake2b(",".join(map(str, (seed, position, *draw))).encode(), digest_size=16).digest()


def _shares(total: int, weights: list[float]) -> list[int]:
    """Whole shares of `total` in proportion, by largest remainder."""
    whole = sum(weights)
    exact = [total * weight / whole for weight in weights]
    shares = [int(one) for one in exact]
    by_remainder = sorted(range(len(weights)), key=lambda at: (shares[at] - exact[at], at))
    for at in by_remainder[: total - sum(shares)]:
        shares[at] += 1
    return shares
