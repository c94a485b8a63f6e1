"""Loads of a bench as assignments, on two agents that share a machine: a repeated collective, messages, or a ping-pong.

They are planned like any other job, with a scenario's defaults; only the job is built here instead of read from traces. Ranks
alternate between the agents, so that every hop of a ring crosses the sockets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import format_duration, format_rate
from etloop.contract.model.assignment import Assignment, PortBackend
from etloop.contract.model.transport_kinds import TRANSPORT_KINDS, TransportKind
from etloop.controller.inputs.rig import parse_rig
from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.controller.plan.plan import make_plan
from etloop.workload.trace.program import Communicator, Job, OpKind, Program, RankProgram
from etloop.workload.trace.trace import CollectiveKind

AGENTS: Final = ("a", "b")
_PLAYERS: Final = 2
"""Ranks of the ping-pong; further ranks are background load."""


@dataclass(frozen=True, slots=True)
class BenchLoad:
    """`iterations` collectives of one kind over `ranks` ranks, one after the other."""

    collective: CollectiveKind
    ranks: int
    message_bytes: int
    iterations: int

    @property
    def ops(self) -> int:
        """Return the ops of all ranks and iterations."""
        return self.ranks * self.iterations


@dataclass(frozen=True, slots=True)
class PingPong:
    """Two ranks that answer each message with the next, `exchanges` times in both directions in each iteration."""

    message_bytes: int
    exchanges: int
    iterations: int
    bulk_bytes: int = 0
    """Size of each message that two more ranks on the same ports send each other at full rate meanwhile; 0: no such load."""

    @property
    def ops(self) -> int:
        """Return the ops: a send and a receive of both ranks in every exchange."""
        return 4 * self.exchanges * self.iterations


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of one rank to another that do not wait for each other; the engine decides how many are outstanding."""

    message_bytes: int
    messages: int
    """Messages per iteration."""
    iterations: int

    @property
    def ops(self) -> int:
        """Return the ops: a send and a receive of each message."""
        return 2 * self.messages * self.iterations


MOST_PER_CONNECTION: Final = 64
"""Most queue pairs of a connection that a scenario may request."""


_KIND_NAMES: Final = {kind: name for name, kind in TRANSPORT_KINDS.items()}


@dataclass(frozen=True, slots=True)
class Shape:
    """Settings of the load's scenario and rig that differ from the defaults. A collective is a ring with one connection for each
    hop and channel, so that figures measure the engine and not a choice of algorithm."""

    queue_pairs: int = 1
    """Queue pairs from a rank to the next, divided over channels with the largest allowed number per connection."""
    path_mtu_bytes: int = 4096
    link_bps: int = 100_000_000_000
    rate_bps: int = 0
    """Rate limit of a queue pair; 0: link rate."""
    series_ns: int = 0
    """Interval of the series of sent packets; 0: no series."""
    shaping: str = ""
    """Shaping of a collective's bytes into messages; "": the scenario's default."""
    kind: TransportKind = TransportKind.ROCE
    queues: int = 1
    """Threads of a port."""
    sleeps: bool = False
    """True if idle threads sleep instead of polling, so that CPU time is the time of the work."""
    receive_ring: bool = False
    """Setting `receive_ring` of packet ports."""
    algorithm: str = "ring"
    completion: str = ""
    """Completion rule of a collective; "": the scenario's default."""
    as_nccl: bool = False
    """True if algorithm, protocol, channels and shaping are NCCL's choice, as by a scenario's defaults."""

    def scenario_text(self, iterations: int) -> str:
        """Return the scenario of `iterations` of the load."""
        qps_each = max(n for n in range(1, MOST_PER_CONNECTION + 1) if self.queue_pairs % n == 0)
        rate = f"max_rate: {format_rate(self.rate_bps)}, " if self.rate_bps else ""
        shaping = f", shaping: {self.shaping}" if self.shaping else ""
        shaping += f", completion: {self.completion}" if self.completion else ""
        ring = f"algorithm: {self.algorithm}, protocol: simple, channels: {self.queue_pairs // qps_each}{shaping}"
        series = f"series: {{interval: {format_duration(self.series_ns)}}}" if self.series_ns else ""
        return (
            f"workload: {{trace: bench}}\niterations: {iterations}\nmapping: {{placement: round_robin}}\n"
            f"collectives: {{{'' if self.as_nccl else ring}}}\n"
            f"transport: {{kind: {_KIND_NAMES[self.kind]}, path_mtu: {self.path_mtu_bytes}, qps_per_connection: {qps_each}, "
            f"cc: {{algorithm: dcqcn, {rate}{series}}}}}\n"
        )


def bench_assignments(
    load: BenchLoad | PingPong | Messages,
    addresses: Sequence[Sequence[str]],
    backends: tuple[PortBackend, PortBackend] = (PortBackend.UDP, PortBackend.UDP),
    shape: Shape | None = None,
) -> tuple[Assignment, ...]:
    """Return one assignment per agent. `addresses[i]` are those of agent i, at least one for each of its ranks."""
    shape = shape or Shape()
    scenario = parse_scenario(shape.scenario_text(load.iterations).encode(), "bench scenario", Path())
    rig = parse_rig(_rig_text(addresses, backends, shape).encode(), "bench rig", Path())
    job = _job(load)
    plan = make_plan(scenario, rig, job, "bench")
    return tuple(_as_measured(plan.assignments[name], load, sleeps=shape.sleeps) for name in AGENTS)


def _as_measured(
    assignment: Assignment, load: BenchLoad | PingPong | Messages, *, sleeps: bool
) -> Assignment:
    """Return the assignment with background set for ranks that are only load; with `sleeps`, its threads do not poll."""
    if sleeps:
        assignment = replace(assignment, threads=replace(assignment.threads, contended=True))
    if not isinstance(load, PingPong):
        return assignment
    ranks = tuple(replace(rank, background=rank.rank >= _PLAYERS) for rank in assignment.ranks)
    return replace(assignment, ranks=ranks)


def _rig_text(addresses: Sequence[Sequence[str]], backends: Sequence[PortBackend], shape: Shape) -> str:
    lines = ["agents:"]
    for name, agent_addresses, backend in zip(AGENTS, addresses, backends, strict=True):
        quoted = ", ".join(f'"{address}"' for address in agent_addresses)
        ring = ", receive_ring: true" if shape.receive_ring and backend is PortBackend.PACKET else ""
        port = (
            f"{{name: p0, addresses: [{quoted}], link: {format_rate(shape.link_bps)}, "
            f"backend: {backend.name.lower()}, queues: {shape.queues}{ring}}}"
        )
        lines += [f"  - name: {name}", "    host: here", "    ports:", f"      - {port}"]
    return "\n".join(lines) + "\n"


def _job(load: BenchLoad | PingPong | Messages) -> Job:
    match load:
        case BenchLoad():
            return _collective(load)
        case PingPong():
            return _ping_pong(load)
        case Messages():
            return _messages(load)


def _collective(load: BenchLoad) -> Job:
    program = Program(
        kind=np.array([OpKind.COLLECTIVE], np.uint8),
        collective=np.array([load.collective], np.int8),
        slot=np.zeros(1, np.int32),
        sequence=np.zeros(1, np.int32),
        message_bytes=np.array([load.message_bytes], np.int64),
        delay_ns=np.zeros(1, np.int64),
        dep_offsets=np.zeros(2, np.int64),
        deps=np.empty(0, np.int32),
    )
    return Job(
        source="bench",
        communicators=(Communicator(0, "all", tuple(range(load.ranks))),),
        programs=(program,),
        ranks=tuple(RankProgram(rank, 0, (0,), (), np.zeros(1, np.uint64)) for rank in range(load.ranks)),
        policy="data",
        edges={},
        notes=(),
    )


def _ping_pong(load: PingPong) -> Job:
    """Return the job: op 2k of rank 0 sends message k when message k - 1 has come back; op 2k + 1 of rank 1 answers
    message k.
    """
    count = load.exchanges
    sends_first = np.arange(2 * count) % 2 == 0
    programs = []
    for answers in (False, True):
        sends = ~sends_first if answers else sends_first
        waits = sends.copy()
        waits[0] = False
        programs.append(
            Program(
                kind=np.where(sends, OpKind.SEND, OpKind.RECV).astype(np.uint8),
                collective=np.full(2 * count, -1, np.int8),
                slot=np.zeros(2 * count, np.int32),
                sequence=np.repeat(np.arange(count, dtype=np.int32), 2),
                message_bytes=np.full(2 * count, load.message_bytes, np.int64),
                delay_ns=np.zeros(2 * count, np.int64),
                dep_offsets=np.concatenate([[0], np.cumsum(waits)]).astype(np.int64),
                deps=(np.flatnonzero(waits) - 1).astype(np.int32),
            )
        )
    if load.bulk_bytes:
        programs += _bulk(load)
    return _pairs(programs)


def _bulk(load: PingPong) -> list[Program]:
    """Return the programs of two ranks that send each other more than the ping-pong lasts; no op waits for another."""
    count = load.exchanges * load.iterations
    kinds = np.repeat(np.array([OpKind.SEND, OpKind.RECV], np.uint8), count)
    program = Program(
        kind=kinds,
        collective=np.full(2 * count, -1, np.int8),
        slot=np.zeros(2 * count, np.int32),
        sequence=np.tile(np.arange(count, dtype=np.int32), 2),
        message_bytes=np.full(2 * count, load.bulk_bytes, np.int64),
        delay_ns=np.zeros(2 * count, np.int64),
        dep_offsets=np.zeros(2 * count + 1, np.int64),
        deps=np.empty(0, np.int32),
    )
    return [program, program]


def _messages(load: Messages) -> Job:
    """Return the job: all of rank 0's ops send, all of rank 1's receive."""
    count = load.messages
    programs = [
        Program(
            kind=np.full(count, kind, np.uint8),
            collective=np.full(count, -1, np.int8),
            slot=np.zeros(count, np.int32),
            sequence=np.arange(count, dtype=np.int32),
            message_bytes=np.full(count, load.message_bytes, np.int64),
            delay_ns=np.zeros(count, np.int64),
            dep_offsets=np.zeros(count + 1, np.int64),
            deps=np.empty(0, np.int32),
        )
        for kind in (OpKind.SEND, OpKind.RECV)
    ]
    return _pairs(programs)


def _pairs(programs: Sequence[Program]) -> Job:
    """Return a job of ranks with a program each; ranks 2i and 2i + 1 are peers."""
    return Job(
        source="bench",
        communicators=(),
        programs=tuple(programs),
        ranks=tuple(
            RankProgram(rank, rank, (), (rank ^ 1,), np.arange(len(program.kind), dtype=np.uint64))
            for rank, program in enumerate(programs)
        ),
        policy="data",
        edges={},
        notes=(),
    )
