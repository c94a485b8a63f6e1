"""Kineto traces alone and beside their host traces: which kernel ran which operation, when, where, and what is missing."""

from __future__ import annotations

from typing import Any

import pytest

from etloop.workload.readers.json_sources import rank_of, read_document
from etloop.workload.readers.json_stream import JsonFault
from etloop.workload.readers.pytorch.nccl_kernels import is_nccl_kernel, kernel_collective
from etloop.workload.readers.pytorch.rank import Remark
from etloop.workload.trace.trace import ABSENT, CollectiveKind, NodeKind, RankTrace
from tests.support.traces.json_traces_by_hand import call, comms, cpu_op, groups, host, kernel, kineto, tensor

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"
BROADCAST = "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*)"
TWO: dict[str, Any] = {"Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Group size": 2}


def read(*texts: bytes, rank: int = 0, rank_count: int = 2, alone: bool = False) -> RankTrace:
    return reported(*texts, rank=rank, rank_count=rank_count, alone=alone)[0]


def reported(
    *texts: bytes, rank: int = 0, rank_count: int = 2, alone: bool = False
) -> tuple[RankTrace, tuple[Remark, ...]]:
    return rank_of(tuple(read_document(iter([text])) for text in texts), "w", rank, rank_count, alone)


def message(*texts: bytes, **keywords: Any) -> str:
    with pytest.raises(JsonFault) as raised:
        read(*texts, **keywords)
    return str(raised.value)


NAMES = [
    (ALL_REDUCE, CollectiveKind.ALL_REDUCE),
    ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*)", CollectiveKind.ALL_GATHER),
    ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", CollectiveKind.REDUCE_SCATTER),
    ("ncclDevKernel_Reduce_Sum_f32_RING_LL(x)", CollectiveKind.REDUCE),
    (BROADCAST, CollectiveKind.BROADCAST),
    (SEND_RECV, ABSENT),
    ("rcclDevKernel_Generic(x)", ABSENT),
]


@pytest.mark.parametrize(("name", "kind"), NAMES, ids=[name[:30] for name, _ in NAMES])
def test_kernels_tell_their_collective_by_their_name(name: str, kind: int) -> None:
    assert is_nccl_kernel(name)
    assert kernel_collective(name) == kind


def test_other_kernels_are_compute_in_the_order_of_their_begin() -> None:
    trace = read(
        kineto(
            kernel("gemm", 20.5, 3, stream=7),
            {**kernel("Memcpy DtoD", 10, 2.25, stream=9), "cat": "gpu_memcpy"},
            cpu_op("aten::mm", 1, 2, record=5),
            {"ph": "M", "name": "process_name", "args": {"name": "x"}},
            7,
        )
    )
    assert [trace.name(i) for i in range(len(trace))] == ["Memcpy DtoD", "gemm"]
    assert trace.kind.tolist() == [NodeKind.COMP] * 2
    assert trace.stream is not None
    assert trace.start_ns is not None
    assert trace.duration_ns is not None
    assert trace.stream.tolist() == [9, 7]
    assert trace.start_ns.tolist() == [10_000, 20_500]
    assert trace.duration_ns.tolist() == [2250, 3000]
    assert trace.duration_us.tolist() == [2, 3]
    assert trace.is_cpu_op.tolist() == [0, 0]


def test_a_kernel_with_arguments_tells_everything() -> None:
    arguments: dict[str, Any] = {"In msg nelems": 12, "Out msg nelems": 12, "dtype": "BFloat16", **TWO}
    trace = read(
        kineto(
            kernel(
                SEND_RECV,
                1,
                2,
                **{
                    **arguments,
                    "Collective name": "all_to_allv",
                    "In split size": "[3, 9]",
                    "Out split size": "[6, 6]",
                },
            ),
            kernel(SEND_RECV, 4, 2, **{**arguments, "Collective name": "send", "Dst Rank": 1}),
            kernel(SEND_RECV, 7, 2, **{**arguments, "Collective name": "recv", "Src Rank": 1}),
        )
    )
    assert trace.kind.tolist() == [NodeKind.COMM_COLL, NodeKind.COMM_SEND, NodeKind.COMM_RECV]
    assert trace.comm.type.tolist() == [CollectiveKind.ALL_TO_ALL, ABSENT, ABSENT]
    assert trace.comm.size.tolist() == [24] * 3
    assert trace.send_splits is not None
    assert trace.recv_splits is not None
    assert trace.send_splits.values.tolist() == [6, 18]
    assert trace.recv_splits.values.tolist() == [12, 12]
    assert (trace.comm.dst[1], trace.comm.src[2]) == (1, 1)
    assert trace.groups == {"0": (0, 1)}


def test_lists_that_the_profiler_shortened_are_told() -> None:
    arguments = {
        "Collective name": "all_to_allv",
        "In msg nelems": 90,
        "dtype": "Int",
        "In split size": "[3, ..., 9]",
    }
    barrier = {
        "Collective name": "barrier",
        "Process Group Name": "9",
        "Process Group Ranks": "[0, 1, ..., 99]",
    }
    trace, remarks = reported(
        kineto(kernel(SEND_RECV, 1, 2, **arguments), kernel(ALL_REDUCE, 4, 2, **barrier))
    )
    assert (trace.send_splits, trace.comm.size.tolist()) == (None, [360, 0])
    assert (trace.groups, trace.pg_names) == (None, ("9",))
    (remark,) = remarks
    assert (
        remark.text
        == "1 all-to-alls have split sizes that the profiler shortened: their buffers are split evenly"
    )


def test_kernels_without_arguments_are_named_as_what_is_missing() -> None:
    trace, remarks = reported(kineto(kernel(ALL_REDUCE, 1, 2), kernel(SEND_RECV, 4, 2)))
    assert trace.comm.type.tolist() == [CollectiveKind.ALL_REDUCE, ABSENT]
    assert trace.comm.size.tolist() == [ABSENT, ABSENT]
    assert [remark.text[:50] for remark in remarks] == ["2 NCCL kernels carry no collective arguments (prof"]
    assert reported(kineto(kernel("gemm", 1, 2)))[1] == (), "what does not communicate leaves nothing out"


def test_the_job_is_larger_than_what_is_given() -> None:
    trace, remarks = reported(
        kineto(
            distributedInfo={
                "rank": 5,
                "world_size": 8,
                "pg_config": [{"pg_name": "0", "ranks": [], "pg_size": 8}],
            }
        ),
        alone=True,
        rank_count=1,
    )
    assert trace.groups == {"0": tuple(range(8))}
    assert remarks[0].text == "is rank 5 of 8 ranks, of which 1 is here"
    assert "is 5, but the file name has rank 0" in message(kineto(distributedInfo={"rank": 5}))


BAD = [
    ("a kernel that begins nowhere", kernel("gemm", None, 1), "traceEvents[0].ts: expected a time"),
    (
        "a kernel that ends before its begin",
        kernel("gemm", 1, -1),
        "traceEvents[0]: has a negative start or duration",
    ),
    (
        "a kernel on no stream",
        {**kernel("gemm", 1, 1), "args": {}},
        "traceEvents[0].stream: expected an integer",
    ),
    (
        "an element of unknown size",
        kernel(ALL_REDUCE, 1, 1, **{"Collective name": "allreduce", "dtype": "Quad", "In msg nelems": 1}),
        "traceEvents[0].dtype: is 'Quad', whose size is unknown",
    ),
    (
        "ranks that are none",
        kernel(
            ALL_REDUCE,
            1,
            1,
            **{"Collective name": "allreduce", "dtype": "Int", **TWO, "Process Group Ranks": "[0"},
        ),
        "Process Group Ranks: is neither JSON nor a Python literal",
    ),
]


@pytest.mark.parametrize(("sentence", "event", "text"), BAD, ids=[one for one, *_ in BAD])
def test_events_that_mean_nothing_are_refused_with_their_place(sentence: str, event: Any, text: str) -> None:
    del sentence
    assert text in message(kineto(event))


HOST = host(
    groups(3, {"pg_name": "0", "ranks": [], "group_size": 2}),
    comms(10, "allreduce", [tensor(5, 6, 100)]),
    comms(12, "all_to_allv", [tensor(7, 8, 4)], splits=(1, 3)),
)


def test_host_and_device_of_one_group_join_by_order() -> None:
    trace = read(
        HOST, kineto(kernel(SEND_RECV, 9, 4, 84), kernel("gemm", 1, 1), kernel(ALL_REDUCE, 3, 2, 84))
    )
    assert trace.comm.type.tolist() == [ABSENT, CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL]
    assert trace.comm.size.tolist() == [ABSENT, 400, 16]
    assert trace.stream is not None
    assert trace.start_ns is not None
    assert trace.send_splits is not None
    assert trace.stream.tolist() == [7, 84, 84]
    assert trace.start_ns.tolist() == [1000, 3000, 9000]
    assert trace.send_splits.values.tolist() == [4, 12]


def test_the_order_of_the_two_files_does_not_matter() -> None:
    device = kineto(kernel(SEND_RECV, 9, 4, 84), kernel(ALL_REDUCE, 3, 2, 84))
    assert read(HOST, device).comm.size.tolist() == read(device, HOST).comm.size.tolist()


def test_record_ids_join_where_the_order_would_not() -> None:
    nodes = [
        comms(10, "allreduce", [tensor(5, 6, 100)], record=51),
        comms(12, "allreduce", [tensor(7, 8, 4)], record=52),
        call(13, "nccl:all_reduce", parent=12, record=53),
    ]
    device = kineto(
        cpu_op("record_param_comms", 0, 1, record=51, external=901),
        cpu_op("nccl:all_reduce", 0, 1, record=53, external=902),
        kernel(ALL_REDUCE, 1, 1, **{"External id": 902}),
        kernel(ALL_REDUCE, 5, 1, **{"External id": 901}),
    )
    assert read(host(*nodes), device).comm.size.tolist() == [16, 400]


TWO_GROUPS = host(
    groups(3, {"pg_name": "a", "ranks": [0, 1]}, {"pg_name": "b", "ranks": [1, 0]}),
    comms(10, "allreduce", [tensor(5, 6, 100)], group=("a", "")),
    comms(12, "broadcast", [tensor(7, 8, 4)], group=("b", "")),
)


def test_groups_on_streams_of_their_own_join_if_only_one_way_fits() -> None:
    device = [kernel(BROADCAST, 1, 1, 20), kernel(ALL_REDUCE, 2, 1, 30)]
    assert read(TWO_GROUPS, kineto(*device)).comm.size.tolist() == [16, 400]
    both = host(
        groups(3, {"pg_name": "a", "ranks": [0, 1]}, {"pg_name": "b", "ranks": [1, 0]}),
        comms(10, "allreduce", [tensor(5, 6, 100)], group=("a", "")),
        comms(12, "allreduce", [tensor(7, 8, 4)], group=("b", "")),
    )
    device = [kernel(ALL_REDUCE, 1, 1, 20), kernel(ALL_REDUCE, 2, 1, 30)]
    assert "match the 2 groups in 2 ways" in message(both, kineto(*device))
    named = [
        kernel(ALL_REDUCE, 1, 1, 20, **{"Process Group Name": "b"}),
        kernel(ALL_REDUCE, 2, 1, 30, **{"Process Group Name": "a"}),
    ]
    assert read(both, kineto(*named)).comm.size.tolist() == [16, 400]


UNFIT = [
    ("too few kernels", HOST, kineto(kernel(ALL_REDUCE, 1, 1)), "have 1 NCCL kernels for the 2 operations"),
    (
        "a kernel of another collective",
        HOST,
        kineto(kernel(BROADCAST, 1, 1), kernel(SEND_RECV, 2, 1)),
        "where the host trace has allreduce: the files are of different runs",
    ),
    ("nothing in common", HOST, kineto(kernel("gemm", 1, 1)), "the two files cannot be joined"),
    (
        "groups that contradict each other",
        HOST,
        kineto(
            kernel(ALL_REDUCE, 1, 1), distributedInfo={"pg_config": [{"pg_name": "0", "ranks": [0, 1, 2]}]}
        ),
        "group '0' has 2 ranks (0, 1), elsewhere 3 (0, 1, 2): the files are of different runs",
    ),
    ("two host traces", HOST, HOST, "expected a host trace and a Kineto trace"),
]


@pytest.mark.parametrize(("sentence", "first", "second", "text"), UNFIT, ids=[one for one, *_ in UNFIT])
def test_files_of_different_runs_are_refused(sentence: str, first: bytes, second: bytes, text: str) -> None:
    del sentence
    assert text in message(first, second)


def test_without_a_gpu_the_calls_of_the_host_get_their_own_times() -> None:
    nodes = host(
        call(10, "step", record=51),
        call(11, "c10d::allreduce_", [[tensor(5, 6, 4)], "<Object>"], parent=10, record=52),
        call(12, "gloo:all_reduce", parent=10, record=53),
    )
    device = kineto(
        cpu_op("step", 100, 50, record=51),
        cpu_op("c10d::allreduce_", 110, 20.5, record=52),
        cpu_op("gloo:all_reduce", 112, 15, record=53),
        distributedInfo={"rank": 0, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]},
    )
    trace = read(nodes, device)
    assert trace.start_ns is not None
    assert trace.duration_ns is not None
    assert trace.duration_ns[:3].tolist() == [14_500, 20_500, 0]
    assert trace.start_ns[:3].tolist() == [100_000, 110_000, 112_000]
    assert trace.start_ns[3] == ABSENT
    assert (trace.kind[1], trace.comm.size[1], trace.pg_names) == (NodeKind.COMM_COLL, 16, ("0",))


FULL: dict[str, Any] = TWO | {"Collective name": "allreduce", "In msg nelems": 100, "dtype": "Float"}


def launch(correlation: Any) -> dict[str, Any]:
    """An event of the call that launched a kernel."""
    return {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernelExC",
        "ts": 1,
        "dur": 1,
        "args": {"correlation": correlation},
    }


def test_kernels_launched_before_recording_began_are_left_out_and_counted() -> None:
    begun = [kernel(ALL_REDUCE, at, 2, correlation=at) for at in (1, 3)]
    whole = {**kernel(ALL_REDUCE, 9, 2, External_id=4, correlation=9)}
    whole["args"] |= FULL
    trace, remarks = reported(kineto(*begun, kernel("gemm", 5, 1, correlation=5), whole, launch(9)))
    assert [trace.name(i) for i in range(len(trace))] == ["gemm", ALL_REDUCE], "compute stays"
    assert trace.comm.size.tolist()[-1] == 400
    assert [(each.text, each.remedy) for each in remarks] == [
        (
            "2 NCCL kernels were launched before recording began and have no arguments: they are left out",
            "begin recording between two steps, while no collective is in flight",
        )
    ]


def test_beside_a_host_trace_they_are_left_out_too() -> None:
    nodes = host(comms(10, "allreduce", [tensor(5, 6, 100)], group=77))
    device = kineto(
        kernel(ALL_REDUCE, 1, 2, correlation=1), kernel(ALL_REDUCE, 9, 2, correlation=9), launch(9)
    )
    assert read(nodes, device).comm.size.tolist() == [400]


@pytest.mark.parametrize(
    ("sentence", "events"),
    [
        ("no launch is recorded at all", [kernel(ALL_REDUCE, 1, 2, correlation=1)]),
        ("its launch is recorded", [kernel(ALL_REDUCE, 1, 2, correlation=1), launch(1)]),
        (
            "a graph launched it, whose launch is recorded",
            [launch(7), kernel(ALL_REDUCE, 1, 2, correlation=7)],
        ),
        ("it has a host call", [kernel(ALL_REDUCE, 1, 2, correlation=1, External_id=3), launch(2)]),
        ("it states no correlation", [kernel(ALL_REDUCE, 1, 2), launch(2)]),
        (
            "launches that are no numbers",
            [kernel(ALL_REDUCE, 1, 2, correlation=1), launch("1"), launch(1 << 70)],
        ),
    ],
)
def test_other_kernels_that_tell_nothing_stay_and_are_an_error(
    sentence: str, events: list[dict[str, Any]]
) -> None:
    trace, remarks = reported(kineto(*events))
    assert trace.comm.type.tolist() == [CollectiveKind.ALL_REDUCE], sentence
    assert "carry no collective arguments" in remarks[0].text


def test_what_a_kernel_tells_is_read_whenever_it_was_launched() -> None:
    one = kernel(ALL_REDUCE, 1, 2, correlation=1)
    one["args"] |= FULL
    assert read(kineto(one, launch(9))).comm.size.tolist() == [400]
