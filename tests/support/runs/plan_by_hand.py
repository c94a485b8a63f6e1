"""Jobs, rigs and scenarios written by hand, small enough to check a plan with pencil and paper."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.controller.inputs.rig import Rig, parse_rig
from etloop.controller.inputs.scenario.scenario import Scenario, parse_scenario
from etloop.workload.trace.program import Communicator, Job, OpKind, Program, RankProgram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etloop.workload.trace.trace import CollectiveKind


@dataclass(frozen=True, slots=True)
class Coll:
    """A collective over `members`, each putting in `size_bytes`."""

    kind: CollectiveKind
    members: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Msg:
    """A send and its receive."""

    src: int
    dst: int
    size_bytes: int


def job_of(ranks: int, *ops: Coll | Msg) -> Job:
    """A job whose ranks run `ops` in order, each op after the one before it on the rank."""
    groups = list(dict.fromkeys(op.members for op in ops if isinstance(op, Coll)))
    programs: list[Program] = []
    rank_programs: list[RankProgram] = []
    for rank in range(ranks):
        program, communicators, peers = _program(rank, groups, ops)
        rank_programs.append(
            RankProgram(
                rank, len(programs), communicators, peers, np.arange(len(program), dtype=np.uint64) + 100
            )
        )
        programs.append(program)
    return Job(
        source="by hand",
        communicators=tuple(Communicator(at, f"g{at}", group) for at, group in enumerate(groups)),
        programs=tuple(programs),
        ranks=tuple(rank_programs),
        policy="data",
        edges={"data": 0},
        notes=(),
    )


def _program(
    rank: int, groups: Sequence[tuple[int, ...]], ops: Sequence[Coll | Msg]
) -> tuple[Program, tuple[int, ...], tuple[int, ...]]:
    communicators: list[int] = []
    peers: list[int] = []
    seen: dict[object, int] = {}
    rows: list[tuple[int, int, int, int, int]] = []
    for op in ops:
        key = op.members if isinstance(op, Coll) else (op.src, op.dst, "pair")
        sequence = seen.get(key, 0)
        seen[key] = sequence + 1
        if isinstance(op, Coll):
            if rank in op.members:
                slot = _slot(communicators, groups.index(op.members))
                rows.append((OpKind.COLLECTIVE, op.kind, slot, sequence, op.size_bytes))
        elif rank == op.src:
            rows.append((OpKind.SEND, -1, _slot(peers, op.dst), sequence, op.size_bytes))
        elif rank == op.dst:
            rows.append((OpKind.RECV, -1, _slot(peers, op.src), sequence, op.size_bytes))
    rows.insert(0, (OpKind.DELAY, -1, -1, -1, 0))
    kind, collective, slot_column, sequences, size = zip(*rows, strict=True)
    count = len(rows)
    program = Program(
        kind=np.array(kind, np.uint8),
        collective=np.array(collective, np.int8),
        slot=np.array(slot_column, np.int32),
        sequence=np.array(sequences, np.int32),
        message_bytes=np.array(size, np.int64),
        delay_ns=np.where(np.array(kind) == OpKind.DELAY, 1000, 0).astype(np.int64),
        dep_offsets=np.maximum(np.arange(count + 1, dtype=np.int64) - 1, 0),
        deps=np.arange(count - 1, dtype=np.int32),
    )
    return program, tuple(communicators), tuple(peers)


def _slot(slots: list[int], value: int) -> int:
    if value not in slots:
        slots.append(value)
    return slots.index(value)


def rig_of(ports_of_agent: dict[str, int], addresses: int = 8, link: str = "100Gbps", host: str = "") -> Rig:
    """A rig of agents with some ports each, every port with `addresses` addresses."""
    lines = ["agents:"]
    for at, (agent, ports) in enumerate(ports_of_agent.items()):
        lines += [f"  - name: {agent}", *([f"    host: {host}"] if host else []), "    ports:"]
        for port in range(ports):
            network = f"10.{at}.{port}"
            lines.append(
                f"      - {{name: p{port}, addresses: {network}.1-{network}.{addresses}, link: {link}}}"
            )
    return parse_rig("\n".join(lines).encode(), "rig.yaml", Path())


ONE_RING: Final = "collectives: {algorithm: ring, protocol: simple, channels: 1}\n"
"""Of all that NCCL would choose the plainest, so that bytes and connections can be counted with a pencil."""


def scenario_of(text: str = "") -> Scenario:
    """A scenario with a trace that nobody reads, and what `text` adds; as `ONE_RING` unless it says otherwise."""
    shaped = text if "collectives:" in text else f"{text}\n{ONE_RING}"
    return parse_scenario(f"workload: {{trace: job}}\n{shaped}".encode(), "scenario.yaml", Path("lab"))
