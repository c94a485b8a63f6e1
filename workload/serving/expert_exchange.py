"""Bytes of the exchanges of expert parallelism under uniform routing. Pure.

T_dispatch = B * k * H * P / N for every ordered pair of N ranks, T_egress = T_dispatch * (N - 1)
(draft-calabria-bmwg-ai-fabric-inference-bench-05). Shares are rounded so that a rank's sums over its peers are exact.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

from etloop.workload.serving.model_file import Model


def dispatch_bytes(model: Model, tokens: int) -> int:
    """Return B * k * H * P: what a rank's tokens are to all experts, those of the rank itself included."""
    experts = model.experts
    if experts is None:
        return 0
    return (
        tokens
        * experts.chosen
        * (model.hidden * experts.dispatch_element_bytes + experts.token_overhead_bytes)
    )


def combine_bytes(model: Model, tokens: int) -> int:
    """Return what all experts send back for a rank's tokens."""
    experts = model.experts
    if experts is None:
        return 0
    return tokens * experts.chosen * model.hidden * experts.combine_element_bytes


def pair_bytes(total_bytes: int, ranks: int) -> Fraction:
    """Return the bytes of one ordered pair of ranks, such as T_dispatch."""
    return Fraction(total_bytes, ranks)


def share_of_peers(total_bytes: int, ranks: int, peers: int) -> int:
    """Return the bytes of the first `peers` peers of a rank, rounded to the nearest byte."""
    return (2 * total_bytes * peers + ranks) // (2 * ranks)


def shares(total_bytes: int, ranks: int) -> list[int]:
    """Return the bytes of each of the `ranks` - 1 peers of a rank, in the order of `peers_of`."""
    sums = [share_of_peers(total_bytes, ranks, peers) for peers in range(ranks)]
    return [after - before for before, after in itertools.pairwise(sums)]


def peers_of(rank: int, hosts: Sequence[int]) -> list[int]:
    """Return the peers of a rank of a group: those on other hosts first, so that their sum is exact, too."""
    others = [peer for peer in range(len(hosts)) if peer != rank]
    return sorted(others, key=lambda peer: hosts[peer] == hosts[rank])
