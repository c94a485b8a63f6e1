"""The door to schedules: an op's collective by its Chakra number, its group and its bytes in, what carries it out.

All functions ask `choice`. The plan decides which collective an op is; the engine decides when its messages go.
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
"""Of a group whose splits are stated one by one: a matrix."""
BARRIER_BYTES: Final = 4
"""NCCL has no barrier: frameworks issue an all-reduce of one 4-byte element. Its schedule orders all positions whatever
byte count it is given; this one puts NCCL's bytes on the wire."""


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
    """Reduce-scatter with equal blocks, which is how both are cut here."""
    BARRIER = 9


def choose_for(
    collective: CollectiveName | int, size: int, op_bytes: int, settings: Settings, *, ranks_per_host: int = 1
) -> Choice:
    """How an op of `op_bytes` (as `op_bytes_for` gives them) is carried out.

    Raises `PlanError` for a collective without a schedule, a group size outside 2..16384 and a pin that the op cannot
    follow.
    """
    name = _checked(collective, size, ranks_per_host)
    named = name.name.removesuffix("_BLOCK").lower().replace("_", "-")
    return choose(named, Layout(size, min(size, ranks_per_host)), op_bytes, settings)


def choose_for_send(op_bytes: int, settings: Settings) -> Choice:
    """How a send (position 0) and its receive (position 1) are carried out, as if they were on two hosts."""
    return choose(POINT_TO_POINT, Layout(2, 1), op_bytes, settings)


def choose_for_splits(
    splits: Sequence[Sequence[int]], settings: Settings, *, ranks_per_host: int = 1, busiest_bytes: int = 0
) -> Choice:
    """How an all-to-all is carried out in which position i sends `splits[i][j]` bytes to position j.

    `busiest_bytes` is what the busiest member would send that the choice is made for; 0: as `splits` say.

    Raises `PlanError` for a matrix that is not square, is of a size outside 2..1024, or has an entry outside 0..64 TiB.
    """
    matrix = _checked_splits(splits, ranks_per_host)
    layout = Layout(len(matrix), min(len(matrix), ranks_per_host))
    own_bytes = max(map(sum, matrix))
    choice = choose(UNEVEN, layout, busiest_bytes or own_bytes, settings)
    cutting = choice.request.cutting
    if cutting.peers is not None and 0 < own_bytes < busiest_bytes:
        # Every transfer has the parts that it would have whole.
        cutting = replace(cutting, peers=cutting.peers.scaled(busiest_bytes, own_bytes))
        choice = replace(choice, request=replace(choice.request, cutting=cutting))
    return with_splits(choice, matrix)


def op_bytes_for(collective: CollectiveName | int, message_bytes: int) -> int:
    """The byte count that a plan gives an op: what the trace says, except for a barrier, whose trace says nothing."""
    return BARRIER_BYTES if int(collective) == CollectiveName.BARRIER else message_bytes


def _checked(collective: int, size: int, ranks_per_host: int) -> CollectiveName:
    problems: list[Problem] = []
    name = CollectiveName(collective) if collective in set(CollectiveName) else None
    what = f"collective {int(collective) if name is None else name.name.lower()}"
    if name is None:
        known = ", ".join(f"{each.name.lower()} ({each.value})" for each in CollectiveName)
        remedy = f"use one of {known}, or express it as sends and receives"
        problems.append(Problem(what, "it has no schedule", remedy))
    if not 2 <= size <= MAX_SIZE:
        found = f"its group has {size} ranks, and schedules exist for 2 to {MAX_SIZE}"
        problems.append(Problem(what, found, "leave out collectives over one rank, or split a larger group"))
    if ranks_per_host < 1:
        remedy = "write how many ranks a host has, at least 1"
        problems.append(Problem(what, f"ranks_per_host is {ranks_per_host}", remedy))
    if problems or name is None:
        raise PlanError(*problems)
    return name


def _checked_splits(splits: Sequence[Sequence[int]], ranks_per_host: int) -> tuple[tuple[int, ...], ...]:
    size, what = len(splits), "collective all_to_all with uneven splits"
    wrong = ""
    if not 2 <= size <= MAX_SPLITS_SIZE:
        wrong = f"its group has {size} ranks, and schedules exist for 2 to {MAX_SPLITS_SIZE}"
    for position, row in enumerate(splits):
        if not wrong and len(row) != size:
            wrong = f"position {position} has {len(row)} splits, one for each of {size} positions is needed"
        if not wrong and not all(0 <= entry <= MAX_LANE_BYTES for entry in row):
            wrong = f"position {position} has a split outside 0 to {MAX_LANE_BYTES} bytes"
    if wrong or ranks_per_host < 1:
        wrong = wrong or f"ranks_per_host is {ranks_per_host}"
        raise PlanError(Problem(what, wrong, "correct the split sizes of the trace"))
    return tuple(map(tuple, splits))
