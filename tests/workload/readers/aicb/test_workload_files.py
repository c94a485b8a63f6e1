"""Workloads of SimAI and AICB: who is in which group, what runs after what, bytes, and what is refused by its line."""

from __future__ import annotations

import gzip
import random
from collections import Counter
from pathlib import Path

import pytest

from etloop.contract.base.errors import TraceError
from etloop.workload.graph.analysis import analyse
from etloop.workload.inspect.inspection import inspect
from etloop.workload.inspect.parallelism import STATED
from etloop.workload.job import build_job
from etloop.workload.readers.aicb.parallel_groups import Degrees, GroupRole
from etloop.workload.readers.aicb.text_job import is_workload_file, ranks_of, read_workload
from etloop.workload.readers.aicb.workload_rows import Workload, WorkloadFault
from etloop.workload.readers.files import files_of_trace, read_trace
from etloop.workload.trace.findings import Check
from etloop.workload.trace.ideal_network import IdealNetwork
from etloop.workload.trace.program import OpKind
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import CollectiveKind, NodeKind, Parallelism

HEAD = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 vpp: 1 ga: 1 all_gpus: 8 checkpoints: 0"
LAYERS = (
    "grad_gather -1 1 NONE 0 0 NONE 0 0 ALLGATHER 4001 100",
    "attention -1 500 REDUCESCATTER 640 600 ALLGATHER 640 700 NONE 0 100",
    "moe -1 0 ALLTOALL_EP 320 0 NONE 0 0 ALLREDUCE_DP_EP 64 0",
)
STAGES = "[ pp_stage0: [rank0, rank1, rank2, rank3] ]"
COLUMNS = (
    "comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count"
)


def text(*layers: str, head: str = HEAD) -> bytes:
    return "\n".join((head, str(len(layers)), *layers, "")).encode()


def csv(*rows: str, columns: str = COLUMNS) -> bytes:
    full = (row + ",None" * (columns.count(",") - commas(row)) for row in rows)
    return "\n".join((columns, *full, "")).encode()


def commas(row: str) -> int:
    return row.partition("((")[0].count(",") + (row.rpartition("))")[2].count(",") if "((" in row else 0)


def operations(workload: Workload) -> list[tuple[str, int, int, str | None, tuple[int, ...]]]:
    return [
        (CollectiveKind(row.comm_type).name, row.comm_size, row.node_id, row.pg_name, tuple(row.data_deps))
        for row in workload.rows
        if row.kind is NodeKind.COMM_COLL
    ]


MEMBERS = [
    (GroupRole.TENSOR, 5, (4, 5), "tensor-parallel peers are neighbours"),
    (GroupRole.DATA, 5, (1, 3, 5, 7), "data-parallel peers have the same place in theirs"),
    (GroupRole.EXPERT, 5, (5, 7), "experts divide the data-parallel peers that are next to each other"),
    (GroupRole.DATA_EXPERT, 5, (1, 5), "those with the same experts are as far apart as a group of experts"),
    (GroupRole.TENSOR_EXPERT, 5, (4, 5, 6, 7), "a group of experts with all of its tensor-parallel ranks"),
    (GroupRole.PIPELINE, 5, (5, 13), "stages are a stage's ranks apart"),
    (GroupRole.DATA, 13, (9, 11, 13, 15), "and the other groups stay within a stage"),
]


@pytest.mark.parametrize(("role", "rank", "members", "why"), MEMBERS, ids=[one[3] for one in MEMBERS])
def test_members_follow_from_degrees(role: GroupRole, rank: int, members: tuple[int, ...], why: str) -> None:
    degrees = Degrees(tensor=2, data=4, pipeline=2, expert=2)
    every = list(degrees.groups(frozenset(GroupRole)))
    assert every[rank][role.value] == members, why
    assert degrees.group_size(role) == len(members)
    assert every[members[0]][role.value] is every[members[-1]][role.value]


def test_layers_run_forward_then_backward_and_weights_hold_nothing_up() -> None:
    found = read_workload(text(*LAYERS))
    assert operations(found) == [
        ("REDUCE_SCATTER", 640, 3, "tp", (2,)),
        ("ALL_TO_ALL", 320, 4, "ep", (3,)),
        ("ALL_REDUCE", 64, 5, "dp_ep", (4,)),  # The last layer first, and the next does not wait for it.
        ("ALL_GATHER", 320, 7, "tp", (6,)),  # Each of two ranks holds half of what all have in the end.
        ("ALL_GATHER", 1001, 9, "dp", (8,)),  # A quarter of 4,001 bytes, rounded up as AICB pads.
    ]
    assert [row.node_id for row in found.rows if tuple(row.data_deps) == (4,)] == [5, 6]
    assert [row.duration_ns for row in found.rows if row.kind is NodeKind.COMP] == [1, 500, 600, 700, 100]


def test_ranks_share_columns_and_are_one_sound_job(tmp_path: Path) -> None:
    path = tmp_path / "workload.anything"
    path.write_bytes(gzip.compress(text(*LAYERS)))
    assert is_workload_file(path)
    trace = read_trace(path)
    assert trace.ranks[7].node_id is trace.ranks[0].node_id
    assert trace.ranks[7].groups == {"dp": (1, 3, 5, 7), "dp_ep": (3, 7), "ep": (5, 7), "tp": (6, 7)}
    analysis = analyse(trace, WorkloadSettings())
    assert analysis.lowering is not None
    assert len(analysis.communicators) == 4 + 2 + 4 + 4
    assert files_of_trace(path)[0].names == (path.name,)


def test_stages_run_every_line_and_unstated_transfers_are_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "w.txt"
    path.write_bytes(text(*LAYERS, head=HEAD.replace(" pp: 1 ", " pp: 2 ")))
    trace = read_trace(path)
    assert [one.problem.what for one in trace.left_out] == [
        "every rank of all 2 stages runs every line; what passes between stages (pp_comm: 0 bytes) is in none"
    ]
    found = [one for one in analyse(trace, WorkloadSettings()).findings if one.check is Check.LEFT_OUT]
    assert len(found) == 1


def test_micro_batches_pass_from_stage_to_stage(tmp_path: Path) -> None:
    """Two ranks a stage, three stages, two micro-batches of two layers each."""
    head = HEAD.replace(" pp: 1 ", " pp: 3 ").replace("ga: 1 ", "ga: 2 ").replace("ep: 2 ", "ep: 1 ")
    head = head.replace("all_gpus: 8", "all_gpus: 6") + " pp_comm: 1000"
    layers = [
        f"{name} -1 {time} NONE 0 {time} NONE 0 0 NONE 0 0"
        for name, time in (("embedding_layer", 5), ("mlp", 6), ("embedding_layer", 5), ("mlp", 6))
    ]
    path = tmp_path / "w.txt"
    path.write_bytes(text(*layers, head=head))
    trace = read_trace(path)
    assert trace.left_out == ()
    assert "2 micro-batches pass" in trace.remarks[0].what
    analysis = analyse(trace, WorkloadSettings())
    assert analysis.lowering is not None
    pairs = [
        (int(ops.src[at]), int(ops.dst[at]))
        for ops in analysis.ops
        for at in range(len(ops))
        if ops.kind[at] == OpKind.SEND
    ]
    forward = [(rank, rank + 2) for rank in range(4)] * 2
    assert sorted(pairs) == sorted(forward + [(dst, src) for src, dst in forward])
    middle = trace.ranks[2]
    names = [middle.name(node) for node in range(len(middle))]
    assert [name for name in names if "in" in name.split() or "out" in name.split()] == [
        *["activations in", "activations out"] * 2,
        *["gradients in", "gradients out"] * 2,
    ]
    assert middle.data_deps[names.index("embedding_layer.forward")].tolist() == [1], (
        "a batch waits for its arrival"
    )


def test_model_chunks_pass_through_all_stages_in_a_ring(tmp_path: Path) -> None:
    """Three stages of one rank, three micro-batches of four layers in two chunks, behind a line that is in no micro-batch."""
    head = HEAD.replace(" pp: 1 vpp: 1 ga: 1 ", " pp: 3 vpp: 2 ga: 3 ").replace("ep: 2 ", "ep: 1 ")
    head = head.replace("_group: 2", "_group: 1").replace("all_gpus: 8", "all_gpus: 3") + " pp_comm: 1000"
    batch = [f"{name} -1 5 NONE 0 5 NONE 0 0 NONE 0 0" for name in ("embedding_layer", "b", "c", "d")]
    path = tmp_path / "w.txt"
    path.write_bytes(text("grad_norm -1 7 NONE 0 7 NONE 0 0 NONE 0 0", *batch * 3, head=head))
    trace = read_trace(path)
    assert "a stage has 2 chunks of its lines (vpp)" in trace.remarks[0].what
    first = trace.ranks[0]
    names = [first.name(node) for node in range(len(first))]
    forward = [name.removesuffix(".forward") for name in names[: names.index("gradients in")]]
    enters, leaves = "activations in", "activations out"
    assert forward == [
        "grad_norm",
        *[enters, "embedding_layer", "b", leaves] * 3,
        *[enters, "c", "d", leaves] * 3,
    ]
    analysis = analyse(trace, WorkloadSettings())
    assert analysis.lowering is not None, "every receive has its send, and nothing waits in a circle"
    pairs = Counter(
        (int(ops.src[at]), int(ops.dst[at]))
        for ops in analysis.ops
        for at in range(len(ops))
        if ops.kind[at] == OpKind.SEND
    )
    # Twice through the stages, from the last to the first once; the gradients go back.
    assert pairs == {(0, 1): 6, (1, 2): 6, (2, 0): 3, (1, 0): 6, (2, 1): 6, (0, 2): 3}
    path.write_bytes(text(*batch * 3, head=head.replace("vpp: 2", "vpp: 5")))
    assert "each passes once, as it has fewer lines than vpp: 5" in read_trace(path).remarks[0].what


def test_ranks_of_a_stage_share_the_peers_of_their_transfers(tmp_path: Path) -> None:
    """Without this, a job of 9,216 ranks with 24 micro-batches in 8 chunks does not fit into memory."""
    head = HEAD.replace(" pp: 1 ", " pp: 4 ").replace("all_gpus: 8", "all_gpus: 64") + " pp_comm: 1000"
    path = tmp_path / "w.txt"
    path.write_bytes(text(*LAYERS, head=head))
    trace = read_trace(path)
    columns = Counter(id(rank.comm.stated_dst) for rank in trace.ranks)
    assert sorted(columns.values()) == [16, 16, 32], (
        "those of the first stage, of the last, and of all between"
    )
    sends = [rank.comm.dst[rank.kind == NodeKind.COMM_SEND].tolist() for rank in trace.ranks]
    assert (sends[3], sends[19], sends[60]) == ([19], [35, 3], [44])
    found = inspect(trace, WorkloadSettings(), IdealNetwork())
    assert {(one.role, one.reason) for one in found.communicators if len(one.members) > 1} == {
        (Parallelism.TENSOR, STATED),
        (Parallelism.DATA, STATED),
        (Parallelism.EXPERT, STATED),
        (Parallelism.EXPERT_DATA, STATED),
    }
    assert (found.pipeline_stages, found.traffic.sends) == (4, 2 * 48)


def test_a_micro_workload_is_one_rank_to_replicate(tmp_path: Path) -> None:
    path = tmp_path / "all_reduce.txt"
    path.write_bytes(
        text(
            "m -1 1 NONE 0 1 NONE 0 2 ALLREDUCE 4096 1", "m -1 1 NONE 0 1 NONE 0 2 ALLTOALL 0 1", head="MICRO"
        )
    )
    trace = read_trace(path)
    assert len(trace.ranks) == 1
    assert [one.what for one in trace.remarks] == [
        "is a MICRO workload, which does not state the number of ranks",
        "1 collectives have 0 bytes",
    ]
    analysis = analyse(trace, WorkloadSettings(replicate_ranks=4))
    assert [one.members for one in analysis.communicators] == [(0, 1, 2, 3)]


def test_rows_of_a_csv_run_one_behind_the_other() -> None:
    found = read_workload(
        f"{STAGES}\n".encode()
        + csv(
            "CommType.all_reduce,CommGroup.dp_group,2,8,init.model_setup",
            "CommType.all_reduce,CommGroup.pp_group,3,8,init.model_setup",
            "CommType.epoch_end,None,None,0",
            "CommType.broadcast,CommGroup.dp_group,2,40,forward_step,None,2",
            "CommType.computation,CommGroup.all,None,((8, 1, 4), (4, 16)),forward.Linear",
            "CommType.all_gather,CommGroup.tp_group,2,641,forward",
            "CommType.isend,CommGroup.pp_group,1,64,forward,None,None,send_next",
            "CommType.barrier,None,None,0",
        )
    )
    assert operations(found) == [
        ("BROADCAST", 40, 1, "dp", ()),
        ("ALL_GATHER", 321, 3, "tp", (2,)),
        ("BARRIER", 0, 4, None, (3,)),
    ]
    assert (found.rows[0].root, found.rows[1].num_ops, found.rows[1].tensor_size) == (1, 1024, 192)
    assert found.degrees == Degrees(tensor=2, data=2, pipeline=3)
    assert [(one.text, one.left_out) for one in found.notes] == [
        ("2 operations before the first epoch_end are start-up, not a training step", 2),
        ("1 sends and receives between pipeline stages are recorded for one stage only", 1),
    ]


def stages(*sections: tuple[str, ...]) -> bytes:
    """A file of AICB with a section per stage of two tensor-parallel ranks."""
    return b"".join(
        f"[ pp_stage{stage}: [rank{2 * stage}, rank{2 * stage + 1}] ]\n".encode() + csv(*rows)
        for stage, rows in enumerate(sections)
    )


FIRST = (
    "all_reduce,tp_group,2,64,forward",
    "isend,pp_group,1,512,forward_step,None,None,send_next",
    "irecv,pp_group,1,256,backward_step,None,None,recv_next",
)
LAST = (
    "irecv,pp_group,1,512,forward_step,None,None,recv_prev",
    "all_reduce,tp_group,2,32,forward",
    "isend,pp_group,1,256,backward_step,None,None,send_prev",
)


def test_a_file_of_all_stages_is_replayed_with_what_passes_between_them(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_bytes(stages(FIRST, LAST))
    trace = read_trace(tmp_path / "w.csv")
    build_job(trace, WorkloadSettings())
    assert not trace.left_out
    moved = {
        (int(rank.comm.src[node]), int(rank.comm.dst[node])): int(rank.comm.size[node])
        for rank in trace.ranks
        for node in (rank.kind == NodeKind.COMM_SEND).nonzero()[0].tolist()
    }
    assert moved == {(0, 2): 512, (1, 3): 512, (2, 0): 256, (3, 1): 256}
    assert [rank.comm.size[rank.kind == NodeKind.COMM_COLL].tolist() for rank in trace.ranks] == [
        [64],
        [64],
        [32],
        [32],
    ]


@pytest.mark.parametrize(
    ("content", "line", "what"),
    [
        (stages(FIRST, LAST).replace(b"pp_stage1", b"pp_stage2"), 6, "begins stage 2, expected stage 1"),
        (stages(FIRST, LAST, FIRST).replace(b"tp_group,2,64", b"pp_group,2,64"), 11, "has 3 pipeline stages"),
        (stages(FIRST, (LAST[0].replace("recv_prev", "x"),)), 8, 'additional of irecv is "x"'),
    ],
    ids=["order", "number", "direction"],
)
def test_stages_that_do_not_fit_are_refused(content: bytes, line: int, what: str) -> None:
    with pytest.raises(WorkloadFault) as caught:
        read_workload(content)
    assert what in str(caught.value)
    assert caught.value.line == line


def test_times_are_nanoseconds_in_a_workload_and_milliseconds_in_a_log() -> None:
    compute = "CommType.computation,CommGroup.all,None,0,forward,None,None,None,1500"
    assert read_workload(csv(compute)).rows[0].duration_ns == 1500
    summed = "CommType.all_reduce,CommGroup.tp_group,2,8,forward,None,None,None,0.5"
    assert read_workload(csv(compute, summed)).rows[0].duration_ns == 1_500_000_000


REFUSED = [
    (
        text(*LAYERS, head=HEAD.replace("ep: 2", "ep: 3")),
        1,
        "4 data-parallel ranks cannot be divided into groups of 3 experts",
    ),
    (
        text(*LAYERS, head=HEAD.replace("8 checkpoints: 0", "9")),
        1,
        "which groups of 2 (model_parallel_NPU_group) in 1 stages",
    ),
    (text(*LAYERS, head=HEAD.replace("8 checkpoints: 0", "999998")), 1, "999998"),
    (
        text(*LAYERS, head=HEAD.replace("checkpoints: 0", "checkpoints: 2 3 4")),
        1,
        "checkpoints is 2, expected 0: recomputed layers",
    ),
    (text(*LAYERS).replace(b"\n3\n", b"\n4\n"), 2, "states 4 layers, but 3 lines follow"),
    (HEAD.encode(), 2, "is missing, expected the number of layers"),
    (text("a -1 1 NONE 0"), 3, "has 5 fields, 12 were expected"),
    (
        text(LAYERS[1].replace("600", "-6")),
        3,
        'the input gradient time is "-6", expected a whole number from 0 to',
    ),
    (text(LAYERS[1].replace("640", "9" * 18)), 3, "the forward size is"),
    (
        text(LAYERS[1].replace("ALLGATHER", "ALLREDUCEALLTOALL")),
        3,
        'collective is "ALLREDUCEALLTOALL": ALLREDUCE, ALLGATHER',
    ),
    (text("m -1 1 NONE 0 1 NONE 0 1 ALLGATHER 8 1", head="MICRO"), 3, "the number of ranks is unknown"),
    (
        text("m -1 1 ALLREDUCE 8 1 NONE 0 1 NONE 0 1", head="MICRO"),
        3,
        "has a collective before its third pass",
    ),
    (csv("CommType.all_sum,CommGroup.all,None,8"), 2, 'comm_type is "all_sum", expected one of all_reduce, '),
    (csv("all_reduce,embedding_group,2,8"), 2, 'comm_group is "embedding_group", expected one of tp_group, '),
    (
        csv("all_reduce,tp_group,2,8", "all_reduce,tp_group,4,8"),
        3,
        "comm_group_size of tp_group is 4, in line 2 2",
    ),
    (csv("all_reduce,tp_group,2,8", "all_reduce,dp_group,None,8"), 3, "no row states the size of dp_group"),
    (
        csv("all_reduce,tp_group,None,8", "all_reduce,dp_group,None,8"),
        0,
        "several groups are used (dp_group, tp_group), but no row",
    ),
    (
        csv("all_reduce,dp_group,4,8", "all_reduce,ep_group,2,8", "all_reduce,ep_dp_group,4,8"),
        0,
        "ep_dp_group has 4 ranks",
    ),
    (csv("broadcast,tp_group,2,8,s,None,5"), 2, "src is 5, which is not in rank 0's tp_group"),
    (csv("computation,all,None,((2, 3), (4, 5)),s"), 2, "cannot be multiplied"),
    (csv("computation,all,None,17,s"), 2, 'a computation without a time has msg_size "17"'),
    (csv("all_gather,dp_group,None,8"), 2, "the number of ranks is unknown"),
    (
        b"[ pp_stage0: [rank0] ]\n" + csv("all_reduce,tp_group,2,8"),
        1,
        "lists 1 ranks of a stage, tp_group and dp_group imply 2",
    ),
    (b"[rank0 ~ rank7]\n" + csv("all_reduce,tp_group,2,8"), 1, "lists 8 ranks, the groups imply 2"),
    (
        csv("all_reduce,tp_group,2,8") + b"[ pp_stage1: [rank2, rank3] ]\n",
        3,
        "begins a pipeline stage without the columns",
    ),
    (COLUMNS.encode() + b"\nall_reduce,dp_group\n", 2, "has 2 fields, the header names 12"),
    (b"MICRO\n\xff\n", 0, "is not UTF-8 from byte 6 on"),
]


@pytest.mark.parametrize(("content", "line", "what"), REFUSED, ids=[one[2][:48] for one in REFUSED])
def test_what_cannot_be_read_is_refused_by_its_line(content: bytes, line: int, what: str) -> None:
    with pytest.raises(WorkloadFault) as caught:
        read_workload(content)
    assert what in caught.value.what
    assert caught.value.line == line


def test_a_fault_names_the_file_and_groups_are_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "w.txt"
    path.write_bytes(text("a -1 1 NONE 0"))
    with pytest.raises(TraceError, match=r"w\.txt: line 3: has 5 fields"):
        read_trace(path)
    with pytest.raises(TraceError, match="derives its groups"):
        read_trace(path, tmp_path / "groups.json")


@pytest.mark.parametrize("seed", range(400))
def test_mutated_workloads_are_read_or_refused(seed: int) -> None:
    draw = random.Random(seed)
    rows = (
        "all_gather,dp_group,4,64,s",
        "broadcast,tp_group,2,8,s,None,1",
        "computation,all,None,((8, 4), (4, 6)),s",
    )
    content = bytearray(draw.choice((text(*LAYERS), csv(*rows))))
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(content))
        content[at : at + draw.randint(0, 3)] = draw.choice(
            (b"", b"9", b",", b"\n", b"\t", b"-", b"(", b"\xff", b"None", b".")
        )
    try:
        found = read_workload(bytes(content))
    except WorkloadFault:
        return
    ranks = ranks_of(found, "w")
    assert len(ranks) == (found.degrees.world_size if found.degrees else 1)
