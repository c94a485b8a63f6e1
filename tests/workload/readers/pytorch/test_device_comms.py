"""Communication by kernels that are not NCCL's: what is recognised, where its bytes and group come from, what is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etloop.contract.base.errors import ConfigError, Severity
from etloop.workload.graph.analysis import analyse
from etloop.workload.readers.files import read_trace
from etloop.workload.readers.json_sources import rank_of, read_document
from etloop.workload.readers.pytorch.kernel_table import (
    KernelTable,
    looks_communicating,
    parse_table,
    shipped_table,
    table_with,
)
from etloop.workload.readers.pytorch.nccl_kernels import is_nccl_kernel
from etloop.workload.readers.pytorch.rank import Remark
from etloop.workload.trace.findings import Check
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import ABSENT, CollectiveKind, NodeKind, RankTrace
from tests.support.traces.json_traces_by_hand import Json, call, comms, groups, host, kernel, kineto, tensor

MULTIMEM = "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)"
CROSS = "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)"
DISPATCH = "void deep_ep::internode_ll::dispatch<false, 7168>(void*)"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
PAIR: Json = {"rank": 0, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1], "pg_size": 2}]}


def op(name: str, external: int, dims: list[Any], types: list[str], **more: Any) -> Json:
    args = {"External id": external, "Input Dims": dims, "Input type": types, **more}
    return {"ph": "X", "cat": "cpu_op", "name": name, "ts": 1, "dur": 5, "args": args}


def launched(name: str, start_us: float, duration_us: float, external: int) -> Json:
    event = kernel(name, start_us, duration_us)
    event["args"]["External id"] = external
    return event


def reported(
    *events: Json, table: KernelTable | None = None, place: Json = PAIR
) -> tuple[RankTrace, tuple[Remark, ...]]:
    document = read_document(iter([kineto(*events, distributedInfo=place)]), table)
    return rank_of((document,), "w", 0, 2, False, table)


def operations(trace: RankTrace) -> list[tuple[CollectiveKind, int]]:
    return [
        (CollectiveKind(kind), size)
        for kind, size in zip(trace.comm.type.tolist(), trace.comm.size.tolist(), strict=True)
        if kind != ABSENT
    ]


BF16 = ["c10::BFloat16", "", ""]
RECOGNISED = [
    (
        "symmetric memory: the call says what is put in",
        [op("symm_mem::multimem_all_reduce_", 7, [[2557440], [], []], BF16), launched(MULTIMEM, 9, 2, 7)],
        (CollectiveKind.ALL_REDUCE, 5114880),
    ),
    (
        "a kernel under a new name, by the call that launched it",
        [
            op("symm_mem::two_shot_all_reduce_", 7, [[8, 4], [], []], BF16),
            launched("newKernel<8>()", 9, 2, 7),
        ],
        (CollectiveKind.ALL_REDUCE, 64),
    ),
    (
        "the second argument of vLLM's custom all-reduce",
        [
            op("_C_custom_ar::all_reduce", 7, [[], [16, 2], [16, 2]], ["Scalar", "c10::Half", "c10::Half"]),
            launched(CROSS, 9, 2, 7),
        ],
        (CollectiveKind.ALL_REDUCE, 64),
    ),
    (
        "a call that is named after the collective, in no table",
        [op("sglang::inplace_all_reduce", 7, [[4, 4], []], ["float", ""]), launched(CROSS, 9, 2, 7)],
        (CollectiveKind.ALL_REDUCE, 64),
    ),
    (
        "the arguments of record_param_comms",
        [
            op(
                "record_param_comms",
                7,
                [],
                [],
                **{"Collective name": "allreduce", "In msg nelems": 3, "dtype": "Int"},
            ),
            launched("oneShotAllReduceKernel<8>()", 9, 2, 7),
        ],
        (CollectiveKind.ALL_REDUCE, 12),
    ),
    (
        "an all-gather over multicast memory",
        [
            op("symm_mem::multimem_all_gather_out", 7, [[10], [], [20]], ["long", "", "long"]),
            launched("x<1>", 9, 2, 7),
        ],
        (CollectiveKind.ALL_GATHER, 80),
    ),
]


@pytest.mark.parametrize(("why", "events", "expected"), RECOGNISED, ids=[row[0] for row in RECOGNISED])
def test_kernels_are_recognised(why: str, events: list[Json], expected: tuple[CollectiveKind, int]) -> None:
    trace, remarks = reported(*events)
    assert operations(trace) == [expected], why
    assert trace.pg_names == ("0",)
    assert remarks == ()


def test_one_kernel_of_a_call_is_the_operation_and_the_others_stay_compute() -> None:
    trace, remarks = reported(
        op("symm_mem::one_shot_all_reduce_copy", 7, [[8], [8]], ["float", "float"]),
        launched("prepare<1>", 9, 2, 7),
        launched("reduce<1>", 12, 5, 7),
        {**launched("Memcpy DtoD (Device -> Device)", 20, 50, 7), "cat": "gpu_memcpy"},
    )
    assert trace.kind.tolist() == [NodeKind.COMP, NodeKind.COMM_COLL, NodeKind.COMP]
    assert operations(trace) == [(CollectiveKind.ALL_REDUCE, 32)]
    assert remarks == ()


LEFT_OUT = [
    (
        "a dispatch, whose bytes the router alone knows",
        [launched(DISPATCH, 1, 2, 7), launched(DISPATCH, 4, 2, 8)],
        2,
        "2 kernels communicate, but their bytes are not recorded: 2 deep_ep::internode_ll::dispatch",
    ),
    (
        "a call without shapes",
        [op("symm_mem::multimem_all_reduce_", 7, [[], [], []], ["", "", ""]), launched(MULTIMEM, 9, 2, 7)],
        1,
        "1 kernels communicate, but their bytes are not recorded: 1 multimem_all_reduce_kernel",
    ),
    (
        "a call of another kind, whose tensors may be anything",
        [op("vllm::moe_forward", 7, [[8, 8]], ["float"]), launched(CROSS, 9, 2, 7)],
        1,
        "1 kernels communicate, but their bytes are not recorded: 1 vllm::cross_device_reduce_1stage",
    ),
    (
        "a name that no table has",
        [kernel("void acme::ring_allgather<4>(int)", 1, 2)],
        1,
        "1 kernels have names of communication kernels, but are not in the kernel table: 1 acme::ring_allgather",
    ),
    (
        "calls of a backend that leaves no kernel",
        [
            {"ph": "X", "cat": "user_annotation", "name": name, "ts": 1, "dur": 1, "args": {}}
            for name in ("hccl:allgather", "hccl:allgather", "gloo:barrier", "phase:warmup")
        ],
        3,
        "3 calls communicate over gloo, hccl, which runs no GPU kernel: 2 hccl:allgather, 1 gloo:barrier",
    ),
    (
        "a recording without GPU activity",
        [op("record_param_comms", 7, [], []), op("c10d::allreduce_", 8, [], [])],
        1,
        "1 calls communicate, but the recording has no kernel of them: 1 record_param_comms",
    ),
]


@pytest.mark.parametrize(("why", "events", "count", "what"), LEFT_OUT, ids=[row[0] for row in LEFT_OUT])
def test_what_cannot_be_replayed_is_counted(why: str, events: list[Json], count: int, what: str) -> None:
    trace, (remark,) = reported(*events)
    assert operations(trace) == [], why
    assert (remark.left_out, remark.text) == (count, what)


ALL_REDUCE = {"Collective name": "allreduce", "In msg nelems": 8, "dtype": "Float", "Process Group Name": "0"}


def test_call_describes_the_kernel_of_an_unknown_backend() -> None:
    events = (
        op("record_param_comms", 7, [], [], **ALL_REDUCE),
        launched("oneccl_copy", 8, 1, 7),
        launched("oneccl_reduce_base<float>", 9, 2, 7),
        launched("gemm", 12, 9, 8),
    )
    trace, remarks = reported(*events)
    assert (operations(trace), remarks) == ([(CollectiveKind.ALL_REDUCE, 32)], ())


def test_kernel_of_unknown_meaning_is_named() -> None:
    events = op("record_param_comms", 7, [], []), launched("oneccl_reduce_base<float>", 9, 2, 7)
    _, (remark,) = reported(*events)
    assert "communicate by kernels of unknown meaning (oneccl_reduce_base)" in remark.text
    assert "--kernels" in remark.remedy


def test_groups_of_several_sets_of_ranks_have_to_be_stated() -> None:
    two = {
        **PAIR,
        "world_size": 4,
        "pg_config": [{"pg_name": "0", "ranks": [0, 1, 2, 3]}, {"pg_name": "tp", "ranks": [0, 1]}],
    }
    events = op("symm_mem::multimem_all_reduce_", 7, [[8]], ["float"]), launched(MULTIMEM, 9, 2, 7)
    _, remarks = reported(*events, place=two)
    assert remarks[-1].text.startswith(
        "1 kernels communicate, but their group of ranks is not recorded: 1 multimem"
    )
    stated = parse_table(
        b'operations: [{name: "symm_mem::multimem_all_reduce_", collective: all_reduce, group: tp}]', "k"
    )
    trace, remarks = reported(
        *events, place=two, table=KernelTable(shipped_table().kernels, stated.operations)
    )
    assert trace.pg_names == ("tp",)
    assert [remark.left_out for remark in remarks] == [0]


def test_nccl_kernels_without_arguments_take_those_of_their_only_launch() -> None:
    told = {"Collective name": "allreduce", "In msg nelems": 3, "dtype": "Float", "Process Group Name": "0"}
    trace, remarks = reported(op("record_param_comms", 7, [], [], **told), launched(NCCL, 9, 2, 7))
    assert operations(trace) == [(CollectiveKind.ALL_REDUCE, 12)]
    assert remarks == ()
    twice = reported(
        op("record_param_comms", 7, [], [], **told), launched(NCCL, 9, 2, 7), launched(NCCL, 12, 2, 7)
    )
    assert twice[0].comm.size.tolist() == [ABSENT, ABSENT], "which of the two carries it is not told"


@pytest.mark.parametrize(
    "name",
    [
        "ncclSymkDevKernel_AllReduce_AGxLLMC_R_sum_bf16(x)",
        "void rcclGenericKernel<1, false>(x)",
        "ncclSymDevKernel_AllGather_LL(x)",
    ],
)
def test_newer_kernels_of_nccl_and_rccl_are_known(name: str) -> None:
    assert is_nccl_kernel(name)


def test_compute_that_is_named_after_what_stands_around_it_is_no_communication() -> None:
    names = [
        "triton_red_fused_all_gather_into_tensor_0",
        "void _combined_routing_memset<1>()",
        "cub::DeviceReduce",
        "gemm",
    ]
    assert not any(map(looks_communicating, names))
    assert not looks_communicating("void softmax<BlockAllReduce>(float)"), "template arguments are no names"


@pytest.mark.parametrize(
    "name",
    [
        "void dpsk::ep::internode::dispatch<false, 8>(int4*)",
        "void uccl::internode_ll::combine<true>(void*)",
        "moeA2ADispatchKernel<1>(MoeA2ADispatchParams)",
        "void (anonymous namespace)::my_all2all_kernel<4>()",
        "oneccl_reduce_base<float, 2>",
        "mori::moe::EpDispatchIntraNodeKernel<float>()",
        "void bkcl_send_recv(int)",
    ],
)
def test_kernels_of_other_libraries_and_forks_never_become_compute_in_silence(name: str) -> None:
    _, (remark,) = reported(kernel(name, 1, 2))
    assert remark.left_out == 1


def test_a_preparing_kernel_of_a_fork_is_no_communication_of_its_own() -> None:
    assert reported(kernel("void dpsk::ep::internode::notify_dispatch<false>(int)", 1, 2))[1] == ()


def test_events_of_unknown_categories_are_counted() -> None:
    event = {"ph": "X", "cat": "npu_task", "name": "x", "ts": 1, "dur": 2}
    _, (remark,) = reported(event, event, kernel("gemm", 1, 2))
    assert remark.text.startswith("2 events of unknown categories were not read")
    _, (remark,) = reported({"ph": "X", "name": "x", "ts": 1, "dur": 2})
    assert remark.text.endswith("1 None")


def test_a_record_of_oneccl_without_kernels_is_counted() -> None:
    event = {"ph": "X", "cat": "collective_comm", "name": "xccl::allreduce", "ts": 1, "dur": 2}
    _, (remark,) = reported(event, kernel("gemm", 1, 2))
    assert (remark.left_out, "oneCCL" in remark.text) == (1, True)


def test_strict_refuses_what_cannot_be_replayed(tmp_path: Path) -> None:
    place: Json = {"rank": 0, "world_size": 1, "pg_config": []}
    known = op(
        "record_param_comms",
        7,
        [],
        [],
        **{"Collective name": "allreduce", "In msg nelems": 3, "dtype": "Int"},
    )
    events = known, launched(NCCL, 9, 2, 7), kernel(DISPATCH, 12, 2)
    (tmp_path / "w.0.json").write_bytes(kineto(*events, distributedInfo=place))
    trace = read_trace(tmp_path)
    severity = {
        strict: next(
            finding.severity
            for finding in analyse(trace, WorkloadSettings(strict=strict)).findings
            if finding.check is Check.LEFT_OUT
        )
        for strict in (False, True)
    }
    assert severity == {False: Severity.WARNING, True: Severity.ERROR}


def test_a_file_of_kernels_goes_first(tmp_path: Path) -> None:
    path = tmp_path / "kernels.yaml"
    path.write_text(
        "kernels:\n- {name: acme::ring, collective: all_gather, bytes: 512}\n- {name: cross_device_reduce, collective: none}\n"
    )
    table = table_with(path)
    trace, remarks = reported(kernel("acme::ring_allgather()", 1, 2), kernel(CROSS, 4, 2), table=table)
    assert operations(trace) == [(CollectiveKind.ALL_GATHER, 512)]
    assert remarks == ()


def test_mistakes_of_a_file_of_kernels_are_all_named(tmp_path: Path) -> None:
    text = b"kernels:\n- {name: ab, collective: all_reduce}\n- {collective: sum, size: 1}\nother: 1\n"
    with pytest.raises(ConfigError) as raised:
        parse_table(text, "k.yaml")
    found = str(raised.value)
    for part in (
        "matches too many kernel names",
        "[1].name: is missing",
        '"sum"',
        "size: unknown key",
        "other: unknown key",
    ):
        assert part in found, found
    with pytest.raises(ConfigError, match="kernels: is missing or empty; write items such as"):
        parse_table(b"kernels: []\n", "k.yaml")
    with pytest.raises(ConfigError, match="the file has no entries; write kernels or operations"):
        parse_table(b"{}\n", "k.yaml")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        table_with(tmp_path / "none.yaml")


def test_host_traces_tell_such_calls_by_themselves() -> None:
    listed = call(5, "symm_mem::one_shot_all_reduce", [tensor(1, 11, 6), "sum", "tp"], [tensor(2, 12, 6)])
    records = groups(3, {"pg_name": "0", "ranks": [0, 1]}, {"pg_name": "tp", "ranks": [0, 1]})
    normal = comms(6, "allreduce", [tensor(3, 13, 2)])
    trace = rank_of((read_document(iter([host(records, listed, normal)])),), "w", 0, 2, False)[0]
    assert operations(trace) == [(CollectiveKind.ALL_REDUCE, 24), (CollectiveKind.ALL_REDUCE, 8)]
    assert set(trace.pg_names) == {"tp", "0"}


def test_host_and_kineto_together_have_both_sorts_of_kernels() -> None:
    records = groups(3, {"pg_name": "0", "ranks": [0, 1]})
    calls = host(
        records,
        call(5, "symm_mem::one_shot_all_reduce", [tensor(1, 11, 6), "sum", "0"]),
        comms(6, "allreduce", [tensor(3, 13, 2)]),
    )
    events = kineto(
        op("symm_mem::one_shot_all_reduce", 7, [[6]], ["float"]),
        launched("one_shot_all_reduce_kernel()", 1, 2, 7),
        kernel(NCCL, 4, 2),
        launched(DISPATCH, 8, 2, 9),
    )
    trace, remarks = rank_of((read_document(iter([calls])), read_document(iter([events]))), "w", 0, 2, False)
    assert operations(trace) == [(CollectiveKind.ALL_REDUCE, 24), (CollectiveKind.ALL_REDUCE, 8)]
    assert [remark.left_out for remark in remarks] == [1]


@pytest.mark.parametrize(("with_rest", "severity"), [(True, Severity.WARNING), (False, Severity.ERROR)])
def test_what_is_left_out_is_an_error_where_nothing_else_communicates(
    tmp_path: Path, with_rest: bool, severity: Severity
) -> None:
    told = {"Collective name": "allreduce", "In msg nelems": 3, "dtype": "Float", "Process Group Name": "0"}
    rest = [op("record_param_comms", 7, [], [], **told), launched(NCCL, 9, 2, 7)] if with_rest else []
    for rank in range(2):
        text = kineto(*rest, launched(DISPATCH, 20, 2, 8), distributedInfo={**PAIR, "rank": rank})
        (tmp_path / f"w.{rank}.json").write_bytes(text)
    findings = analyse(read_trace(tmp_path), WorkloadSettings()).findings
    (left,) = [one for one in findings if one.check is Check.LEFT_OUT]
    assert (left.severity, left.count) == (severity, 2)
    assert "1 deep_ep::internode_ll::dispatch" in left.examples[0].found
    assert not [one for one in findings if one.check is Check.NO_NETWORK]
