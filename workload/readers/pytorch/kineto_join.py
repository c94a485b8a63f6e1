"""A host trace and a Kineto trace of the same rank to one: what from the host, when and where from the device.

Decides which NCCL kernel ran which operation: by record function ids where every kernel has one, else by order inside each
communicator. Without any kernel (a CPU backend) the calls of the host keep their nodes and get their times. A pair that
does not fit is refused, as it is of two runs. Pure.
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
"""Communicators whose streams are told apart by trying all ways."""

_HostOp = tuple[HostNode, CommOp]


def join(host: HostTrace, kineto: KinetoTrace, rank: int, book: GroupBook, table: KernelTable) -> RankRead:
    """The trace of one rank from both. Raises `JsonFault` where they do not fit."""
    book.add(kineto.groups, "distributedInfo.pg_config")
    if not kineto.kernels and not other_kernels(kineto, book, table).rows:
        read = read_host(host, rank, book, kineto.calls)
        if not any(node.record in kineto.calls for node in host.nodes):
            raise JsonFault(
                "traceEvents",
                "have no NCCL kernel and no call of the host trace: nothing joins the two files",
            )
        return read
    book.add(host.groups, INIT_NAME)
    found = host_ops(host)
    ops = [
        (node, found[node.node_id])
        for node in sorted(host.nodes, key=lambda one: one.node_id)
        # What a table names runs kernels of its own, which are told by Kineto alone.
        if node.node_id in found and found[node.node_id].role is not Role.WAIT and not _is_listed(node)
    ]
    book.learn((op, node.place) for node, op in ops)
    others = other_kernels(kineto, book, table)
    matched = _by_record(host, kineto, ops) or _by_order(kineto.kernels, ops, book)
    rows = []
    for node_id, event in enumerate(kineto.device):
        row = device_row(node_id, event)
        if event.communicates:
            fill_operation(row, matched[event.place], rank, book)
        elif event.place in others.rows:
            row = replace(others.rows[event.place], node_id=node_id)
        rows.append(row)
    return RankRead(tuple(rows), host.schema, book.members, others.remarks)


def _is_listed(node: HostNode) -> bool:
    return node.comm is not None and node.comm.listed is not None


def _by_record(host: HostTrace, kineto: KinetoTrace, ops: Sequence[_HostOp]) -> dict[str, CommOp] | None:
    """Place of a kernel -> its operation, if the ids lead every kernel to one of its own kind; None otherwise."""
    by_id = {node.node_id: node for node in host.nodes}
    by_record = {node.record: node for node in host.nodes if node.record > 0}
    op_of = {node.node_id: op for node, op in ops}
    for node, run in ops:
        for caller in callers(node, by_id)[:1]:
            op_of.setdefault(caller, run)
    found: dict[str, CommOp] = {}
    used: set[int] = set()
    for event in kineto.kernels:
        call = by_record.get(kineto.record_of.get(event.external if event.external is not None else -1, -1))
        places = [call.node_id, *callers(call, by_id)] if call is not None else []
        op = next((op_of[one] for one in places if one in op_of), None)
        if op is None or id(op) in used or not kernel_fits(event.name, op.collective):
            return None
        used.add(id(op))
        found[event.place] = op
    return found if len(found) == len(ops) else None


def _by_order(kernels: Sequence[DeviceEvent], ops: Sequence[_HostOp], book: GroupBook) -> dict[str, CommOp]:
    """Place of a kernel -> its operation: the k-th kernel of a communicator runs its k-th operation."""
    runs: dict[object, list[CommOp]] = defaultdict(list)
    for _, op in ops:
        runs[book.key_of(op)].append(op)
    named = all(isinstance(event.arguments.get("Process Group Name"), str) for event in kernels)
    lanes: dict[object, list[DeviceEvent]] = defaultdict(list)
    for event in kernels:
        lanes[event.arguments["Process Group Name"] if named else event.stream].append(event)
    if len(kernels) != len(ops):
        raise JsonFault(
            "traceEvents",
            f"have {len(kernels)} NCCL kernels for the {len(ops)} operations of the host trace: of another run, or operations "
            "ran as one kernel",
        )
    if len(runs) == 1:
        pairs = [(list(kernels), next(iter(runs.values())))]
    elif named and lanes.keys() == runs.keys():
        pairs = [(lanes[key], runs[key]) for key in runs]
    else:
        pairs = _lanes_matched(list(lanes.values()), list(runs.values()))
    found = {}
    for events, group_ops in pairs:
        for event, op in zip(events, group_ops, strict=True):
            if not kernel_fits(event.name, op.collective):
                raise JsonFault(
                    event.place,
                    f"is {event.name[:48]!a}, where the host trace has {op.label}: the files are of different runs",
                )
            found[event.place] = op
    return found


def _lanes_matched(
    lanes: list[list[DeviceEvent]], runs: list[list[CommOp]]
) -> list[tuple[list[DeviceEvent], list[CommOp]]]:
    """The only way to give each stream one communicator whose operations fit its kernels."""
    if len(lanes) != len(runs) or len(runs) > MAX_STREAMS_MATCHED:
        raise JsonFault(
            "traceEvents",
            f"have NCCL kernels on {len(lanes)} streams for {len(runs)} groups: which is whose is not told",
        )
    ways = [
        order
        for order in permutations(range(len(runs)))
        if all(_fits(lane, runs[at]) for lane, at in zip(lanes, order, strict=True))
    ]
    if len(ways) != 1:
        raise JsonFault(
            "traceEvents",
            f"have NCCL kernels on {len(lanes)} streams, which fit the {len(runs)} groups in {len(ways)} ways; one was expected",
        )
    return [(lane, runs[at]) for lane, at in zip(lanes, ways[0], strict=True)]


def _fits(lane: list[DeviceEvent], run: list[CommOp]) -> bool:
    return len(lane) == len(run) and all(
        kernel_fits(event.name, op.collective) for event, op in zip(lane, run, strict=True)
    )
