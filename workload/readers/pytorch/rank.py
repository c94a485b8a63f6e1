"""Converts a host trace, alone or with CPU times, or a linked "ET+" trace, into the nodes of one rank.

Decides which nodes are the network operations: the NCCL kernels if device operations are linked in, else
`record_param_comms`, else the `c10d::*` calls that contain none of these. Every other call is compute. Decides the
dependencies of each node: the order of its thread, and the storages that it shares with other nodes
(`program_order`). Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.json_stream import JsonFault
from etloop.workload.readers.node_rows import NodeRow
from etloop.workload.readers.pytorch.comms import UNKNOWN_GROUP, CommOp, Role, comm_op
from etloop.workload.readers.pytorch.execution_trace import PARAM_COMMS, HostNode, HostTrace
from etloop.workload.readers.pytorch.groups import GroupBook
from etloop.workload.readers.pytorch.kernel_table import function_name, looks_communicating
from etloop.workload.readers.pytorch.nccl_kernels import is_nccl_kernel, kernel_collective
from etloop.workload.readers.pytorch.process_groups import INIT_NAME
from etloop.workload.trace.trace import ABSENT, CollectiveKind, NodeKind
from etloop.workload.trace.trace_names import printable_name

MAX_CALL_DEPTH: Final = 4096

BESIDE: Final = "give the {} traces of the same run as well"

_BACKEND_MARKS: Final = ("nccl:", "gloo:", "mpi:", "ucc:")


@dataclass(frozen=True, slots=True)
class Remark:
    """Content that a source lacks, or an assumption made for it, with advice."""

    text: str
    remedy: str
    left_out: int = 0
    """Number of kernels or calls that communicate and cannot be replayed; 0 for any other remark."""


@dataclass(frozen=True, slots=True)
class RankRead:
    """One rank as parsed, with remarks on its source."""

    rows: tuple[NodeRow, ...]
    schema: str
    groups: dict[str, tuple[int, ...]]
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class CallTimes:
    """Start and duration of a host call, from Kineto."""

    start_ns: int
    duration_ns: int


def host_ops(host: HostTrace) -> dict[int, CommOp]:
    """Return operations and waits by node id, for the nodes that represent one. Raises `JsonFault`."""
    by_id = {node.node_id: node for node in host.nodes}
    if len(by_id) < len(host.nodes):
        seen_ids: set[int] = set()
        for node in host.nodes:
            if node.node_id in seen_ids:
                raise JsonFault(node.place, f"has the id {node.node_id}, which another node has")
            seen_ids.add(node.node_id)
    covered: set[int] = set()
    for node in host.nodes:
        if node.name == PARAM_COMMS:
            covered.update(callers(node, by_id))
    ops = {}
    for node in host.nodes:
        if node.comm is not None and node.node_id not in covered and node.times_stream is None:
            op = comm_op(node)
            if op is not None and op.role is not Role.NOTHING:
                ops[node.node_id] = op
    return ops


def callers(node: HostNode, by_id: Mapping[int, HostNode]) -> list[int]:
    """Return the ids of the calls around a node, innermost first, at most `MAX_CALL_DEPTH`."""
    caller_ids: list[int] = []
    call = node
    while (caller := by_id.get(call.parent)) and caller is not call and len(caller_ids) < MAX_CALL_DEPTH:
        caller_ids.append(caller.node_id)
        call = caller
    return caller_ids


def read_host(host: HostTrace, rank: int, book: GroupBook, times: Mapping[int, CallTimes]) -> RankRead:
    """Convert a host trace without device operations. `times` are by record function id. Raises `JsonFault`."""
    ops = host_ops(host)
    _learn(host, ops, book)
    deps_by_node = program_order(host.nodes, ops)
    own_time_ns = _own_times(host, times)
    rows = []
    for node in host.nodes:
        op = ops.get(node.node_id)
        row = NodeRow(
            node.node_id,
            node.name,
            _kind(node),
            deps_by_node[node.node_id],
            (node.parent,),
            node.offset,
            is_cpu_op=1,
        )
        call_times = times.get(node.record)
        if call_times is not None:
            is_operation = op is not None and op.role is not Role.WAIT
            row.time(
                call_times.start_ns, call_times.duration_ns if is_operation else own_time_ns[node.node_id]
            )
        if op is not None and op.role is not Role.WAIT:
            fill_operation(row, op, rank, book)
        rows.append(row)
    remarks = []
    if not times:
        remarks.append(
            Remark(
                "a host trace without Kineto has no durations: compute is replayed with zero duration",
                BESIDE.format("Kineto"),
            )
        )
    network = [op for op in ops.values() if op.role is not Role.WAIT]
    if not network:
        problem = "has no communication: neither record_param_comms nor c10d nodes"
        remarks.append(Remark(problem, "collect the trace of a distributed job"))
    remarks += _group_remarks(network, book)
    return RankRead(tuple(rows), host.schema, book.members, tuple(remarks))


def read_linked(host: HostTrace, rank: int, book: GroupBook) -> RankRead:
    """Convert a linked trace: calls with their own time in the order of each thread, and device operations after their
    launch. Raises `JsonFault`."""
    by_id = {node.node_id: node for node in host.nodes}
    calls = host_ops(host)
    _learn(host, calls, book)
    op_of_caller = {by_id[node_id].parent: op for node_id, op in calls.items() if op.role is not Role.WAIT}
    op_of_caller.update({node_id: op for node_id, op in calls.items() if op.role is not Role.WAIT})
    last_of_thread: dict[int, int] = {}
    rows = []
    missing = 0
    others: Counter[str] = Counter()
    for node in sorted(
        host.nodes,
        key=lambda host_node: (host_node.times.start_ns if host_node.times else -1, host_node.node_id),
    ):
        times = node.times
        on_device = times is not None and times.stream is not None
        awaited = list(times.awaited) if times else []
        if on_device:
            awaited.insert(0, node.parent)
        elif node.thread in last_of_thread:
            awaited.insert(0, last_of_thread[node.thread])
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
                op = op_of_caller.get(node.parent)
                if op is None:
                    missing += 1
                    row.kind = NodeKind.COMM_COLL
                    row.comm_type = kernel_collective(node.name)
                else:
                    fill_operation(row, op, rank, book)
            elif looks_communicating(node.name):
                others[function_name(node.name)] += 1
        else:
            last_of_thread[node.thread] = node.node_id
        rows.append(row)
    order = {node.node_id: index for index, node in enumerate(host.nodes)}
    rows.sort(key=lambda row: order[row.node_id])
    remarks = []
    remedy = "give the host and the Kineto trace instead of the linked one"
    if missing:
        problem = f"{missing} NCCL kernels have no operation in their caller: their size is unknown"
        remarks.append(Remark(problem, remedy))
    if others:
        names = ", ".join(f"{count} {printable_name(name[:64])}" for name, count in others.most_common(6))
        problem = f"{others.total()} kernels have names of communication kernels, and are linked as compute: {names}"
        remarks.append(Remark(problem, remedy, left_out=others.total()))
    return RankRead(tuple(rows), host.schema, book.members, tuple(remarks))


def fill_operation(row: NodeRow, op: CommOp, rank: int, book: GroupBook) -> None:
    """Make a row the network operation `op` of a rank."""
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
    """Return the time of each call in ns, without the calls inside it, by node id; 0 for background work of a backend,
    which does not occupy the host."""
    duration_ns = {
        node.node_id: times[node.record].duration_ns if node.record in times else 0 for node in host.nodes
    }
    own_time_ns = dict(duration_ns)
    for node in host.nodes:
        if node.parent != node.node_id and node.parent in own_time_ns:
            own_time_ns[node.parent] -= duration_ns[node.node_id]
    return {
        node.node_id: 0 if node.name.startswith(_BACKEND_MARKS) else max(own_time_ns[node.node_id], 0)
        for node in host.nodes
    }


def _group_remarks(ops: list[CommOp], book: GroupBook) -> list[Remark]:
    remarks = []
    if book.lone_pointer:
        problem = "the only group of its collectives is recorded as a pointer inside the process: all ranks are used"
        remarks.append(Remark(problem, "state the group in a group file if it does not have all ranks"))
    nameless = [op for op in ops if op.group == UNKNOWN_GROUP]
    if nameless and len(book.members) > 1:
        problem = (
            f"{len(nameless)} operations do not state their group (gloo records "
            f"{UNKNOWN_GROUP}): a group is assumed where sizes or splits fit "
            "only one; peers of sends and receives are read as global ranks"
        )
        remarks.append(Remark(problem, "collect the trace over NCCL, which records the groups"))
    unsized = sum(op.collective is CollectiveKind.SCATTER and not op.size_bytes for op in nameless)
    if unsized and len(book.members) > 1:
        problem = (
            f"{unsized} scatters state neither their group nor the root's bytes: their bytes are those of a scatter to all "
            f"{book.rank_count} ranks"
        )
        remarks.append(Remark(problem, "collect the trace over NCCL, or state the group in a group file"))
    return remarks


@dataclass(slots=True)
class _Thread:
    last: int | None = None
    """Last call of the thread that is not a network operation."""
    waited: set[int] = field(default_factory=set)
    """Network operations that its calls wait for already."""
    seen: dict[int, int] = field(default_factory=dict)
    """For each other thread, its latest call that this thread waits for already."""


@dataclass(slots=True)
class _Storages:
    """Last users of each storage: the last writer, and the network operations that read it since."""

    writer: dict[int, int] = field(default_factory=dict)
    readers: dict[int, list[int]] = field(default_factory=dict)
    """Network operations that read it since it was last written."""

    def before(self, reads: Iterable[int], writes: Iterable[int]) -> list[int]:
        """Return the calls and operations that must finish before one that reads and writes these storages."""
        users = [self.writer[storage] for storage in (*reads, *writes) if storage in self.writer]
        for storage in writes:
            users += self.readers.get(storage, ())
        return users

    def note(self, node_id: int, reads: Iterable[int], writes: Iterable[int], is_op: bool) -> None:
        """Record that a node reads and writes these storages. `is_op` marks a network operation, whose reads are
        remembered."""
        for storage in writes:
            self.writer[storage] = node_id
            self.readers.pop(storage, None)
        for storage in reads if is_op else ():
            if self.writer.get(storage) != node_id:
                self.readers.setdefault(storage, []).append(node_id)


def program_order(nodes: Sequence[HostNode], ops: Mapping[int, CommOp]) -> dict[int, list[int]]:
    """Return the ids that each node waits for, by node id. `ops` are the network operations and the waits among the
    nodes.

    A host trace has no times and no GPU order. The rule is the least that a correct program guarantees: calls of one
    thread begin one after another; a network operation begins at its call and does not block its thread; a call
    waits for a network operation that writes a storage it touches, or reads a storage it writes; a recorded wait
    waits for the operations of its number; a call waits for a call of another thread that wrote a storage it reads.
    Calls inside the operation's own call never wait for it. Every edge points to a smaller id, so there are no
    cycles.
    """
    threads: dict[int, _Thread] = {}
    storages = _Storages()
    thread_of: dict[int, int] = {}
    sequences: dict[int, list[int]] = {}
    inside_ops: set[int] = set()
    deps_by_node: dict[int, list[int]] = {}
    for node in sorted(nodes, key=lambda host_node: host_node.node_id):
        op = ops.get(node.node_id)
        thread = threads.setdefault(node.thread, _Thread())
        is_op = op is not None and op.role is not Role.WAIT
        if node.parent in inside_ops or _is_network(ops.get(node.parent)):
            inside_ops.add(node.node_id)
        reads, writes = (op.reads, op.writes) if op and is_op else (node.reads, node.writes)
        awaited = [] if thread.last is None else [thread.last]
        if node.node_id not in inside_ops:
            awaited += _not_yet_awaited(storages.before(reads, writes), node.thread, thread, thread_of, is_op)
        if op is not None and op.role is Role.WAIT and op.sequence is not None:
            awaited_ops = sequences.pop(op.sequence, [])
            awaited += [node_id for node_id in awaited_ops if node_id not in thread.waited]
            thread.waited.update(awaited_ops)
        deps_by_node[node.node_id] = list(dict.fromkeys(awaited))
        if node.node_id not in inside_ops:
            storages.note(node.node_id, reads, writes, is_op)
        if is_op and op is not None:
            if op.sequence is not None:
                sequences.setdefault(op.sequence, []).append(node.node_id)
        else:
            thread.last = node.node_id
            thread_of[node.node_id] = node.thread
    return deps_by_node


def _is_network(op: CommOp | None) -> bool:
    return op is not None and op.role is not Role.WAIT


def _not_yet_awaited(
    node_ids: list[int], own: int, thread: _Thread, thread_of: Mapping[int, int], is_op: bool
) -> list[int]:
    """Return those of `node_ids` that the thread does not wait for yet. The waits of an operation do not block its thread."""
    pending = []
    for node_id in node_ids:
        other_thread = thread_of.get(node_id)
        if node_id in thread.waited or (
            other_thread is not None and (other_thread == own or thread.seen.get(other_thread, -1) >= node_id)
        ):
            continue
        pending.append(node_id)
        if is_op:
            continue
        if other_thread is None:
            thread.waited.add(node_id)
        else:
            thread.seen[other_thread] = node_id
    return pending
