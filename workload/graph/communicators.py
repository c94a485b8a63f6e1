"""Resolves the communicator names of nodes to ranks: the members of each collective.

The identity of a communicator is (name, members): two names over the same ranks are two communicators, and so is one
name that two ranks recorded with different members. A name is looked up in the group file first, then among the
groups that the rank itself recorded. A node without a name, or named "" or "0" where neither has such a key, means
all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.workload.graph.dimensions import WORLD_KEYS, some_dimensions
from etloop.workload.graph.network_ops import RankOps
from etloop.workload.trace.findings import Check, FindingLog, RankFindings, job_example
from etloop.workload.trace.program import Communicator, OpKind
from etloop.workload.trace.trace import RankTrace, Trace
from etloop.workload.trace.trace_names import printable_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORLD_NAME: Final = "world"
"""Name of the communicator of all ranks that a trace implies without naming it."""


def resolve_communicators(
    trace: Trace, ops: Sequence[RankOps], log: FindingLog
) -> tuple[tuple[Communicator, ...], tuple[NDArray[np.int32], ...]]:
    """Return the communicators in use and the index of each operation's communicator, one int32 array per rank.

    Communicators are ordered as in the group file, then as ranks recorded them; the implied world is last.
    Operations without a communicator (send, receive, or an operation with a reported mistake) have -1.
    """
    known_groups = _all_groups(trace)
    world = len(known_groups)
    number = {group: index for index, group in enumerate(known_groups)}
    group_file_index = {key: index for index, key in enumerate(trace.groups or {})}
    candidates = [
        _candidates(rank, rank_ops, _lookup(rank, group_file_index, number), world, log)
        for rank, rank_ops in zip(trace.ranks, ops, strict=True)
    ]
    used_candidates = sorted(
        {int(value) for column in candidates for value in np.unique(column) if value >= 0}
    )
    all_ranks = tuple(range(len(trace.ranks)))
    name_taken = any(key == WORLD_NAME for key, _ in known_groups)
    world_name = f"{WORLD_NAME} (implied)" if name_taken else WORLD_NAME
    communicators = tuple(
        Communicator(index, *known_groups[candidate])
        if candidate < world
        else Communicator(index, world_name, all_ranks)
        for index, candidate in enumerate(used_candidates)
    )
    renumbered = np.full(world + 2, -1, dtype=np.int32)
    renumbered[used_candidates] = np.arange(len(used_candidates), dtype=np.int32)
    columns = tuple(renumbered[column] for column in candidates)
    sound = [_members_fit(trace, communicator, log) for communicator in communicators]
    for rank, rank_ops, column in zip(trace.ranks, ops, columns, strict=True):
        _check_membership(rank, rank_ops, column, communicators, sound, log)
    return communicators, columns


def _all_groups(trace: Trace) -> list[tuple[str, tuple[int, ...]]]:
    """Return every (key, members): those of the group file in its order, then those that ranks recorded."""
    file_groups = trace.groups or {}
    recorded_groups = {
        (key, tuple(members)): None
        for rank in trace.ranks
        for key, members in (rank.groups or {}).items()
        if key not in file_groups
    }
    return [*((key, tuple(members)) for key, members in file_groups.items()), *recorded_groups]


def _lookup(
    rank: RankTrace, stated: dict[str, int], number: dict[tuple[str, tuple[int, ...]], int]
) -> dict[str, int]:
    """Map each key to the number of the group that one rank's nodes mean by it; keys of the group file (`stated`) take
    precedence."""
    if not rank.groups:
        return stated
    return {
        key: number[key, tuple(members)] for key, members in rank.groups.items() if key not in stated
    } | stated


def _candidates(
    rank: RankTrace, ops: RankOps, candidate_of: dict[str, int], world: int, log: FindingLog
) -> NDArray[np.int64]:
    """Return the number of each operation's communicator among the known groups: `world` for all ranks, -1 for none."""
    # A collective over some dimensions that still has no communicator was reported by `obey_dimensions`.
    unresolved = some_dimensions(rank, frozenset(candidate_of))[ops.node]
    is_collective = (ops.kind == OpKind.COLLECTIVE) & ~unresolved
    names = rank.pg_name[ops.node]
    column = np.full(len(ops), -1, dtype=np.int64)
    for name_index in np.unique(names[is_collective]).tolist():
        nodes = is_collective & (names == name_index)
        key = "" if name_index < 0 else rank.pg_names[name_index]
        if key in candidate_of:
            column[nodes] = candidate_of[key]
        elif key in WORLD_KEYS:
            column[nodes] = world
            remedy, found_words = (
                "the communicator of all ranks is used",
                f'"{printable_name(key)}"' if key else "none",
            )
            op_nodes = ops.node[nodes]
            RankFindings(rank, log).add(
                Check.COMMUNICATOR_WORLD, remedy, op_nodes, "a communicator's name", found_words
            )
        else:
            remedy = (
                'add it with its ranks to the group file (PREFIX.json, such as {"tp0": [0, 1]}), or give the file that '
                "contains it: workload.groups (--groups)"
            )
            expected, op_nodes = _known_keys(candidate_of), ops.node[nodes]
            RankFindings(rank, log).add(
                Check.COMMUNICATOR_UNKNOWN, remedy, op_nodes, expected, f'"{printable_name(key)}"'
            )
    return column


def _known_keys(candidate_of: dict[str, int]) -> str:
    if not candidate_of:
        return "a group file that lists the ranks of each communicator"
    first = ", ".join(f'"{printable_name(key)}"' for key in list(candidate_of)[:8])
    suffix = f" and {len(candidate_of) - 8} more" if len(candidate_of) > 8 else ""
    return f"a communicator of the group file ({first}{suffix})"


def _members_fit(trace: Trace, communicator: Communicator, log: FindingLog) -> bool:
    members = communicator.members
    missing = sorted(member for member in set(members) if not 0 <= member < len(trace.ranks))
    actual = ""
    if not members:
        actual = "no ranks"
    elif missing:
        actual = f"ranks {', '.join(map(str, missing[:8]))}{' and more' if len(missing) > 8 else ''}"
    elif len(set(members)) < len(members):
        actual = "a rank listed twice"
    if actual:
        last = len(trace.ranks) - 1
        expected = f'communicator "{printable_name(communicator.name)}" among ranks 0 to {last} of the trace'
        remedy = "name the directory with the traces of all ranks of the job, or add the missing ones"
        if trace.groups is not None:
            remedy = "correct the group file, or add the traces of the missing ranks"
        log.add(Check.COMMUNICATOR_MEMBERS, remedy, job_example(trace.source, expected, actual))
    return not actual


def _check_membership(
    rank: RankTrace,
    ops: RankOps,
    column: NDArray[np.int32],
    communicators: Sequence[Communicator],
    sound: Sequence[bool],
    log: FindingLog,
) -> None:
    for index in np.unique(column[column >= 0]).tolist():
        communicator = communicators[index]
        nodes, name = np.flatnonzero(column == index), f'"{printable_name(communicator.name)}"'
        if rank.rank not in communicator.members:
            suffix = ", ..." if len(communicator.members) > 8 else ""
            members = ", ".join(map(str, communicator.members[:8])) + suffix
            expected = f"a communicator that rank {rank.rank} is a member of"
            actual, remedy = f"{name} of ranks {members}", "correct the group file or the node's pg_name"
            RankFindings(rank, log).add(
                Check.COMMUNICATOR_NOT_MEMBER, remedy, ops.node[nodes], expected, actual
            )
            ops.sound[nodes] = False
            column[nodes] = -1
        elif not sound[index]:
            column[nodes] = -1
        elif len(communicator.members) == 1:
            expected, remedy = "two or more members", "no bytes are moved and no time is simulated"
            actual = f"{name} of one rank"
            RankFindings(rank, log).add(Check.COMMUNICATOR_OF_ONE, remedy, ops.node[nodes], expected, actual)
