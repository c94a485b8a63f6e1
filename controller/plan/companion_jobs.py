"""Loads next to training and serving (`companions`) as jobs in memory. Reads the files that they name.

* A checkpoint moves every rank's files at once, stripe by stripe, to or from the servers; the next one waits until the slowest
  rank has finished. Each stripe is a request of storage: a write is the data and a completion back, a read a command and the
  data back.
* A weight update sends all weights to all workers in buckets, of which each receiver has two under way.
* Offloaded KV caches are requests at the times of their log. A read waits for the last write of its key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.units import approximate_bytes
from etloop.controller.inputs.companion_files import TransformerCheckpoint, read_checkpoint, read_kv_log
from etloop.controller.inputs.scenario.companions import (
    MOST_COMPANION_RANKS,
    CheckpointLoad,
    CompanionLoad,
    KvOffloadLoad,
    UpdateWay,
    WeightUpdateLoad,
)
from etloop.controller.plan.storage_programs import (
    COMMAND_BYTES,
    COMPLETION_BYTES,
    job_of_programs,
    rank_program,
    server_program,
)
from etloop.traffic.collectives.selection import op_bytes_for
from etloop.workload.program.writer import ProgramWriter
from etloop.workload.trace.program import Communicator, Job, OpKind
from etloop.workload.trace.trace import CollectiveKind

MOST_REQUESTS: Final = 1 << 16
"""Most stripes, buckets times workers, or operations of a load; the plan lists every one."""
_MILLION: Final = 1_000_000
_BUCKETS_UNDER_WAY: Final = 2
"""checkpoint-engine overlaps two buckets (MoonshotAI/checkpoint-engine:README.md)."""
_Asked = list[list[tuple[int, int, int]]]
"""By server: (client, request bytes, response bytes)."""


def companion_job(load: CompanionLoad, where: str) -> Job:
    """Return the job of a load. Raises `ConfigError` for its file, or if it is too large."""
    if load.ranks > MOST_COMPANION_RANKS:
        problem = f"{load.ranks} ranks in all"
        raise ConfigError(Problem(where, problem, f"at most {MOST_COMPANION_RANKS} are supported"))
    match load:
        case CheckpointLoad():
            return _checkpoint_job(load, where)
        case WeightUpdateLoad():
            return _update_job(load, where)
        case KvOffloadLoad():
            return _offload_job(load, where)


def _refuse_many(count: int, counted_things: str, remedy: str, where: str) -> None:
    if count > MOST_REQUESTS:
        raise ConfigError(
            Problem(where, f"{count} {counted_things}; at most {MOST_REQUESTS} are supported", remedy)
        )


def _checkpoint_job(load: CheckpointLoad, where: str) -> Job:
    described = read_checkpoint(load.file, where)
    copy_ranks = described.tensor * described.pipeline
    if load.writers % copy_ranks:
        problem = f"{load.writers} ranks, but {load.file.name} has {described.tensor} x {described.pipeline} per copy"
        raise ConfigError(Problem(where, problem, f"write a multiple of {copy_ranks} as ranks"))
    writes = described.writes if load.writes is None else load.writes
    reads = described.reads if load.reads is None else load.reads
    interval_ns = described.interval_ns if load.interval_ns is None else load.interval_ns
    stripes = [tuple(_stripes(load, described, rank)) for rank in range(load.writers)]
    _refuse_many(
        (writes + reads) * sum(map(len, stripes)), "stripes", "raise stripe, or lower writes and reads", where
    )
    if writes + reads == 0 or not any(stripes):
        raise ConfigError(
            Problem(where, "no checkpoint is written or read", "write writes: 1, or a larger share")
        )
    asked: _Asked = [[] for _ in range(load.servers)]
    programs = []
    for rank, own in enumerate(stripes):
        writer = ProgramWriter()
        after: tuple[int, ...] = ()
        for number in range(writes + reads):
            if number and interval_ns:
                after = (writer.delay(interval_ns, after),)
            answers = [
                _request(writer, asked, rank, server, stripe_bytes, is_read=number >= writes, after=after)
                for server, stripe_bytes in own
            ]
            barrier_bytes = op_bytes_for(CollectiveKind.BARRIER, 0)
            deps = tuple(answers) or after
            after = (writer.add(OpKind.COLLECTIVE, CollectiveKind.BARRIER, 0, barrier_bytes, deps),)
        programs.append(writer.program())
    programs += [server_program(requests) for requests in asked]
    clients, servers = tuple(range(load.writers)), tuple(range(load.writers, load.ranks))
    ranks = [rank_program(rank, rank, programs[rank], (0,), servers) for rank in clients]
    ranks += [rank_program(rank, rank, programs[rank], (), clients) for rank in servers]
    total_bytes = sum(stripe_bytes for own in stripes for _, stripe_bytes in own)
    source = f"checkpoint, {writes} writes and {reads} reads of {approximate_bytes(total_bytes)}"
    return job_of_programs(source, (Communicator(0, "job", clients),), programs, ranks)


def _stripes(load: CheckpointLoad, described: TransformerCheckpoint, rank: int) -> Iterator[tuple[int, int]]:
    """Yield server and bytes of each stripe of a rank's two files, model and optimizer; ranks begin at different servers."""
    server = rank
    for file_bytes in described.rank_bytes(rank, load.writers):
        left_bytes = file_bytes * load.share_per_million // _MILLION
        while left_bytes > 0:
            stripe_bytes = min(left_bytes, load.stripe_bytes)
            yield server % load.servers, stripe_bytes
            server += 1
            left_bytes -= stripe_bytes


def _request(
    writer: ProgramWriter,
    asked: _Asked,
    client: int,
    server: int,
    data_bytes: int,
    *,
    is_read: bool,
    after: Sequence[int],
) -> int:
    """Add a request and its response to the program of a client; return the op of the response."""
    request_bytes, response_bytes = (COMMAND_BYTES, data_bytes) if is_read else (data_bytes, COMPLETION_BYTES)
    writer.add(OpKind.SEND, -1, server, request_bytes, after)
    asked[server].append((client, request_bytes, response_bytes))
    return writer.add(OpKind.RECV, -1, server, response_bytes, after)


def _update_job(load: WeightUpdateLoad, where: str) -> Job:
    buckets = [load.bucket_bytes] * (load.model_bytes // load.bucket_bytes)
    if rest_bytes := load.model_bytes % load.bucket_bytes:
        buckets.append(rest_bytes)
    _refuse_many(load.count * load.workers * len(buckets), "buckets of all workers", "raise bucket", where)
    is_broadcast = load.way is UpdateWay.BROADCAST
    writers = [ProgramWriter() for _ in range(load.ranks)]
    paces: list[tuple[int, ...]] = [()] * load.ranks
    lasts: list[tuple[int, ...]] = [()] * load.ranks
    for update in range(load.count):
        if update and load.period_ns:
            paces = [
                (writer.delay(load.period_ns, pace),) for writer, pace in zip(writers, paces, strict=True)
            ]
        firsts = [(*pace, *last) for pace, last in zip(paces, lasts, strict=True)]
        add = _add_broadcasts if is_broadcast else _add_sends
        lasts = add(load, buckets, writers, firsts)
    programs = [writer.program() for writer in writers]
    trainers, workers = tuple(range(load.trainers)), tuple(range(load.trainers, load.ranks))
    groups = tuple(Communicator(trainer, f"from {trainer}", (trainer, *workers)) for trainer in trainers)
    if is_broadcast:
        ranks = [rank_program(rank, rank, programs[rank], (rank,), ()) for rank in trainers]
        ranks += [rank_program(rank, rank, programs[rank], trainers, ()) for rank in workers]
    else:
        ranks = [rank_program(rank, rank, programs[rank], (), workers) for rank in trainers]
        ranks += [rank_program(rank, rank, programs[rank], (), trainers) for rank in workers]
    source = f"weight update, {load.count} x {approximate_bytes(load.model_bytes)} to {load.workers} workers"
    return job_of_programs(source, groups if is_broadcast else (), programs, ranks)


def _add_broadcasts(
    load: WeightUpdateLoad,
    buckets: Sequence[int],
    writers: Sequence[ProgramWriter],
    firsts: Sequence[tuple[int, ...]],
) -> list[tuple[int, ...]]:
    """Add the buckets of an update as broadcasts; return the last ops of every rank."""
    ops: list[list[int]] = [[] for _ in writers]
    for number, bucket_bytes in enumerate(buckets):
        trainer = number % load.trainers
        for rank in (trainer, *range(load.trainers, load.ranks)):
            slot = 0 if rank == trainer else trainer
            deps = _behind(ops[rank], firsts[rank])
            op = writers[rank].add(OpKind.COLLECTIVE, CollectiveKind.BROADCAST, slot, bucket_bytes, deps)
            ops[rank].append(op)
    return [tuple(own[-_BUCKETS_UNDER_WAY:]) or first for own, first in zip(ops, firsts, strict=True)]


def _add_sends(
    load: WeightUpdateLoad,
    buckets: Sequence[int],
    writers: Sequence[ProgramWriter],
    firsts: Sequence[tuple[int, ...]],
) -> list[tuple[int, ...]]:
    """Add the buckets of an update as sends to every worker; return the last ops of every rank."""
    lasts: list[tuple[int, ...]] = list(firsts)
    sent: dict[int, tuple[int, ...]] = {}
    for worker in range(load.workers):
        rank = load.trainers + worker
        received: list[int] = []
        sends: dict[int, list[int]] = {}
        for turn in range(len(buckets)):
            number = (turn + worker) % len(buckets)
            trainer, bucket_bytes = number % load.trainers, buckets[number]
            own = sends.setdefault(trainer, [])
            own.append(
                writers[trainer].add(OpKind.SEND, -1, worker, bucket_bytes, _behind(own, firsts[trainer]))
            )
            deps = _behind(received, firsts[rank])
            received.append(writers[rank].add(OpKind.RECV, -1, trainer, bucket_bytes, deps))
        lasts[rank] = tuple(received[-_BUCKETS_UNDER_WAY:])
        for trainer, own in sends.items():
            sent[trainer] = (*sent.get(trainer, ()), *own[-_BUCKETS_UNDER_WAY:])
    for trainer, last_sends in sent.items():
        lasts[trainer] = last_sends
    return lasts


def _behind(ops: Sequence[int], first: tuple[int, ...]) -> tuple[int, ...]:
    """Return what the next of `ops` waits for, so that two are under way at a time."""
    return (ops[-_BUCKETS_UNDER_WAY],) if len(ops) >= _BUCKETS_UNDER_WAY else first


def _offload_job(load: KvOffloadLoad, where: str) -> Job:
    operations = [
        operation for operation in read_kv_log(load.file, where) if operation.tier in load.remote_tiers
    ]
    _refuse_many(
        load.clients * len(operations), "operations of all clients", "cut the log, or lower clients", where
    )
    if not operations:
        problem = f"{load.file.name} has no operation on {' or '.join(load.remote_tiers)}"
        raise ConfigError(Problem(where, problem, "name the tiers that are across the network under tiers"))
    server_of = {key: n for n, key in enumerate(dict.fromkeys(operation.key for operation in operations))}
    asked: _Asked = [[] for _ in range(load.servers)]
    programs = []
    for client in range(load.clients):
        writer = ProgramWriter()
        pace: tuple[int, ...] = ()
        last_ns = 0
        written: dict[str, int] = {}
        for operation in operations:
            if operation.at_ns > last_ns:
                pace = (writer.delay(operation.at_ns - last_ns, pace),)
                last_ns = operation.at_ns
            server = (server_of[operation.key] + client) % load.servers
            after = (*pace, written[operation.key]) if operation.key in written else pace
            is_read, entry_bytes = operation.is_read, operation.entry_bytes
            answer = _request(writer, asked, client, server, entry_bytes, is_read=is_read, after=after)
            if not is_read:
                written[operation.key] = answer
        programs.append(writer.program())
    programs += [server_program(requests) for requests in asked]
    clients, servers = tuple(range(load.clients)), tuple(range(load.clients, load.ranks))
    ranks = [rank_program(rank, rank, programs[rank], (), servers) for rank in clients]
    ranks += [rank_program(rank, rank, programs[rank], (), clients) for rank in servers]
    return job_of_programs(
        f"KV offload, {len(operations)} operations of {load.file.name}", (), programs, ranks
    )
