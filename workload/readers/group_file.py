"""Reads a communicator group file: a JSON object of communicator key -> list of ranks.

This is the form that ASTRA-sim accepts and STAGE writes next to its traces as PREFIX.json. Decides whether the bytes
are such a file and whether every group is valid. Leaves which node uses which group to communicators.py. Pure.
"""

from __future__ import annotations

import json
from typing import Any, Final

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.trace.trace_names import printable_name

MAX_GROUP_FILE_BYTES: Final = 64 << 20

_REMEDY: Final = 'write {"KEY": [RANK, ...], ...}, each rank once and in the communicator\'s order'


@dataclass(frozen=True, slots=True)
class GroupFile:
    """Result of parsing: `groups` is None if the file does not have the group form or has problems."""

    groups: dict[str, tuple[int, ...]] | None
    has_group_form: bool
    problems: tuple[Problem, ...]


def parse_groups(where: str, text: bytes, rank_count: int) -> GroupFile:
    """Parse a group file of a trace with ranks 0..`rank_count`-1, collecting every problem."""
    if len(text) > MAX_GROUP_FILE_BYTES:
        return _not_a_group_file(
            where, f"is over the limit of {MAX_GROUP_FILE_BYTES >> 20} MiB for a group file"
        )
    repeated_keys: list[str] = []

    def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members_by_key: dict[str, Any] = {}
        for key, value in pairs:
            if key in members_by_key:
                repeated_keys.append(key)
            members_by_key[key] = value
        return members_by_key

    try:
        content: object = json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        return _not_a_group_file(where, f"is not JSON ({error})")
    has_lists = isinstance(content, dict) and all(isinstance(value, list) for value in content.values())
    if not isinstance(content, dict) or not content or not has_lists:
        return _not_a_group_file(where, "is not a group file, expected a JSON object of lists")
    problems = [
        Problem(where, f'group "{printable_name(key)}" is defined twice', "keep one of them")
        for key in repeated_keys
    ]
    for key, members in content.items():
        problems += _member_problems(f'{where}: group "{printable_name(key)}"', members, rank_count)
    if problems:
        return GroupFile(None, True, tuple(problems))
    return GroupFile({key: tuple(members) for key, members in content.items()}, True, ())


def _not_a_group_file(where: str, problem: str) -> GroupFile:
    return GroupFile(None, False, (Problem(where, problem, _REMEDY),))


def _member_problems(where: str, members: list[object], rank_count: int) -> list[Problem]:
    if not members:
        return [Problem(where, "has no members", "list its ranks, or remove the group")]
    problems = []
    seen_ranks: set[int] = set()
    for member in members:
        if not isinstance(member, int) or isinstance(member, bool):
            problem = f"has the member {printable_name(repr(member)[:40])}, expected a rank number"
            problems.append(Problem(where, problem, _REMEDY))
        elif not 0 <= member < rank_count:
            problem = f"has rank {member}, but the trace has ranks 0 to {rank_count - 1}"
            problems.append(Problem(where, problem, "give the files of all ranks, or correct the group"))
        elif member in seen_ranks:
            problems.append(Problem(where, f"has rank {member} twice", _REMEDY))
        else:
            seen_ranks.add(member)
    return problems
