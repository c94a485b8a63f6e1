"""Builds the traffic of a step as a job in memory: rounds of transfers, with a barrier after each.

Pure. A round is a set of transfers that begin together. The barrier keeps a slow port from shifting its traffic into the
next round, so that each round measures every port once.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.program.writer import ProgramWriter
from etloop.workload.trace.program import Communicator, Job, OpKind, Program, RankProgram
from etloop.workload.trace.trace import CollectiveKind


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes from one rank to another."""

    source: int
    destination: int
    size_bytes: int


Round = tuple[Transfer, ...]


def job_of_rounds(name: str, ranks: int, rounds: Iterable[Round], wait_ns: int = 0) -> Job:
    """Return the job whose ranks carry out the rounds one after the other, and send `wait_ns` after each barrier."""
    writers = [_RankWriter(wait_ns) for _ in range(ranks)]
    for transfers in rounds:
        for transfer in transfers:
            writers[transfer.source].send(transfer.destination, transfer.size_bytes)
            writers[transfer.destination].receive(transfer.source, transfer.size_bytes)
        for writer in writers:
            writer.meet()
    programs = tuple(writer.program() for writer in writers)
    return Job(
        source=f"etloop certify, {name}",
        communicators=(Communicator(0, "all", tuple(range(ranks))),),
        programs=programs,
        ranks=tuple(
            RankProgram(rank, rank, (0,), writer.peers, np.arange(len(program), dtype=np.uint64))
            for rank, (writer, program) in enumerate(zip(writers, programs, strict=True))
        ),
        policy="data",
        edges={"data": sum(len(program.deps) for program in programs)},
        notes=(),
    )


class _RankWriter:
    """The program of one rank, round by round."""

    def __init__(self, wait_ns: int) -> None:
        self._wait_ns = wait_ns
        self._writer = ProgramWriter()
        self._slots: dict[int, int] = {}
        self._ready: tuple[int, ...] = ()
        self._open: list[int] = []
        self._waited: tuple[int, ...] = ()

    @property
    def peers(self) -> tuple[int, ...]:
        return tuple(self._slots)

    def send(self, peer: int, size_bytes: int) -> None:
        if self._wait_ns and not self._waited:
            self._waited = (self._writer.delay(self._wait_ns, self._ready),)
        self._add(OpKind.SEND, peer, size_bytes, self._waited or self._ready)

    def receive(self, peer: int, size_bytes: int) -> None:
        self._add(OpKind.RECV, peer, size_bytes, self._ready)

    def meet(self) -> None:
        """Wait for all transfers of the round, and then for all ranks."""
        barrier = self._writer.add(
            OpKind.COLLECTIVE, CollectiveKind.BARRIER, 0, 0, tuple(self._open) or self._ready
        )
        self._ready, self._open, self._waited = (barrier,), [], ()

    def program(self) -> Program:
        return self._writer.program()

    def _add(self, kind: OpKind, peer: int, size_bytes: int, after: tuple[int, ...]) -> None:
        slot = self._slots.setdefault(peer, len(self._slots))
        self._open.append(self._writer.add(kind, -1, slot, size_bytes, after))


def shift_round(ranks: int, shift: int, size_bytes: int) -> Round:
    """Return the round in which rank i sends to rank i + `shift`, modulo the number of ranks."""
    return tuple(Transfer(rank, (rank + shift) % ranks, size_bytes) for rank in range(ranks))
