"""The made-up job: whole for every shape, of the stated sizes, and the same every time."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etloop.contract.base.errors import ConfigError
from etloop.workload.chakra.encoder import EtNode, Scalar
from etloop.workload.readers.et_writer import write_trace
from etloop.workload.readers.files import read_trace
from etloop.workload.synthetic.spec import SyntheticSpec
from etloop.workload.synthetic.training_step import SyntheticJob, synthesize
from etloop.workload.trace.trace import CollectiveKind, NodeKind

shapes = st.builds(
    SyntheticSpec,
    tensor_parallel=st.sampled_from([1, 2, 4]),
    data_parallel=st.integers(1, 5),
    pipeline_parallel=st.integers(1, 5),
    layers_per_stage=st.integers(1, 3),
    micro_batches=st.integers(1, 6),
    hidden_size=st.sampled_from([64, 100]),
    element_bytes=st.sampled_from([1, 2, 4]),
    experts=st.booleans(),
).filter(lambda spec: spec.world_size >= 2)


def value(node: EtNode, name: str) -> Scalar:
    (found,) = [attribute.value for attribute in node.attributes if attribute.name == name]
    assert isinstance(found, int | str)
    return found


def number(node: EtNode, name: str) -> int:
    return int(value(node, name))


def collectives(nodes: tuple[EtNode, ...]) -> dict[str, list[tuple[int, int, str]]]:
    """Group -> its collectives in order: kind, size, name."""
    found = defaultdict(list)
    for node in nodes:
        if node.kind is NodeKind.COMM_COLL:
            entry = (number(node, "comm_type"), number(node, "comm_size"), node.name)
            found[str(value(node, "pg_name"))].append(entry)
    return found


def ring_wire_bytes(job: SyntheticJob) -> Counter[NodeKind | CollectiveKind]:
    """Payload that all ranks put on the wire if every collective ran as a ring."""
    total: Counter[NodeKind | CollectiveKind] = Counter()
    for node in (node for nodes in job.ranks for node in nodes):
        if node.kind is NodeKind.COMM_SEND:
            total[node.kind] += number(node, "comm_size")
        if node.kind is not NodeKind.COMM_COLL:
            continue
        kind, size = CollectiveKind(number(node, "comm_type")), number(node, "comm_size")
        members = len(job.groups[str(value(node, "pg_name"))])
        parts = {
            CollectiveKind.ALL_REDUCE: 2 * (members - 1),
            CollectiveKind.ALL_GATHER: members * (members - 1),
        }
        total[kind] += size * parts.get(kind, members - 1) // members
    return total


@settings(max_examples=40)
@given(shapes)
def test_every_dependency_is_an_earlier_node(spec: SyntheticSpec) -> None:
    for nodes in synthesize(spec).ranks:
        assert [node.node_id for node in nodes] == list(range(1, len(nodes) + 1))
        for node in nodes:
            assert len(set(node.data_deps)) == len(node.data_deps)
            assert all(0 < dep < node.node_id for dep in node.data_deps)


@settings(max_examples=40)
@given(shapes)
def test_members_of_a_group_agree_on_all_its_collectives(spec: SyntheticSpec) -> None:
    job = synthesize(spec)
    found = [collectives(nodes) for nodes in job.ranks]
    used = set()
    for key, members in job.groups.items():
        assert len(members) > 1
        sequences = [found[rank].pop(key) for rank in members]
        used.add(key)
        assert all(sequence == sequences[0] for sequence in sequences)
    assert used == set(job.groups)
    assert not any(found), "no rank uses a group that it is not in"


@settings(max_examples=40)
@given(shapes)
def test_every_send_has_its_receive(spec: SyntheticSpec) -> None:
    transfers: dict[NodeKind, Counter[tuple[int, ...]]] = defaultdict(Counter)
    names = ("comm_src", "comm_dst", "comm_tag", "comm_size")
    for rank, nodes in enumerate(synthesize(spec).ranks):
        for node in nodes:
            if node.kind in (NodeKind.COMM_SEND, NodeKind.COMM_RECV):
                transfers[node.kind][tuple(number(node, name) for name in names)] += 1
                assert number(node, "comm_src" if node.kind is NodeKind.COMM_SEND else "comm_dst") == rank
    assert transfers[NodeKind.COMM_SEND] == transfers[NodeKind.COMM_RECV]
    assert all(count == 1 for count in transfers[NodeKind.COMM_SEND].values())
    edges = spec.world_size - spec.tensor_parallel * spec.data_parallel
    assert transfers[NodeKind.COMM_SEND].total() == 2 * spec.micro_batches * edges


@settings(max_examples=15)
@given(shapes)
def test_the_job_runs_to_its_end_even_if_sends_wait_for_their_receives(spec: SyntheticSpec) -> None:
    """Collectives start when all members are there and in the order of their group; transfers join both sides."""
    job = synthesize(spec)
    done: list[set[int]] = [set() for _ in job.ranks]
    waiting = {(rank, node.node_id): node for rank, nodes in enumerate(job.ranks) for node in nodes}
    turn: Counter[tuple[int, str]] = Counter()
    orders = [collectives(nodes) for nodes in job.ranks]
    while waiting:
        ready = [(rank, node) for (rank, _), node in waiting.items() if done[rank].issuperset(node.data_deps)]
        arrived: dict[tuple[object, ...], list[tuple[int, EtNode]]] = defaultdict(list)
        for rank, node in ready:
            if node.kind is NodeKind.COMM_COLL:
                group = str(value(node, "pg_name"))
                if orders[rank][group][turn[rank, group]][2] == node.name:
                    arrived[group, node.name].append((rank, node))
            elif node.kind is NodeKind.COMP:
                arrived[rank, node.node_id].append((rank, node))
            else:
                arrived[tuple(number(node, name) for name in ("comm_src", "comm_dst", "comm_tag"))].append(
                    (rank, node)
                )
        finished = 0
        for entries in arrived.values():
            node = entries[0][1]
            if node.kind is NodeKind.COMM_COLL:
                needed = len(job.groups[str(value(node, "pg_name"))])
            else:
                needed = 1 if node.kind is NodeKind.COMP else 2
            if len(entries) < needed:
                continue
            for rank, each in entries:
                done[rank].add(each.node_id)
                del waiting[rank, each.node_id]
                finished += 1
                if each.kind is NodeKind.COMM_COLL:
                    turn[rank, str(value(each, "pg_name"))] += 1
        assert finished, f"stuck with {len(waiting)} nodes"


@settings(max_examples=40)
@given(shapes)
def test_sizes_divide_among_the_members(spec: SyntheticSpec) -> None:
    for nodes in synthesize(spec).ranks:
        for kind, size, _ in (entry for entries in collectives(nodes).values() for entry in entries):
            if kind in (CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL):
                assert size % (spec.data_parallel * spec.element_bytes) == 0
            assert size > 0 or kind == CollectiveKind.BARRIER


def test_the_default_job_moves_a_few_hundred_megabytes_and_computes_a_few_milliseconds() -> None:
    job = synthesize(SyntheticSpec())
    moved = ring_wire_bytes(job)
    assert len(job.ranks) == 8
    assert 150_000_000 < moved.total() < 250_000_000
    assert set(moved) == {
        *(CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER),
        *(CollectiveKind.ALL_TO_ALL, CollectiveKind.BARRIER, NodeKind.COMM_SEND),
    }
    for nodes in job.ranks:
        assert 1000 < sum(node.duration_us for node in nodes) < 10_000
        assert all((node.duration_us > 0) == (node.kind is NodeKind.COMP) for node in nodes)


def test_sizes_follow_from_the_shape() -> None:
    """Activations are tokens x width, a layer's parameters 12 x width^2, shards the part of one rank."""
    job = synthesize(
        SyntheticSpec(micro_batch_sequences=3, sequence_tokens=100, hidden_size=64, data_parallel=4)
    )
    sizes = {
        CollectiveKind(kind).name + (".world" if len(job.groups[key]) == 16 else ""): size
        for key, entries in collectives(job.ranks[0]).items()
        for kind, size, _ in entries
    }
    assert sizes == {
        "ALL_REDUCE": 3 * 100 * 64 * 2,
        "ALL_TO_ALL": 3 * 100 * 64 * 2 // 2,
        "REDUCE_SCATTER": 12 * 64 * 64 * 2 // 2,
        "ALL_GATHER": 12 * 64 * 64 * 2 // 2 // 4,
        "ALL_REDUCE.world": 4096,
        "BARRIER.world": 0,
    }


def test_the_last_stage_alternates_and_the_first_fills_the_pipeline() -> None:
    job = synthesize(
        SyntheticSpec(
            tensor_parallel=1, data_parallel=1, pipeline_parallel=3, layers_per_stage=1, micro_batches=3
        )
    )
    orders = [
        [
            ("B" if node.name.endswith("backward") else "F") + node.name[2]
            for node in nodes
            if ".attention" in node.name and node.kind is NodeKind.COMP
        ]
        for nodes in job.ranks
    ]
    assert orders == [
        "F0 F1 F2 B0 B1 B2".split(),
        "F0 F1 B0 F2 B1 B2".split(),
        "F0 B0 F1 B1 F2 B2".split(),
    ]


def test_gradients_are_reduced_while_the_backward_pass_goes_on() -> None:
    nodes = {node.name: node for node in synthesize(SyntheticSpec()).ranks[0]}
    reduce_id = nodes["layer1.gradients"].node_id
    waiting = [name for name, node in nodes.items() if reduce_id in node.data_deps]
    assert waiting == ["layer1.optimizer"]
    assert nodes["mb1.layer0.attention.backward"].node_id > reduce_id


def test_ranks_of_one_stage_are_copies_but_for_groups_and_peers() -> None:
    job = synthesize(SyntheticSpec())
    outlines = [[(node.name, node.kind, node.data_deps) for node in nodes] for nodes in job.ranks]
    assert outlines[0] == outlines[1] == outlines[2] == outlines[3]
    assert outlines[4] == outlines[5] == outlines[6] == outlines[7]


def test_the_same_shape_gives_the_same_job() -> None:
    assert synthesize(SyntheticSpec()) == synthesize(replace(SyntheticSpec()))


def test_written_jobs_are_read_back(tmp_path: Path) -> None:
    job = synthesize(SyntheticSpec(pipeline_parallel=3))
    write_trace(tmp_path, job.ranks, job.groups)
    trace = read_trace(tmp_path)
    assert trace.groups == job.groups
    assert [len(rank) for rank in trace.ranks] == [len(nodes) for nodes in job.ranks]
    for rank, nodes in zip(trace.ranks, job.ranks, strict=True):
        assert rank.kind.tolist() == [node.kind for node in nodes]
        assert rank.data_deps.values.tolist() == [dep for node in nodes for dep in node.data_deps]


BAD_SHAPES: list[tuple[str, SyntheticSpec, tuple[str, ...]]] = [
    (
        "one rank",
        SyntheticSpec(tensor_parallel=1, data_parallel=1, pipeline_parallel=1),
        (
            (
                "synthetic job: tensor_parallel x data_parallel x pipeline_parallel is 1 x 1 x 1 = 1 ranks,"
                " expected 2 to 65536; raise or lower one of the three"
            ),
        ),
    ),
    (
        "two values out of bounds, told together",
        SyntheticSpec(data_parallel=0, element_bytes=16),
        (
            "synthetic job: data_parallel: is 0, expected 1 to 65536; choose a number from 1 to 65536",
            "synthetic job: element_bytes: is 16, expected 1 to 8; choose a number from 1 to 8",
        ),
    ),
    (
        "a width that does not divide",
        SyntheticSpec(tensor_parallel=3),
        (
            (
                "synthetic job: hidden_size: is 512, not a multiple of tensor_parallel 3;"
                " choose a multiple: every rank of a tensor-parallel group holds an equal slice"
            ),
        ),
    ),
    (
        "more nodes than memory holds",
        SyntheticSpec(data_parallel=1024, layers_per_stage=100),
        (
            (
                "synthetic job: would have about 11059200 nodes, the limit is 1000000;"
                " lower ranks, layers_per_stage or micro_batches"
            ),
        ),
    ),
]


@pytest.mark.parametrize(
    ("sentence", "spec", "texts"), BAD_SHAPES, ids=[sentence for sentence, *_ in BAD_SHAPES]
)
def test_shapes_that_cannot_be(sentence: str, spec: SyntheticSpec, texts: tuple[str, ...]) -> None:
    del sentence
    with pytest.raises(ConfigError) as raised:
        synthesize(spec)
    assert tuple(map(str, raised.value.problems)) == texts
