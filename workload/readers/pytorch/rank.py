"""A host trace, alone or with CPU times, or a linked "ET+" trace, to the columns of one rank.

Decides which nodes are the network operations: the NCCL kernels where device operations are linked in, else
`record_param_comms`, else the `c10d::*` calls that have none below them. Every other call is compute. Decides what each
waits for: the order of its thread, and the storages that it shares with others (`program_order`). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.json_stream import JsonFault
from etloop.workload.readers.node_rows import NodeRow
from etloop.workload.readers.pytorch.comms import UNKNOWN_GROUP, CommOp, Role, comm_op
from etloop.workload.readers.pytorch.execution_trace import PARAM_COMMS, HostNode, HostTrace
from etloop.workload.readers.pytorch.groups import GroupBook
from etloop.workload.readers.pytorch.nccl_kernels import is_nccl_kernel, kernel_collective
from etloop.workload.readers.pytorch.process_groups import INIT_NAME
from etloop.workload.trace.trace import ABSENT, CollectiveKind, NodeKind

MAX_CALL_DEPTH: Final = 4096

BESIDE: Final = "give the {} traces of the same run beside it"

_BACKEND_MARKS: Final = ("nccl:", "gloo:", "mpi:", "ucc:")


@dataclass(frozen=True, slots=True)
class Remark:
    """What a source leaves out, or what was assumed for it, and what to do about it."""

    what: str
    remedy: str
    left_out: int = 0
    """How many kernels or calls communicate and cannot be replayed; 0 where it is about something else."""


@dataclass(frozen=True, slots=True)
class RankRead:
    """One rank as read, with remarks on its source."""

    rows: tuple[NodeRow, ...]
    schema: str
    groups: dict[str, tuple[int, ...]]
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class CallTimes:
    """When the host spent how long in a call, from Kineto."""

    start_ns: int
    duration_ns: int


def host_ops(host: HostTrace) -> dict[int, CommOp]:
    """Node id -> operation or wait, for the nodes that stand for one. Raises `JsonFault`."""
    by_id = {node.node_id: node for node in host.nodes}
    if len(by_id) < len(host.nodes):
        seen: set[int] = set()
        for node in host.nodes:
            if node.node_id in seen:
                raise JsonFault(node.place, f"has the id {node.node_id}, which another node has")
            seen.add(node.node_id)
    covered: set[int] = set()
    for node in host.nodes:
        if node.name == PARAM_COMMS:
            covered.update(callers(node, by_id))
    found = {}
    for node in host.nodes:
        if node.comm is not None and node.node_id not in covered and node.times_stream is None:
            op = comm_op(node)
            if op is not None and op.role is not Role.NOTHING:
                found[node.node_id] = op
    return found


def callers(node: HostNode, by_id: Mapping[int, HostNode]) -> list[int]:
    """Ids of the calls around a node, innermost first."""
    found: list[int] = []
    at = node
    while (above := by_id.get(at.parent)) and above is not at and len(found) < MAX_CALL_DEPTH:
        found.append(above.node_id)
        at = above
    return found


def read_host(host: HostTrace, rank: int, book: GroupBook, times: Mapping[int, CallTimes]) -> RankRead:
    """A host trace without device operations; `times` by record function id. Raises `JsonFault`."""
    ops = host_ops(host)
    _learn(host, ops, book)
    waits_for = program_order(host.nodes, ops)
    spent = _own_times(host, times)
    rows = []
    for node in host.nodes:
        op = ops.get(node.node_id)
        row = NodeRow(
            node.node_id,
            node.name,
            _kind(node),
            waits_for[node.node_id],
            (node.parent,),
            node.offset,
            is_cpu_op=1,
        )
        at = times.get(node.record)
        if at is not None:
            runs = op is not None and op.role is not Role.WAIT
            row.time(at.start_ns, at.duration_ns if runs else spent[node.node_id])
        if op is not None and op.role is not Role.WAIT:
            fill_operation(row, op, rank, book)
        rows.append(row)
    remarks = []
    if not times:
        remarks.append(Remark("a host trace alone has no times: compute takes none", BESIDE.format("Kineto")))
    network = [op for op in ops.values() if op.role is not Role.WAIT]
    if not network:
        what = "has neither record_param_comms nor c10d nodes: nothing in it communicates"
        remarks.append(Remark(what, "collect the trace of a distributed job"))
    remarks += _group_remarks(network, book)
    return RankRead(tuple(rows), host.schema, book.members, tuple(remarks))


def read_linked(host: HostTrace, rank: int, book: GroupBook) -> RankRead:
    """A linked trace: calls with their own time in the order of each thread, and device operations behind their launch."""
    by_id = {node.node_id: node for node in host.nodes}
    calls = host_ops(host)
    _learn(host, calls, book)
    below = {by_id[one].parent: op for one, op in calls.items() if op.role is not Role.WAIT}
    below.update({one: op for one, op in calls.items() if op.role is not Role.WAIT})
    last: dict[int, int] = {}
    rows = []
    missing = 0
    for node in sorted(host.nodes, key=lambda one: (one.times.start_ns if one.times else -1, one.node_id)):
        times = node.times
        on_device = times is not None and times.stream is not None
        awaited = list(times.awaited) if times else []
        if on_device:
            awaited.insert(0, node.parent)
        elif node.thread in last:
            awaited.insert(0, last[node.thread])
        row = NodeRow(
            node.node_id,
            node.name,
            _kind(node),
            list(dict.fromkeys(awaited)),
            (node.parent,),
            node.offset,
            is_cpu_op=0 if on_device else 1,
        )
        if times is not None:
            row.time(times.start_ns, times.exclusive_ns)
        if times is not None and times.stream is not None:
            row.stream = times.stream
            if is_nccl_kernel(node.name):
                op = below.get(node.parent)
                if op is None:
                    missing += 1
                    row.kind = NodeKind.COMM_COLL
                    row.comm_type = kernel_collective(node.name)
                else:
                    fill_operation(row, op, rank, book)
        else:
            last[node.thread] = node.node_id
        rows.append(row)
    order = {node.node_id: index for index, node in enumerate(host.nodes)}
    rows.sort(key=lambda row: order[row.node_id])
    remarks: tuple[Remark, ...] = ()
    if missing:
        what = f"{missing} NCCL kernels have no operation in their caller: their size is not known"
        remarks = (Remark(what, "give the host and the Kineto trace instead of the linked one"),)
    return RankRead(tuple(rows), host.schema, book.members, remarks)


def fill_operation(row: NodeRow, op: CommOp, rank: int, book: GroupBook) -> None:
    """Makes a row the network operation `op` of a rank."""
    row.kind = op.kind
    row.is_cpu_op = 0
    row.comm_size = op.size_bytes
    if op.role is Role.COLLECTIVE:
        row.comm_type = int(op.collective) if op.collective is not None else ABSENT
        row.pg_name = book.key_of(op)
        row.splits = op.splits
        row.expected_splits = op.expected_splits
        row.root = ABSENT if op.root is None else op.root
        if op.collective is CollectiveKind.SCATTER and not op.size_bytes:
            members = book.members.get(row.pg_name) if row.pg_name is not None else None
            row.comm_size = op.output_bytes * (len(members) if members else book.rank_count)
        return
    peer = book.global_rank(op)
    row.comm_src, row.comm_dst = (rank, ABSENT) if op.role is Role.SEND else (ABSENT, rank)
    row.comm_tag = op.tag
    if peer is not None:
        if op.role is Role.SEND:
            row.comm_dst = peer
        else:
            row.comm_src = peer


def _learn(host: HostTrace, ops: Mapping[int, CommOp], book: GroupBook) -> None:
    book.add(host.groups, INIT_NAME)
    places = {node.node_id: node.place for node in host.nodes if node.node_id in ops}
    book.learn((op, places[node_id]) for node_id, op in ops.items())


def _kind(node: HostNode) -> NodeKind:
    return NodeKind.METADATA if INIT_NAME in node.name else NodeKind.COMP


def _own_times(host: HostTrace, times: Mapping[int, CallTimes]) -> dict[int, int]:
    """Time of each call without the calls in it; what a backend does in the background is no time of the host."""
    own = {node.node_id: times[node.record].duration_ns if node.record in times else 0 for node in host.nodes}
    spent = dict(own)
    for node in host.nodes:
        if node.parent != node.node_id and node.parent in spent:
            spent[node.parent] -= own[node.node_id]
    return {
        node.node_id: 0 if node.name.startswith(_BACKEND_MARKS) else max(spent[node.node_id], 0)
        for node in host.nodes
    }


def _group_remarks(ops: list[CommOp], book: GroupBook) -> list[Remark]:
    remarks = []
    if book.lone_pointer:
        what = "the group of its collectives is a pointer inside the process: all ranks are taken, as there is only one"
        remarks.append(Remark(what, "state the group in a group file if it is another"))
    nameless = [op for op in ops if op.group == UNKNOWN_GROUP]
    if nameless and len(book.members) > 1:
        what = (
            f"{len(nameless)} operations do not say their group (gloo records {UNKNOWN_GROUP}): where sizes or splits fit "
            "one group only, it is that one; peers of sends and receives are taken as ranks among all"
        )
        remarks.append(Remark(what, "collect the trace over NCCL, which records the groups"))
    return remarks


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
    """Node id -> the ids it waits for. `ops` are the network operations and the waits among the nodes.

    A host trace has no times and no GPU order. The rule is the least that a correct program guarantees: calls of one thread
    begin one after the other; a network operation begins at its call and does not hold up its thread; a call that touches a
    storage which a network operation writes, or writes one that it reads, waits for that operation; a recorded wait waits for
    the operation of its number; a call that reads what another thread wrote waits for that. Calls inside the operation's own
    call never wait for it. Every edge points to a smaller id, so there are no cycles.
    """
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
