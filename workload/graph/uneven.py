"""Uneven collectives beside the all-to-all whose splits a trace states: all-gathers, reduce-scatters, and all-to-alls whose
members put in different sizes without a word on how they split them.

Decides their matrices: an all-gather's from what each member puts in, a reduce-scatter's from its parts, an all-to-all's as the
user chose, evenly or drawn. Such collectives run pair by pair. Leaves stated rows to splits.py. Pure.
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
    """Items of `MAY_DIFFER` whose members put in different sizes."""
    least = np.full(matching.item_count, np.iinfo(np.int64).max, np.int64)
    most = np.full(matching.item_count, -1, np.int64)
    for rank_ops, item in zip(ops, matching.item, strict=True):
        at = np.flatnonzero(np.isin(rank_ops.collective, MAY_DIFFER))
        np.minimum.at(least, item[at], rank_ops.size_bytes[at])
        np.maximum.at(most, item[at], rank_ops.size_bytes[at])
    return np.asarray(least < most)


def kinds_of_items(ops: Sequence[RankOps], matching: Matching) -> NDArray[np.int8]:
    """`CollectiveKind` of each item, -1 for sends and receives."""
    kinds = np.full(matching.item_count, -1, np.int8)
    for rank_ops, item in zip(ops, matching.item, strict=True):
        at = np.flatnonzero(rank_ops.kind == OpKind.COLLECTIVE)
        kinds[item[at]] = rank_ops.collective[at]
    return kinds


def drawn_rows(
    size_bytes: NDArray[np.int64], communicator: Communicator, uneven: Uneven
) -> NDArray[np.int64]:
    """Return `[operation, source, destination]` bytes: what each source puts in, split by how popular the destinations are.

    `size_bytes` is [operation, source]. Popularity falls with a member's place as (place + 1) ** -skew; which member has which
    place is drawn once a communicator, as its ranks see one router, and each source strays from it by up to half.
    """
    members = len(communicator.members)
    named = f"{uneven.seed}/{communicator.name}/{communicator.members}".encode(errors="replace")
    drawn = np.frombuffer(hashlib.shake_256(named).digest(4 * members * (members + 1)), "<u4") / 2**32
    place = np.argsort(np.argsort(drawn[:members], kind="stable"), kind="stable")
    stray = drawn[members:].reshape(members, members) + 0.5 if uneven.skew else 1.0
    weights = (place + 1.0) ** -float(uneven.skew) * stray * np.ones((members, members))
    bounds = np.cumsum(weights, axis=1)
    bounds /= bounds[:, -1:]
    # What is put in stays below 2 ** 53, so that a whole buffer is exact, and the bounds ascend.
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
    """Tell how collectives of different sizes that state no splits are carried out. `assumed` by item."""
    if not assumed.any():
        return
    item = int(np.argmax(assumed))
    rank = next(rank for rank, items in enumerate(matching.item) if bool((items == item).any()))
    position = int(np.argmax(matching.item[rank] == item))
    kind = CollectiveKind(int(ops[rank].collective[position]))
    how = "even" if uneven.choice is UnevenChoice.EVEN else f"drawn with a skew of {float(uneven.skew):g}"
    remedy = (
        f"as workload.uneven says ({uneven}): the splits of an all-to-all are {how}; an all-gather brings what each member puts "
        "in to every other, a reduce-scatter to each member as much as it states"
    )
    found = f"{kind.name} whose members put in different sizes"
    example = node_example(trace.ranks[rank], int(ops[rank].node[position]), "split sizes", found)
    log.add(Check.UNEVEN_ASSUMED, remedy, example, count=int(assumed.sum()))
