"""Why nothing moves: follows what every unfinished op waits for down to the link or rank that holds all others up.

Pure: wait records of the agents and the plan in, words out. When to ask and what to do with the answer is the
session's business. Wait records come from the network, so every index in them is checked before it is used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
from etloop.contract.base.ip_address import ip_text
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import Assignment, Path
from etloop.contract.model.records import WaitKind
from etloop.contract.model.run import PlannedOps, PlanTables
from etloop.workload.trace.program import OpKind
from etloop.workload.trace.trace import CollectiveKind
from numpy.typing import NDArray

_MAX_LINES: Final = 12
"""Longest chain printed in full; of a longer one both ends."""
_MAX_OTHERS: Final = 4


@dataclass(frozen=True, slots=True)
class StallEvidence:
    """What the agents answered."""

    waits: Mapping[str, NDArray[np.void]]
    """Agent -> its wait records."""
    silent: tuple[str, ...]
    """Agents that did not answer (in full)."""


@dataclass(frozen=True, slots=True)
class StallFinding:
    """What the evidence says."""

    computing: bool
    """A rank is inside a compute delay: quiet, but not stuck."""
    text: str


class _Key(NamedTuple):
    rank: int
    op: int
    iteration: int


class _Wait(NamedTuple):
    """A wait record; the order of fields is that of `WAIT_RECORD`, then the agent that wrote it."""

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
    """Ends of a chain, the most telling first."""

    LINK = 0
    SILENT_AGENT = 1
    PEER = 2


class _Step(NamedTuple):
    """A wait and what it leads to; `target` None: the chain ends here."""

    wait: _Wait
    target: _Key | None
    blame: _Blame


def explain(
    evidence: StallEvidence, assignments: Mapping[str, Assignment], tables: PlanTables
) -> StallFinding:
    """The wait-for chain in words, or which rank computes."""
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
            # What another lane of the same op waits for is the cause; the lane behind it adds nothing.
            self._waits[key] = [wait for wait in waits if wait.kind != WaitKind.LANE] or waits
        self._earliest: dict[int, _Key] = {}
        for key, waits in sorted(self._waits.items(), key=lambda item: (item[0].iteration, item[0].op)):
            if any(wait.kind != WaitKind.DEPENDENCY for wait in waits):
                self._earliest.setdefault(key.rank, key)

    def finding(self) -> StallFinding:
        for key, waits in sorted(self._waits.items()):
            if any(wait.kind == WaitKind.DELAY for wait in waits):
                return StallFinding(True, f"rank {key.rank} computes (delay op {key.op} of its program)")
        silent = "".join(f"\nagent '{name}' did not answer what it waits for" for name in self._silent)
        if not self._waits:
            return StallFinding(False, f"no agent reports an unfinished operation{silent}")
        steps = {key: self._steps(key) for key in sorted(self._waits)}
        ends = [step for each in steps.values() for step in each if step.target is None]
        lines = self._chain(steps, ends) if ends else self._cycle(steps)
        return StallFinding(False, "\n".join(lines) + silent)

    # ---- the graph

    def _steps(self, key: _Key) -> list[_Step]:
        return [self._step(wait) for wait in self._waits[key]]

    def _step(self, wait: _Wait) -> _Step:
        if wait.kind == WaitKind.ACKNOWLEDGEMENT:
            return _Step(wait, None, _Blame.LINK)
        if wait.kind == WaitKind.LANE:
            return _Step(wait, None, _Blame.PEER)
        if wait.kind == WaitKind.DEPENDENCY:
            target = self._unfinished(_Key(wait.rank, wait.blocking_op, wait.iteration))
            return _Step(wait, target, _Blame.PEER)
        target = self._peer_op(wait)
        silent = self._agent_of(wait.peer_rank) in self._silent
        return _Step(wait, target, _Blame.SILENT_AGENT if silent else _Blame.PEER)

    def _unfinished(self, key: _Key) -> _Key | None:
        """The op itself if it is unfinished, or what keeps its rank in an earlier iteration."""
        if key in self._waits:
            return key
        earliest = self._earliest.get(key.rank)
        return earliest if earliest is not None and earliest.iteration < key.iteration else None

    def _peer_op(self, wait: _Wait) -> _Key | None:
        """The part that the peer has in the same collective or transfer, if it is unfinished."""
        ops, row = self._tables.ops, self._row(wait.key)
        if row is None:
            return None
        begin, end = np.searchsorted(ops.rank, [wait.peer_rank, wait.peer_rank + 1])
        same = ops.sequence[begin:end] == ops.sequence[row]
        if ops.kind[row] == OpKind.COLLECTIVE:
            same &= ops.communicator[begin:end] == ops.communicator[row]
        else:
            mirror = OpKind.RECV if ops.kind[row] == OpKind.SEND else OpKind.SEND
            same &= (ops.kind[begin:end] == mirror) & (ops.peer[begin:end] == wait.rank)
        found = np.flatnonzero(same)
        if not len(found):
            return None
        return self._unfinished(_Key(wait.peer_rank, int(ops.op[begin + found[0]]), wait.iteration))

    def _row(self, key: _Key) -> int | None:
        ops: PlannedOps = self._tables.ops
        begin, end = (int(bound) for bound in np.searchsorted(ops.rank, [key.rank, key.rank + 1]))
        row = begin + int(np.searchsorted(ops.op[begin:end], key.op))
        return row if row < end and ops.op[row] == key.op else None

    # ---- what to print of it

    def _chain(self, steps: Mapping[_Key, list[_Step]], ends: list[_Step]) -> list[str]:
        last = min(ends, key=lambda step: (step.blame, step.wait.iteration, step.wait.key))
        towards = _next_steps(steps, last.wait.key)
        begin = next(reversed(towards), None)
        chain: list[_Step] = []
        key = begin if begin is not None else last.wait.key
        while key != last.wait.key:
            chain.append(towards[key])
            target = towards[key].target
            assert target is not None
            key = target
        lines = [self._sentence(step) for step in (*chain, last)]
        if len(lines) > _MAX_LINES:
            half = _MAX_LINES // 2
            lines[half:-half] = [f"... {len(lines) - 2 * half} more between ..."]
        return lines + self._others(ends, last)

    def _others(self, ends: list[_Step], last: _Step) -> list[str]:
        pair = (last.wait.rank, last.wait.peer_rank)
        pairs = {(step.wait.rank, step.wait.peer_rank) for step in ends if step.blame is _Blame.LINK} - {pair}
        if not pairs:
            return []
        shown = ", ".join(f"rank {rank} -> rank {peer}" for rank, peer in sorted(pairs)[:_MAX_OTHERS])
        more = f" and {len(pairs) - _MAX_OTHERS} more pairs" if len(pairs) > _MAX_OTHERS else ""
        return [f"acknowledgements are also missing on {shown}{more}"]

    def _cycle(self, steps: Mapping[_Key, list[_Step]]) -> list[str]:
        """Every wait leads to another one: walk until an op comes twice."""
        key = next(iter(steps))
        walked: dict[_Key, _Step] = {}
        while key not in walked and steps[key]:
            walked[key] = steps[key][0]
            target = walked[key].target
            assert target is not None
            key = target
        keys = list(walked)
        cycle = keys[keys.index(key) :] if key in walked else keys
        return ["the waits form a cycle:", *(self._sentence(walked[each]) for each in cycle[:_MAX_LINES])]

    def _sentence(self, step: _Step) -> str:
        wait = step.wait
        where = f"rank {wait.rank} {self._op_text(wait.key)} waits for"
        done = (
            f" ({wait.messages_done} of {wait.messages_total} messages done)"
            if wait.messages_total > 0
            else ""
        )
        peer = f"rank {wait.peer_rank}{self._link_text(wait)}"
        if wait.kind == WaitKind.DEPENDENCY:
            blocking = _Key(wait.rank, wait.blocking_op, wait.iteration)
            sentence = f"{where} its {self._op_text(blocking)}"
            done = ""
        elif wait.kind == WaitKind.LANE:
            return f"{where} {WaitKind.NAMES[wait.kind]}, which none of its own steps releases"
        elif wait.kind == WaitKind.ACKNOWLEDGEMENT:
            return f"{where} an acknowledgement from {peer}: packet {wait.psn} was never acknowledged"
        elif 0 <= wait.kind < len(WaitKind.NAMES):
            sentence = f"{where} {WaitKind.NAMES[wait.kind]} from {peer}"
        else:
            sentence = f"{where} something unknown (kind {wait.kind})"
        return sentence + done + ("" if step.target is not None else self._ending(step))

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
    """For every op that hangs on `last`: its first step on a shortest way there; the farthest op comes last."""
    behind: dict[_Key, list[_Step]] = {}
    for each in steps.values():
        for step in each:
            if step.target is not None:
                behind.setdefault(step.target, []).append(step)
    towards: dict[_Key, _Step] = {}
    front = deque([last])
    while front:
        for step in behind.get(front.popleft(), ()):
            key = step.wait.key
            if key != last and key not in towards:
                towards[key] = step
                front.append(key)
    return towards
