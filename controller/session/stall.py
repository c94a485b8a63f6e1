"""Explain why a run makes no progress: follow the waits of unfinished ops to the link or rank that blocks them all.

Pure: takes the agents' wait records and the plan, returns text. The session decides when to ask and how to act on the
answer. Wait records come from the network, so every index in them is checked before use.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.ip_address import ip_text
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import Assignment, Path
from etloop.contract.model.records import NO_PSN, WaitKind
from etloop.contract.model.run import PlannedOps, PlanTables
from etloop.workload.trace.program import OpKind
from etloop.workload.trace.trace import CollectiveKind

_MAX_LINES: Final = 12
"""Longest chain printed in full; a longer one is printed with both ends only."""
_MAX_OTHERS: Final = 4


@dataclass(frozen=True, slots=True)
class StallEvidence:
    """The agents' answers to a `QueryWaits`."""

    waits: Mapping[str, NDArray[np.void]]
    """Agent -> its wait records (`WAIT_RECORD`)."""
    silent: tuple[str, ...]
    """Agents that did not answer, or not completely."""


@dataclass(frozen=True, slots=True)
class StallFinding:
    """The conclusion from the evidence."""

    computing: bool
    """A rank is in a compute delay: no traffic, but not stuck."""
    text: str


class _Key(NamedTuple):
    rank: int
    op: int
    iteration: int


class _Wait(NamedTuple):
    """A wait record: the fields of `WAIT_RECORD` in their order, then the agent that wrote it."""

    rank: int
    op: int
    iteration: int
    kind: int
    peer_rank: int
    blocking_op: int
    connection: int
    messages_done: int
    messages_total: int
    psn: int
    agent: str

    @property
    def key(self) -> _Key:
        return _Key(self.rank, self.op, self.iteration)


class _Blame(IntEnum):
    """Kinds of ends of a chain, the most conclusive first."""

    LINK = 0
    SILENT_AGENT = 1
    PEER = 2


class _Step(NamedTuple):
    """A wait and the op that it depends on; `target` None ends the chain."""

    wait: _Wait
    target: _Key | None
    blame: _Blame


def explain(
    evidence: StallEvidence, assignments: Mapping[str, Assignment], tables: PlanTables
) -> StallFinding:
    """Return the wait-for chain as text, or the rank that computes."""
    return _Stall(evidence, assignments, tables).finding()


class _Stall:
    def __init__(
        self, evidence: StallEvidence, assignments: Mapping[str, Assignment], tables: PlanTables
    ) -> None:
        self._assignments = assignments
        self._tables = tables
        self._silent = evidence.silent
        self._waits: dict[_Key, list[_Wait]] = {}
        for agent, records in evidence.waits.items():
            for row in records.tolist():
                wait = _Wait._make((*row, agent))
                self._waits.setdefault(wait.key, []).append(wait)
        for key, waits in self._waits.items():
            # A lane that waits for another lane of its op adds nothing: the other lane's own wait is the cause.
            self._waits[key] = [wait for wait in waits if wait.kind != WaitKind.LANE] or waits
        self._earliest: dict[int, _Key] = {}
        for key, waits in sorted(self._waits.items(), key=lambda item: (item[0].iteration, item[0].op)):
            if any(wait.kind != WaitKind.DEPENDENCY for wait in waits):
                self._earliest.setdefault(key.rank, key)

    def finding(self) -> StallFinding:
        """Return the conclusion from all wait records."""
        for key, waits in sorted(self._waits.items()):
            if any(wait.kind == WaitKind.DELAY for wait in waits):
                return StallFinding(True, f"rank {key.rank} computes (delay op {key.op} of its program)")
        silent_lines = "".join(f"\nagent '{name}' did not report what it waits for" for name in self._silent)
        if not self._waits:
            return StallFinding(False, f"no agent reports an unfinished operation{silent_lines}")
        steps = {key: self._steps(key) for key in sorted(self._waits)}
        ends = [step for steps_of_op in steps.values() for step in steps_of_op if step.target is None]
        lines = self._chain(steps, ends) if ends else self._cycle(steps)
        return StallFinding(False, "\n".join(lines) + silent_lines)

    # ---- the graph

    def _steps(self, key: _Key) -> list[_Step]:
        return [self._step(wait) for wait in self._waits[key]]

    def _step(self, wait: _Wait) -> _Step:
        if wait.kind == WaitKind.ACKNOWLEDGEMENT:
            # Where every packet that was sent is acknowledged, the link is not to blame: the rest waits for its turn to be sent.
            return _Step(wait, None, _Blame.PEER if wait.psn == NO_PSN else _Blame.LINK)
        if wait.kind == WaitKind.LANE:
            return _Step(wait, None, _Blame.PEER)
        if wait.kind == WaitKind.DEPENDENCY:
            target = self._blocking_key(_Key(wait.rank, wait.blocking_op, wait.iteration))
            return _Step(wait, target, _Blame.PEER)
        target = self._peer_op(wait)
        silent = self._agent_of(wait.peer_rank) in self._silent
        return _Step(wait, target, _Blame.SILENT_AGENT if silent else _Blame.PEER)

    def _blocking_key(self, key: _Key) -> _Key | None:
        """Return the op itself if it is unfinished, else what its rank still waits for in an earlier iteration; else None."""
        if key in self._waits:
            return key
        earliest = self._earliest.get(key.rank)
        return earliest if earliest is not None and earliest.iteration < key.iteration else None

    def _peer_op(self, wait: _Wait) -> _Key | None:
        """Return the peer's op in the same collective or transfer if it is unfinished; else None."""
        ops, row = self._tables.ops, self._row(wait.key)
        if row is None:
            return None
        begin, end = np.searchsorted(ops.rank, [wait.peer_rank, wait.peer_rank + 1])
        is_counterpart = ops.sequence[begin:end] == ops.sequence[row]
        if ops.kind[row] == OpKind.COLLECTIVE:
            is_counterpart &= ops.communicator[begin:end] == ops.communicator[row]
        else:
            counterpart_kind = OpKind.RECV if ops.kind[row] == OpKind.SEND else OpKind.SEND
            is_counterpart &= (ops.kind[begin:end] == counterpart_kind) & (ops.peer[begin:end] == wait.rank)
        matches = np.flatnonzero(is_counterpart)
        if not len(matches):
            return None
        return self._blocking_key(_Key(wait.peer_rank, int(ops.op[begin + matches[0]]), wait.iteration))

    def _row(self, key: _Key) -> int | None:
        ops: PlannedOps = self._tables.ops
        begin, end = (int(bound) for bound in np.searchsorted(ops.rank, [key.rank, key.rank + 1]))
        row = begin + int(np.searchsorted(ops.op[begin:end], key.op))
        return row if row < end and ops.op[row] == key.op else None

    # ---- text

    def _chain(self, steps: Mapping[_Key, list[_Step]], ends: list[_Step]) -> list[str]:
        blocker = min(ends, key=lambda step: (step.blame, step.wait.iteration, step.wait.key))
        next_step = _next_steps(steps, blocker.wait.key)
        begin = next(reversed(next_step), None)
        chain: list[_Step] = []
        key = begin if begin is not None else blocker.wait.key
        while key != blocker.wait.key:
            chain.append(next_step[key])
            target = next_step[key].target
            assert target is not None
            key = target
        lines = [self._sentence(step) for step in (*chain, blocker)]
        if len(lines) > _MAX_LINES:
            half = _MAX_LINES // 2
            lines[half:-half] = [f"... {len(lines) - 2 * half} more between ..."]
        return lines + self._others(ends, blocker)

    def _others(self, ends: list[_Step], last: _Step) -> list[str]:
        pair = (last.wait.rank, last.wait.peer_rank)
        pairs = {(step.wait.rank, step.wait.peer_rank) for step in ends if step.blame is _Blame.LINK} - {pair}
        if not pairs:
            return []
        pairs_text = ", ".join(f"rank {rank} -> rank {peer}" for rank, peer in sorted(pairs)[:_MAX_OTHERS])
        more_text = f" and {len(pairs) - _MAX_OTHERS} more pairs" if len(pairs) > _MAX_OTHERS else ""
        return [f"acknowledgements are also missing on {pairs_text}{more_text}"]

    def _cycle(self, steps: Mapping[_Key, list[_Step]]) -> list[str]:
        """Return the lines of a wait cycle: every wait depends on another one, so walk until an op repeats."""
        key = next(iter(steps))
        walked: dict[_Key, _Step] = {}
        while key not in walked and steps[key]:
            walked[key] = steps[key][0]
            target = walked[key].target
            assert target is not None
            key = target
        keys = list(walked)
        cycle = keys[keys.index(key) :] if key in walked else keys
        return ["the waits form a cycle:", *(self._sentence(walked[op]) for op in cycle[:_MAX_LINES])]

    def _sentence(self, step: _Step) -> str:
        wait = step.wait
        subject = f"rank {wait.rank} {self._op_text(wait.key)} waits for"
        progress = (
            f" ({wait.messages_done} of {wait.messages_total} messages done)"
            if wait.messages_total > 0
            else ""
        )
        peer = f"rank {wait.peer_rank}{self._link_text(wait)}"
        if wait.kind == WaitKind.DEPENDENCY:
            blocking = _Key(wait.rank, wait.blocking_op, wait.iteration)
            sentence = f"{subject} its {self._op_text(blocking)}"
            progress = ""
        elif wait.kind == WaitKind.LANE:
            return f"{subject} {WaitKind.NAMES[wait.kind]}, which none of its own steps releases"
        elif wait.kind == WaitKind.ACKNOWLEDGEMENT:
            if wait.psn == NO_PSN:
                return f"{subject} its turn to send to {peer}: every packet that it sent is acknowledged"
            return f"{subject} an acknowledgement from {peer}: packet {wait.psn} was never acknowledged"
        elif 0 <= wait.kind < len(WaitKind.NAMES):
            sentence = f"{subject} {WaitKind.NAMES[wait.kind]} from {peer}"
        else:
            sentence = f"{subject} something unknown (kind {wait.kind})"
        return sentence + progress + ("" if step.target is not None else self._ending(step))

    def _ending(self, step: _Step) -> str:
        agent = self._agent_of(step.wait.peer_rank)
        if step.blame is _Blame.SILENT_AGENT:
            return f"; its agent '{agent}' did not answer"
        if step.wait.kind == WaitKind.DEPENDENCY:
            return ", which is not reported as unfinished"
        return f", which reports nothing unfinished there (agent '{agent}')"

    def _op_text(self, key: _Key) -> str:
        tables, ops, row = self._tables, self._tables.ops, self._row(key)
        if row is None:
            return f"delay (op {key.op})"
        iteration = f", iteration {key.iteration}" if tables.iterations > 1 else ""
        node = f"({tables.node_words(row)}{iteration})"
        match OpKind(int(ops.kind[row])):
            case OpKind.COLLECTIVE:
                name = CollectiveKind(int(ops.collective[row])).name.lower()
                communicator = tables.communicators[int(ops.communicator[row])][0]
                return f"{name} #{ops.sequence[row]} of communicator {communicator} {node}"
            case OpKind.SEND:
                return f"send #{ops.sequence[row]} to rank {ops.peer[row]} {node}"
            case OpKind.RECV:
                return f"receive #{ops.sequence[row]} from rank {ops.peer[row]} {node}"
            case OpKind.DELAY:
                return f"delay (op {key.op})"

    def _link_text(self, wait: _Wait) -> str:
        assignment = self._assignments.get(wait.agent)
        if assignment is None or not 0 <= wait.connection < len(assignment.connections.src_rank):
            return ""
        columns, row = assignment.connections, wait.connection
        if columns.path[row] != Path.WIRE:
            return f" ({Path(int(columns.path[row])).name.lower().replace('_', '-')})"
        first = int(columns.qp_offsets[row])
        local, remote, qpn = columns.src_ip[row], columns.dst_ip[row], columns.dst_qpn[first]
        if columns.src_rank[row] != wait.rank:
            local, remote, qpn = remote, local, columns.src_qpn[first]
        return f" ({ip_text(local)} -> {ip_text(remote)}, qpn {int(qpn):#x})"

    def _agent_of(self, rank: int) -> str:
        return self._tables.rank_agent[rank] if 0 <= rank < len(self._tables.rank_agent) else "?"


def _next_steps(steps: Mapping[_Key, list[_Step]], last: _Key) -> dict[_Key, _Step]:
    """Return for every op that depends on `last`, directly or not, its first step on a shortest chain to it.

    Ordered by distance: the farthest op comes last.
    """
    waiting_for: dict[_Key, list[_Step]] = {}
    for steps_of_op in steps.values():
        for step in steps_of_op:
            if step.target is not None:
                waiting_for.setdefault(step.target, []).append(step)
    next_step: dict[_Key, _Step] = {}
    queue = deque([last])
    while queue:
        for step in waiting_for.get(queue.popleft(), ()):
            key = step.wait.key
            if key != last and key not in next_step:
                next_step[key] = step
                queue.append(key)
    return next_step
