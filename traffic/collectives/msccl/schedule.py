"""A proved MSCCL program as lanes: one for each thread block that has a peer.

Local copies and reductions cost nothing on the wire and are dropped; entries that depended on them wait for
their dependencies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.draft import (
    FINISH,
    KEEP,
    SEND,
    LaneDraft,
    Move,
    Step,
    TableDraft,
    schedule_of,
)
from etloop.traffic.collectives.core.table import EntryKind, Lane, Schedule
from etloop.traffic.collectives.msccl.proof import Moves, StepKey
from etloop.traffic.collectives.msccl.reader import RECEIVING, SENDING, Algorithm, StepType, ThreadBlock

EntryKey = tuple[int, int, int]
"""(position, lane, entry)."""
_RECEIVES: Final = {
    StepType.RECV: KEEP,
    StepType.RECV_COPY_SEND: KEEP,
    StepType.RECV_REDUCE_SEND: EntryKind.RECV | EntryKind.REDUCE,
    StepType.RECV_REDUCE_COPY: FINISH,
    StepType.RECV_REDUCE_COPY_SEND: FINISH,
}


def msccl_schedule(
    request: Request, name: str, algorithm: Algorithm, moves: Moves
) -> tuple[Schedule, dict[EntryKey, StepKey]]:
    """Return the schedule of a program for its collective and size, and the step that each entry comes from.

    Chunks are taken from equal pieces.
    """
    assert request.size == len(algorithm.gpus)
    tables = [TableDraft() for _ in algorithm.gpus]
    drafts: dict[tuple[int, int], LaneDraft] = {}
    over: dict[tuple[int, int, int], tuple[Step, ...]] = {}
    """Steps of lanes that are complete whenever this step is."""
    pending: dict[tuple[int, int], tuple[Step, ...]] = {}
    """The same for all steps so far of thread blocks without a peer."""
    steps: dict[EntryKey, StepKey] = {}
    for gpu in algorithm.gpus:
        for block in gpu.blocks:
            if block.send_to >= 0 or block.recv_from >= 0:
                lane = _lane(algorithm, block)
                drafts[gpu.number, block.number] = tables[gpu.number].add(lane)
    for key in moves.order:
        gpu_number, number, step_index = key
        step = algorithm.gpus[gpu_number].blocks[number].steps[step_index]
        after = over.get((gpu_number, step.after_block, step.after_step), ())
        draft = drafts.get((gpu_number, number))
        if draft is None:
            all_waits = tuple(dict.fromkeys((*pending.get((gpu_number, number), ()), *after)))
            pending[gpu_number, number] = over[key] = all_waits
            continue
        first_entry = len(draft.entries)
        if step.kind in SENDING or step.kind in RECEIVING:
            _communicate(
                draft, step.kind, _pieces(algorithm, moves.received.get(key) or moves.sent[key]), after
            )
        else:
            draft.wait(after)
        steps |= {(gpu_number, draft.index, entry): key for entry in range(first_entry, len(draft.entries))}
        # A thread block is one sequence: waiting for its latest entry is waiting for all before it.
        over[key] = (Step(draft.index, len(draft.entries) - 1),) if draft.entries else ()
    lanes = tuple(_without_idle(table) for table in tables)
    busy = [_busy(table) for table in tables]
    steps = {(gpu, busy[gpu][lane], entry): key for (gpu, lane, entry), key in steps.items()}
    return schedule_of(request, name, lanes, blocks=algorithm.chunks_per_loop), steps


def _lane(algorithm: Algorithm, block: ThreadBlock) -> Lane:
    """Return the lane of a thread block, without entries."""
    # The byte count of an all-gather is that of one rank; the program's pieces cover all ranks.
    span = len(algorithm.gpus) if algorithm.collective == "all-gather" else 1
    return Lane(0, block.send_to, block.recv_from, 0, 1, (), channel=block.channel, span=span)


def _pieces(algorithm: Algorithm, pieces: Iterable[int]) -> list[Move]:
    """Return the moves of pieces."""
    # Pieces of an all-to-all are numbered by sender; a lane works on one sender's buffer.
    return [Move(piece % algorithm.chunks_per_loop, piece) for piece in pieces]


def _communicate(draft: LaneDraft, kind: StepType, moves: list[Move], after: tuple[Step, ...]) -> None:
    """Add the messages of a step to its lane."""
    if kind is StepType.SEND:
        draft.add(SEND, moves, after)
    elif kind not in SENDING:
        draft.add(_RECEIVES[kind], moves, after)
    elif len(moves) == 1:
        draft.add(_RECEIVES[kind] | SEND, moves, after)
    else:
        # A gathered message has one direction; in a lane the send follows the receive anyway.
        draft.add(_RECEIVES[kind], moves, after)
        draft.add(SEND, moves)


def _busy(table: TableDraft) -> dict[int, int]:
    """Return old index -> new index of the lanes that have entries."""
    busy = (draft.index for draft in table.drafts if draft.entries)
    return {old: new for new, old in enumerate(busy)}


def _without_idle(table: TableDraft) -> tuple[Lane, ...]:
    """Return the lanes that have entries, with waits renumbered; a thread block may name a peer and have no steps."""
    lanes, renumbered = table.lanes(), _busy(table)
    if len(renumbered) == len(lanes):
        return lanes
    return tuple(
        replace(
            lanes[index],
            entries=tuple(
                replace(entry, after_lane=renumbered.get(entry.after_lane, -1))
                for entry in lanes[index].entries
            ),
        )
        for index in renumbered
    )
