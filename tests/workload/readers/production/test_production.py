"""Files of production tools: bytes, pairs, times and order of what they describe, and what is refused."""

from __future__ import annotations

import errno
import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from etloop.contract.base.errors import TraceError
from etloop.workload.graph.analysis import analyse
from etloop.workload.job import build_job
from etloop.workload.readers.files import files_of_trace, read_trace
from etloop.workload.readers.production import forms
from etloop.workload.readers.production.dlio_model import Model
from etloop.workload.readers.production.facts import FileFacts
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import CollectiveKind, NodeKind, RankTrace, Trace

Json = dict[str, Any]


def read(path: Path, **facts: Any) -> Trace:
    """Read a job that must be replayable."""
    trace = read_trace(path, facts=FileFacts(**facts))
    build_job(trace, WorkloadSettings())
    return trace


def of_text(tmp_path: Path, name: str, text: str, **facts: Any) -> Trace:
    path = tmp_path / name
    path.write_text(text)
    return read(path, **facts)


def refusal(path: Path, **facts: Any) -> str:
    with pytest.raises(TraceError) as caught:
        read_trace(path, facts=FileFacts(**facts))
    return str(caught.value)


def refused_text(tmp_path: Path, name: str, text: str, **facts: Any) -> str:
    (tmp_path / name).write_text(text)
    return refusal(tmp_path / name, **facts)


def sends(trace: Trace) -> Counter[tuple[int, int]]:
    """Bytes by sending and receiving rank."""
    pairs: Counter[tuple[int, int]] = Counter()
    for rank in trace.ranks:
        for node in (rank.kind == NodeKind.COMM_SEND).nonzero()[0].tolist():
            pairs[int(rank.comm.src[node]), int(rank.comm.dst[node])] += int(rank.comm.size[node])
    return pairs


def collectives(rank: RankTrace) -> list[tuple[str, int]]:
    nodes = (rank.kind == NodeKind.COMM_COLL).nonzero()[0].tolist()
    return [(CollectiveKind(int(rank.comm.type[node])).name, int(rank.comm.size[node])) for node in nodes]


def compute_ns(rank: RankTrace) -> int:
    return 0 if rank.duration_ns is None else int(rank.duration_ns[rank.kind == NodeKind.COMP].sum())


# NIXL kvbench


def test_a_matrix_names_bytes_by_row_and_column(tmp_path: Path) -> None:
    trace = of_text(tmp_path, "m.txt", "0 1.5K 0\n0 7 2M\n3 0 0B\n")
    assert sends(trace) == {(0, 1): 1536, (1, 2): 2 << 20, (2, 0): 3}
    assert "from a rank to itself" in trace.remarks[0].what


def test_decimals_are_truncated_as_kvbench_does(tmp_path: Path) -> None:
    assert sends(of_text(tmp_path, "m.txt", "0 46.88M\n0 0\n")) == {(0, 1): 49_157_242}


def test_senders_of_a_pattern_meet_sleep_and_send(tmp_path: Path) -> None:
    """Rank 3 sends in the second pattern alone, and does not wait for the first."""
    (tmp_path / "a.txt").write_text("0 0 1K 0\n0 0 1K 0\n0 0 0 0\n0 0 0 0\n")
    (tmp_path / "b.txt").write_text("0 0 2K 0\n0 0 2K 0\n0 0 0 0\n0 0 2K 0\n")
    text = """\
traffic_patterns:
- {matrix_file: /generated/elsewhere/a.txt, sleep_after_launch_sec: 0.5, mem_type: dram}
- {matrix_file: b.txt, sleep_before_launch_sec: 0.25, xfer_op: READ, metadata: {isl: 7}}
"""
    trace = of_text(tmp_path, "s.yaml", text)
    assert sends(trace) == {(0, 2): 3072, (1, 2): 3072, (3, 2): 2048}
    assert [collectives(rank) for rank in trace.ranks] == [
        [("BARRIER", 0)],
        [("BARRIER", 0)],
        [],
        [("BARRIER", 0)],
    ]
    assert [compute_ns(rank) for rank in trace.ranks] == [750_000_000, 750_000_000, 0, 250_000_000]
    assert "states READ" in trace.remarks[0].what
    assert set(files_of_trace(tmp_path / "s.yaml")[0].names) == {"s.yaml", "a.txt", "b.txt"}


def test_patterns_of_different_senders_run_at_the_same_time(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("0 0 1K\n0 0 0\n0 0 0\n")
    (tmp_path / "b.txt").write_text("0 0 0\n0 0 1e3\n0 0 0\n")
    trace = of_text(tmp_path, "s.yaml", "traffic_patterns: [{matrix_file: a.txt}, {matrix_file: b.txt}]\n")
    assert sends(trace) == {(0, 2): 1024, (1, 2): 1000}
    assert all(not collectives(rank) for rank in trace.ranks)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("m.txt", "0 1\n0 1 2\n", "3 cells in a matrix of 2 columns"),
        ("m.txt", "0 1\n1 x\n", '"x" is not a size'),
        ("m.txt", "0 1 2\n0 1 2\n", "2 lines of 3 cells"),
        ("s.yaml", "traffic_patterns:\n- {matrix_file: ../x.txt}\n", "outside the folder"),
        ("s.yaml", "traffic_patterns:\n- {matrix_file: x.txt}\n", "is missing"),
        ("s.yaml", "traffic_patterns:\n- {storage_ops: 1}\n", '"storage_ops"'),
        ("s.yaml", "traffic_patterns:\n- {matrix_file: m, xfer_op: COPY}\n", "xfer_op"),
        ("s.yaml", "traffic_patterns: &a [*a]\n", "alias"),
    ],
)
def test_a_matrix_that_is_wrong_is_refused(tmp_path: Path, name: str, text: str, words: str) -> None:
    assert words in refused_text(tmp_path, name, text)


# NCCL Inspector


def inspected(
    rank: int,
    function: str,
    number: int,
    size: int,
    end_us: int,
    *,
    comm: str = "0xa",
    peer: int = -1,
    **more: Any,
) -> str:
    prefix = "coll" if peer < 0 else "p2p"
    performance: Json = {
        prefix: function,
        f"{prefix}_sn": number,
        f"{prefix}_msg_size_bytes": size,
        f"{prefix}_exec_time_us": 100,
    }
    if peer >= 0:
        performance["p2p_peer"] = peer
    return json.dumps(
        {
            "header": {"id": comm, "rank": rank, "n_ranks": 2, "nnodes": 2},
            "metadata": {
                "inspector_output_format_version": "v4.0",
                "dump_timestamp_us": end_us,
                "hostname": f"n{rank}",
                "pid": 7,
                **more,
            },
            f"{prefix}_perf": performance,
        }
    )


def inspect_logs(tmp_path: Path, *ranks: list[str]) -> Path:
    for rank, lines in enumerate(ranks):
        (tmp_path / f"n{rank}-pid7.log").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_inspector_records_become_the_calls_of_all_ranks(tmp_path: Path) -> None:
    functions = ("AllReduce", "AllGather", "ReduceScatter", "AllToAll", "Broadcast")
    ranks = [
        [
            inspected(rank, name, number + 1, 1 << 20, 1000 + 200 * number)
            for number, name in enumerate(functions)
        ]
        for rank in (0, 1)
    ]
    ranks[0].append(inspected(0, "Send", 1, 4096, 9000, peer=1))
    ranks[1].append(inspected(1, "Recv", 1, 4096, 9500, peer=0))
    trace = read(inspect_logs(tmp_path, *ranks))
    sizes = dict(collectives(trace.ranks[0]))
    mib = 1 << 20
    assert sizes == {
        "ALL_REDUCE": mib,
        "ALL_GATHER": mib,
        "REDUCE_SCATTER": 2 * mib,
        "ALL_TO_ALL": 2 * mib,
        "BROADCAST": mib,
    }
    assert sends(trace) == {(0, 1): 4096}
    assert [compute_ns(rank) for rank in trace.ranks] == [7_500_000, 7_500_000], "least gap over ranks"


def test_missing_serial_numbers_are_counted(tmp_path: Path) -> None:
    ranks = [[inspected(rank, "AllReduce", number, 8, 1000 * number) for number in (2, 5)] for rank in (0, 1)]
    trace = read(inspect_logs(tmp_path, *ranks))
    assert trace.left_out[0].count == 6


def test_a_dump_of_all_records_at_once_has_no_times(tmp_path: Path) -> None:
    ranks = [[inspected(rank, "AllReduce", number, 8, 99) for number in (1, 2)] for rank in (0, 1)]
    trace = read(inspect_logs(tmp_path, *ranks))
    assert [compute_ns(rank) for rank in trace.ranks] == [0, 0]
    assert "no start times" in trace.remarks[0].what


def test_records_dumped_together_have_no_times(tmp_path: Path) -> None:
    """The plug-in stamps each record as it writes it: two of 100 us that are 3 us apart were dumped at the end."""
    ranks = [
        [inspected(rank, "AllReduce", number, 8, 1000 + 3 * number) for number in (1, 2)] for rank in (0, 1)
    ]
    assert "no start times" in read(inspect_logs(tmp_path, *ranks)).remarks[0].what


def test_verbose_records_state_when_their_kernels_began(tmp_path: Path) -> None:
    def verbose(rank: int, number: int, start_us: int) -> str:
        record = json.loads(inspected(rank, "AllReduce", number, 8, 10**6 + number))
        kernels = [{"channel_id": channel, "kernel_start_ts": start_us + channel} for channel in (1, 0)]
        stamps = {"coll_start_ts": start_us - 60, "coll_stop_ts": start_us - 55, "kernel_events": kernels}
        record["coll_perf"]["event_trace_ts"] = stamps
        return json.dumps(record)

    ranks = [[verbose(rank, 1, 1000), verbose(rank, 2, 1140 + rank)] for rank in (0, 1)]
    assert [compute_ns(rank) for rank in read(inspect_logs(tmp_path, *ranks)).ranks] == [40_000] * 2


def test_names_of_the_plug_in_are_known(tmp_path: Path) -> None:
    ranks = [[inspected(rank, "All2All", 1, 512, 1000)] for rank in (0, 1)]
    assert collectives(read(inspect_logs(tmp_path, *ranks)).ranks[0]) == [("ALL_TO_ALL", 1024)]


def test_a_missing_process_is_named(tmp_path: Path) -> None:
    assert "no calls of rank 1" in refusal(inspect_logs(tmp_path, [inspected(0, "AllReduce", 1, 8, 1)]))


def test_an_unknown_version_is_refused(tmp_path: Path) -> None:
    line = inspected(0, "AllReduce", 1, 8, 1, inspector_output_format_version="v9.0")
    assert "v9.0" in refusal(inspect_logs(tmp_path, [line]))


def test_compressed_logs_are_read(tmp_path: Path) -> None:
    for rank in (0, 1):
        content = inspected(rank, "AllReduce", 1, 64, 1000).encode()
        (tmp_path / f"n{rank}.log.gz").write_bytes(gzip.compress(content))
    assert collectives(read(tmp_path).ranks[1]) == [("ALL_REDUCE", 64)]


# NCCL debug logs


def logged(
    rank: int, function: str, count: int, kind: int = 7, root: int = 0, comm: str = "0x10", op: int = 0
) -> str:
    return (
        f"n{rank}:7:9 [0] NCCL INFO {function}: opCount {op:x} sendbuff 0x7f recvbuff 0x8f count {count} datatype {kind} "
        f"op 0 root {root} comm {comm} [nranks=2] stream 0x5"
    )


def set_up(rank: int, comm: str = "0x10", unique: str = "0xabc") -> str:
    return (
        f"n{rank}:7:9 [0] NCCL INFO comm {comm} rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 commId {unique} "
        "- Init COMPLETE"
    )


def test_calls_of_a_debug_log(tmp_path: Path) -> None:
    lines = []
    for rank in (1, 0):
        comm = f"0x1{rank}"
        lines += [
            set_up(rank, comm),
            "a line of the program itself",
            logged(rank, "AllReduce", 100, comm=comm, op=0),
            logged(rank, "AllGather", 100, kind=9, comm=comm, op=1),
            logged(rank, "ReduceScatter", 100, kind=8, comm=comm, op=2),
            logged(rank, "Broadcast", 10, root=1, comm=comm, op=3),
            logged(rank, "Send" if rank else "Recv", 50, kind=0, root=1 - rank, comm=comm, op=4),
        ]
    trace = of_text(tmp_path, "nccl.log", "\n".join(lines))
    assert collectives(trace.ranks[0]) == [
        ("ALL_REDUCE", 400),
        ("ALL_GATHER", 200),
        ("REDUCE_SCATTER", 1600),
        ("BROADCAST", 40),
    ]
    assert sends(trace) == {(1, 0): 50}
    assert trace.ranks[0].comm.root is not None


def test_one_log_of_collectives_represents_all_ranks(tmp_path: Path) -> None:
    trace = of_text(tmp_path, "nccl.log", logged(0, "AllReduce", 8388608, kind=9) + "\n")
    assert [collectives(rank) for rank in trace.ranks] == [[("ALL_REDUCE", 16 << 20)]] * 2


def test_sends_of_a_group_run_at_once_and_not_to_the_rank_itself(tmp_path: Path) -> None:
    """PyTorch's all-to-all: every rank sends to all, itself included, in one group. Receives come first here."""
    lines = [set_up(0, "0xa"), set_up(1, "0xb")]
    for rank, comm in enumerate(("0xa", "0xb")):
        for peer in (0, 1):
            lines += [logged(rank, name, 256, root=peer, comm=comm) for name in ("Recv", "Send")]
        lines.append(logged(rank, "AllReduce", 4, comm=comm, op=1))
    trace = of_text(tmp_path, "nccl.log", "\n".join(lines))
    assert sends(trace) == {(0, 1): 1024, (1, 0): 1024}
    received, sent, summed = trace.ranks[0].node_id.tolist()
    assert trace.ranks[0].data_deps[1].tolist() == [], "a send of a group does not wait for its receive"
    assert set(trace.ranks[0].data_deps[2].tolist()) == {received, sent}
    assert summed == 3
    assert any("of a rank with itself" in remark.what for remark in trace.remarks)


@pytest.mark.parametrize("with_set_up", [True, False])
def test_gpus_of_one_process_are_ranks(tmp_path: Path, with_set_up: bool) -> None:
    def line(device: int, text: str) -> str:
        return f"n0:7:{9 + device} [{device}] NCCL INFO {text}"

    lines = [
        line(
            device,
            f"comm 0x1{device} rank {device} nranks 2 cudaDev {device} busId 1 commId 0x9 - Init COMPLETE",
        )
        for device in (0, 1)
        if with_set_up
    ]
    for op in (0, 1):
        lines += [logged(0, "AllReduce", 64, comm=f"0x1{device}", op=op) for device in (0, 1)]
    trace = of_text(tmp_path, "nccl.log", "\n".join(lines))
    assert [collectives(rank) for rank in trace.ranks] == [[("ALL_REDUCE", 256)] * 2] * 2


def test_rccl_states_the_rank_in_the_communicator(tmp_path: Path) -> None:
    lines = [logged(1 - rank, "Broadcast", 8, root=1) + f" task 0 globalrank {rank}" for rank in (0, 1)]
    trace = of_text(tmp_path, "rccl.log", "\n".join(lines))
    assert trace.groups == {"2 ranks, 0": (0, 1)}
    assert "n1" not in str(trace.remarks)


def test_one_log_with_sends_is_refused(tmp_path: Path) -> None:
    assert "with sends" in refused_text(tmp_path, "nccl.log", logged(0, "Send", 8, root=1))


def test_a_log_without_calls_is_refused(tmp_path: Path) -> None:
    assert "NCCL_DEBUG_SUBSYS" in refused_text(tmp_path, "nccl.log", set_up(0) + "\n")


# GOAL


def goal(*ranks: str) -> str:
    bodies = "".join(f"rank {number} {{\n{body}\n}}\n" for number, body in enumerate(ranks))
    return f"num_ranks {len(ranks)}\n{bodies}"


def test_a_goal_schedule(tmp_path: Path) -> None:
    text = goal(
        "a: calc 500\nb: send 10b to 1 tag 3 // a comment\nb requires a", "recv 10b from 0 tag 3 cpu 1 nic 1"
    )
    trace = of_text(tmp_path, "s.goal", text)
    assert sends(trace) == {(0, 1): 10}
    assert compute_ns(trace.ranks[0]) == 500
    assert trace.ranks[0].data_deps[1].tolist() == [1]


def test_messages_match_by_tag_in_the_order_of_posting(tmp_path: Path) -> None:
    text = goal("send 1b to 1 tag 5\nsend 2b to 1 tag 6", "recv 2b from 0 tag 6\nrecv 1b from 0 tag 5")
    trace = of_text(tmp_path, "s.goal", text)
    assert trace.ranks[1].comm.size.tolist() == [2, 1]


def test_any_source_gets_the_first_message(tmp_path: Path) -> None:
    text = goal(
        "r: recv 9b from -1 tag -1\nq: recv 9b from 4294967295 tag 4294967295\nq requires r",
        "c: calc 100\ns: send 1b to 0\ns requires c",
        "send 2b to 0 tag 8",
    )
    trace = of_text(tmp_path, "s.goal", text)
    assert trace.ranks[0].comm.src.tolist() == [2, 1]
    assert "2 receives take any" in trace.remarks[0].what


def test_calculations_of_one_cpu_run_one_after_another(tmp_path: Path) -> None:
    other = "recv 1b from 0"
    one_cpu = of_text(tmp_path, "a.goal", goal("calc 5\ncalc 7\ncalc 9 cpu 2\nsend 1b to 1", other))
    deps = [one_cpu.ranks[0].data_deps[node].tolist() for node in range(3)]
    assert deps == [[], [1], []]


def test_the_order_on_a_cpu_never_deadlocks(tmp_path: Path) -> None:
    """The first calculation listed waits for a message that depends on the second."""
    text = goal(
        "a: calc 5\nr: recv 1b from 1\na requires r\nb: calc 7\ns: send 1b to 1\ns requires b",
        "r: recv 1b from 0\ns: send 1b to 0\ns requires r",
    )
    assert sends(of_text(tmp_path, "s.goal", text)) == {(0, 1): 1, (1, 0): 1}


def test_irequires_waits_for_the_start(tmp_path: Path) -> None:
    text = goal("a: calc 5\nb: send 1b to 1\nc: calc 3 cpu 1\nb requires a\nc irequires b", "recv 1b from 0")
    trace = of_text(tmp_path, "s.goal", text)
    assert trace.ranks[0].data_deps[2].tolist() == [1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (goal("a requires b"), "not defined"),
        (goal("send 1b to 1", ""), "never receives"),
        (goal("recv 1b from 1", ""), "no such message"),
        (goal("a: calc 1\nb: calc 2\na requires b\nb requires a"), "cycle"),
        (goal("send 2b to 1", "recv 1b from 0"), "receives 1 bytes of the 2"),
        (goal("send 2b to 0"), "itself"),
        (goal("send 2b to 9"), "names rank 9"),
        (goal("a: calc 1\na: calc 2"), "twice"),
        (goal("jump 3"), "not a statement"),
        ("num_ranks 1\nrank 0 {\ncalc 1\n", "ends inside"),
        ("num_ranks 999999\nrank 0 {\n}\n", "num_ranks 1 to"),
    ],
)
def test_a_goal_schedule_that_is_wrong_is_refused(tmp_path: Path, text: str, words: str) -> None:
    assert words in refused_text(tmp_path, "s.goal", text)


# KV-cache log


def kv(*rows: str) -> str:
    return "Timestamp,Operation,Object_Size_Bytes,Tier,Key,Phase\r\n" + "".join(f"{row}\r\n" for row in rows)


KV = kv(
    "10.000000,Write,500,Tier-0,a,Prefill",
    "10.000100,Read,500,Tier-0,a,Evict",
    "10.000200,Write,500,Tier-1,a,Evict",
    "10.000300,Write,70,Tier-2,b,Prefill",
    "10.000400,Read,500,Tier-1,a,Evict",
    "10.000500,Write,500,Tier-2,a,Evict",
    "10.000600,Read,500,Tier-2,a,Decode",
    "10.000700,Read,9,Tier-0,c,Decode",
)


def test_a_kv_log_moves_what_leaves_the_gpu(tmp_path: Path) -> None:
    trace = of_text(tmp_path, "kv.csv", KV)
    assert sends(trace) == {(0, 1): 500, (0, 2): 70, (1, 2): 500, (2, 0): 500}
    assert "Tier-1 is rank 1, Tier-2 is rank 2" in trace.remarks[0].what
    assert compute_ns(trace.ranks[0]) == 600_000, "the last transfer begins 600 us after the first row"


def test_only_the_remote_tiers_are_endpoints(tmp_path: Path) -> None:
    assert sends(of_text(tmp_path, "kv.csv", KV, remote_tiers=(2,))) == {(0, 1): 570, (1, 0): 500}


def test_each_log_is_a_rank(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"tp{rank}.csv").write_text(kv(f"1.0,Write,{rank + 1},Tier-1,k,Prefill"))
    assert sends(read(tmp_path)) == {(0, 2): 1, (1, 2): 2}


def test_rows_are_taken_in_the_order_of_their_times(tmp_path: Path) -> None:
    """Threads of the benchmark log a little out of order."""
    lines = KV.splitlines()
    trace = of_text(tmp_path, "kv.csv", "\n".join((lines[0], *reversed(lines[1:]))))
    assert sends(trace) == {(0, 1): 500, (0, 2): 70, (1, 2): 500, (2, 0): 500}
    assert trace.remarks[1].what.startswith("7 rows are earlier")


def test_an_eviction_without_its_other_row_is_counted(tmp_path: Path) -> None:
    trace = read_trace_of(tmp_path, kv("1.0,Read,5,Tier-0,a,Evict", "2.0,Write,7,Tier-1,b,Prefill"))
    assert trace.left_out[0].count == 1


def read_trace_of(tmp_path: Path, text: str) -> Trace:
    (tmp_path / "kv.csv").write_text(text)
    return read_trace(tmp_path / "kv.csv")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("x,Read,5,Tier-0,a,Decode", "expected seconds"),
        ("1.0,Move,5,Tier-0,a,Decode", "Read or Write"),
        ("1.0,Read,5,Tier-0,a", "has 5 fields"),
    ],
)
def test_a_row_that_is_wrong_is_refused(tmp_path: Path, row: str, words: str) -> None:
    assert words in refused_text(tmp_path, "kv.csv", kv("1.0,Write,5,Tier-1,a,Prefill", row))


# DLIO

LLAMA = (
    ("8B", Model(32, 4096, 128256, 14336, 32, 8, 1, 1, 3, 2, 4), 8, 112_425_623_552),
    ("70B", Model(80, 8192, 128256, 28672, 128, 8, 8, 1, 3, 2, 4), 64, 978_406_572_032),
    ("405B", Model(126, 16384, 128256, 53248, 128, 8, 8, 32, 1, 2, 4), 512, 5_682_508_791_808),
)


@pytest.mark.parametrize(("name", "model", "ranks", "total"), LLAMA, ids=[row[0] for row in LLAMA])
def test_checkpoints_of_mlperf_storage(name: str, model: Model, ranks: int, total: int) -> None:
    """Totals as in the benchmark's own table: 105, 912 and 5,290 GiB."""
    assert sum(sum(model.bytes_of(rank, ranks)) for rank in range(ranks)) == total, name


CHECKPOINT = """\
model:
  num_layers: 3
  parallelism: {tensor: 2, pipeline: 1, zero_stage: 1}
  transformer: {vocab_size: 100, hidden_size: 64, ffn_hidden_size: 128, num_attention_heads: 4, num_kv_heads: 2}
workflow: {generate_data: False, train: False, checkpoint: True}
checkpoint: {num_checkpoints_write: 2, num_checkpoints_read: 1, time_between_checkpoints: 5}
"""


def test_a_checkpoint_is_written_and_read_by_all_ranks(tmp_path: Path) -> None:
    trace = of_text(tmp_path, "c.yaml", CHECKPOINT, ranks=4, servers=2)
    model = Model(3, 64, 100, 128, 4, 2, 2, 1, 1, 2, 4)
    for rank in range(4):
        expected = sum(model.bytes_of(rank, 4))
        assert sum(size for (src, _), size in sends(trace).items() if src == rank) == 2 * expected
        assert sum(size for (_, dst), size in sends(trace).items() if dst == rank) == expected
    assert [compute_ns(rank) for rank in trace.ranks] == [15 * 10**9] * 4 + [0, 0]


def test_tensors_are_divided_one_by_one() -> None:
    """As DLIO rounds them: of 7 hidden, 3 tensor ranks and 2 shards, every tensor is rounded down by itself."""
    model = Model(1, 7, 10, 5, 7, 7, 3, 1, 3, 2, 4)
    layer = 2 * (7 // 2) + 7 * 21 // 3 // 2 + 49 // 3 // 2 + 70 // 3 // 2 + 35 // 3 // 2
    assert model.bytes_of(0, 6)[0] == 2 * (layer + 2 * (70 // 3 // 2) + 7 // 2)


def test_a_part_of_a_job_writes_its_part(tmp_path: Path) -> None:
    """In subset mode the data-parallel degree is stated, and the first ranks alone write."""
    text = CHECKPOINT.replace("tensor: 2", "tensor: 2, data: 4").replace(
        "checkpoint: {", "checkpoint: {mode: subset, "
    )
    trace = of_text(tmp_path, "c.yaml", text, ranks=2)
    model = Model(3, 64, 100, 128, 4, 2, 2, 1, 1, 2, 4, data=4)
    assert sends(trace)[0, 2] == 2 * sum(model.bytes_of(0, 2))


STATED = """\
model: {type: megatron_deepspeed, model_size: 11, num_layers: 4, optimization_groups: [100, 50], layer_parameters: [8, 6],
        parallelism: {tensor: 2, pipeline: 2, zero_stage: 1}}
workflow: {train: True, checkpoint: True}
dataset: {num_files_train: 16, record_length_bytes: 10.5}
reader: {batch_size: 2}
train: {epochs: 2, computation_time: {mean: 0.5, stdev: 0.1}}
checkpoint: {steps_between_checkpoints: 1}
"""


def test_training_writes_checkpoints_of_stated_sizes(tmp_path: Path) -> None:
    """Eight ranks: one step of 2 * 10.5 bytes an epoch. Three tensors of the groups and the model on every rank, two layers
    of (8 + 6) / 2 bytes on the first replica."""
    trace = of_text(tmp_path, "t.yaml", STATED, ranks=8)
    written = {src: size for (src, dst), size in sends(trace).items() if dst == 8}
    assert written == {rank: 2 * (11 + 450 + 14 * (rank < 4)) for rank in range(8)}
    assert {size for (src, _), size in sends(trace).items() if src == 8} == {2 * 21}


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ("checkpoint_after_epoch: 2, epochs_between_checkpoints: 2", 2),
        ("checkpoint_after_epoch: 5, epochs_between_checkpoints: 2", 1),
        ("checkpoint_after_epoch: 6", 0),
    ],
)
def test_checkpoints_after_epochs(tmp_path: Path, settings: str, count: int) -> None:
    text = STATED.replace("epochs: 2", "epochs: 5").replace("steps_between_checkpoints: 1", settings)
    trace = of_text(tmp_path, "t.yaml", text, ranks=8)
    assert sends(trace)[7, 8] == count * 461


def test_evaluation_loads_its_own_files(tmp_path: Path) -> None:
    text = LOADER.replace("checkpoint: False", "checkpoint: False, evaluation: True").replace(
        "dataset: {", "dataset: {num_files_eval: 2, "
    )
    trace = of_text(
        tmp_path, "l.yaml", text + "evaluation: {eval_time: 0.01, eval_after_epoch: 2}\n", ranks=2
    )
    assert sends(trace) == {(2, 0): 14_000, (2, 1): 14_000}
    assert compute_ns(trace.ranks[0]) == 6 * 50_000_000 + 2 * 10_000_000
    assert len(collectives(trace.ranks[0])) == 6


LOADER = """\
model: {name: m}
workflow: {train: True, checkpoint: False}
dataset: {num_files_train: 6, num_samples_per_file: 2, record_length_bytes: 1000, record_length_bytes_stdev: 5}
reader: {batch_size: 2}
train: {epochs: 2, computation_time: 0.05}
"""


def test_a_loader_reads_ahead_of_its_compute(tmp_path: Path) -> None:
    trace = of_text(tmp_path, "l.yaml", LOADER, ranks=2)
    assert sends(trace) == {(2, 0): 12_000, (2, 1): 12_000}
    assert compute_ns(trace.ranks[0]) == 6 * 50_000_000
    assert len(collectives(trace.ranks[0])) == 6
    assert "mean length" in trace.remarks[1].remedy


@pytest.mark.parametrize(
    ("text", "facts", "words"),
    [
        (CHECKPOINT, {}, "state workload.ranks"),
        (CHECKPOINT, {"ranks": 3}, "multiple of 2 ranks"),
        (
            CHECKPOINT.replace("num_checkpoints_write: 2, num_checkpoints_read: 1, ", ""),
            {"ranks": 2},
            "no checkpoint",
        ),
        (CHECKPOINT.replace("tensor: 2", "tensor: 2, data: 4"), {"ranks": 4}, "mode: subset"),
        (
            CHECKPOINT.replace("pipeline: 1, zero_stage: 1", "pipeline: 2, zero_stage: 3"),
            {"ranks": 4},
            "zero_stage 3",
        ),
        (LOADER.replace("epochs: 2", "epochs: 9999999"), {"ranks": 2}, "state fewer train.epochs"),
        (LOADER.replace("epochs: 2", "epochs: -1"), {"ranks": 2}, "epochs"),
        (LOADER + "hydra: 1\n", {"ranks": 2}, '"hydra"'),
        (LOADER.replace("_bytes: 1000", "_bytes: .nan"), {"ranks": 2}, "expected a number"),
        (
            LOADER.replace("batch_size: 2", "batch_size: 9000000000000000000"),
            {"ranks": 2},
            "a batch of train has",
        ),
        (
            CHECKPOINT.replace("vocab_size: 100", "vocab_size: 9000000000000000000"),
            {"ranks": 2},
            "states has",
        ),
    ],
)
def test_a_workload_that_is_wrong_is_refused(tmp_path: Path, text: str, facts: Json, words: str) -> None:
    assert words in refused_text(tmp_path, "w.yaml", text, **facts)


# Ascend


def ascend(*rows: Json) -> str:
    names = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
        for pid, name in ((1, "Ascend Hardware"), (2, "Communication"), (3, "CANN"))
    ]
    return json.dumps([*rows, *names])


def row(name: str, pid: int, start_us: float, duration_us: float, **arguments: Any) -> Json:
    return {
        "ph": "X",
        "name": name,
        "pid": pid,
        "tid": 4,
        "ts": f"{start_us:.3f}",
        "dur": duration_us,
        "args": arguments,
    }


def test_a_trace_view_of_ascend(tmp_path: Path) -> None:
    rows = (
        row("MatMul", 1, 10, 5.5),
        row("hcom_allReduce__417_0_1", 2, 20, 9, count="1000", data_type="BFP16"),
        row("Notify_Wait", 1, 20, 9),
        row("Notify_Wait", 2, 20, 9),
        row("hcom_alltoallv__417_1_1", 2, 40, 9, count="10", data_type="FP32"),
        row("aclnnMatMul", 3, 9, 1),
    )
    trace = of_text(tmp_path, "trace_view.json", ascend(*rows))
    assert collectives(trace.ranks[0]) == [("ALL_REDUCE", 2000), ("ALL_TO_ALL", 40)]
    assert trace.remarks[0].what.startswith("1 all-to-alls (alltoallv) state no split sizes")
    assert compute_ns(trace.ranks[0]) == 5500


def test_operations_of_ascend_that_communicate_inside_are_counted(tmp_path: Path) -> None:
    text = ascend(
        row("aclnnMatmulAllReduce_MatmulAllReduce", 1, 1, 2), row("MoeDistributeDispatchV2", 1, 4, 2)
    )
    (tmp_path / "trace_view.json").write_text(text)
    trace = read_trace(tmp_path)
    assert trace.left_out[0].count == 2
    assert "MoeDistributeDispatchV2" in trace.left_out[0].problem.what
    assert compute_ns(trace.ranks[0]) == 4000


def test_recordings_of_ascend_are_ranks_by_their_info_file(tmp_path: Path) -> None:
    for rank, folder in ((1, "a_ascend_pt"), (0, "b_ascend_pt")):
        output = tmp_path / folder / "ASCEND_PROFILER_OUTPUT"
        output.mkdir(parents=True)
        (tmp_path / folder / f"profiler_info_{rank}.json").write_text("{}")
        size = 100 * (rank + 1)
        event = row("hcom_reduceScatter__5_0_1", 2, 1, 2, count="50", data_type="INT8")
        (output / "trace_view.json").write_text(ascend(event, row(f"op{size}", 1, 1, size)))
    trace = read(tmp_path)
    assert [compute_ns(rank) for rank in trace.ranks] == [100_000, 200_000]
    assert collectives(trace.ranks[0]) == [("REDUCE_SCATTER", 100)]
    assert len(files_of_trace(tmp_path)[0].names) == 2


def test_sends_of_ascend_are_counted(tmp_path: Path) -> None:
    (tmp_path / "trace_view.json").write_text(
        ascend(row("hcom_send__5_0_1", 2, 1, 2, count="50", data_type="INT8"))
    )
    assert read_trace(tmp_path).left_out[0].count == 1


# Sources


def test_a_directory_of_several_forms_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.goal").write_text(goal(""))
    (tmp_path / "kv.csv").write_text(KV)
    assert "several jobs" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("p.json", '{"name": "x", "collective": "allreduce", "protocol": "Simple", "gpus": []}', "MSCCL++"),
        ("t.xml", '<system version="1">\n<cpu/></system>', "topology of a host"),
        ("a.xml", '<algo name="x">', "MSCCL schedule"),
        ("o.json", '{"devices": [], "ports": []}', "Open Traffic Generator"),
        ("f.csv", "from,to,bytes,start_us\na,b,1,2\n", "list of flows"),
        ("n.txt", "# nThread 1 nGpus 8 minBytes 8\n", "nccl-tests"),
        ("r.jsonl", '{"timestamp": 1, "input_length": 5, "output_length": 2}', "serving requests"),
    ],
)
def test_other_files_are_named(tmp_path: Path, name: str, text: str, words: str) -> None:
    assert words in refused_text(tmp_path, name, text)


def test_all_findings_of_a_production_file_are_in_the_report(tmp_path: Path) -> None:
    (tmp_path / "kv.csv").write_text(KV)
    analysis = analyse(read_trace(tmp_path / "kv.csv"), WorkloadSettings())
    assert [str(finding.check) for finding in analysis.findings] == ["source-leaves-out"]


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE, errno.EACCES], ids=errno.errorcode.get)
def test_a_file_that_cannot_be_read_is_not_left_out(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_text("{}")

    def fail(path: Path) -> bytes:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(forms, "head_of", fail)
    with pytest.raises(TraceError, match=os.strerror(code)):
        forms.production_of(tmp_path)
