"""Pairs of ranks that exchange messages while a run lasts, as a job: `contract.model.transfer_source` decides which begin.

The ops of its programs describe messages and do not take place by themselves: each message is one more use of the SEND and the
RECV of its pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from etloop.contract.model.assignment import Assignment
from etloop.workload.program.writer import ProgramWriter
from etloop.workload.trace.program import Job, OpKind, RankProgram

TEMPLATE_BYTES: Final = 1 << 20
"""Size of the planned ops, by which the channels of a pair's messages are chosen."""


def transfer_job(pairs: Iterable[tuple[int, int]], ranks: int, source: str) -> Job:
    """Return the job of `ranks` ranks and their pairs (sending rank, receiving rank)."""
    writers = [ProgramWriter() for _ in range(ranks)]
    slots: list[dict[int, int]] = [{} for _ in range(ranks)]
    for src, dst in pairs:
        send_slot = slots[src].setdefault(dst, len(slots[src]))
        recv_slot = slots[dst].setdefault(src, len(slots[dst]))
        writers[src].add(OpKind.SEND, -1, send_slot, TEMPLATE_BYTES)
        writers[dst].add(OpKind.RECV, -1, recv_slot, TEMPLATE_BYTES)
    programs = tuple(writer.program() for writer in writers)
    rank_programs = tuple(
        RankProgram(rank, rank, (), tuple(slots[rank]), np.arange(len(program), dtype=np.uint64))
        for rank, program in enumerate(programs)
    )
    return Job(source, (), programs, rank_programs, "data", {"data": 0}, ())


def planned_pairs(
    pairs: Iterable[tuple[int, int]], assignments: Iterable[Assignment]
) -> Sequence[tuple[int, int, int, int]]:
    """Return (sending rank, its SEND, receiving rank, its RECV) of pairs of a planned job."""
    ops: dict[tuple[int, int, int], int] = {}
    for assignment in assignments:
        for rank in assignment.ranks:
            program = assignment.programs[rank.program]
            kinds, slots = program.kind.tolist(), program.slot.tolist()
            for row, (kind, slot) in enumerate(zip(kinds, slots, strict=True)):
                if kind in {OpKind.SEND, OpKind.RECV}:
                    ops[rank.rank, kind, rank.peers[slot]] = row
    return [(src, ops[src, OpKind.SEND, dst], dst, ops[dst, OpKind.RECV, src]) for src, dst in pairs]
