"""An excerpt of a job: some of its ranks are real, and what they do with the others becomes the time that it takes.

Decides what stays. A collective or message among real ranks alone stays as it is, with its dependencies. One that has a member
outside is a delay on each real member: the time of the whole operation on a network without contention
(`workload.trace.ideal_network`). A receive from outside takes its message's time too, from when it is asked for; a send to
outside does not hold its rank back beyond its own.
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
    from etloop.workload.trace.excerpt import Excerpt
    from numpy.typing import NDArray

_GONE: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """What becomes of a program's ops on one rank: by slot the new slot of a communicator or peer, -1: it is modelled."""

    group_slot: tuple[int, ...]
    group_size: tuple[int, ...]
    """By old slot: members."""
    peer_slot: tuple[int, ...]


def excerpt_of(job: Job, wanted: Excerpt) -> Job:
    """Return the job of the real ranks, which are numbered from 0 in their order.

    Raises `PlanError` for ranks that the job does not have, and where nothing is left to replay.
    """
    ranks = wanted.ranks()
    if ranks and ranks[-1] >= len(job.ranks):
        what = f"rank {ranks[-1]} is not in the job, which has {len(job.ranks)} ranks"
        raise PlanError(Problem(wanted.where, what, f"name ranks from 0 to {len(job.ranks) - 1}"))
    number = {rank: at for at, rank in enumerate(ranks)}
    groups, new_index = _groups(job, number)
    programs: list[Program] = []
    known: dict[tuple[object, ...], int] = {}
    found: list[RankProgram] = []
    moved_bytes = modelled_bytes = 0
    for rank in ranks:
        old = job.ranks[rank]
        program = job.programs[old.program]
        kept = _kept(job, old, number, new_index)
        splits = b"" if old.splits is None else old.splits.tobytes()
        key = (old.program, kept.group_slot, kept.group_size, kept.peer_slot, splits)
        modelled = _modelled(program, kept)
        if key not in known:
            known[key] = len(programs)
            programs.append(_program(program, kept, modelled, wanted, _busiest(job, old)))
        found.append(_rank(old, number, new_index, known[key], modelled))
        moving = program.kind != OpKind.DELAY
        moved_bytes += int(program.message_bytes[moving].sum())
        modelled_bytes += int(program.message_bytes[modelled].sum())
    if not any((program.kind != OpKind.DELAY).any() for program in programs):
        what = f"no operation is among ranks {wanted} alone: nothing would be replayed"
        raise PlanError(
            Problem(wanted.where, what, "choose ranks that share communicators or send to each other")
        )
    share = modelled_bytes / moved_bytes if moved_bytes else 0.0
    note = (
        f"an excerpt: ranks {wanted} of {len(job.ranks)} are real, numbered 0 to {len(ranks) - 1}; of the"
        f" {approximate_bytes(moved_bytes)} that they put in, {share:.0%} go to operations with others, which take the time of"
        f" {format_rate(wanted.network.link_bps)} and {format_duration(wanted.network.latency_ns)} a message without contention"
    )
    return replace(
        job,
        communicators=groups,
        programs=tuple(programs),
        ranks=tuple(found),
        notes=(note, *job.notes),
        baselines=None,
    )


def _groups(job: Job, number: dict[int, int]) -> tuple[tuple[Communicator, ...], dict[int, int]]:
    """The communicators all of whose members are real, and their new numbers."""
    found: list[Communicator] = []
    new_index: dict[int, int] = {}
    for group in job.communicators:
        if all(member in number for member in group.members):
            new_index[group.index] = len(found)
            members = tuple(number[member] for member in group.members)
            found.append(Communicator(len(found), group.name, members))
    return tuple(found), new_index


def _kept(job: Job, rank: RankProgram, number: dict[int, int], new_index: dict[int, int]) -> _Kept:
    return _Kept(
        _renumbered([one in new_index for one in rank.communicators]),
        tuple(len(job.communicators[one].members) for one in rank.communicators),
        _renumbered([one in number for one in rank.peers]),
    )


def _renumbered(stays: list[bool]) -> tuple[int, ...]:
    counts = np.cumsum(stays)
    return tuple(int(count) - 1 if stay else _GONE for stay, count in zip(stays, counts, strict=True))


def _modelled(program: Program, kept: _Kept) -> NDArray[np.bool_]:
    """Which ops have somebody outside."""
    modelled = np.zeros(len(program), np.bool_)
    for kinds, slots in (
        ((OpKind.COLLECTIVE,), kept.group_slot),
        ((OpKind.SEND, OpKind.RECV), kept.peer_slot),
    ):
        own = np.isin(program.kind, kinds)
        new_slots = np.array(slots, np.int32)
        modelled[own] = new_slots[program.slot[own]] == _GONE
    return modelled


def _busiest(job: Job, rank: RankProgram) -> NDArray[np.int64] | None:
    """By op what the busiest member of its uneven all-to-all sends, 0 for all others; None: the rank has none."""
    if rank.splits is None:
        return None
    busiest = np.array([*(int(matrix.sum(axis=1).max()) for matrix in job.splits), 0], np.int64)
    return busiest[rank.splits]


def _program(
    program: Program,
    kept: _Kept,
    modelled: NDArray[np.bool_],
    wanted: Excerpt,
    busiest_bytes: NDArray[np.int64] | None,
) -> Program:
    slot = program.slot.copy()
    members = np.full(len(program), 2, np.int64)
    groups = program.kind == OpKind.COLLECTIVE
    pairs = (program.kind == OpKind.SEND) | (program.kind == OpKind.RECV)
    if groups.any():
        members[groups] = np.array(kept.group_size, np.int64)[program.slot[groups]]
        slot[groups] = np.array(kept.group_slot, np.int32)[program.slot[groups]]
    if pairs.any():
        slot[pairs] = np.array(kept.peer_slot, np.int32)[program.slot[pairs]]
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
        communicators=tuple(new_index[one] for one in old.communicators if one in new_index),
        peers=tuple(number[one] for one in old.peers if one in number),
        node_id=old.node_id,
        trace_bytes=None if old.trace_bytes is None else np.where(modelled, 0, old.trace_bytes),
        splits=None if old.splits is None else np.where(modelled, np.int32(-1), old.splits).astype(np.int32),
        name=None if old.name is None else np.where(modelled, np.int32(-1), old.name).astype(np.int32),
    )
