"""A plan of a single collective over ports of one agent, as most benches measure."""

from __future__ import annotations

from pathlib import Path

from etloop.controller.inputs.rig import parse_rig
from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.controller.plan.plan import Plan, make_plan
from etloop.workload.program.writer import ProgramWriter
from etloop.workload.trace.program import Communicator, Job, OpKind, RankProgram
from etloop.workload.trace.trace import CollectiveKind


def plan_one_operation(
    scenario: str, kind: CollectiveKind, ranks: int, message_bytes: int, *, link_gbps: int = 100
) -> Plan:
    """Plan one collective over all ranks under a scenario without its workload; rank i has port `pi` of agent `a`."""
    ports = "".join(
        f"      - {{name: p{rank}, addresses: 10.{rank >> 8}.{rank & 255}.1, link: {link_gbps}Gbps}}\n"
        for rank in range(ranks)
    )
    writer = ProgramWriter()
    writer.add(OpKind.COLLECTIVE, kind, 0, message_bytes)
    program = writer.program()
    node_id = program.sequence.astype("uint64")
    job = Job(
        source="bench",
        communicators=(Communicator(0, "all", tuple(range(ranks))),),
        programs=(program,),
        ranks=tuple(RankProgram(rank, 0, (0,), (), node_id) for rank in range(ranks)),
        policy="data",
        edges={},
        notes=(),
    )
    return make_plan(
        parse_scenario(f"workload: {{trace: none}}\n{scenario}".encode(), "scenario.yaml", Path()),
        parse_rig(f"agents:\n  - name: a\n    ports:\n{ports}".encode(), "rig.yaml", Path()),
        job,
    )
