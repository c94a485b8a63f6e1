"""A plan as the messages that its ranks send, and the events that each of them waits for.

Collectives are replaced by the messages of their step tables; compute nodes become waits. Decides the order of messages:

* A message leaves when its rank's operation has begun and the lane has received the messages before it.
* A collective is complete when its last batches have arrived and all its own messages are acknowledged.
* An iteration begins on a rank when the one before it is complete there.

Refuses traffic that is not a message between two network cards; `left_out` names the features that other simulators do not
have.
"""

from __future__ import annotations

import numpy as np

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.model.assignment import Path
from etloop.controller.export.cut_lanes import CutLane, cut_lanes
from etloop.controller.export.graph import Message, MessageGraph, Node, NodeKind
from etloop.controller.export.operation_nodes import GraphBuilder, Place, expand_operation
from etloop.controller.plan.demand import ProgramVariant
from etloop.controller.plan.plan import Plan
from etloop.traffic._native import StepTables
from etloop.workload.trace.program import OpKind, RankProgram


def message_graph(plan: Plan) -> MessageGraph:
    """Return the messages of a plan. Raises `PlanError` for features without a counterpart in other simulators."""
    _refuse(plan)
    demand = plan.parts.demand
    expansion = _Expansion(plan)
    ranks = [
        expansion.nodes_of(rank, demand.variants[variant])
        for rank, variant in zip(plan.parts.jobs.job.ranks, demand.variant_of_rank, strict=True)
    ]
    return MessageGraph(tuple(ranks), _messages(expansion.builder), _left_out(plan))


class _Expansion:
    """The operations of a plan, rank by rank, with the lanes of every schedule cut once."""

    def __init__(self, plan: Plan) -> None:
        self.builder = GraphBuilder()
        self._plan = plan
        self._tables = StepTables(plan.parts.demand.tables)
        self._cut: dict[tuple[int, int], tuple[tuple[CutLane, ...], ...]] = {}

    def nodes_of(self, rank: RankProgram, variant: ProgramVariant) -> tuple[Node, ...]:
        """Return the nodes of a rank's program, iteration after iteration."""
        self.builder.nodes = []
        ends: tuple[int, ...] = ()
        for iteration in range(self._plan.tables.iterations):
            ends = self._iteration(rank, variant, iteration, ends)
        return tuple(self.builder.nodes)

    def _iteration(
        self, rank: RankProgram, variant: ProgramVariant, iteration: int, begins: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Add the nodes of one iteration; return the node of its completion."""
        program, builder = variant.program, self.builder
        done: list[int] = []
        is_awaited = np.zeros(len(program), bool)
        for op, kind in enumerate(program.kind.tolist()):
            deps = program.deps[program.dep_offsets[op] : program.dep_offsets[op + 1]].tolist()
            is_awaited[deps] = True
            start = tuple(dict.fromkeys(done[dep] for dep in deps)) or begins
            if kind == OpKind.DELAY:
                done.append(builder.add(NodeKind.WAIT, start, duration_ns=int(program.delay_ns[op])))
                continue
            place, position = self._place(rank, variant, op, iteration)
            lanes = self._lanes(int(variant.schedule[op]), int(program.message_bytes[op]))
            done.append(expand_operation(builder, lanes[position], place, start))
        ends = tuple(done[op] for op in np.flatnonzero(~is_awaited).tolist())
        return (builder.join(ends),) if ends else begins

    def _place(
        self, rank: RankProgram, variant: ProgramVariant, op: int, iteration: int
    ) -> tuple[Place, int]:
        """Return the place of a network op, and the position of the rank in its step table."""
        program, communicators = variant.program, self._plan.parts.jobs.job.communicators
        slot, sequence = int(program.slot[op]), int(program.sequence[op])
        if program.kind[op] == OpKind.COLLECTIVE:
            number = rank.communicators[slot]
            members = communicators[number].members
            return Place((iteration, number, sequence), rank.rank, op, members), members.index(rank.rank)
        pair = (rank.rank, rank.peers[slot])
        is_send = program.kind[op] == OpKind.SEND
        members = pair if is_send else pair[::-1]
        return Place((iteration, -1, sequence), rank.rank, op, members), 0 if is_send else 1

    def _lanes(self, number: int, message_bytes: int) -> tuple[tuple[CutLane, ...], ...]:
        schedule = self._plan.parts.demand.schedules[number]
        op_bytes = 0 if schedule.splits else message_bytes
        if (number, op_bytes) not in self._cut:
            self._cut[number, op_bytes] = cut_lanes(schedule, self._tables, number, op_bytes)
        return self._cut[number, op_bytes]


def _messages(builder: GraphBuilder) -> tuple[Message, ...]:
    messages = []
    for (scope, source, target, _, _), number in builder.number.items():
        draft = builder.drafts[number]
        assert min(draft.payload_bytes, draft.source_op, draft.target_op) >= 0, "a message has two ends"
        messages.append(
            Message(source, target, draft.payload_bytes, scope[0], draft.source_op, draft.target_op)
        )
    return tuple(messages)


def _refuse(plan: Plan) -> None:
    """Raise `PlanError` with everything that is not a message between two network cards."""
    columns = plan.tables.connections
    inside = int(((columns.path != Path.WIRE) & (columns.payload_bytes > 0)).sum())
    problems = []
    if inside:
        problem = f"{inside} connections are inside a host or a port, which other simulators do not have"
        problems.append(Problem("mapping", problem, "map one rank to each host"))
    if any(len(planes) > 1 for planes in plan.whole().planes):
        problem = "network cards have several planes, which other simulators do not have"
        problems.append(Problem("rig", problem, "leave out planes"))
    if any(rank.background for rank in plan.whole().ranks):
        problem = "background ranks run next to the job, which other simulators do not have"
        problems.append(Problem("workload", problem, "leave out the background"))
    if plan.parts.streams:
        problem = f"{len(plan.parts.streams)} UDP streams run next to the job"
        problems.append(Problem("streams", problem, "leave them out"))
    if plan.parts.scenario.timeline:
        problems.append(Problem("timeline", "links go down or come up in the run", "leave out the timeline"))
    if plan.parts.scenario.transport.faults:
        problems.append(Problem("faults", "packets are lost or held on purpose", "leave out faults"))
    if problems:
        raise PlanError(*problems)


def _left_out(plan: Plan) -> tuple[str, ...]:
    """Return the features of the plan that its messages do not show."""
    schedules = plan.parts.demand.schedules
    slots = sorted({schedule.slots for schedule in schedules})
    left_out = [
        f"slots: at most {', '.join(map(str, slots))} messages of a connection are in flight here, any number there",
        "grants: a sender waits for its receiver's clear-to-send here, and for nothing there",
    ]
    if plan.parts.scenario.transport.qps_per_connection > 1:
        left_out.append("qps_per_connection: a connection has several queue pairs here, one flow there")
    return tuple(left_out)
