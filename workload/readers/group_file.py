"""A communicator group file to groups: a JSON object of communicator key -> list of ranks.

The form that ASTRA-sim takes and STAGE writes beside its traces as PREFIX.json. Decides whether the bytes are such a
file and whether every group is one; which node uses which group is left to communicators. Pure.
"""

from __future__ import annotations

import json
from typing import Any, Final

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.trace.trace_names import shown

MAX_GROUP_FILE_BYTES: Final = 64 << 20

_REMEDY: Final = 'write {"KEY": [RANK, ...], ...}, each rank once and in the communicator\'s order'


@dataclass(frozen=True, slots=True)
class GroupFile:
    """What a file held: `groups` is None where it is not of the group form or has problems."""

    groups: dict[str, tuple[int, ...]] | None
    has_group_form: bool
    problems: tuple[Problem, ...]


def parse_groups(where: str, text: bytes, rank_count: int) -> GroupFile:
    """Reads a group file of a trace with ranks 0..`rank_count`-1; collects every problem."""
    if len(text) > MAX_GROUP_FILE_BYTES:
        return _none(where, f"is over the limit of {MAX_GROUP_FILE_BYTES >> 20} MiB for a group file")
    twice: list[str] = []

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                twice.append(key)
            found[key] = value
        return found

    try:
        content: object = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        return _none(where, f"is not JSON ({error})")
    listed = isinstance(content, dict) and all(isinstance(value, list) for value in content.values())
    if not isinstance(content, dict) or not content or not listed:
        return _none(where, "is not a group file: a JSON object of lists was expected")
    problems = [Problem(where, f'group "{shown(key)}" is given twice', "leave one of them") for key in twice]
    for key, members in content.items():
        problems += _member_problems(f'{where}: group "{shown(key)}"', members, rank_count)
    if problems:
        return GroupFile(None, True, tuple(problems))
    return GroupFile({key: tuple(members) for key, members in content.items()}, True, ())


def _none(where: str, what: str) -> GroupFile:
    return GroupFile(None, False, (Problem(where, what, _REMEDY),))


def _member_problems(where: str, members: list[object], rank_count: int) -> list[Problem]:
    if not members:
        return [Problem(where, "has no members", "list its ranks, or leave the group out")]
    problems = []
    seen: set[int] = set()
    for member in members:
        if not isinstance(member, int) or isinstance(member, bool):
            what = f"has the member {shown(repr(member)[:40])}, a rank number was expected"
            problems.append(Problem(where, what, _REMEDY))
        elif not 0 <= member < rank_count:
            what = f"has rank {member}, but the trace has ranks 0 to {rank_count - 1}"
            problems.append(Problem(where, what, "give the files of all ranks, or correct the group"))
        elif member in seen:
            problems.append(Problem(where, f"has rank {member} twice", _REMEDY))
        else:
            seen.add(member)
    return problems
