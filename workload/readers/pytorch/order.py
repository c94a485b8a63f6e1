"""What a node of a host trace waits for: the order of its thread, and the storages that it shares with others.

A host trace has no times and no GPU order. The rule is the least that a correct program guarantees:
calls of one thread begin one after the other; a network operation begins at its call and does not hold up its thread; a call
that touches a storage which a network operation writes, or writes one that it reads, waits for that operation; a
recorded wait waits for the operation of its number; a call that reads what another thread wrote waits for that. Calls
inside the operation's own call never wait for it. Every edge points to a smaller id, so there are no cycles. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from etloop.workload.readers.pytorch.comms import CommOp, Role
from etloop.workload.readers.pytorch.execution_trace import HostNode


@dataclass(slots=True)
class _Thread:
    last: int | None = None
    """Its last call that is no network operation."""
    waited: set[int] = field(default_factory=set)
    """Network operations that its calls wait for already."""
    seen: dict[int, int] = field(default_factory=dict)
    """Other thread -> the latest of its calls that is waited for."""


@dataclass(slots=True)
class _Storages:
    """Who touched each storage last: a call, or network operations."""

    writer: dict[int, int] = field(default_factory=dict)
    readers: dict[int, list[int]] = field(default_factory=dict)
    """Network operations that read it since it was written."""

    def before(self, reads: Iterable[int], writes: Iterable[int]) -> list[int]:
        """Calls and operations that must be done before one that reads and writes these."""
        found = [self.writer[one] for one in (*reads, *writes) if one in self.writer]
        for one in writes:
            found += self.readers.get(one, ())
        return found

    def note(self, node_id: int, reads: Iterable[int], writes: Iterable[int], is_op: bool) -> None:
        for one in writes:
            self.writer[one] = node_id
            self.readers.pop(one, None)
        for one in reads if is_op else ():
            if self.writer.get(one) != node_id:
                self.readers.setdefault(one, []).append(node_id)


def program_order(nodes: Sequence[HostNode], ops: Mapping[int, CommOp]) -> dict[int, list[int]]:
    """Node id -> the ids it waits for. `ops` are the network operations and the waits among the nodes."""
    threads: dict[int, _Thread] = {}
    storages = _Storages()
    thread_of: dict[int, int] = {}
    sequences: dict[int, list[int]] = {}
    inside: set[int] = set()
    waits_for: dict[int, list[int]] = {}
    for node in sorted(nodes, key=lambda one: one.node_id):
        op = ops.get(node.node_id)
        thread = threads.setdefault(node.thread, _Thread())
        is_op = op is not None and op.role is not Role.WAIT
        if node.parent in inside or _is_network(ops.get(node.parent)):
            inside.add(node.node_id)
        reads, writes = (op.reads, op.writes) if op and is_op else (node.reads, node.writes)
        before = [] if thread.last is None else [thread.last]
        if node.node_id not in inside:
            before += _new(storages.before(reads, writes), node.thread, thread, thread_of, is_op)
        if op is not None and op.role is Role.WAIT and op.sequence is not None:
            found = sequences.pop(op.sequence, [])
            before += [one for one in found if one not in thread.waited]
            thread.waited.update(found)
        waits_for[node.node_id] = list(dict.fromkeys(before))
        if node.node_id not in inside:
            storages.note(node.node_id, reads, writes, is_op)
        if is_op and op is not None:
            if op.sequence is not None:
                sequences.setdefault(op.sequence, []).append(node.node_id)
        else:
            thread.last = node.node_id
            thread_of[node.node_id] = node.thread
    return waits_for


def _is_network(op: CommOp | None) -> bool:
    return op is not None and op.role is not Role.WAIT


def _new(found: list[int], own: int, thread: _Thread, thread_of: Mapping[int, int], is_op: bool) -> list[int]:
    """Those of `found` that the thread does not wait for yet. An operation's waits do not hold up its thread."""
    new = []
    for one in found:
        other = thread_of.get(one)
        if one in thread.waited or (
            other is not None and (other == own or thread.seen.get(other, -1) >= one)
        ):
            continue
        new.append(one)
        if is_op:
            continue
        if other is None:
            thread.waited.add(one)
        else:
            thread.seen[other] = one
    return new
