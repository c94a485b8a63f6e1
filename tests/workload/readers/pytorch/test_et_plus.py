"""Linked ("ET+") traces: NCCL kernels are the operations, calls take their own time, devices wait for their launch."""

from __future__ import annotations

from typing import Any

import pytest

from etloop.workload.readers.json_sources import rank_of, read_document
from etloop.workload.readers.json_stream import JsonFault
from etloop.workload.trace.trace import ABSENT, CollectiveKind, NodeKind, RankTrace
from tests.support.traces.json_traces_by_hand import Json, call, comms, host, tensor

KERNEL = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)"


def at(node: Json, ts: float, inclusive: float, exclusive: float | None = None, **more: Any) -> Json:
    """What the linker adds to a node."""
    times = {
        "ts": ts,
        "inclusive_dur": inclusive,
        "exclusive_dur": inclusive if exclusive is None else exclusive,
    }
    return {**node, **times, "inter_thread_dep": None, **more}


def on_device(node: Json, ts: float, duration: float, stream: int, **more: Any) -> Json:
    return at(node, ts, duration, stream=stream, cat="kernel", ph="X", **more)


def read(*nodes: Json) -> RankTrace:
    return rank_of((read_document(iter([host(*nodes)])),), "w", 0, 2, alone=False)[0]


def waits_for(trace: RankTrace, node_id: int) -> list[int]:
    index = trace.node_id.tolist().index(node_id)
    found: list[int] = trace.data_deps[index].tolist()
    return found


CALL = at(call(10, "c10d::allreduce_", [[tensor(5, 6, 4)], "<Object>"]), 100, 30, 12.5)
KERNELS = on_device(call(11, KERNEL, [[tensor(5, 6, 4)], "<Object>"], parent=10), 140, 500.25, 40)
RECORD = at(comms(12, "allreduce", [tensor(5, 6, 4)], parent=10, where=(0, 1, 2)), 105, 20)
GEMM = on_device(call(13, "gemm", parent=14), 160, 5, 7, sync_dep=[11])
LAUNCH = at(call(14, "aten::mm"), 150, 8, 2, inter_thread_dep=15)
OTHER = at(call(15, "other", thread=5), 120, 9)


def test_the_kernel_is_the_operation_and_its_caller_tells_what() -> None:
    trace = read(CALL, KERNELS, RECORD, GEMM, LAUNCH, OTHER)
    assert trace.kind[:6].tolist() == [NodeKind.COMP, NodeKind.COMM_COLL, *[NodeKind.COMP] * 4]
    assert (trace.comm.type[1], trace.comm.size[1], trace.pg_names) == (CollectiveKind.ALL_REDUCE, 16, ("0",))
    assert trace.groups == {"0": (0, 1)}
    assert trace.is_cpu_op[:4].tolist() == [1, 0, 1, 0]
    assert trace.stream is not None
    assert trace.start_ns is not None
    assert trace.duration_ns is not None
    assert trace.stream[:6].tolist() == [ABSENT, 40, ABSENT, 7, ABSENT, ABSENT]
    assert trace.start_ns[:2].tolist() == [100_000, 140_000]
    assert trace.duration_ns[:2].tolist() == [12_500, 500_250]


def test_devices_wait_for_their_launch_and_calls_for_their_thread() -> None:
    trace = read(CALL, KERNELS, RECORD, GEMM, LAUNCH, OTHER)
    assert waits_for(trace, 11) == [10]
    assert waits_for(trace, 13) == [14, 11]
    assert waits_for(trace, 12) == [10]
    assert waits_for(trace, 14) == [12, 15]
    assert waits_for(trace, 15) == []


def test_a_kernel_whose_caller_tells_nothing_is_an_operation_of_unknown_size() -> None:
    document = read_document(iter([host(KERNELS, at(call(10, "graph"), 1, 1))]))
    trace, remarks = rank_of((document,), "w", 0, 2, alone=False)
    assert (trace.kind[0], trace.comm.type[0], trace.comm.size[0]) == (
        NodeKind.COMM_COLL,
        CollectiveKind.ALL_REDUCE,
        ABSENT,
    )
    assert [remark.text for remark in remarks] == [
        "1 NCCL kernels have no operation in their caller: their size is unknown"
    ]


def test_times_that_are_none_are_refused_with_their_place() -> None:
    for node, text in (
        (at(call(9, "x"), -1, -5), r"nodes\[0\]: has a negative duration"),
        ({**call(9, "x"), "ts": "soon"}, r"nodes\[0\]\.ts: expected a time in microseconds, found 'soon'"),
        (on_device(call(9, "x"), 1, 1, 7, sync_dep=[-4]), r"nodes\[0\]\.sync_dep: expected an integer"),
    ):
        with pytest.raises(JsonFault, match=text):
            read(node)
