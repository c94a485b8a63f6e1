"""Entry point to schedules: return how an op is carried out, given its Chakra collective number, its group and its
bytes.

All functions call `choice`. The plan decides which collective an op is; the engine decides when its messages are sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Final

from etloop.contract.base.errors import PlanError, Problem
from etloop.traffic.collectives.choice import POINT_TO_POINT, UNEVEN, Choice, Settings, choose, with_splits
from etloop.traffic.collectives.core.table import MAX_LANE_BYTES
from etloop.traffic.collectives.nccl.hardware import Layout

MAX_SIZE: Final = 16_384
MAX_SPLITS_SIZE: Final = 1024
"""Maximum size of a group with a matrix of splits."""
BARRIER_BYTES: Final = 4
"""NCCL has no barrier: frameworks issue an all-reduce of one 4-byte element. Its schedule synchronises all positions
whatever the byte count; this one puts NCCL's bytes on the wire."""


class CollectiveName(IntEnum):
    """Collectives that have a schedule; numbers as in the Chakra schema (`CollectiveCommType`)."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    """Reduce-scatter with equal blocks; both kinds are cut that way here."""
    BARRIER = 9


def choose_for(
    collective: CollectiveName | int, size: int, op_bytes: int, settings: Settings, *, ranks_per_host: int = 1
) -> Choice:
    """Choose how an op of `op_bytes` (as from `op_bytes_for`) is carried out.

    Raises `PlanError` for a collective without a schedule, a group size outside 2..16384 and a pin that the op cannot
    follow.
    """
    name = _check(collective, size, ranks_per_host)
    collective_name = name.name.removesuffix("_BLOCK").lower().replace("_", "-")
    return choose(collective_name, Layout(size, min(size, ranks_per_host)), op_bytes, settings)


def choose_for_send(op_bytes: int, settings: Settings) -> Choice:
    """Choose how a send (position 0) and its receive (position 1) are carried out, as if they were on two hosts."""
    return choose(POINT_TO_POINT, Layout(2, 1), op_bytes, settings)


def choose_for_splits(
    splits: Sequence[Sequence[int]], settings: Settings, *, ranks_per_host: int = 1, busiest_bytes: int = 0
) -> Choice:
    """Choose how an all-to-all is carried out in which position i sends `splits[i][j]` bytes to position j.

    `busiest_bytes` is the maximum sent by one member, for which the choice is made; 0: compute it from `splits`.

    Raises `PlanError` for a matrix that is not square, is of a size outside 2..1024, or has an entry outside 0..64 TiB.
    """
    matrix = _checked_splits(splits, ranks_per_host)
    layout = Layout(len(matrix), min(len(matrix), ranks_per_host))
    most_sent_bytes = max(map(sum, matrix))
    choice = choose(UNEVEN, layout, busiest_bytes or most_sent_bytes, settings)
    cutting = choice.request.cutting
    if cutting.peers is not None and 0 < most_sent_bytes < busiest_bytes:
        # `splits` are smaller than the transfers chosen for: scale the bounds so that each transfer keeps its parts.
        cutting = replace(cutting, peers=cutting.peers.rescale(busiest_bytes, most_sent_bytes))
        choice = replace(choice, request=replace(choice.request, cutting=cutting))
    return with_splits(choice, matrix)


def op_bytes_for(collective: CollectiveName | int, message_bytes: int) -> int:
    """Return the byte count of an op in a plan: that of the trace, except for a barrier, which has none there."""
    return BARRIER_BYTES if int(collective) == CollectiveName.BARRIER else message_bytes


def _check(collective: int, size: int, ranks_per_host: int) -> CollectiveName:
    """Return the collective after checking it, its group size and hosts. Raises `PlanError`."""
    problems: list[Problem] = []
    name = CollectiveName(collective) if collective in set(CollectiveName) else None
    where = f"collective {int(collective) if name is None else name.name.lower()}"
    if name is None:
        known_names = ", ".join(f"{member.name.lower()} ({member.value})" for member in CollectiveName)
        remedy = f"use one of {known_names}, or express it as sends and receives"
        problems.append(Problem(where, "it has no schedule", remedy))
    if not 2 <= size <= MAX_SIZE:
        problem = f"its group has {size} ranks, but schedules exist for 2 to {MAX_SIZE}"
        problems.append(Problem(where, problem, "remove collectives over one rank, or split a larger group"))
    if ranks_per_host < 1:
        remedy = "write the number of ranks per host, at least 1"
        problems.append(Problem(where, f"ranks_per_host is {ranks_per_host}", remedy))
    if problems or name is None:
        raise PlanError(*problems)
    return name


def _checked_splits(splits: Sequence[Sequence[int]], ranks_per_host: int) -> tuple[tuple[int, ...], ...]:
    """Return the splits as tuples after checking them. Raises `PlanError`."""
    size, where = len(splits), "collective all_to_all with uneven splits"
    problem = ""
    if not 2 <= size <= MAX_SPLITS_SIZE:
        problem = f"its group has {size} ranks, but schedules exist for 2 to {MAX_SPLITS_SIZE}"
    for position, row in enumerate(splits):
        if not problem and len(row) != size:
            problem = f"position {position} has {len(row)} splits, one for each of {size} positions is needed"
        if not problem and not all(0 <= entry <= MAX_LANE_BYTES for entry in row):
            problem = f"position {position} has a split outside 0 to {MAX_LANE_BYTES} bytes"
    if problem or ranks_per_host < 1:
        problem = problem or f"ranks_per_host is {ranks_per_host}"
        raise PlanError(Problem(where, problem, "correct the split sizes of the trace"))
    return tuple(map(tuple, splits))
