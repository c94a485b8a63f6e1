"""Loads (`loads`) as jobs in memory. Pure: the same load gives the same job, chance comes from its seed.

* A collective load is what BMWG calls the synthetic training job: compute, then the collective, again and again.
* An incast is open: bursts begin on the beat, but a sender's next burst never before its last one has arrived.
* A storage load is that of NVMe over RDMA as the fabric sees it. A read is a command of 64 bytes to the server and the data
  back; a write is the data to the server and a completion of 16 bytes back. Every client paces its transfers at its rate
  and has at most `depth` under way. All of it travels as this transport's messages do: RDMA writes that the receiver has
  granted. A target's reads from a host's memory (RDMA READ) are therefore writes of the host here: the same bytes the same
  way, another opcode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.units import NS_PER_S, approximate_bytes
from etloop.controller.inputs.collective_spec import amount_of
from etloop.controller.inputs.scenario.flows import FlowsLoad
from etloop.controller.inputs.scenario.loads import (
    MOST_TRANSFERS,
    CollectiveLoad,
    IncastLoad,
    Load,
    StorageLoad,
)
from etloop.controller.plan.flow_jobs import flow_job
from etloop.results.schema.kinds import CONVENTIONS
from etloop.traffic.collectives.selection import op_bytes_for
from etloop.workload.program.writer import ProgramWriter
from etloop.workload.trace.program import Communicator, Job, OpKind, Program, RankProgram
from etloop.workload.trace.trace import CollectiveKind

COMMAND_BYTES: Final = 64
"""Of an NVMe command (NVM Express Base Specification, submission queue entry)."""
COMPLETION_BYTES: Final = 16
"""Of a completion queue entry."""


def job_of(load: Load, where: str) -> Job:
    """The job of a load. Raises `ConfigError`, told at `where`, if it is too large or has nothing to send."""
    match load:
        case CollectiveLoad():
            return _collective(load, where)
        case IncastLoad():
            _refuse_many(load.senders * load.bursts, "bursts of all senders", where)
            return _incast(load)
        case FlowsLoad():
            return flow_job(load, where)
        case StorageLoad():
            _refuse_many(load.clients * load.transfers, "transfers of all clients", where)
            return _storage(load)


def _refuse_many(count: int, what: str, where: str) -> None:
    if count > MOST_TRANSFERS:
        text = f"{count} {what}, and at most {MOST_TRANSFERS} are planned"
        remedy = "let it last shorter, make the period longer or the rate lower, or its transfers larger"
        raise ConfigError(Problem(where, text, remedy))


def _collective(load: CollectiveLoad, where: str) -> Job:
    name = CONVENTIONS[load.kind].name
    message_bytes = 0
    if load.kind != CollectiveKind.BARRIER:
        amount = amount_of(load.kind, load.size_bytes, load.ranks, element_bytes=1)
        message_bytes = amount.message_bytes
        if not amount.count:
            what = f"{load.size_bytes} bytes leave nothing for each of {load.ranks} ranks to send"
            raise ConfigError(Problem(where, what, f"write at least {16 * load.ranks}B"))
    writer = ProgramWriter()
    last: tuple[int, ...] = ()
    for _ in range(load.count):
        if load.compute_ns:
            last = (writer.delay(load.compute_ns, last),)
        op_bytes = op_bytes_for(load.kind, message_bytes)
        last = (writer.add(OpKind.COLLECTIVE, load.kind, 0, op_bytes, last),)
    program = writer.program()
    group = Communicator(0, "all", tuple(range(load.ranks)))
    ranks = [_rank(rank, 0, program, (0,), ()) for rank in range(load.ranks)]
    return _job(f"{load.count} x {name} of {approximate_bytes(load.size_bytes)}", (group,), [program], ranks)


def _incast(load: IncastLoad) -> Job:
    sender, receiver = ProgramWriter(), ProgramWriter()
    sent: tuple[int, ...] = ()
    beat: tuple[int, ...] = ()
    for burst in range(load.bursts):
        if burst and load.period_ns:
            beat = (sender.delay(load.period_ns, beat),)
        sent = (sender.add(OpKind.SEND, -1, 0, load.burst_bytes, (*beat, *sent)),)
    for slot in range(load.senders):
        arrived: tuple[int, ...] = ()
        for _ in range(load.bursts):
            arrived = (receiver.add(OpKind.RECV, -1, slot, load.burst_bytes, arrived),)
    programs = [receiver.program(), sender.program()]
    senders = tuple(range(1, load.ranks))
    ranks = [
        _rank(0, 0, programs[0], (), senders),
        *(_rank(rank, 1, programs[1], (), (0,)) for rank in senders),
    ]
    source = f"incast, {load.bursts} x {load.senders} times {approximate_bytes(load.burst_bytes)}"
    return _job(source, (), programs, ranks)


def _storage(load: StorageLoad) -> Job:
    asked: list[list[tuple[int, int, int]]] = [[] for _ in range(load.servers)]
    programs: list[Program] = []
    for client in range(load.clients):
        writer, orders = ProgramWriter(), _orders(load, client)
        beat: tuple[int, ...] = ()
        pace_ns = 0
        answers: list[int] = []
        for server, there, back in orders:
            if pace_ns:
                beat = (writer.delay(pace_ns, beat),)
            room = (answers[-load.depth],) if len(answers) >= load.depth else ()
            after = (*beat, *room)
            writer.add(OpKind.SEND, -1, server, there, after)
            answers.append(writer.add(OpKind.RECV, -1, server, back, after))
            asked[server].append((client, there, back))
            pace_ns = max(there, back) * 8 * NS_PER_S // load.rate_bps
        programs.append(writer.program())
    programs += [_server(orders) for orders in asked]
    clients, servers = range(load.clients), range(load.clients, load.ranks)
    ranks = [_rank(rank, rank, programs[rank], (), tuple(servers)) for rank in clients]
    ranks += [_rank(rank, rank, programs[rank], (), tuple(clients)) for rank in servers]
    source = f"storage, {load.clients} clients x {load.transfers} transfers, {load.read_per_million / 1e4:g} % reads"
    return _job(source, (), programs, ranks)


def _orders(load: StorageLoad, client: int) -> list[tuple[int, int, int]]:
    """What a client does: (server, bytes there, bytes back)."""
    # The raw stream of a named generator: the same numbers in every version of the library.
    drawn = np.random.PCG64([load.seed, client]).random_raw((load.transfers, 3))
    orders = []
    for read, size, server in drawn.tolist():
        size_bytes = load.sizes_bytes[size % len(load.sizes_bytes)]
        is_read = read % 1_000_000 < load.read_per_million
        there, back = (COMMAND_BYTES, size_bytes) if is_read else (size_bytes, COMPLETION_BYTES)
        orders.append((server % load.servers, there, back))
    return orders


def _server(asked: Sequence[tuple[int, int, int]]) -> Program:
    """Answers every client in its order, each transfer as soon as it is there."""
    writer = ProgramWriter()
    last: dict[int, tuple[int, ...]] = {}
    for client, there, back in asked:
        arrived = writer.add(OpKind.RECV, -1, client, there, last.get(client, ()))
        writer.add(OpKind.SEND, -1, client, back, (arrived,))
        last[client] = (arrived,)
    return writer.program()


def _rank(
    rank: int, program_index: int, program: Program, groups: tuple[int, ...], peers: tuple[int, ...]
) -> RankProgram:
    return RankProgram(rank, program_index, groups, peers, np.arange(len(program), dtype=np.uint64))


def _job(
    source: str, groups: tuple[Communicator, ...], programs: Sequence[Program], ranks: Sequence[RankProgram]
) -> Job:
    edges = sum(len(programs[rank.program].deps) for rank in ranks)
    return Job(source, groups, tuple(programs), tuple(ranks), "data", {"data": edges}, ())
