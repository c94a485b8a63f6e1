"""Generated loads (`loads`) as jobs in memory. Pure: the same load gives the same job; random choices come from its seed.

* A collective load is the synthetic training job of BMWG: compute, then the collective, repeatedly.
* An incast is open loop: bursts begin at every period, but a sender's next burst never before its last one has arrived.
* A storage load is that of NVMe over RDMA as the network carries it. A read is a command of 64 bytes to the server and the
  data back; a write is the data to the server and a completion of 16 bytes back. Every client paces its transfers at its
  rate and has at most `depth` outstanding. All of it travels as messages of this transport: RDMA writes granted by the
  receiver. A target's reads from a host's memory (RDMA READ) are therefore writes by the host here: the same bytes in the
  same direction, with another opcode.
"""

from __future__ import annotations

import numpy as np

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.units import NS_PER_S, approximate_bytes
from etloop.controller.inputs.collective_spec import amount_of
from etloop.controller.inputs.scenario.companions import CheckpointLoad, KvOffloadLoad, WeightUpdateLoad
from etloop.controller.inputs.scenario.flows import FlowsLoad
from etloop.controller.inputs.scenario.loads import (
    MOST_TRANSFERS,
    CollectiveLoad,
    IncastLoad,
    Load,
    StorageLoad,
)
from etloop.controller.plan.companion_jobs import companion_job
from etloop.controller.plan.flow_jobs import flow_job
from etloop.controller.plan.serving_jobs import serving_job
from etloop.controller.plan.storage_programs import (
    COMMAND_BYTES,
    COMPLETION_BYTES,
    job_of_programs,
    rank_program,
    server_program,
)
from etloop.results.schema.kinds import CONVENTIONS
from etloop.traffic.collectives.selection import op_bytes_for
from etloop.workload.program.writer import ProgramWriter
from etloop.workload.serving.spec import ServingLoad
from etloop.workload.trace.program import Communicator, Job, OpKind, Program
from etloop.workload.trace.trace import CollectiveKind


def job_of(load: Load, where: str) -> Job:
    """Return the job of a load. Raises `ConfigError`, which names `where`, if it is too large or has nothing to send."""
    match load:
        case CollectiveLoad():
            return _collective_job(load, where)
        case IncastLoad():
            _refuse_many(load.senders * load.bursts, "bursts of all senders", where)
            return _incast_job(load)
        case FlowsLoad():
            return flow_job(load, where)
        case ServingLoad():
            return serving_job(load)
        case CheckpointLoad() | WeightUpdateLoad() | KvOffloadLoad():
            return companion_job(load, where)
        case StorageLoad():
            _refuse_many(load.clients * load.transfers, "transfers of all clients", where)
            return _storage_job(load)


def _refuse_many(count: int, things: str, where: str) -> None:
    if count > MOST_TRANSFERS:
        text = f"{count} {things}; at most {MOST_TRANSFERS} are supported"
        remedy = "shorten its duration, raise the period, lower the rate or enlarge its transfers"
        raise ConfigError(Problem(where, text, remedy))


def _collective_job(load: CollectiveLoad, where: str) -> Job:
    name = CONVENTIONS[load.kind].name
    message_bytes = 0
    if load.kind != CollectiveKind.BARRIER:
        amount = amount_of(load.kind, load.size_bytes, load.ranks, element_bytes=1)
        message_bytes = amount.message_bytes
        if not amount.count:
            problem = f"{load.size_bytes} bytes are too few for {load.ranks} ranks to send"
            raise ConfigError(Problem(where, problem, f"write at least {16 * load.ranks}B"))
    writer = ProgramWriter()
    previous: tuple[int, ...] = ()
    for _ in range(load.count):
        if load.compute_ns:
            previous = (writer.delay(load.compute_ns, previous),)
        op_bytes = op_bytes_for(load.kind, message_bytes)
        previous = (writer.add(OpKind.COLLECTIVE, load.kind, 0, op_bytes, previous),)
    program = writer.program()
    group = Communicator(0, "all", tuple(range(load.ranks)))
    ranks = [rank_program(rank, 0, program, (0,), ()) for rank in range(load.ranks)]
    return job_of_programs(
        f"{load.count} x {name} of {approximate_bytes(load.size_bytes)}", (group,), [program], ranks
    )


def _incast_job(load: IncastLoad) -> Job:
    sender, receiver = ProgramWriter(), ProgramWriter()
    last_send: tuple[int, ...] = ()
    pace: tuple[int, ...] = ()
    for burst in range(load.bursts):
        if burst and load.period_ns:
            pace = (sender.delay(load.period_ns, pace),)
        last_send = (sender.add(OpKind.SEND, -1, 0, load.burst_bytes, (*pace, *last_send)),)
    for slot in range(load.senders):
        last_receive: tuple[int, ...] = ()
        for _ in range(load.bursts):
            last_receive = (receiver.add(OpKind.RECV, -1, slot, load.burst_bytes, last_receive),)
    programs = [receiver.program(), sender.program()]
    senders = tuple(range(1, load.ranks))
    ranks = [
        rank_program(0, 0, programs[0], (), senders),
        *(rank_program(rank, 1, programs[1], (), (0,)) for rank in senders),
    ]
    source = f"incast, {load.bursts} x {load.senders} times {approximate_bytes(load.burst_bytes)}"
    return job_of_programs(source, (), programs, ranks)


def _storage_job(load: StorageLoad) -> Job:
    requests_by_server: list[list[tuple[int, int, int]]] = [[] for _ in range(load.servers)]
    programs: list[Program] = []
    for client in range(load.clients):
        writer, transfers = ProgramWriter(), _draw_transfers(load, client)
        pace: tuple[int, ...] = ()
        pace_ns = 0
        responses: list[int] = []
        for server, request_bytes, response_bytes in transfers:
            if pace_ns:
                pace = (writer.delay(pace_ns, pace),)
            oldest = (responses[-load.depth],) if len(responses) >= load.depth else ()
            deps = (*pace, *oldest)
            writer.add(OpKind.SEND, -1, server, request_bytes, deps)
            responses.append(writer.add(OpKind.RECV, -1, server, response_bytes, deps))
            requests_by_server[server].append((client, request_bytes, response_bytes))
            pace_ns = max(request_bytes, response_bytes) * 8 * NS_PER_S // load.rate_bps
        programs.append(writer.program())
    programs += [server_program(transfers) for transfers in requests_by_server]
    clients, servers = range(load.clients), range(load.clients, load.ranks)
    ranks = [rank_program(rank, rank, programs[rank], (), tuple(servers)) for rank in clients]
    ranks += [rank_program(rank, rank, programs[rank], (), tuple(clients)) for rank in servers]
    source = f"storage, {load.clients} clients x {load.transfers} transfers, {load.read_per_million / 1e4:g} % reads"
    return job_of_programs(source, (), programs, ranks)


def _draw_transfers(load: StorageLoad, client: int) -> list[tuple[int, int, int]]:
    """Return the transfers of one client: (server, request bytes, response bytes)."""
    # PCG64's raw output: unlike numpy's distributions it is the same in every numpy version.
    random_values = np.random.PCG64([load.seed, client]).random_raw((load.transfers, 3))
    transfers = []
    for read_draw, size_draw, server_draw in random_values.tolist():
        size_bytes = load.sizes_bytes[size_draw % len(load.sizes_bytes)]
        is_read = read_draw % 1_000_000 < load.read_per_million
        request_bytes, response_bytes = (
            (COMMAND_BYTES, size_bytes) if is_read else (size_bytes, COMPLETION_BYTES)
        )
        transfers.append((server_draw % load.servers, request_bytes, response_bytes))
    return transfers
