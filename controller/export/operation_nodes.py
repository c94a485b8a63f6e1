"""Nodes of one operation of a rank: the nodes that each message of its step table waits for.

Batches of a channel run one after another, lanes of a batch next to each other; a step waits for the messages that
its lane received before and for the steps of other lanes that its entry names (traffic/collectives/core/table.py).
"""

from __future__ import annotations

from dataclasses import field
from typing import NamedTuple

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.export.cut_lanes import CutLane, Step
from etloop.controller.export.graph import MOST_NODES, Node, NodeKind

Scope = tuple[int, int, int]
"""(iteration, communicator or -1, sequence)."""
MessageKey = tuple[Scope, int, int, int, int]
"""(scope, source rank, target rank, channel, number on the connection)."""


@dataclass(slots=True)
class Draft:
    """A message of which one end, or both, are known."""

    payload_bytes: int = -1
    source_op: int = -1
    target_op: int = -1


@dataclass(slots=True)
class GraphBuilder:
    """Messages and nodes while ranks are expanded one after another."""

    number: dict[MessageKey, int] = field(default_factory=dict)
    drafts: list[Draft] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    """Nodes of the rank under way."""
    total: int = 0

    def add(self, kind: NodeKind, after: tuple[int, ...], message: int = -1, duration_ns: int = 0) -> int:
        """Add a node to the rank under way, and return its number. Raises `PlanError` for too many nodes."""
        self.total += 1
        if self.total > MOST_NODES:
            problem = f"the job has more than {MOST_NODES} messages and waits"
            raise PlanError(Problem("export", problem, "take fewer iterations, or scale the job down"))
        self.nodes.append(Node(kind, after, message, duration_ns))
        return len(self.nodes) - 1

    def message(self, key: MessageKey) -> int:
        """Return the number of a message, a new one for a new key."""
        number = self.number.setdefault(key, len(self.drafts))
        if number == len(self.drafts):
            self.drafts.append(Draft())
        return number

    def join(self, nodes: tuple[int, ...]) -> int:
        """Return a node that waits for all of these."""
        return nodes[0] if len(nodes) == 1 else self.add(NodeKind.WAIT, nodes)


class Place(NamedTuple):
    """An operation of a rank: its scope, its rank and op, and the ranks of the positions of its table."""

    scope: Scope
    rank: int
    op: int
    members: tuple[int, ...]


@dataclass(slots=True)
class _LaneRun:
    """Progress of one lane of an operation."""

    lane: CutLane
    begins: tuple[int, ...]
    """Nodes that its first step waits for."""
    frontier: tuple[int, ...]
    """Nodes that its next step waits for."""
    executed: list[tuple[int, ...]] = field(default_factory=list)
    """By step: the frontier behind it."""
    sends: list[int] = field(default_factory=list)
    received: int = -1
    """Node of its last receive."""

    @property
    def is_done(self) -> bool:
        """Return whether all its steps are nodes."""
        return len(self.executed) == len(self.lane.steps)

    @property
    def end(self) -> tuple[int, ...]:
        """Return the nodes after which the lane is complete."""
        return tuple(dict.fromkeys((*self.frontier, *self.sends)))


def expand_operation(
    builder: GraphBuilder, lanes: tuple[CutLane, ...], place: Place, start: tuple[int, ...]
) -> int:
    """Add the nodes of one operation that begins after `start`; return the node of its completion."""
    operation = _Operation(builder, lanes, place, start)
    return operation.expand()


@dataclass(slots=True)
class _Operation:
    """One operation of a rank while its lanes are expanded."""

    builder: GraphBuilder
    lanes: tuple[CutLane, ...]
    place: Place
    start: tuple[int, ...]
    runs: dict[int, _LaneRun] = field(default_factory=dict)
    batch: dict[int, list[int]] = field(default_factory=dict)
    """By channel: the lanes of the batch under way."""

    def expand(self) -> int:
        """Add all nodes; return that of the completion."""
        waiting = sorted(range(len(self.lanes)), key=lambda number: self.lanes[number].batch)
        steps = -1
        while waiting:
            waiting = [number for number in waiting if not self._advance(number)]
            executed = sum(len(run.executed) + 1 for run in self.runs.values())
            assert executed > steps, "step tables are free of deadlock"
            steps = executed
        ends = self._ends([number for numbers in self.batch.values() for number in numbers])
        return self.builder.join(ends) if ends else self.builder.add(NodeKind.WAIT, self.start)

    def _ends(self, numbers: list[int]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(node for number in numbers for node in self.runs[number].end))

    def _advance(self, number: int) -> bool:
        """Add the nodes of a lane as far as its waits are nodes; return whether it is complete."""
        if number not in self.runs and not self._open(number):
            return False
        run = self.runs[number]
        for step in run.lane.steps[len(run.executed) :]:
            if step.after is not None:
                other = self.runs.get(step.after[0])
                if other is None or not (other.is_done or 0 <= step.after[1] < len(other.executed)):
                    return False
                awaited = other.end if step.after[1] < 0 else other.executed[step.after[1]]
                run.frontier = tuple(dict.fromkeys((*run.frontier, *awaited)))
            self._add_step(run, step)
        return True

    def _open(self, number: int) -> bool:
        """Begin a lane unless the batch before it is still under way."""
        lane = self.lanes[number]
        under_way = self.batch.get(lane.channel, [])
        if not under_way:
            begins = self.start
        elif self.lanes[under_way[0]].batch == lane.batch:
            begins = self.runs[under_way[0]].begins
        elif all(self.runs[other].is_done for other in under_way):
            ends = self._ends(under_way)
            begins = (self.builder.join(ends),) if ends else self.start
            under_way = []
        else:
            return False
        self.batch[lane.channel] = [*under_way, number]
        self.runs[number] = _LaneRun(lane, begins, begins)
        return True

    def _add_step(self, run: _LaneRun, step: Step) -> None:
        scope, rank, op, members = self.place
        lane = run.lane
        if step.receives >= 0:
            key = (scope, members[lane.recv_from], rank, lane.channel, step.receives)
            message = self.builder.message(key)
            self.builder.drafts[message].target_op = op
            granted_after = run.frontier if step.in_turn else run.begins
            node = self.builder.add(NodeKind.RECV, granted_after, message)
            replaced = (*run.begins, run.received)
            run.frontier = (*(other for other in run.frontier if other not in replaced), node)
            run.received = node
        if step.sends >= 0:
            key = (scope, rank, members[lane.send_to], lane.channel, step.sends)
            message = self.builder.message(key)
            draft = self.builder.drafts[message]
            draft.source_op, draft.payload_bytes = op, lane.sent_bytes[step.sends]
            run.sends.append(self.builder.add(NodeKind.SEND, run.frontier, message))
        run.executed.append(run.frontier)
