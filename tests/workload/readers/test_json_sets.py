"""The real JSON sets match every figure that was counted in them, read as a user would name them."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from etloop.contract.base.errors import TraceError
from etloop.workload.readers.files import read_trace
from etloop.workload.readers.pytorch.comms import CommOp, Role, comm_op
from etloop.workload.readers.pytorch.execution_trace import C10D, PARAM_COMMS, HostTrace, read_host_trace
from etloop.workload.readers.pytorch.kineto import KinetoTrace, read_kineto
from etloop.workload.readers.pytorch.nccl_kernels import is_nccl_kernel
from etloop.workload.trace.trace import ABSENT, CollectiveKind, NodeKind, RankTrace
from tests.support.traces.shared_traces import SHARED_TRACES

Json = dict[str, Any]

SMALL_NODES = 10_000

pytestmark = pytest.mark.skipif(
    not (SHARED_TRACES / "expected.json").is_file(), reason=f"the real trace sets are not at {SHARED_TRACES}"
)


@cache
def entries() -> dict[str, Json]:
    expected = SHARED_TRACES / "expected.json"
    if not expected.is_file():
        return {}
    return {
        entry["name"]: entry for entry in json.loads(expected.read_text())["sets"] if entry["kind"] != "et"
    }


def of_kind(kind: str) -> list[str]:
    return [name for name, entry in entries().items() if entry["kind"] == kind]


def contents(name: str) -> Iterator[tuple[str, bytes]]:
    """Name and text of each file of a set, by the rank in its name."""
    path = SHARED_TRACES / entries()[name]["path"]
    if path.name.endswith(".tar.gz"):
        with tarfile.open(path) as archive:
            files = {
                one.name: archive.extractfile(one)
                for one in archive
                if one.isfile() and "/._" not in one.name
            }
            yield from ((at, file.read()) for at, file in sorted(files.items()) if file)
    elif "<rank>" in path.name:
        for rank in range(8):
            file = path.with_name(path.name.replace("<rank>", str(rank)))
            yield file.name, gzip.decompress(file.read_bytes())
    else:
        yield path.name, gzip.decompress(path.read_bytes())


def source(name: str) -> Path:
    path: str = entries()[name]["path"]
    return SHARED_TRACES / path.partition(".<rank>")[0]


def facts_of(name: str, file: str) -> Json:
    facts: Json = entries()[name]["facts"]
    for alike in facts.get("files", []):
        if file in alike["files"]:
            return {**facts, **alike}
    return facts


@pytest.mark.parametrize("name", of_kind("workload_graph"))
def test_workload_graph_sets(name: str) -> None:
    facts = entries()[name]["facts"]
    (rank,) = read_trace(source(name)).ranks
    assert (len(rank), len(set(rank.node_id.tolist()))) == (facts["nodes"], facts["distinct_ids"])
    assert {str(kind): count for kind, count in Counter(rank.kind.tolist()).items()} == facts["by_type"]
    for column, offsets, key in (
        (rank.data_deps.values, rank.data_deps.offsets, "data_deps"),
        (rank.ctrl_deps.values, rank.ctrl_deps.offsets, "ctrlDeps"),
    ):
        ids = set(rank.node_id.tolist())
        rows = [rank.node_id[i] for i in range(len(rank)) for _ in range(offsets[i + 1] - offsets[i])]
        assert len(column) == facts[f"{key}_edges"]
        assert sum(int(one) not in ids for one in column) == facts[f"{key}_dangling"]
        assert sum(one == own for one, own in zip(column, rows, strict=True)) == facts[f"{key}_self"]
    assert int((rank.is_cpu_op == 1).sum()) == facts["is_cpu_op_true"]
    assert int(rank.duration_us.sum()) == facts["runtime_us_sum"]
    assert bool((rank.comm.size == ABSENT).all()) is (facts["nodes_with_any_comm_key"] == 0)
    names = Counter(
        rank.name(i).split("(")[0] for i in range(len(rank)) if rank.kind[i] == NodeKind.COMM_COLL
    )
    assert names == facts["type_7_names"]


@pytest.mark.parametrize("name", of_kind("host_json"))
def test_host_sets(name: str) -> None:
    for file, text in contents(name):
        host = read_host_trace([text])
        check_host(host, facts_of(name, file), file)


def check_host(host: HostTrace, facts: Json, file: str) -> None:
    ids = {node.node_id for node in host.nodes}
    assert (host.schema, len(host.nodes), len(ids)) == (
        facts["schema"],
        facts["nodes"],
        facts["distinct_ids"],
    )
    assert sum(node.parent == node.node_id for node in host.nodes) == facts["self_parent"]
    assert sum(node.parent not in ids for node in host.nodes) == facts["dangling_parent"]
    found: dict[str, list[CommOp]] = {}
    for node in host.nodes:
        if node.name == PARAM_COMMS and (op := comm_op(node)) is not None:
            found.setdefault(op.label, []).append(op)
    assert found.keys() - {"init"} == facts["record_param_comms"].keys()
    for label, counted in facts["record_param_comms"].items():
        assert len(found[label]) == counted["count"]
        assert sum(op.size_bytes for op in found[label]) == counted["input_bytes_sum"]
        uneven = sum(len(set(op.splits)) > 1 for op in found[label])
        assert uneven == counted.get("uneven_splits", 0)
    names = Counter(node.name for node in host.nodes)
    assert {one: count for one, count in names.items() if one.startswith(C10D)} == facts["c10d_nodes"]
    groups = facts.get("process_groups", [])
    groups = groups[file.split(".")[1]] if isinstance(groups, dict) else groups
    stated = [(one["pg_name"], tuple(one["ranks"]), one["group_size"]) for one in groups]
    assert [(one.key, one.ranks, one.size) for one in host.groups] == stated
    used = {op.group for some in found.values() for op in some if op.role not in (Role.WAIT, Role.NOTHING)}
    pointers = facts.get("process_group_pointers", {}).get(
        file, facts.get("process_group_of_collectives", [])
    )
    assert used == {one[0] if isinstance(one, list) else one for one in pointers}
    kernels = Counter(node.name.split("(")[0] for node in host.nodes if is_nccl_kernel(node.name))
    assert kernels == facts.get("nccl_kernel_nodes", {})
    if "nodes_with_ts" in facts:
        times = [node.times for node in host.nodes if node.times is not None]
        assert len(times) == facts["nodes_with_ts"]
        assert sum(one.stream is not None for one in times) == facts["gpu_nodes"]
        categories = Counter(one.category or "None" for one in times)
        categories["None"] += len(host.nodes) - len(times)
        assert categories == facts["categories"]


@pytest.mark.parametrize("name", of_kind("kineto"))
def test_kineto_sets(name: str) -> None:
    for file, text in contents(name):
        check_kineto(read_kineto([text]), facts_of(name, file))


def check_kineto(kineto: KinetoTrace, facts: Json) -> None:
    assert kineto.counts == facts["by_category"]
    assert kineto.counts.total() == facts["events"]
    assert (kineto.rank, kineto.world_size) == tuple(
        facts["distributedInfo"][key] for key in ("rank", "world_size")
    )
    stated = [(one["pg_name"], tuple(one["ranks"]), one["pg_size"]) for one in facts.get("pg_config", [])]
    assert [(one.key, one.ranks, one.size) for one in kineto.groups] == stated
    found: dict[str, Json] = {}
    for event in kineto.kernels:
        one = found.setdefault(event.name.split("(")[0], {"count": 0, "ns": 0, "streams": set()})
        one["count"] += 1
        one["ns"] += event.duration_ns
        one["streams"].add(event.stream)
    assert len(kineto.kernels) == facts["nccl_kernels_total"]
    assert found == {
        kernel: {"count": one["count"], "ns": round(one["dur_us_sum"] * 1000), "streams": set(one["streams"])}
        for kernel, one in facts["nccl_kernels"].items()
    }
    reported = [event.arguments for event in kineto.kernels if "Collective name" in event.arguments]
    assert len(reported) == facts["nccl_kernels_with_collective_name_arg"]
    for label, counted in facts.get("nccl_kernel_args", {}).items():
        nelems = [one["In msg nelems"] for one in reported if one["Collective name"] == label]
        assert (len(nelems), sum(nelems)) == (counted["count"], counted["in_msg_nelems_sum"])
    hosts = kineto.host_names
    assert hosts[PARAM_COMMS] == facts["record_param_comms_events"]
    assert {one: count for one, count in hosts.items() if one.startswith(C10D)} == facts["c10d_events"]
    marks = {one: count for one, count in hosts.items() if one.startswith(("nccl:", "gloo:"))}
    assert marks == facts["backend_annotations"]


def rows(rank: RankTrace) -> list[Json]:
    """The network operations as the projection tells them."""
    assert rank.send_splits is not None
    assert rank.start_ns is not None
    assert rank.duration_ns is not None
    assert rank.stream is not None
    return [
        {
            "in_bytes": int(rank.comm.size[i]),
            "in_splits": rank.send_splits[i].tolist(),
            "kernel": rank.name(i).split("(")[0],
            "ts": int(rank.start_ns[i]) // 1000,
            "dur": int(rank.duration_ns[i]) // 1000,
            "stream": int(rank.stream[i]),
        }
        for i in range(len(rank))
        if rank.kind[i] == NodeKind.COMM_COLL
    ]


@pytest.mark.parametrize(
    "place", ["", "dlrm_pytorch_et.tar.gz+dlrm_kineto.tar.gz"], ids=["folder", "two archives"]
)
def test_dlrm_host_and_kineto_join_to_the_known_projection(place: str) -> None:
    entry = entries()["dlrm8_projection"]
    path = SHARED_TRACES / entry["path"]
    projection = json.loads(path.read_text())["ranks"]
    trace = read_trace(Path(f"{path.parent}/{place}") if place else path.parent)
    assert trace.groups is None
    for rank in trace.ranks:
        found = rows(rank)
        assert found == [{key: one[key] for key in found[0]} for one in projection[str(rank.rank)]]
    kinds = {
        "all_to_all": CollectiveKind.ALL_TO_ALL,
        "all_to_allv": CollectiveKind.ALL_TO_ALL,
        "allreduce": 0,
    }
    wanted = [kinds[one["op"][0]] for one in entry["facts"]["operations"]]
    assert [int(one) for one in trace.ranks[0].comm.type if one != ABSENT] == wanted
    for index, operation in enumerate(entry["facts"]["operations"]):
        recorded = [rows(rank)[index] for rank in trace.ranks]
        span = max(one["ts"] + one["dur"] for one in recorded) - max(one["ts"] for one in recorded)
        assert span == operation["last_start_to_last_end_us"]


def test_the_projection_itself_is_no_trace() -> None:
    path = SHARED_TRACES / entries()["dlrm8_projection"]["path"]
    with pytest.raises(
        TraceError, match=r"is JSON, but not a trace: .* found the keys source, world_size, unit, ranks"
    ):
        read_trace(path)


def test_gloo_sends_pair_and_split_matrices_agree() -> None:
    facts = entries()["gloo8_host"]["facts"]["cross_rank"]
    trace = read_trace(source("gloo8_host").parent)
    assert all(rank.start_ns is not None for rank in trace.ranks)
    sends: Counter[tuple[int, int, int, int]] = Counter()
    recvs: Counter[tuple[int, int, int, int]] = Counter()
    for rank in trace.ranks:
        for i in range(len(rank)):
            key = (
                int(rank.comm.src[i]),
                int(rank.comm.dst[i]),
                int(rank.comm.tag[i]),
                int(rank.comm.size[i]),
            )
            sends[key] += int(rank.kind[i] == NodeKind.COMM_SEND)
            recvs[key] += int(rank.kind[i] == NodeKind.COMM_RECV)
    assert +sends == +recvs
    assert sends.total() == facts["sends"]
    assert sum(key[3] * count for key, count in sends.items()) == facts["send_bytes"]
    for index, operation in enumerate(facts["alltoall_operations"]):
        sizes = []
        matrix = []
        for rank in trace.ranks:
            assert rank.send_splits is not None
            at = [i for i in range(len(rank)) if rank.comm.type[i] == CollectiveKind.ALL_TO_ALL][index]
            sizes.append(int(rank.comm.size[at]))
            matrix.append(rank.send_splits[at].tolist())
        assert sizes == operation["input_bytes_per_rank"]
        if operation["splits"]:
            assert [sum(row) for row in matrix] == operation["input_bytes_per_rank"]
            assert [sum(column) for column in zip(*matrix, strict=True)] == operation["output_bytes_per_rank"]


def test_a_linked_trace_has_its_nccl_kernels_as_operations() -> None:
    facts = entries()["resnet_linked"]["facts"]
    (rank,) = read_trace(source("resnet_linked")).ranks
    assert len(rank) == facts["nodes"]
    operations = rank.kind == NodeKind.COMM_COLL
    assert int(operations.sum()) == sum(facts["nccl_kernel_nodes"].values())
    assert rank.stream is not None
    assert int((rank.stream != ABSENT).sum()) == facts["gpu_nodes"]
    for label, kind in (("allreduce", CollectiveKind.ALL_REDUCE), ("broadcast", CollectiveKind.BROADCAST)):
        size = rank.comm.size[operations & (rank.comm.type == kind)].sum()
        assert size == facts["record_param_comms"][label]["input_bytes_sum"]


def test_small_sets_are_read_by_their_own_paths() -> None:
    for name, entry in entries().items():
        if entry["kind"] == "projection" or entry["facts"].get("nodes", 0) > SMALL_NODES:
            continue
        trace = read_trace(source(name))
        assert len(trace.ranks) == entry["facts"].get("ranks", 1)
