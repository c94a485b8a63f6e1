"""Programs of clients and servers of storage, as NVMe over RDMA puts their messages on the network. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from etloop.workload.program.writer import ProgramWriter
from etloop.workload.trace.program import Communicator, Job, OpKind, Program, RankProgram

COMMAND_BYTES: Final = 64
"""Size of an NVMe command (NVM Express Base Specification, submission queue entry)."""
COMPLETION_BYTES: Final = 16
"""Size of an NVMe completion queue entry."""


def server_program(asked: Sequence[tuple[int, int, int]]) -> Program:
    """Return the program of a server, which answers each client's transfers in order, each as soon as its request has
    arrived."""
    writer = ProgramWriter()
    last_receive: dict[int, tuple[int, ...]] = {}
    for client, request_bytes, response_bytes in asked:
        receive = writer.add(OpKind.RECV, -1, client, request_bytes, last_receive.get(client, ()))
        writer.add(OpKind.SEND, -1, client, response_bytes, (receive,))
        last_receive[client] = (receive,)
    return writer.program()


def rank_program(
    rank: int, program_index: int, program: Program, groups: tuple[int, ...], peers: tuple[int, ...]
) -> RankProgram:
    """Return a rank that runs a program, with the communicators and peers of its slots."""
    return RankProgram(rank, program_index, groups, peers, np.arange(len(program), dtype=np.uint64))


def job_of_programs(
    source: str, groups: tuple[Communicator, ...], programs: Sequence[Program], ranks: Sequence[RankProgram]
) -> Job:
    """Return the job of programs that no trace describes."""
    edges = sum(len(programs[rank.program].deps) for rank in ranks)
    return Job(source, groups, tuple(programs), tuple(ranks), "data", {"data": edges}, ())
