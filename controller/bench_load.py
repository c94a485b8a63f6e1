"""The loads of a bench as assignments: one collective, over and over, on two agents that share a machine.

They are planned like any other job, with the defaults that a scenario would get; only the job is written here instead of
read from traces. Ranks alternate between the agents, so that every hop of a ring crosses the sockets.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from controller.plan import make_plan
from controller.rig import parse_rig
from controller.scenario import parse_scenario
from workload.program import Communicator, Job, OpKind, Program, RankProgram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contract.assignment import Assignment
    from workload.trace import CollectiveKind

AGENTS: Final = ("a", "b")


@dataclass(frozen=True, slots=True)
class BenchLoad:
    """`iterations` collectives of one kind over `ranks` ranks, one after the other."""

    collective: CollectiveKind
    ranks: int
    message_bytes: int
    iterations: int


def bench_assignments(load: BenchLoad, addresses: Sequence[Sequence[str]]) -> tuple[Assignment, ...]:
    """One assignment per agent. `addresses[i]` are those of agent i, at least one for each of its ranks."""
    scenario = parse_scenario(
        f"workload: {{trace: bench}}\niterations: {load.iterations}\nmapping: {{placement: round_robin}}\n".encode(),
        "bench scenario",
        Path(),
    )
    rig = parse_rig(_rig_text(addresses).encode(), "bench rig", Path())
    plan = make_plan(scenario, rig, _job(load), "bench")
    return tuple(plan.assignments[name] for name in AGENTS)


def _rig_text(addresses: Sequence[Sequence[str]]) -> str:
    lines = ["agents:"]
    for name, own in zip(AGENTS, addresses, strict=True):
        port = f"{{name: p0, addresses: [{', '.join(own)}], link: 100Gbps}}"
        lines += [f"  - name: {name}", "    host: here", "    ports:", f"      - {port}"]
    return "\n".join(lines) + "\n"


def _job(load: BenchLoad) -> Job:
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
