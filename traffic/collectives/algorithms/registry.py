"""Registry of algorithms by name: their collectives, their builder, and the groups they cannot serve.

A new algorithm is a new file and a line here. `choice` decides which one an op gets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from etloop.traffic.collectives.algorithms.alltoall import p2p_all_to_all
from etloop.traffic.collectives.algorithms.binomial import binomial
from etloop.traffic.collectives.algorithms.bruck import bruck
from etloop.traffic.collectives.algorithms.chain import chain
from etloop.traffic.collectives.algorithms.deepep import deepep
from etloop.traffic.collectives.algorithms.direct import direct
from etloop.traffic.collectives.algorithms.gloo_ring import gloo_ring
from etloop.traffic.collectives.algorithms.halving_doubling import halving_doubling
from etloop.traffic.collectives.algorithms.hierarchical import hierarchical
from etloop.traffic.collectives.algorithms.linear import linear
from etloop.traffic.collectives.algorithms.pairwise import build_scattered, pairwise
from etloop.traffic.collectives.algorithms.pat import pat
from etloop.traffic.collectives.algorithms.point_to_point import point_to_point
from etloop.traffic.collectives.algorithms.pxn import pxn
from etloop.traffic.collectives.algorithms.railed import ce_direct, ce_ring, rail_a2a, rail_ring
from etloop.traffic.collectives.algorithms.recursive_doubling import recursive_doubling
from etloop.traffic.collectives.algorithms.ring import bidirectional_ring, ring
from etloop.traffic.collectives.algorithms.tree import double_binary_tree
from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.table import Schedule


def no_limit(request: Request) -> str:
    """Accept every request of at least 2 positions; return the reason if there are fewer."""
    return "" if request.size >= 2 else "needs 2 or more ranks"


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm for one or more collectives, named as in `Schedule.collective`."""

    name: str
    collectives: frozenset[str]
    build: Callable[[Request], Schedule]
    limit: Callable[[Request], str] = no_limit
    """Returns why it cannot serve a request; "" if it can."""


def _build_grouped(request: Request) -> Schedule:
    """Build a schedule of NCCL's grouped sends and receives."""
    return (point_to_point if request.collective == "point-to-point" else p2p_all_to_all)(request)


def _even_channels(request: Request) -> str:
    """Return why a request does not have an even number of channels, or ""."""
    channels = request.cutting.channels
    problem = f"needs an even number of channels, half for each direction; got {channels}"
    return no_limit(request) or problem * (channels % 2)


def _one_channel(request: Request) -> str:
    """Return why a request does not have a single channel, or ""."""
    channels = request.cutting.channels
    return no_limit(request) or f"needs 1 channel; got {channels}" * (channels != 1)


def _full_hosts(request: Request) -> str:
    """Return why a request's hosts are not full, or ""."""
    size, ranks = request.size, request.ranks_per_host
    problem = f"needs the same number of ranks on every host; got {size} ranks, {ranks} per host"
    return no_limit(request) or problem * (size % ranks > 0)


def _two_levels(request: Request) -> str:
    """Return why a request does not have at least two full hosts of at least two ranks, or ""."""
    size, ranks = request.size, request.ranks_per_host
    problem = f"needs 2 or more hosts with 2 or more ranks each; got {size} ranks, {ranks} per host"
    return _full_hosts(request) or problem * (ranks < 2 or size < 2 * ranks)


def _two_hosts(request: Request) -> str:
    """Return why a request does not have at least two full hosts, or ""."""
    size, ranks = request.size, request.ranks_per_host
    problem = f"needs 2 or more hosts; got {size} ranks, {ranks} per host"
    return _full_hosts(request) or problem * (size < 2 * ranks)


def _two_hosts_and_directions(request: Request) -> str:
    """Return why a request does not have two full hosts and an even number of channels, or ""."""
    return _two_hosts(request) or _even_channels(request)


def _serves(*collectives: str) -> frozenset[str]:
    """Return a set of collectives, with barrier added to all-reduce."""
    # A barrier is carried out as an all-reduce.
    return frozenset(collectives) | ({"barrier"} if "all-reduce" in collectives else set())


_ALL: Final = (
    Algorithm("ring", _serves("all-reduce", "all-gather", "reduce-scatter"), ring),
    Algorithm(
        "bidirectional_ring",
        _serves("all-reduce", "all-gather", "reduce-scatter"),
        bidirectional_ring,
        _even_channels,
    ),
    Algorithm("tree", _serves("all-reduce"), double_binary_tree),
    Algorithm("halving_doubling", _serves("all-reduce", "reduce-scatter"), halving_doubling),
    Algorithm("recursive_doubling", _serves("all-reduce", "all-gather"), recursive_doubling),
    Algorithm("pat", _serves("all-gather", "reduce-scatter"), pat),
    Algorithm("direct", _serves("all-reduce", "all-gather", "reduce-scatter", "all-to-all"), direct),
    Algorithm("bruck", _serves("all-gather", "all-to-all"), bruck),
    Algorithm("pairwise", _serves("reduce-scatter", "all-to-all"), pairwise),
    Algorithm("scattered", _serves("all-to-all"), build_scattered),
    Algorithm("p2p", _serves("all-to-all", "uneven all-to-all", "point-to-point"), _build_grouped),
    Algorithm("deepep", _serves("all-to-all", "uneven all-to-all"), deepep),
    Algorithm("gloo_ring", _serves("all-reduce"), gloo_ring, _one_channel),
    Algorithm("chain", _serves("broadcast", "reduce"), chain),
    Algorithm("binomial", _serves("broadcast", "reduce", "gather", "scatter"), binomial),
    Algorithm("linear", _serves("gather", "scatter"), linear),
    Algorithm("hierarchical", _serves("all-reduce", "all-to-all"), hierarchical, _two_levels),
    Algorithm("pxn", _serves("all-to-all"), pxn, _two_hosts),
    Algorithm("rail_ring", _serves("all-gather"), rail_ring, _two_hosts),
    Algorithm("rail_a2a", _serves("reduce-scatter"), rail_a2a, _two_hosts),
    Algorithm("ce_direct", _serves("all-gather", "all-to-all"), ce_direct, _two_hosts),
    Algorithm("ce_ring", _serves("all-gather"), ce_ring, _two_hosts_and_directions),
)
ALGORITHMS: Final[Mapping[str, Algorithm]] = {algorithm.name: algorithm for algorithm in _ALL}
