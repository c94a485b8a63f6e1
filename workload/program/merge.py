"""Several jobs as one: every rank of every job in one numbering, and the rounds in which jobs run alone and together.

Decides the order of a round and what separates its parts. A job's operations, groups and byte counts are those it has by
itself; where its ranks are and how its collectives are carried out is decided by the plan, job by job.

A round has phases. In a phase a job's ranks go through their programs `passes` times, each rank by itself; of several
phases each ends with a barrier of all ranks, so that nothing of one phase reaches into the next. Background takes no part
in phases: it begins with the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.run import PlannedJob, RecordedBaselines
from etloop.workload.graph.network_ops import BARRIER_BYTES
from etloop.workload.program.writer import program_of
from etloop.workload.trace.program import Communicator, Job, OpKind, Program, RankProgram
from etloop.workload.trace.trace import CollectiveKind
from numpy.typing import NDArray

MOST_BARRIER_RANKS: Final = 1024
"""Members of the largest group that has a barrier."""
MOST_ROUND_OPS: Final = 1 << 24
"""Ops of all ranks in one round: about a gigabyte of plan."""
BARRIER: Final = "rounds"
"""Name of the group that ends phases."""
_FREE: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One of the jobs, and how it takes part."""

    name: str
    job: Job
    passes: int = 1
    start_ns: int = 0
    """After the begin of a phase that it shares with others."""
    background: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """The one job, and what its parts were."""

    job: Job
    jobs: tuple[PlannedJob, ...]
    phases: tuple[tuple[int, ...], ...]
    turns: tuple[NDArray[np.int32], ...]
    """Per program of `job`, what `PlannedJobs.turn` says of each of its ops (-1 for delays between passes, too)."""
    communicator_job: tuple[int, ...]
    """Per communicator, the job that it belongs to; -1 for the group of the barriers."""


def side_by_side(parts: Sequence[Part], *, alone_too: bool) -> Together:
    """The parts as one job: all of them together, and with `alone_too` before that each that is no background by itself.

    Raises `PlanError` where that becomes too much.
    """
    awaited = tuple(index for index, part in enumerate(parts) if not part.background)
    phases = (*((index,) for index in awaited), awaited) if alone_too else (awaited,)
    first_rank = np.cumsum([0, *(len(part.job.ranks) for part in parts)]).tolist()
    _refuse_immense(parts, phases, first_rank)
    groups, communicator_job = _communicators(parts, first_rank)
    if alone_too:
        members = [rank for index in awaited for rank in range(first_rank[index], first_rank[index + 1])]
        groups.append(Communicator(len(groups), BARRIER, tuple(members)))
        communicator_job.append(-1)
    programs: list[Program] = []
    turns: list[NDArray[np.int32]] = []
    ranks: list[RankProgram] = []
    for index, part in enumerate(parts):
        offsets = _Offsets(
            rank=first_rank[index],
            communicator=communicator_job.index(index) if index in communicator_job else 0,
            split=sum(len(before.job.splits) for before in parts[:index]),
            name=sum(len(before.job.op_names) for before in parts[:index]),
            barrier=len(groups) - 1 if alone_too and not part.background else _FREE,
        )
        _add_part(part, _steps(part, index, phases), offsets, programs, turns, ranks)
    jobs = tuple(
        PlannedJob(part.name, first_rank[index], len(part.job.ranks), part.passes, part.background)
        for index, part in enumerate(parts)
    )
    job = Job(
        source=", ".join(f"{part.name}: {part.job.source}" for part in parts),
        communicators=tuple(groups),
        programs=tuple(programs),
        ranks=tuple(ranks),
        policy=", ".join(dict.fromkeys(part.job.policy for part in parts)),
        edges=_edges(parts),
        notes=tuple(f"{part.name}: {note}" for part in parts for note in part.job.notes),
        splits=tuple(matrix for part in parts for matrix in part.job.splits),
        split_trace_bytes=tuple(size for part in parts for size in part.job.busiest_split_bytes()),
        op_names=tuple(f"{part.name}/{name}" for part in parts for name in part.job.op_names),
        baselines=_baselines(parts, phases, communicator_job, first_rank),
    )
    return Together(job, jobs, phases, tuple(turns), tuple(communicator_job))


@dataclass(frozen=True, slots=True)
class _Offsets:
    rank: int
    communicator: int
    split: int
    name: int
    barrier: int
    """The group of the barriers; -1: none."""


@dataclass(frozen=True, slots=True)
class _Step:
    """What a rank does in one phase: it waits, goes through its program, and meets the others."""

    phase: int
    passes: int
    wait_ns: int


def _steps(part: Part, index: int, phases: Sequence[tuple[int, ...]]) -> tuple[_Step, ...]:
    if part.background:
        return (_Step(0, part.passes, part.start_ns),)
    return tuple(
        _Step(
            phase,
            part.passes if index in members else 0,
            part.start_ns if index in members and len(members) > 1 else 0,
        )
        for phase, members in enumerate(phases)
    )


def _refuse_immense(
    parts: Sequence[Part], phases: Sequence[tuple[int, ...]], first_rank: Sequence[int]
) -> None:
    ops = 0
    for index, part in enumerate(parts):
        times = part.passes * (1 if part.background else sum(index in members for members in phases))
        ops += times * sum(len(part.job.programs[rank.program]) for rank in part.job.ranks)
    if ops > MOST_ROUND_OPS:
        what = f"one round of them has {ops} operations of ranks, more than {MOST_ROUND_OPS}"
        raise PlanError(Problem("jobs", what, "repeat jobs less often (iterations), and have more rounds"))
    awaited = sum(len(part.job.ranks) for part in parts if not part.background)
    if len(phases) > 1 and not 2 <= awaited <= MOST_BARRIER_RANKS:
        what = f"rounds end with a barrier of all ranks, and there are {awaited}"
        raise PlanError(Problem("rounds", what, f"have 2 to {MOST_BARRIER_RANKS} ranks in all jobs together"))


def _communicators(parts: Sequence[Part], first_rank: Sequence[int]) -> tuple[list[Communicator], list[int]]:
    groups: list[Communicator] = []
    owner: list[int] = []
    for index, part in enumerate(parts):
        for group in part.job.communicators:
            members = tuple(rank + first_rank[index] for rank in group.members)
            groups.append(Communicator(len(groups), f"{part.name}/{group.name}", members))
            owner.append(index)
    return groups, owner


def _add_part(
    part: Part,
    steps: tuple[_Step, ...],
    offsets: _Offsets,
    programs: list[Program],
    turns: list[NDArray[np.int32]],
    ranks: list[RankProgram],
) -> None:
    made: dict[tuple[int, int], tuple[int, NDArray[np.int64]]] = {}
    for rank in part.job.ranks:
        # Ranks that share a program may have groups that none of its ops uses.
        key = (rank.program, len(rank.communicators))
        if key not in made:
            barrier_slot = len(rank.communicators) if offsets.barrier >= 0 else _FREE
            writer = _Writer(part.job.programs[rank.program], barrier_slot)
            for step in steps:
                writer.add(step)
            made[key] = (len(programs), np.concatenate(writer.origin or [np.empty(0, np.int64)]))
            programs.append(writer.program())
            turns.append(np.concatenate(writer.turn or [np.empty(0, np.int32)]))
        program, origin = made[key]
        ranks.append(_moved(rank, program, origin, offsets))


def _moved(rank: RankProgram, program: int, origin: NDArray[np.int64], offsets: _Offsets) -> RankProgram:
    """A rank in the new numbering; `origin` says of each op of its new program which op of the old one it repeats."""
    groups = tuple(group + offsets.communicator for group in rank.communicators)
    return RankProgram(
        rank=rank.rank + offsets.rank,
        program=program,
        communicators=groups if offsets.barrier < 0 else (*groups, offsets.barrier),
        peers=tuple(peer + offsets.rank for peer in rank.peers),
        node_id=_taken(rank.node_id, origin, 0).astype(np.uint64),
        trace_bytes=None if rank.trace_bytes is None else _taken(rank.trace_bytes, origin, 0),
        splits=_numbers(rank.splits, origin, offsets.split),
        name=_numbers(rank.name, origin, offsets.name),
    )


def _numbers(
    column: NDArray[np.int32] | None, origin: NDArray[np.int64], first: int
) -> NDArray[np.int32] | None:
    """A column of numbers that begin at `first` in the new job; -1 stays what it is."""
    if column is None:
        return None
    own = _taken(column, origin, -1)
    return np.where(own >= 0, own + first, -1).astype(np.int32)


def _taken(column: NDArray[np.generic], origin: NDArray[np.int64], absent: int) -> NDArray[np.int64]:
    if not len(column):
        return np.full(len(origin), absent, np.int64)
    return np.where(origin >= 0, column[np.maximum(origin, 0)], absent)


class _Writer:
    """One program gone through several times, with what stands between."""

    def __init__(self, program: Program, barrier_slot: int) -> None:
        self.turn: list[NDArray[np.int32]] = []
        self.origin: list[NDArray[np.int64]] = []
        self._pass = program
        self._barrier_slot = barrier_slot
        self._columns: list[tuple[NDArray[np.generic], ...]] = []
        self._dep_counts: list[NDArray[np.int64]] = []
        self._deps: list[NDArray[np.int64]] = []
        self._length = 0
        self._gate = _FREE
        self._done = 0
        self._barriers = 0
        counts = np.diff(program.dep_offsets)
        self._counts = counts.astype(np.int64)
        self._roots = counts == 0
        waited_for = np.zeros(len(program), np.bool_)
        waited_for[program.deps] = True
        self._sinks = np.flatnonzero(~waited_for)
        self._per_pass = _uses(program)

    def add(self, step: _Step) -> None:
        """The passes of one phase, and what ends it."""
        if step.wait_ns:
            self._single((OpKind.DELAY, -1, -1, -1, 0, step.wait_ns))
        for number in range(step.passes):
            self._one_pass(step.phase * step.passes + number)
        if self._barrier_slot >= 0:
            meeting = (CollectiveKind.BARRIER, self._barrier_slot, self._barriers, BARRIER_BYTES, 0)
            self._single((OpKind.COLLECTIVE, *meeting))
            self._barriers += 1

    def _one_pass(self, turn: int) -> None:
        program, count = self._pass, len(self._pass)
        if not count:
            return
        sequence = np.where(program.sequence >= 0, program.sequence + self._done * self._per_pass, -1)
        what = (program.kind, program.collective, program.slot)
        self._columns.append((*what, sequence, program.message_bytes, program.delay_ns))
        deps = program.deps.astype(np.int64) + self._length
        counts = self._counts
        if self._gate != _FREE:
            counts = np.where(self._roots, 1, counts)
            spread = np.full(int(counts.sum()), self._gate, np.int64)
            spread[np.repeat(~self._roots, counts)] = deps
            deps = spread
        self._dep_counts.append(counts)
        self._deps.append(deps)
        self.turn.append(np.where(program.kind == OpKind.DELAY, -1, turn).astype(np.int32))
        self.origin.append(np.arange(count))
        first = self._length
        self._length += count
        self._done += 1
        sinks = self._sinks + first
        if len(sinks) == 1:
            self._gate = int(sinks[0])
        else:
            self._single((OpKind.DELAY, -1, -1, -1, 0, 0), sinks)

    def _single(self, row: tuple[int, ...], after: NDArray[np.int64] | None = None) -> None:
        """One op that waits for `after`, else for all before it; all behind it wait for it."""
        if after is None:
            after = np.array([self._gate] if self._gate != _FREE else [], np.int64)
        self._columns.append(tuple(np.array([value]) for value in row))
        self._dep_counts.append(np.array([len(after)], np.int64))
        self._deps.append(after)
        self.turn.append(np.array([-1], np.int32))
        self.origin.append(np.array([-1]))
        self._gate = self._length
        self._length += 1

    def program(self) -> Program:
        """What has been added."""
        columns = [
            np.concatenate([row[at] for row in self._columns] or [np.empty(0, np.int64)]) for at in range(6)
        ]
        counts = np.concatenate(self._dep_counts or [np.empty(0, np.int64)])
        return program_of(columns, counts, np.concatenate(self._deps or [np.empty(0, np.int64)]))


def _uses(program: Program) -> NDArray[np.int64]:
    """Of each op, how many ops of the program number themselves with it: those of its communicator or pair."""
    found = np.zeros(len(program), np.int64)
    for kind in (OpKind.COLLECTIVE, OpKind.SEND, OpKind.RECV):
        rows = np.flatnonzero(program.kind == kind)
        _, inverse, counts = np.unique(program.slot[rows], return_inverse=True, return_counts=True)
        found[rows] = counts[inverse.reshape(-1)]
    return found


def _edges(parts: Iterable[Part]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for sort, count in part.job.edges.items():
            total[sort] = total.get(sort, 0) + count
    return total


def _baselines(
    parts: Sequence[Part],
    phases: Sequence[tuple[int, ...]],
    communicator_job: Sequence[int],
    first_rank: Sequence[int],
) -> RecordedBaselines | None:
    """What the traces recorded, for every pass."""
    found = []
    for index, part in enumerate(parts):
        recorded = part.job.baselines
        if recorded is None:
            continue
        times = part.passes * (1 if part.background else sum(index in members for members in phases))
        first = communicator_job.index(index) if index in communicator_job else 0
        per_pass = _recorded_uses(part.job, recorded)
        moved = replace(
            recorded,
            communicator=np.where(recorded.communicator >= 0, recorded.communicator + first, -1),
            src_rank=np.where(recorded.src_rank >= 0, recorded.src_rank + first_rank[index], -1),
            dst_rank=np.where(recorded.dst_rank >= 0, recorded.dst_rank + first_rank[index], -1),
        )
        found += [replace(moved, sequence=recorded.sequence + done * per_pass) for done in range(times)]
    if not found:
        return None
    return RecordedBaselines(
        *(
            np.concatenate([getattr(one, name) for one in found]).astype(getattr(found[0], name).dtype)
            for name in ("communicator", "src_rank", "dst_rank", "sequence", "recorded_ns", "recorded_ranks")
        )
    )


def _recorded_uses(job: Job, recorded: RecordedBaselines) -> NDArray[np.int64]:
    """Of each row, how many ops of one pass its communicator or pair has."""
    of_group: dict[int, int] = {}
    of_pair: dict[tuple[int, int], int] = {}
    for rank in job.ranks:
        program = job.programs[rank.program]
        for kind, names in ((OpKind.COLLECTIVE, rank.communicators), (OpKind.SEND, rank.peers)):
            slots, counts = np.unique(program.slot[program.kind == kind], return_counts=True)
            for slot, count in zip(slots.tolist(), counts.tolist(), strict=True):
                if kind is OpKind.COLLECTIVE:
                    of_group[names[slot]] = count
                else:
                    of_pair[rank.rank, names[slot]] = count
    columns = (recorded.communicator, recorded.src_rank, recorded.dst_rank)
    return np.array(
        [
            of_group.get(group, 0) if group >= 0 else of_pair.get((src, dst), 0)
            for group, src, dst in zip(*(column.tolist() for column in columns), strict=True)
        ],
        np.int64,
    )
