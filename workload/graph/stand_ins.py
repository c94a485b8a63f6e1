"""Recorded ranks that stand for the others of their job: the trace of every rank, with groups and peers of its own.

Where the members of a recorded group are equally far apart, groups of that shape fill the job one after another, and every
rank is in the one that holds it. Peers are as far from a rank as they are from the one that stands for it. Refused where a
group does not fill the job, or a group file has no such group.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from etloop.contract.base.errors import Severity
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.graph.dimensions import WORLD_KEYS
from etloop.workload.trace.findings import Check, FindingLog, job_example
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.stand_ins import recorded_ranks
from etloop.workload.trace.trace import ABSENT, CommColumns, NodeKind, RankTrace, Trace
from etloop.workload.trace.trace_names import shown
from numpy.typing import NDArray

Members = tuple[int, ...]


def stood_for(trace: Trace, settings: WorkloadSettings, log: FindingLog) -> Trace:
    """Return the trace with a rank for each that `settings.stand_ins` names; unchanged where they name none."""
    if not settings.stand_ins:
        return trace
    recorded = recorded_ranks(settings.stand_ins)
    by_number = {rank.rank: rank for rank in trace.ranks}
    if by_number.keys() != set(recorded):
        expected = f"the traces of ranks {_listed(sorted(set(recorded)))}"
        found = f"those of ranks {_listed(sorted(by_number))}"
        remedy = "give the recorded ranks that workload.stand_ins names, and no others"
        log.add(
            Check.RANKS_REPLICATED,
            remedy,
            job_example(trace.source, expected, found),
            severity=Severity.ERROR,
        )
        return trace
    said = ", ".join(map(str, settings.stand_ins[:8])) + (", ..." if len(settings.stand_ins) > 8 else "")
    remedy = f"they stand for the others, as workload.stand_ins says: {said}"
    found = f"{len(by_number)} recorded rank{'s' if len(by_number) > 1 else ''}"
    log.add(
        Check.RANKS_REPLICATED,
        remedy,
        job_example(trace.source, f"the traces of all {len(recorded)} ranks", found),
    )
    names = _FileNames(trace.groups or {})
    contradictions: dict[str, None] = {}
    ranks = tuple(
        _copy(by_number[one], rank, len(recorded), names, contradictions) for rank, one in enumerate(recorded)
    )
    for found in contradictions:
        expected = "groups that fill the job, each like the recorded one"
        remedy = "correct workload.stand_ins or the group file, or record a rank of each group"
        log.add(
            Check.RANKS_REPLICATED,
            remedy,
            job_example(trace.source, expected, found),
            severity=Severity.ERROR,
        )
    return replace(trace, ranks=ranks)


@dataclass(frozen=True, slots=True)
class _FileNames:
    """The groups of a group file."""

    groups: dict[str, Members]

    def of(self, members: Members) -> list[str]:
        return [key for key, stated in self.groups.items() if stated == members]


def _copy(
    one: RankTrace, rank: int, world: int, names: _FileNames, contradictions: dict[str, None]
) -> RankTrace:
    if rank == one.rank:
        return replace(one, recv_splits=None, groups=_own_groups(one, rank, world, contradictions))
    return replace(
        one,
        rank=rank,
        recv_splits=None,
        groups=_own_groups(one, rank, world, contradictions),
        pg_names=tuple(_file_name(key, one, rank, world, names, contradictions) for key in one.pg_names),
        comm=_shifted(one, rank - one.rank),
    )


def _own_groups(
    one: RankTrace, rank: int, world: int, contradictions: dict[str, None]
) -> dict[str, Members] | None:
    if one.groups is None:
        return None
    found = {}
    for key, members in one.groups.items():
        if key in WORLD_KEYS:
            found[key] = tuple(range(world))
            continue
        mine = group_of(members, one.rank, rank, world)
        if mine is None:
            contradictions[_no_tiling(key, members, world)] = None
        found[key] = members if mine is None else mine
    return found


def _file_name(
    key: str, one: RankTrace, rank: int, world: int, names: _FileNames, contradictions: dict[str, None]
) -> str:
    """The name that a group file has for the group of `rank` which is like a group of the recorded rank."""
    members = names.groups.get(key)
    if members is None or one.rank not in members:
        return key
    mine = group_of(members, one.rank, rank, world)
    if mine is None:
        contradictions[_no_tiling(key, members, world)] = None
        return key
    recorded_keys, keys = names.of(members), names.of(mine)
    if len(keys) != len(recorded_keys):
        contradictions[
            f'{len(keys)} groups of ranks {_listed(mine)} in the group file, and {len(recorded_keys)} of those of "{shown(key)}"'
        ] = None
        return key
    return keys[recorded_keys.index(key)]


def group_of(members: Members, recorded: int, rank: int, world: int) -> Members | None:
    """Return the group like `members`, one of the recorded rank, that holds `rank`; None where such do not fill the job."""
    if rank in members:
        return members
    step = members[1] - members[0] if len(members) > 1 else 1
    block = step * len(members)
    even = step > 0 and members == tuple(range(members[0], members[0] + block, step))
    if not even or world % block or members[0] % block != recorded % step:
        return None
    first = rank - rank % block + rank % step
    return tuple(range(first, first + block, step))


def _shifted(one: RankTrace, by: int) -> CommColumns:
    ends = (one.kind == NodeKind.COMM_SEND) | (one.kind == NodeKind.COMM_RECV)
    if not ends.any():
        return one.comm

    def moved(column: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where(ends & (column != ABSENT), column + by, column)

    return replace(one.comm, src=moved(one.comm.src), dst=moved(one.comm.dst))


def _no_tiling(key: str, members: Members, world: int) -> str:
    return f'group "{shown(key)}" of ranks {_listed(members)}, which do not fill {world} ranks'


def _listed(ranks: Members | list[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
