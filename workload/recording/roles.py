"""Decides which ranks of a large job have to be recorded, and which groups and peers the others have.

Groups that one line of the script made, and that divide the ranks of the job equally, are a family: one group for each value of
the other axes of parallelism. Ranks with the same position in every group that carries sends and receives have one role, a
pipeline stage. The first and the last rank of a role are recorded; they must agree, and represent the ranks between them. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from etloop.contract.base.errors import Problem, TraceError
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.recording.events import Communication, Group, RecordedRank

Members = tuple[int, ...]
_REMEDY: Final = "record every rank: --record all"


@dataclass(frozen=True, slots=True)
class FamilyName:
    """Properties that the groups of a family share."""

    description: str
    place: str
    ordinal: int
    """Counts the families of the same description and place."""


@dataclass(frozen=True, slots=True, eq=False)
class Families:
    """The process groups of a job as one rank made them."""

    members: Mapping[FamilyName, tuple[Members, ...]]
    by_key: Mapping[str, tuple[FamilyName, Members]]
    """Family and members of the groups that this rank belongs to, by the name that its operations use."""
    by_rank: Mapping[FamilyName, Mapping[int, Members]]
    """The group of a family that a rank belongs to."""


def families_of(groups: Sequence[Group]) -> Families:
    """Sort the groups of a rank into families. A repeated rank begins a new one."""
    by_rank: dict[FamilyName, dict[int, Members]] = {}
    members: dict[FamilyName, list[Members]] = {}
    latest: dict[tuple[str, str], int] = {}
    by_key: dict[str, tuple[FamilyName, Members]] = {}
    for group in groups:
        ordinal = latest.get((group.description, group.place), 0)
        name = FamilyName(group.description, group.place, ordinal)
        if not by_rank.get(name, {}).keys().isdisjoint(group.ranks):
            name = FamilyName(group.description, group.place, ordinal + 1)
        latest[group.description, group.place] = name.ordinal
        members.setdefault(name, []).append(group.ranks)
        by_rank.setdefault(name, {}).update(dict.fromkeys(group.ranks, group.ranks))
        if group.key:
            by_key[group.key] = (name, group.ranks)
    return Families({name: tuple(ranks) for name, ranks in members.items()}, by_key, by_rank)


@dataclass(frozen=True, slots=True)
class Role:
    """Ranks that run the same program."""

    ranks: Members
    """Ascending."""

    @property
    def recorded(self) -> Members:
        """Return the ranks that represent the role: the first and the last."""
        return tuple(dict.fromkeys((self.ranks[0], self.ranks[-1])))


def plan_roles(rank: RecordedRank) -> tuple[Role, ...]:
    """Return the roles of a job as the recording of one rank shows them.

    Raises `TraceError` if its groups do not divide the job equally, so that symmetry says nothing about other ranks.
    """
    families = families_of(rank.groups)
    staged = {families.by_key[key][0]: None for key in rank.staged}
    used: dict[FamilyName, None] = {}
    for operation in rank.operations:
        name, _ = families.by_key[operation.group]
        used[name] = None
        if operation.is_message:
            staged[name] = None
    for name in used | staged:
        _check_division(name, families, rank.world_size)
    by_position: dict[Members, list[int]] = {}
    for number in range(rank.world_size):
        position = tuple(families.by_rank[name][number].index(number) for name in staged)
        by_position.setdefault(position, []).append(number)
    return tuple(Role(tuple(ranks)) for ranks in by_position.values())


def _check_division(name: FamilyName, families: Families, world_size: int) -> None:
    groups = families.members[name]
    ranks = sorted(rank for members in groups for rank in members)
    if ranks != list(range(world_size)) or len({len(members) for members in groups}) > 1:
        fault = f'the groups "{name.description}" do not divide the {world_size} ranks equally'
        raise TraceError(Problem(name.place, fault, _REMEDY))


def check_role(first: RecordedRank, last: RecordedRank) -> None:
    """Raise `TraceError` with the first operation in which two ranks of one role differ."""
    forms = [_forms(rank) for rank in (first, last)]
    ranks = f"ranks {first.rank} and {last.rank} of one role"
    for index, (first_form, last_form) in enumerate(zip(*forms, strict=False)):
        if first_form != last_form:
            fault = f"{ranks} differ in operation {index}: {_words(first_form)}, and {_words(last_form)}"
            raise TraceError(Problem(last.operations[index].place, fault, _REMEDY))
    if len(forms[0]) != len(forms[1]):
        longer = first if len(forms[0]) > len(forms[1]) else last
        index = min(map(len, forms))
        fault = f"{ranks} issue {len(forms[0])} and {len(forms[1])} operations"
        raise TraceError(Problem(longer.operations[index].place, fault, _REMEDY))


_Form = tuple[str, str, int, int, str, object, object, object]


def _forms(rank: RecordedRank) -> list[_Form]:
    families = families_of(rank.groups)
    return [_form(operation, families) for operation in rank.operations]


def _form(operation: Communication, families: Families) -> _Form:
    name, members = families.by_key[operation.group]
    return (
        operation.type,
        name.description,
        len(members),
        operation.input_bytes,
        operation.data_type,
        operation.send_splits,
        operation.root,
        operation.peer,
    )


def _words(form: _Form) -> str:
    kind, description, size, input_bytes, data_type, *_ = form
    return f'{kind} of {input_bytes} bytes ({data_type}) in a group "{description}" of {size}'
