"""Builds a benchmark as a job in memory: warm-ups, a barrier, the measured operations back to back; row by row, half by
half.

Pure. The order is that of NVIDIA/nccl-tests (src/common.cu, BenchTime): operations of one rank follow each other as on
a stream, each begins when the one before it is complete on that rank, and only the barrier synchronizes all ranks.
Concurrent benchmarks run each collective alone and then all of them at once, every one on a communicator of its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.inputs.collective_spec import Amount, BenchSpec, Half
from etloop.results.schema.kinds import CONVENTIONS, SEND_RECV
from etloop.traffic.collectives.selection import op_bytes_for
from etloop.workload.program.writer import ProgramWriter
from etloop.workload.trace.program import Communicator, Job, OpKind, Program, RankProgram
from etloop.workload.trace.trace import CollectiveKind

_TO_NEXT, _FROM_BEFORE = 0, 1
"""Peer slots of a ring of sends: to the next rank, and from the rank before."""


@dataclass(frozen=True, slots=True)
class Span:
    """Position of the measured operations of one row and half in every rank's program."""

    kind: int
    amount: Amount
    half: Half
    ops: tuple[int, ...]
    """Op numbers, ascending; a send_recv has two per iteration."""
    together: bool = False
    """Concurrent benchmark: measured while the other collectives are running."""


@dataclass(frozen=True, slots=True)
class BenchJob:
    """The job, with the spans of it that are measured."""

    job: Job
    spans: tuple[Span, ...]


class _ProgramWriter(ProgramWriter):
    """Ops of one rank's program in order; all ranks have the same."""

    def collective(self, kind: int, slot: int, message_bytes: int, deps: tuple[int, ...]) -> int:
        return self.add(OpKind.COLLECTIVE, kind, slot, op_bytes_for(kind, message_bytes), deps)


def bench_job(spec: BenchSpec) -> BenchJob:
    """Return the job of all rows of `spec`, which has passed `check_spec`."""
    writer = _ProgramWriter()
    spans: list[Span] = []
    if spec.concurrent:
        _write_concurrent(spec, writer, spans)
    else:
        last: tuple[int, ...] = ()
        for kind in spec.kinds:
            for amount in spec.amounts(kind):
                for half in Half:
                    ops = _write_row(spec, writer, kind, 0, amount, last)
                    spans.append(Span(kind, amount, half, ops))
                    last = _tail(kind, ops)
    communicators = len(spec.kinds) if spec.concurrent else 1
    return BenchJob(_job(spec, writer.program(), communicators), tuple(spans))


def _write_row(
    spec: BenchSpec, writer: _ProgramWriter, kind: int, slot: int, amount: Amount, last: tuple[int, ...]
) -> tuple[int, ...]:
    """Write warm-ups, barrier and measured operations after `last`; return the measured ops."""
    warm = _chain(writer, kind, slot, amount, spec.warmups, last)
    ready = (writer.collective(CollectiveKind.BARRIER, 0, 0, _tail(kind, warm) or last),)
    return _chain(writer, kind, slot, amount, spec.iterations, ready)


def _write_concurrent(spec: BenchSpec, writer: _ProgramWriter, spans: list[Span]) -> None:
    last: tuple[int, ...] = ()
    for rows in spec.rows_together():
        for slot, (kind, amount) in enumerate(zip(spec.kinds, rows, strict=True)):
            ops = _write_row(spec, writer, kind, slot, amount, last)
            spans.append(Span(kind, amount, Half.OUT_OF_PLACE, ops))
            last = ops[-1:]
        ready = (writer.collective(CollectiveKind.BARRIER, 0, 0, last),)
        last = ()
        for slot, (kind, amount) in enumerate(zip(spec.kinds, rows, strict=True)):
            ops = _chain(writer, kind, slot, amount, spec.iterations, ready)
            spans.append(Span(kind, amount, Half.OUT_OF_PLACE, ops, together=True))
            last += ops[-1:]


def _chain(
    writer: _ProgramWriter, kind: int, slot: int, amount: Amount, times: int, last: tuple[int, ...]
) -> tuple[int, ...]:
    ops: list[int] = []
    for _ in range(times):
        if kind == SEND_RECV:
            pair = (
                writer.add(OpKind.SEND, -1, _TO_NEXT, amount.message_bytes, last),
                writer.add(OpKind.RECV, -1, _FROM_BEFORE, amount.message_bytes, last),
            )
            ops += pair
            last = pair
        else:
            ops.append(writer.collective(kind, slot, amount.message_bytes, last))
            last = (ops[-1],)
    return tuple(ops)


def _tail(kind: int, ops: tuple[int, ...]) -> tuple[int, ...]:
    return ops[-2:] if kind == SEND_RECV else ops[-1:]


def _job(spec: BenchSpec, program: Program, communicators: int) -> Job:
    members = tuple(range(spec.ranks))
    names = [CONVENTIONS[kind].name for kind in spec.kinds] if communicators > 1 else ["all"]
    node_id: NDArray[np.uint64] = np.arange(len(program), dtype=np.uint64)
    sends = SEND_RECV in spec.kinds
    return Job(
        source="etloop collective",
        communicators=tuple(Communicator(index, name, members) for index, name in enumerate(names)),
        programs=(program,),
        ranks=tuple(
            RankProgram(
                rank=rank,
                program=0,
                communicators=tuple(range(communicators)),
                peers=((rank + 1) % spec.ranks, (rank - 1) % spec.ranks) if sends else (),
                node_id=node_id,
            )
            for rank in members
        ),
        policy="data",
        edges={"data": len(program.deps) * spec.ranks},
        notes=(),
    )
