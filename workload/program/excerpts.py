"""Cuts an excerpt out of a job: some ranks are real, and their operations with all other ranks become delays.

Decides which ops stay. A collective or message among real ranks alone stays, with its dependencies. One with a
member outside becomes a delay on each real member: the time of the whole operation on a network without contention
(`workload.trace.ideal_network`). A receive from outside takes the time of its message too, from when it is posted; a
send to outside delays its rank by its own time only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import approximate_bytes, format_duration, format_rate
from etloop.workload.trace.ideal_network import op_durations_ns
from etloop.workload.trace.program import Communicator, Job, OpKind, Program, RankProgram

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.workload.trace.excerpt import Excerpt

_GONE: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class _SlotMap:
    """Where the ops of a rank's program go: by old slot, the new slot of a communicator or peer, or -1 if its ops are
    modelled."""

    group_slot: tuple[int, ...]
    group_size: tuple[int, ...]
    """Number of members of each communicator, by old slot."""
    peer_slot: tuple[int, ...]


def excerpt_of(job: Job, wanted: Excerpt) -> Job:
    """Return the job of the real ranks, renumbered from 0 in their order.

    Raises `PlanError` for ranks that the job does not have, or if no operation remains to be replayed.
    """
    ranks = wanted.ranks()
    if ranks and ranks[-1] >= len(job.ranks):
        problem = f"rank {ranks[-1]} is outside the job, which has {len(job.ranks)} ranks"
        raise PlanError(Problem(wanted.where, problem, f"choose ranks from 0 to {len(job.ranks) - 1}"))
    number = {rank: index for index, rank in enumerate(ranks)}
    groups, new_index = _groups(job, number)
    programs: list[Program] = []
    program_index: dict[tuple[object, ...], int] = {}
    rank_programs: list[RankProgram] = []
    moved_bytes = modelled_bytes = 0
    for rank in ranks:
        old_rank = job.ranks[rank]
        program = job.programs[old_rank.program]
        slot_map = _kept_slots(job, old_rank, number, new_index)
        splits = b"" if old_rank.splits is None else old_rank.splits.tobytes()
        key = (old_rank.program, slot_map.group_slot, slot_map.group_size, slot_map.peer_slot, splits)
        modelled = _involves_outside(program, slot_map)
        if key not in program_index:
            program_index[key] = len(programs)
            programs.append(_program(program, slot_map, modelled, wanted, _busiest(job, old_rank)))
        rank_programs.append(_rank(old_rank, number, new_index, program_index[key], modelled))
        is_op = program.kind != OpKind.DELAY
        moved_bytes += int(program.message_bytes[is_op].sum())
        modelled_bytes += int(program.message_bytes[modelled].sum())
    if not any((program.kind != OpKind.DELAY).any() for program in programs):
        problem = f"no operation has all its members among ranks {wanted}: nothing would be replayed"
        raise PlanError(
            Problem(wanted.where, problem, "choose ranks that share communicators or send to each other")
        )
    share = modelled_bytes / moved_bytes if moved_bytes else 0.0
    note = (
        f"an excerpt: ranks {wanted} of {len(job.ranks)} are replayed, renumbered 0 to {len(ranks) - 1}; of the"
        f" {approximate_bytes(moved_bytes)} that they contribute, {share:.0%} belong to "
        f"operations with the other ranks, modelled as delays of"
        f" {format_rate(wanted.network.link_bps)} and "
        f"{format_duration(wanted.network.latency_ns)} per message, without contention"
    )
    return replace(
        job,
        communicators=groups,
        programs=tuple(programs),
        ranks=tuple(rank_programs),
        notes=(note, *job.notes),
        baselines=None,
    )


def _groups(job: Job, number: dict[int, int]) -> tuple[tuple[Communicator, ...], dict[int, int]]:
    """Return the communicators whose members are all real, renumbered, and their new index by old index."""
    real_groups: list[Communicator] = []
    new_index: dict[int, int] = {}
    for group in job.communicators:
        if all(member in number for member in group.members):
            new_index[group.index] = len(real_groups)
            members = tuple(number[member] for member in group.members)
            real_groups.append(Communicator(len(real_groups), group.name, members))
    return tuple(real_groups), new_index


def _kept_slots(job: Job, rank: RankProgram, number: dict[int, int], new_index: dict[int, int]) -> _SlotMap:
    return _SlotMap(
        _renumber([group in new_index for group in rank.communicators]),
        tuple(len(job.communicators[group].members) for group in rank.communicators),
        _renumber([peer in number for peer in rank.peers]),
    )


def _renumber(stays: list[bool]) -> tuple[int, ...]:
    counts = np.cumsum(stays)
    return tuple(int(count) - 1 if stay else _GONE for stay, count in zip(stays, counts, strict=True))


def _involves_outside(program: Program, kept: _SlotMap) -> NDArray[np.bool_]:
    """Return a mask of the ops that involve a rank outside the excerpt, bool [ops]."""
    modelled = np.zeros(len(program), np.bool_)
    for kinds, slots in (
        ((OpKind.COLLECTIVE,), kept.group_slot),
        ((OpKind.SEND, OpKind.RECV), kept.peer_slot),
    ):
        is_kind = np.isin(program.kind, kinds)
        new_slots = np.array(slots, np.int32)
        modelled[is_kind] = new_slots[program.slot[is_kind]] == _GONE
    return modelled


def _busiest(job: Job, rank: RankProgram) -> NDArray[np.int64] | None:
    """Return per op the bytes that the busiest member of its uneven all-to-all sends, 0 for all other ops; None if the
    rank has none."""
    if rank.splits is None:
        return None
    busiest = np.array([*(int(matrix.sum(axis=1).max()) for matrix in job.splits), 0], np.int64)
    return busiest[rank.splits]


def _program(
    program: Program,
    kept: _SlotMap,
    modelled: NDArray[np.bool_],
    wanted: Excerpt,
    busiest_bytes: NDArray[np.int64] | None,
) -> Program:
    slot = program.slot.copy()
    members = np.full(len(program), 2, np.int64)
    is_collective = program.kind == OpKind.COLLECTIVE
    is_p2p = (program.kind == OpKind.SEND) | (program.kind == OpKind.RECV)
    if is_collective.any():
        members[is_collective] = np.array(kept.group_size, np.int64)[program.slot[is_collective]]
        slot[is_collective] = np.array(kept.group_slot, np.int32)[program.slot[is_collective]]
    if is_p2p.any():
        slot[is_p2p] = np.array(kept.peer_slot, np.int32)[program.slot[is_p2p]]
    size_bytes = program.message_bytes
    if busiest_bytes is not None:
        size_bytes = np.where(busiest_bytes > 0, busiest_bytes, size_bytes)
    takes_ns = op_durations_ns(program.collective, size_bytes, members, wanted.network)
    return replace(
        program,
        kind=np.where(modelled, np.uint8(OpKind.DELAY), program.kind).astype(np.uint8),
        collective=np.where(modelled, np.int8(-1), program.collective).astype(np.int8),
        slot=slot,
        sequence=np.where(modelled, np.int32(-1), program.sequence).astype(np.int32),
        message_bytes=np.where(modelled, 0, program.message_bytes),
        delay_ns=np.where(modelled, takes_ns, program.delay_ns),
    )


def _rank(
    old: RankProgram,
    number: dict[int, int],
    new_index: dict[int, int],
    program: int,
    modelled: NDArray[np.bool_],
) -> RankProgram:
    return RankProgram(
        rank=number[old.rank],
        program=program,
        communicators=tuple(new_index[group] for group in old.communicators if group in new_index),
        peers=tuple(number[peer] for peer in old.peers if peer in number),
        node_id=old.node_id,
        trace_bytes=None if old.trace_bytes is None else np.where(modelled, 0, old.trace_bytes),
        splits=None if old.splits is None else np.where(modelled, np.int32(-1), old.splits).astype(np.int32),
        name=None if old.name is None else np.where(modelled, np.int32(-1), old.name).astype(np.int32),
    )
