"""Derives the trace of every rank of a job from recorded ranks, with adapted groups and peers.

A recorded rank represents itself and other ranks. If the members of a recorded group are equally spaced, groups of
that shape tile the job, and every rank is in the one that contains it. The peers of a rank have the same distance as
those of its recorded rank. Refused if the groups do not tile the job, or a group file lacks such a group.
"""

from __future__ import annotations

from dataclasses import replace

from etloop.contract.base.errors import Severity
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.graph.dimensions import WORLD_KEYS
from etloop.workload.trace.findings import Check, FindingLog, job_example
from etloop.workload.trace.rank_aliases import recorded_ranks
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import RankTrace, Trace
from etloop.workload.trace.trace_names import printable_name

Members = tuple[int, ...]


def stood_for(trace: Trace, settings: WorkloadSettings, log: FindingLog) -> Trace:
    """Return the trace with one rank per entry of `settings.stand_ins`, or unchanged if there are none."""
    if not settings.stand_ins:
        return trace
    recorded_rank_of = recorded_ranks(settings.stand_ins)
    by_number = {rank.rank: rank for rank in trace.ranks}
    if by_number.keys() != set(recorded_rank_of):
        expected = f"the traces of ranks {_join_ranks(sorted(set(recorded_rank_of)))}"
        actual = f"the traces of ranks {_join_ranks(sorted(by_number))}"
        remedy = "give the traces of exactly the recorded ranks in workload.stand_ins"
        log.add(
            Check.RANKS_REPLICATED,
            remedy,
            job_example(trace.source, expected, actual),
            severity=Severity.ERROR,
        )
        return trace
    settings_words = ", ".join(map(str, settings.stand_ins[:8])) + (
        ", ..." if len(settings.stand_ins) > 8 else ""
    )
    remedy = f"other ranks replay these traces (workload.stand_ins): {settings_words}"
    actual = f"{len(by_number)} recorded rank{'s' if len(by_number) > 1 else ''}"
    log.add(
        Check.RANKS_REPLICATED,
        remedy,
        job_example(trace.source, f"the traces of all {len(recorded_rank_of)} ranks", actual),
    )
    names = _FileNames(trace.groups or {})
    contradictions: dict[str, None] = {}
    ranks = tuple(
        _copy(by_number[number], rank, len(recorded_rank_of), names, contradictions)
        for rank, number in enumerate(recorded_rank_of)
    )
    for actual in contradictions:
        expected = "groups that tile the job, each shaped like the recorded one"
        remedy = "correct workload.stand_ins or the group file, or record a rank of each group"
        log.add(
            Check.RANKS_REPLICATED,
            remedy,
            job_example(trace.source, expected, actual),
            severity=Severity.ERROR,
        )
    return replace(trace, ranks=ranks)


@dataclass(frozen=True, slots=True)
class _FileNames:
    """The groups of a group file."""

    groups: dict[str, Members]

    def of(self, members: Members) -> list[str]:
        """Return the keys of the group file whose ranks are `members`."""
        return [key for key, file_members in self.groups.items() if file_members == members]


def _copy(
    recorded: RankTrace, rank: int, world: int, names: _FileNames, contradictions: dict[str, None]
) -> RankTrace:
    if rank == recorded.rank:
        return replace(recorded, recv_splits=None, groups=_own_groups(recorded, rank, world, contradictions))
    return replace(
        recorded,
        rank=rank,
        recv_splits=None,
        groups=_own_groups(recorded, rank, world, contradictions),
        pg_names=tuple(
            _file_name(key, recorded, rank, world, names, contradictions) for key in recorded.pg_names
        ),
        comm=replace(recorded.comm, ends_from=recorded.comm.ends_from + rank - recorded.rank),
    )


def _own_groups(
    recorded: RankTrace, rank: int, world: int, contradictions: dict[str, None]
) -> dict[str, Members] | None:
    if recorded.groups is None:
        return None
    groups = {}
    for key, members in recorded.groups.items():
        if key in WORLD_KEYS:
            groups[key] = tuple(range(world))
            continue
        own_members = group_of(members, recorded.rank, rank, world)
        if own_members is None:
            contradictions[_no_tiling(key, members, world)] = None
        groups[key] = members if own_members is None else own_members
    return groups


def _file_name(
    key: str, recorded: RankTrace, rank: int, world: int, names: _FileNames, contradictions: dict[str, None]
) -> str:
    """Return the key in the group file of the group of `rank` that corresponds to group `key` of the recorded rank."""
    members = names.groups.get(key)
    if members is None or recorded.rank not in members:
        return key
    own_members = group_of(members, recorded.rank, rank, world)
    if own_members is None:
        contradictions[_no_tiling(key, members, world)] = None
        return key
    recorded_keys, keys = names.of(members), names.of(own_members)
    if len(keys) != len(recorded_keys):
        contradictions[
            f"the group file has {len(keys)} groups of ranks "
            f"{_join_ranks(own_members)}, but {len(recorded_keys)} with the members of "
            f'"{printable_name(key)}"'
        ] = None
        return key
    return keys[recorded_keys.index(key)]


def group_of(members: Members, recorded: int, rank: int, world: int) -> Members | None:
    """Return the group shaped like `members`, a group of rank `recorded`, that contains `rank`; None if such groups do
    not tile the job."""
    if rank in members:
        return members
    step = members[1] - members[0] if len(members) > 1 else 1
    block = step * len(members)
    is_evenly_spaced = step > 0 and members == tuple(range(members[0], members[0] + block, step))
    if not is_evenly_spaced or world % block or members[0] % block != recorded % step:
        return None
    first = rank - rank % block + rank % step
    return tuple(range(first, first + block, step))


def _no_tiling(key: str, members: Members, world: int) -> str:
    return f'group "{printable_name(key)}" of ranks {_join_ranks(members)}, which does not tile {world} ranks'


def _join_ranks(ranks: Members | list[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
