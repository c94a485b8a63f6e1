"""Joins a host trace and a Kineto trace of the same rank: operations from the host, times and streams from the device.

Decides which NCCL kernel ran which operation: by record function ids if every kernel has one, else by order within
each communicator. Without any kernel (a CPU backend) the calls of the host keep their nodes and get their times. A
pair that does not match is refused, because it is of two runs. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Final

from etloop.workload.readers.json_stream import JsonFault
from etloop.workload.readers.pytorch.comms import CommOp, Role
from etloop.workload.readers.pytorch.device_comms import other_kernels
from etloop.workload.readers.pytorch.execution_trace import HostNode, HostTrace
from etloop.workload.readers.pytorch.groups import GroupBook
from etloop.workload.readers.pytorch.kernel_table import KernelTable
from etloop.workload.readers.pytorch.kineto import DeviceEvent, KinetoTrace, device_row
from etloop.workload.readers.pytorch.nccl_kernels import kernel_fits
from etloop.workload.readers.pytorch.process_groups import INIT_NAME
from etloop.workload.readers.pytorch.rank import RankRead, callers, fill_operation, host_ops, read_host

MAX_STREAMS_MATCHED: Final = 6
"""Limit of communicators whose streams are identified by trying all assignments."""

_HostOp = tuple[HostNode, CommOp]


def join(host: HostTrace, kineto: KinetoTrace, rank: int, book: GroupBook, table: KernelTable) -> RankRead:
    """Return the trace of one rank from both sources. Raises `JsonFault` if they do not match."""
    book.add(kineto.groups, "distributedInfo.pg_config")
    if not kineto.kernels and not other_kernels(kineto, book, table).rows:
        rank_read = read_host(host, rank, book, kineto.calls)
        if not any(node.record in kineto.calls for node in host.nodes):
            raise JsonFault(
                "traceEvents",
                "have no NCCL kernel and no call of the host trace, so the two files cannot be joined",
            )
        return rank_read
    book.add(host.groups, INIT_NAME)
    op_by_node = host_ops(host)
    ops = [
        (node, op_by_node[node.node_id])
        for node in sorted(host.nodes, key=lambda host_node: host_node.node_id)
        # The kernels of operations named in a table are described by Kineto alone.
        if node.node_id in op_by_node
        and op_by_node[node.node_id].role is not Role.WAIT
        and not _is_listed(node)
    ]
    book.learn((op, node.place) for node, op in ops)
    other_ops = other_kernels(kineto, book, table)
    op_of_kernel = _match_by_record(host, kineto, ops) or _match_by_order(kineto.kernels, ops, book)
    rows = []
    for node_id, event in enumerate(kineto.device):
        row = device_row(node_id, event)
        if event.communicates:
            fill_operation(row, op_of_kernel[event.place], rank, book)
        elif event.place in other_ops.rows:
            row = replace(other_ops.rows[event.place], node_id=node_id)
        rows.append(row)
    return RankRead(tuple(rows), host.schema, book.members, other_ops.remarks)


def _is_listed(node: HostNode) -> bool:
    return node.comm is not None and node.comm.listed is not None


def _match_by_record(
    host: HostTrace, kineto: KinetoTrace, ops: Sequence[_HostOp]
) -> dict[str, CommOp] | None:
    """Return the operation of each kernel, by the kernel's place; None unless the ids map every kernel to a different
    matching operation."""
    by_id = {node.node_id: node for node in host.nodes}
    by_record = {node.record: node for node in host.nodes if node.record > 0}
    op_of = {node.node_id: op for node, op in ops}
    for node, node_op in ops:
        for caller in callers(node, by_id)[:1]:
            op_of.setdefault(caller, node_op)
    op_of_kernel: dict[str, CommOp] = {}
    used_ops: set[int] = set()
    for event in kineto.kernels:
        call = by_record.get(kineto.record_of.get(event.external if event.external is not None else -1, -1))
        candidate_nodes = [call.node_id, *callers(call, by_id)] if call is not None else []
        op = next((op_of[node_id] for node_id in candidate_nodes if node_id in op_of), None)
        if op is None or id(op) in used_ops or not kernel_fits(event.name, op.collective):
            return None
        used_ops.add(id(op))
        op_of_kernel[event.place] = op
    return op_of_kernel if len(op_of_kernel) == len(ops) else None


def _match_by_order(
    kernels: Sequence[DeviceEvent], ops: Sequence[_HostOp], book: GroupBook
) -> dict[str, CommOp]:
    """Return the operation of each kernel, by the kernel's place: the k-th kernel of a communicator runs its k-th
    operation. Raises `JsonFault` if they do not match."""
    ops_by_group: dict[object, list[CommOp]] = defaultdict(list)
    for _, op in ops:
        ops_by_group[book.key_of(op)].append(op)
    have_group_names = all(isinstance(event.arguments.get("Process Group Name"), str) for event in kernels)
    kernels_by_lane: dict[object, list[DeviceEvent]] = defaultdict(list)
    for event in kernels:
        kernels_by_lane[event.arguments["Process Group Name"] if have_group_names else event.stream].append(
            event
        )
    if len(kernels) != len(ops):
        raise JsonFault(
            "traceEvents",
            f"have {len(kernels)} NCCL kernels for the {len(ops)} operations of the host "
            f"trace: the files are of different runs, or operations "
            "ran as one kernel",
        )
    if len(ops_by_group) == 1:
        pairs = [(list(kernels), next(iter(ops_by_group.values())))]
    elif have_group_names and kernels_by_lane.keys() == ops_by_group.keys():
        pairs = [(kernels_by_lane[key], ops_by_group[key]) for key in ops_by_group]
    else:
        pairs = _match_lanes(list(kernels_by_lane.values()), list(ops_by_group.values()))
    op_of_kernel = {}
    for events, group_ops in pairs:
        for event, op in zip(events, group_ops, strict=True):
            if not kernel_fits(event.name, op.collective):
                raise JsonFault(
                    event.place,
                    f"is {event.name[:48]!a}, where the host trace has {op.label}: the files are of different runs",
                )
            op_of_kernel[event.place] = op
    return op_of_kernel


def _match_lanes(
    lanes: list[list[DeviceEvent]], runs: list[list[CommOp]]
) -> list[tuple[list[DeviceEvent], list[CommOp]]]:
    """Pair each stream with the communicator whose operations fit its kernels. Raises `JsonFault` unless exactly one
    assignment fits."""
    if len(lanes) != len(runs) or len(runs) > MAX_STREAMS_MATCHED:
        raise JsonFault(
            "traceEvents",
            f"have NCCL kernels on {len(lanes)} streams for {len(runs)} groups, so streams cannot be matched to groups",
        )
    assignments = [
        order
        for order in permutations(range(len(runs)))
        if all(_fits(lane, runs[index]) for lane, index in zip(lanes, order, strict=True))
    ]
    if len(assignments) != 1:
        raise JsonFault(
            "traceEvents",
            f"have NCCL kernels on {len(lanes)} streams, which match the {len(runs)} groups in {len(assignments)} ways; "
            "expected 1",
        )
    return [(lane, runs[index]) for lane, index in zip(lanes, assignments[0], strict=True)]


def _fits(lane: list[DeviceEvent], run: list[CommOp]) -> bool:
    return len(lane) == len(run) and all(
        kernel_fits(event.name, op.collective) for event, op in zip(lane, run, strict=True)
    )
