"""Derives split matrices for uneven collectives without stated splits: all-gathers, reduce-scatters, and all-to-alls
whose members put in different sizes.

The matrix of an all-gather follows from the size that each member puts in, that of a reduce-scatter from its parts,
that of an all-to-all from the user's choice: even or drawn. Such collectives run pair by pair. Leaves stated rows to
splits.py. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from etloop.workload.graph.matching import MAY_DIFFER, Matching
from etloop.workload.graph.network_ops import RankOps
from etloop.workload.trace.findings import Check, FindingLog, node_example
from etloop.workload.trace.program import Communicator, OpKind
from etloop.workload.trace.settings import Uneven, UnevenChoice
from etloop.workload.trace.trace import CollectiveKind, Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray


def differing_items(ops: Sequence[RankOps], matching: Matching) -> NDArray[np.bool_]:
    """Return a mask of the items of a kind in `MAY_DIFFER` whose members put in different sizes, bool [items]."""
    least_bytes = np.full(matching.item_count, np.iinfo(np.int64).max, np.int64)
    most_bytes = np.full(matching.item_count, -1, np.int64)
    for rank_ops, item in zip(ops, matching.item, strict=True):
        may_differ = np.flatnonzero(np.isin(rank_ops.collective, MAY_DIFFER))
        np.minimum.at(least_bytes, item[may_differ], rank_ops.size_bytes[may_differ])
        np.maximum.at(most_bytes, item[may_differ], rank_ops.size_bytes[may_differ])
    return np.asarray(least_bytes < most_bytes)


def kinds_of_items(ops: Sequence[RankOps], matching: Matching) -> NDArray[np.int8]:
    """Return the `CollectiveKind` of each item, int8 [items]; -1 for sends and receives."""
    kinds = np.full(matching.item_count, -1, np.int8)
    for rank_ops, item in zip(ops, matching.item, strict=True):
        collectives = np.flatnonzero(rank_ops.kind == OpKind.COLLECTIVE)
        kinds[item[collectives]] = rank_ops.collective[collectives]
    return kinds


def drawn_rows(
    size_bytes: NDArray[np.int64], communicator: Communicator, uneven: Uneven
) -> NDArray[np.int64]:
    """Return `[operation, source, destination]` bytes: the size of each source, split by the popularity of the
    destinations.

    `size_bytes` is int64 [operation, source]. Popularity falls with a member's place as (place + 1) ** -skew. The
    place of each member is drawn once per communicator, because its ranks share one router; each source deviates
    from it by a factor of 0.5 to 1.5.
    """
    members = len(communicator.members)
    seed_bytes = f"{uneven.seed}/{communicator.name}/{communicator.members}".encode(errors="replace")
    uniforms = np.frombuffer(hashlib.shake_256(seed_bytes).digest(4 * members * (members + 1)), "<u4") / 2**32
    place = np.argsort(np.argsort(uniforms[:members], kind="stable"), kind="stable")
    factors = uniforms[members:].reshape(members, members) + 0.5 if uneven.skew else 1.0
    weights = (place + 1.0) ** -float(uneven.skew) * factors * np.ones((members, members))
    bounds = np.cumsum(weights, axis=1)
    bounds /= bounds[:, -1:]
    # Buffer sizes are below 2 ** 53, so that products with the bound 1.0 are exact; the bounds ascend.
    cuts = np.floor(size_bytes[:, :, None] * bounds[None, :, :]).astype(np.int64)
    return np.diff(cuts, axis=2, prepend=0)


def report_assumed(
    trace: Trace,
    ops: Sequence[RankOps],
    matching: Matching,
    assumed: NDArray[np.bool_],
    uneven: Uneven,
    log: FindingLog,
) -> None:
    """Report how collectives of different sizes without stated splits are carried out. `assumed` is a mask by item."""
    if not assumed.any():
        return
    item = int(np.argmax(assumed))
    rank = next(rank for rank, items in enumerate(matching.item) if bool((items == item).any()))
    position = int(np.argmax(matching.item[rank] == item))
    kind = CollectiveKind(int(ops[rank].collective[position]))
    split_words = (
        "even" if uneven.choice is UnevenChoice.EVEN else f"drawn with a skew of {float(uneven.skew):g}"
    )
    remedy = (
        f"workload.uneven is {uneven}: all-to-all splits are {split_words}; an all-gather sends each "
        "member's "
        "bytes to every other member; a reduce-scatter gives each member the bytes that it states"
    )
    actual = f"{kind.name} whose members contribute different sizes"
    example = node_example(trace.ranks[rank], int(ops[rank].node[position]), "split sizes", actual)
    log.add(Check.UNEVEN_ASSUMED, remedy, example, count=int(assumed.sum()))
