"""Merges several jobs into one: all ranks in one numbering, and rounds in which jobs run alone and together.

Decides the order of a round and the separation of its phases. Operations, groups and byte counts of a job stay
unchanged. Leaves placement and algorithms to the plan, job by job.

A round has phases. In a phase, each rank of a job runs through its program `passes` times, independently of other
ranks. If there are several phases, each ends with a barrier of all ranks, so that phases do not overlap. Background
jobs take no part in phases: they begin with the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.run import PlannedJob, RecordedBaselines
from etloop.workload.graph.network_ops import BARRIER_BYTES
from etloop.workload.program.writer import program_of
from etloop.workload.trace.program import Communicator, Job, OpKind, Program, RankProgram
from etloop.workload.trace.trace import CollectiveKind

MOST_BARRIER_RANKS: Final = 1024
"""Limit of ranks in the barrier group."""
MOST_ROUND_OPS: Final = 1 << 24
"""Limit of ops of all ranks in one round, about a gigabyte of plan."""
BARRIER: Final = "rounds"
"""Name of the barrier group that ends phases."""
_FREE: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One of the jobs, and its role in a round."""

    name: str
    job: Job
    passes: int = 1
    start_ns: int = 0
    """Delay after the start of a phase shared with other jobs."""
    background: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """The merged job and the layout of its parts."""

    job: Job
    jobs: tuple[PlannedJob, ...]
    phases: tuple[tuple[int, ...], ...]
    turns: tuple[NDArray[np.int32], ...]
    """Per program of `job`, the value of `PlannedJobs.turn` for each of its ops (-1 for delays, including those between
    passes)."""
    communicator_job: tuple[int, ...]
    """Index of the job that each communicator belongs to; -1 for the barrier group."""


def side_by_side(parts: Sequence[Part], *, alone_too: bool) -> Together:
    """Return the parts merged into one job that runs them together; with `alone_too`, each non-background part first
    runs alone.

    Raises `PlanError` if the round or its barrier would exceed the limits of this module.
    """
    foreground = tuple(index for index, part in enumerate(parts) if not part.background)
    phases = (*((index,) for index in foreground), foreground) if alone_too else (foreground,)
    first_rank = np.cumsum([0, *(len(part.job.ranks) for part in parts)]).tolist()
    _refuse_immense(parts, phases, first_rank)
    groups, communicator_job = _communicators(parts, first_rank)
    if alone_too:
        members = [rank for index in foreground for rank in range(first_rank[index], first_rank[index + 1])]
        groups.append(Communicator(len(groups), BARRIER, tuple(members)))
        communicator_job.append(-1)
    programs: list[Program] = []
    turns: list[NDArray[np.int32]] = []
    ranks: list[RankProgram] = []
    for index, part in enumerate(parts):
        offsets = _Offsets(
            rank=first_rank[index],
            communicator=communicator_job.index(index) if index in communicator_job else 0,
            split=sum(len(earlier_part.job.splits) for earlier_part in parts[:index]),
            name=sum(len(earlier_part.job.op_names) for earlier_part in parts[:index]),
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
    """Index of the barrier group; -1 if there is none."""


@dataclass(frozen=True, slots=True)
class _Step:
    """The work of a rank in one phase: it waits, runs its program `passes` times, and joins the barrier."""

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
        pass_count = part.passes * (1 if part.background else sum(index in members for members in phases))
        ops += pass_count * sum(len(part.job.programs[rank.program]) for rank in part.job.ranks)
    if ops > MOST_ROUND_OPS:
        problem = (
            f"one round has {ops} operations summed over all ranks; at most {MOST_ROUND_OPS} are supported"
        )
        raise PlanError(
            Problem("jobs", problem, "lower the iterations of the jobs and raise the number of rounds")
        )
    foreground_ranks = sum(len(part.job.ranks) for part in parts if not part.background)
    if len(phases) > 1 and not 2 <= foreground_ranks <= MOST_BARRIER_RANKS:
        problem = f"rounds end with a barrier of all foreground ranks; got {foreground_ranks} ranks"
        raise PlanError(
            Problem("rounds", problem, f"use 2 to {MOST_BARRIER_RANKS} ranks in all foreground jobs together")
        )


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
    cache: dict[tuple[int, int], tuple[int, NDArray[np.int64]]] = {}
    for rank in part.job.ranks:
        # Ranks that share a program may have groups that none of its ops uses.
        key = (rank.program, len(rank.communicators))
        if key not in cache:
            barrier_slot = len(rank.communicators) if offsets.barrier >= 0 else _FREE
            writer = _Writer(part.job.programs[rank.program], barrier_slot)
            for step in steps:
                writer.add(step)
            cache[key] = (len(programs), np.concatenate(writer.origin or [np.empty(0, np.int64)]))
            programs.append(writer.program())
            turns.append(np.concatenate(writer.turn or [np.empty(0, np.int32)]))
        program, origin = cache[key]
        ranks.append(_renumber_rank(rank, program, origin, offsets))


def _renumber_rank(
    rank: RankProgram, program: int, origin: NDArray[np.int64], offsets: _Offsets
) -> RankProgram:
    """Return a rank in the new numbering. `origin` has, for each op of the new program, the op of the old one that it
    repeats, or -1."""
    groups = tuple(group + offsets.communicator for group in rank.communicators)
    return RankProgram(
        rank=rank.rank + offsets.rank,
        program=program,
        communicators=groups if offsets.barrier < 0 else (*groups, offsets.barrier),
        peers=tuple(peer + offsets.rank for peer in rank.peers),
        node_id=_take(rank.node_id, origin, 0).astype(np.uint64),
        trace_bytes=None if rank.trace_bytes is None else _take(rank.trace_bytes, origin, 0),
        splits=_numbers(rank.splits, origin, offsets.split),
        name=_numbers(rank.name, origin, offsets.name),
    )


def _numbers(
    column: NDArray[np.int32] | None, origin: NDArray[np.int64], first: int
) -> NDArray[np.int32] | None:
    """Return a column whose numbers begin at `first` in the new job; -1 stays -1."""
    if column is None:
        return None
    values = _take(column, origin, -1)
    return np.where(values >= 0, values + first, -1).astype(np.int32)


def _take(column: NDArray[np.generic], origin: NDArray[np.int64], absent: int) -> NDArray[np.int64]:
    if not len(column):
        return np.full(len(origin), absent, np.int64)
    return np.where(origin >= 0, column[np.maximum(origin, 0)], absent)


class _Writer:
    """Writes the passes of one program, with the delays and barriers between them."""

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
        """Append the passes of one phase and the barrier that ends it."""
        if step.wait_ns:
            self._single((OpKind.DELAY, -1, -1, -1, 0, step.wait_ns))
        for number in range(step.passes):
            self._one_pass(step.phase * step.passes + number)
        if self._barrier_slot >= 0:
            barrier_row = (CollectiveKind.BARRIER, self._barrier_slot, self._barriers, BARRIER_BYTES, 0)
            self._single((OpKind.COLLECTIVE, *barrier_row))
            self._barriers += 1

    def _one_pass(self, turn: int) -> None:
        program, count = self._pass, len(self._pass)
        if not count:
            return
        sequence = np.where(program.sequence >= 0, program.sequence + self._done * self._per_pass, -1)
        op_columns = (program.kind, program.collective, program.slot)
        self._columns.append((*op_columns, sequence, program.message_bytes, program.delay_ns))
        deps = program.deps.astype(np.int64) + self._length
        counts = self._counts
        if self._gate != _FREE:
            counts = np.where(self._roots, 1, counts)
            gated_deps = np.full(int(counts.sum()), self._gate, np.int64)
            gated_deps[np.repeat(~self._roots, counts)] = deps
            deps = gated_deps
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
        """Append one op that waits for `after`, by default for all earlier ops; all later ops wait for it."""
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
        """Return the program of all appended ops."""
        columns = [
            np.concatenate([row[column] for row in self._columns] or [np.empty(0, np.int64)])
            for column in range(6)
        ]
        counts = np.concatenate(self._dep_counts or [np.empty(0, np.int64)])
        return program_of(columns, counts, np.concatenate(self._deps or [np.empty(0, np.int64)]))


def _uses(program: Program) -> NDArray[np.int64]:
    """Return, per op, the number of ops of the program that share its communicator or pair, and thus its numbering,
    int64 [ops]."""
    uses = np.zeros(len(program), np.int64)
    for kind in (OpKind.COLLECTIVE, OpKind.SEND, OpKind.RECV):
        rows = np.flatnonzero(program.kind == kind)
        _, inverse, counts = np.unique(program.slot[rows], return_inverse=True, return_counts=True)
        uses[rows] = counts[inverse.reshape(-1)]
    return uses


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
    """Return the recorded baselines of all parts, repeated for every pass; None if no part has any."""
    pass_baselines = []
    for index, part in enumerate(parts):
        recorded = part.job.baselines
        if recorded is None:
            continue
        pass_count = part.passes * (1 if part.background else sum(index in members for members in phases))
        first = communicator_job.index(index) if index in communicator_job else 0
        per_pass = _recorded_uses(part.job, recorded)
        renumbered = replace(
            recorded,
            communicator=np.where(recorded.communicator >= 0, recorded.communicator + first, -1),
            src_rank=np.where(recorded.src_rank >= 0, recorded.src_rank + first_rank[index], -1),
            dst_rank=np.where(recorded.dst_rank >= 0, recorded.dst_rank + first_rank[index], -1),
        )
        pass_baselines += [
            replace(renumbered, sequence=recorded.sequence + passes_done * per_pass)
            for passes_done in range(pass_count)
        ]
    if not pass_baselines:
        return None
    return RecordedBaselines(
        *(
            np.concatenate([getattr(baselines, name) for baselines in pass_baselines]).astype(
                getattr(pass_baselines[0], name).dtype
            )
            for name in ("communicator", "src_rank", "dst_rank", "sequence", "recorded_ns", "recorded_ranks")
        )
    )


def _recorded_uses(job: Job, recorded: RecordedBaselines) -> NDArray[np.int64]:
    """Return, per row, the number of ops that its communicator or pair has in one pass, int64 [rows]."""
    ops_of_group: dict[int, int] = {}
    ops_of_pair: dict[tuple[int, int], int] = {}
    for rank in job.ranks:
        program = job.programs[rank.program]
        for kind, names in ((OpKind.COLLECTIVE, rank.communicators), (OpKind.SEND, rank.peers)):
            slots, counts = np.unique(program.slot[program.kind == kind], return_counts=True)
            for slot, count in zip(slots.tolist(), counts.tolist(), strict=True):
                if kind is OpKind.COLLECTIVE:
                    ops_of_group[names[slot]] = count
                else:
                    ops_of_pair[rank.rank, names[slot]] = count
    columns = (recorded.communicator, recorded.src_rank, recorded.dst_rank)
    return np.array(
        [
            ops_of_group.get(group, 0) if group >= 0 else ops_of_pair.get((src, dst), 0)
            for group, src, dst in zip(*(column.tolist() for column in columns), strict=True)
        ],
        np.int64,
    )
