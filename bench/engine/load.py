"""The loads of a bench as assignments, on two agents that share a machine: one collective over and over, or a message
thrown to and fro.

They are planned like any other job, with the defaults that a scenario would get; only the job is written here instead of
read from traces. Ranks alternate between the agents, so that every hop of a ring crosses the sockets.
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
from etloop.contract.model.transport import TRANSPORT_KINDS, TransportKind
from etloop.controller.inputs.rig import parse_rig
from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.controller.plan.plan import make_plan
from etloop.workload.trace.program import Communicator, Job, OpKind, Program, RankProgram
from etloop.workload.trace.trace import CollectiveKind

AGENTS: Final = ("a", "b")
_PLAYERS: Final = 2
"""Ranks that throw a message to and fro; others beside them are a load."""


@dataclass(frozen=True, slots=True)
class BenchLoad:
    """`iterations` collectives of one kind over `ranks` ranks, one after the other."""

    collective: CollectiveKind
    ranks: int
    message_bytes: int
    iterations: int

    @property
    def ops(self) -> int:
        """Ops of all ranks and iterations."""
        return self.ranks * self.iterations


@dataclass(frozen=True, slots=True)
class PingPong:
    """Two ranks that answer each message with the next, `exchanges` times to and fro in each iteration."""

    message_bytes: int
    exchanges: int
    iterations: int
    bulk_bytes: int = 0
    """Of each message that two more ranks on the same ports throw at each other meanwhile, as fast as they go; 0: none do."""

    @property
    def ops(self) -> int:
        """A send and a receive of both ranks in every exchange."""
        return 4 * self.exchanges * self.iterations


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of one rank to another, as many at a time as the engine has begun; none waits for another."""

    message_bytes: int
    messages: int
    """Of an iteration."""
    iterations: int

    @property
    def ops(self) -> int:
        """A send and a receive of each."""
        return 2 * self.messages * self.iterations


MOST_PER_CONNECTION: Final = 64
"""Queue pairs, as a scenario may ask for."""


_KIND_NAMES: Final = {kind: name for name, kind in TRANSPORT_KINDS.items()}


@dataclass(frozen=True, slots=True)
class Shape:
    """What the load's scenario and rig say beside the defaults; a ring with one connection for each hop and channel, so that
    a figure is one of the engine and not of a choice."""

    queue_pairs: int = 1
    """From a rank to the next: one to a connection and channel, or the most that divide them and that one may have."""
    path_mtu_bytes: int = 4096
    link_bps: int = 100_000_000_000
    rate_bps: int = 0
    """At most, of a queue pair; 0: as fast as its link."""
    series_ns: int = 0
    """Between two looks at what was sent; 0: none."""
    shaping: str = ""
    """How a collective's bytes are cut into messages; "": as a scenario's default has it."""
    kind: TransportKind = TransportKind.ROCE
    queues: int = 1
    """Threads of a port."""
    sleeps: bool = False
    """Whether threads without work sleep instead of polling, so that the processor's time is that of the work."""
    receive_ring: bool = False
    """Of packet ports."""
    as_nccl: bool = False
    """Whether algorithm, protocol, channels and cutting are NCCL's choice, as where a scenario says nothing."""

    def scenario_text(self, iterations: int) -> str:
        """The scenario of `iterations` of the load."""
        each = max(n for n in range(1, MOST_PER_CONNECTION + 1) if self.queue_pairs % n == 0)
        rate = f"max_rate: {format_rate(self.rate_bps)}, " if self.rate_bps else ""
        shaping = f", shaping: {self.shaping}" if self.shaping else ""
        ring = f"algorithm: ring, protocol: simple, channels: {self.queue_pairs // each}{shaping}"
        series = f"series: {{interval: {format_duration(self.series_ns)}}}" if self.series_ns else ""
        return (
            f"workload: {{trace: bench}}\niterations: {iterations}\nmapping: {{placement: round_robin}}\n"
            f"collectives: {{{'' if self.as_nccl else ring}}}\n"
            f"transport: {{kind: {_KIND_NAMES[self.kind]}, path_mtu: {self.path_mtu_bytes}, qps_per_connection: {each}, "
            f"cc: {{algorithm: dcqcn, {rate}{series}}}}}\n"
        )


def bench_assignments(
    load: BenchLoad | PingPong | Messages,
    addresses: Sequence[Sequence[str]],
    backends: tuple[PortBackend, PortBackend] = (PortBackend.UDP, PortBackend.UDP),
    shape: Shape | None = None,
) -> tuple[Assignment, ...]:
    """One assignment per agent. `addresses[i]` are those of agent i, at least one for each of its ranks."""
    shape = shape or Shape()
    scenario = parse_scenario(shape.scenario_text(load.iterations).encode(), "bench scenario", Path())
    rig = parse_rig(_rig_text(addresses, backends, shape).encode(), "bench rig", Path())
    job = _job(load)
    plan = make_plan(scenario, rig, job, "bench")
    return tuple(_as_measured(plan.assignments[name], load, sleeps=shape.sleeps) for name in AGENTS)


def _as_measured(
    assignment: Assignment, load: BenchLoad | PingPong | Messages, *, sleeps: bool
) -> Assignment:
    """The assignment with ranks that are only a load for others in the background."""
    if sleeps:
        assignment = replace(assignment, threads=replace(assignment.threads, contended=True))
    if not isinstance(load, PingPong):
        return assignment
    ranks = tuple(replace(rank, background=rank.rank >= _PLAYERS) for rank in assignment.ranks)
    return replace(assignment, ranks=ranks)


def _rig_text(addresses: Sequence[Sequence[str]], backends: Sequence[PortBackend], shape: Shape) -> str:
    lines = ["agents:"]
    for name, own, backend in zip(AGENTS, addresses, backends, strict=True):
        quoted = ", ".join(f'"{address}"' for address in own)
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
    """Op 2k of rank 0 sends message k when message k - 1 has come back; op 2k + 1 of rank 1 answers message k."""
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
    """Two ranks that send each other more than the ball's time lasts; nothing waits for anything."""
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
    """All of rank 0's ops send, all of rank 1's receive."""
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
    """Ranks with a program each; every two of them have each other as their peer."""
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
