"""Repairs by named rules: each fixes exactly its own mistake, and what comes out lints clean and reads elsewhere."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.errors import Severity
from etloop.workload.chakra.encoder import encode_trace
from etloop.workload.chakra.nodes import SPLIT_ATTRIBUTE, et_nodes
from etloop.workload.graph.dependencies import cycle_sets
from etloop.workload.lint.fix import SENTENCES, FixedTrace, Rule, fix
from etloop.workload.lint.report import lint
from etloop.workload.readers.et_writer import write_trace
from etloop.workload.readers.files import read_trace
from etloop.workload.synthetic.spec import SyntheticSpec
from etloop.workload.synthetic.training_step import synthesize
from etloop.workload.trace.findings import Check
from etloop.workload.trace.settings import STAGE_SCHEMA, WorkloadSettings
from etloop.workload.trace.trace import ABSENT, CollectiveKind, NodeKind, Rows, Trace
from tests.support.traces.chakra_schema import OfficialMetadata, OfficialNode
from tests.support.traces.shared_traces import known_set, nodes_digest
from tests.support.traces.traces_by_hand import HandNode, all_reduce, compute, recv, send, trace_of
from tests.workload.lint.test_lint_report import HOSTILE_NODES

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = WorkloadSettings()
DEVICE = {"is_cpu_op": 0}


def device(node: HandNode) -> HandNode:
    return node.having(**DEVICE)


def rules(fixed: FixedTrace) -> dict[Rule, int]:
    return {repair.rule: repair.count for repair in fixed.repairs}


def ranks_of(fixed: FixedTrace, column: str) -> list[list[int]]:
    return [attrgetter(column)(rank).tolist() for rank in fixed.trace.ranks]


def peer(node: HandNode) -> HandNode:
    return device(node)


CLEAN = trace_of(
    [device(all_reduce(1, group="7")).after(2), compute(2)],
    [device(all_reduce(1, group="7")), compute(2).ctrl_after(1)],
    groups={"7": (0, 1)},
)

EDGES = [
    ("a self dependency", [compute(1).after(1).ctrl_after(1), compute(2).after(1)], {Rule.DROP_SELF: 2}),
    ("dangling ones", [compute(1).after(8, 9), compute(2).ctrl_after(1, 7)], {Rule.DROP_DANGLING: 3}),
    ("the same one three times", [compute(1), compute(2).after(1, 1, 1)], {Rule.MERGE_DUPLICATE: 2}),
    (
        "control edges around a cycle",
        [
            compute(1).ctrl_after(3),
            compute(2).after(1),
            compute(3).after(2).ctrl_after(1),
            compute(4).ctrl_after(3),
        ],
        {Rule.DROP_CYCLIC_CTRL: 2},
    ),
]


@pytest.mark.parametrize(("nodes", "expected"), [row[1:] for row in EDGES], ids=[row[0] for row in EDGES])
def test_edges_that_nobody_can_honour_go(nodes: list[HandNode], expected: dict[Rule, int]) -> None:
    fixed = fix(trace_of(nodes), SETTINGS)
    assert rules(fixed) == expected
    assert fix(fixed.trace, SETTINGS).repairs == ()


def test_edges_that_stay_keep_their_order() -> None:
    fixed = fix(trace_of([compute(5), compute(3), compute(9).after(5, 9, 3, 5, 77)]), SETTINGS)
    assert fixed.trace.ranks[0].data_deps.values.tolist() == [5, 3]


def test_a_cycle_of_data_dependencies_is_left_and_told() -> None:
    fixed = fix(trace_of([compute(1).after(2), compute(2).after(1)]), SETTINGS)
    assert fixed.repairs == ()
    assert [finding.check for finding in lint(fixed.trace, SETTINGS).errors] == [Check.DEPENDENCY_CYCLE]


def test_ids_used_twice_leave_the_edges_alone() -> None:
    assert fix(trace_of([compute(1), compute(1).after(9)]), SETTINGS).repairs == ()


def test_own_ends_are_the_rank_of_the_file() -> None:
    fixed = fix(trace_of([peer(send(1, 1))], [peer(recv(1, 0))]), SETTINGS)
    assert rules(fixed) == {Rule.FILL_OWN_END: 2}
    assert ranks_of(fixed, "comm.src") == ranks_of(fixed, "comm.src")[:1] * 2 == [[0], [0]]
    assert ranks_of(fixed, "comm.dst") == [[1], [1]]


def test_a_collective_of_nobody_becomes_one_of_all_ranks() -> None:
    trace = trace_of(
        [device(all_reduce(1)), device(all_reduce(2, group="1"))],
        [device(all_reduce(1))] * 1 + [device(all_reduce(2, group="1"))],
        groups={"1": (0, 1)},
    )
    fixed = fix(trace, SETTINGS)
    assert rules(fixed) == {Rule.FILL_GROUP: 2}
    # "1" is in use: the unnamed ones keep an order of their own.
    assert fixed.trace.groups == {"1": (0, 1), "2": (0, 1)}
    assert [finding.check for finding in lint(fixed.trace, SETTINGS).findings] == []


def test_one_key_for_different_ranks_becomes_two() -> None:
    ranks = [[device(all_reduce(1, group="1"))] for _ in range(4)]
    trace = trace_of(*ranks)
    own: tuple[dict[str, tuple[int, ...]], ...] = ({"1": (0, 1)}, {"1": (0, 1)}, {"1": (2, 3)}, {"1": (2, 3)})
    trace = replace(
        trace,
        ranks=tuple(replace(rank, groups=groups) for rank, groups in zip(trace.ranks, own, strict=True)),
    )
    fixed = fix(trace, SETTINGS)
    assert fixed.trace.groups == {"1": (0, 1), "2": (2, 3)}
    assert [rank.pg_names for rank in fixed.trace.ranks] == [("1",), ("1",), ("2",), ("2",)]
    assert lint(fixed.trace, SETTINGS).findings == ()


def test_elements_become_bytes_when_their_size_is_stated() -> None:
    trace = trace_of(
        [device(all_reduce(1, 10, "1")), compute(2, tensor_size=7)], groups={"1": (0,)}, schema=STAGE_SCHEMA
    )
    assert not fix(trace, SETTINGS).in_bytes
    assert fix(trace, SETTINGS).trace.ranks[0].schema == STAGE_SCHEMA
    fixed = fix(trace, WorkloadSettings(element_bytes=4))
    assert fixed.in_bytes
    assert rules(fixed) == {Rule.SIZES_TO_BYTES: 2}
    assert ranks_of(fixed, "comm.size") == [[40, ABSENT]]
    assert ranks_of(fixed, "tensor_size") == [[ABSENT, 28]]
    assert lint(fixed.trace, SETTINGS).size_unit == "bytes"


def test_an_untyped_collective_is_a_launcher_only_beside_typed_ones() -> None:
    bare = all_reduce(1).without("comm_type").without("comm_size")
    fixed = fix(trace_of([bare, device(all_reduce(2, group="1"))], groups={"1": (0,)}), SETTINGS)
    assert rules(fixed) == {Rule.MARK_LAUNCHER: 1}
    assert lint(fixed.trace, SETTINGS).replayable
    alone = fix(trace_of([bare]), SETTINGS)
    assert Rule.MARK_LAUNCHER not in rules(alone)
    assert not lint(alone.trace, SETTINGS).replayable


def test_where_an_operation_runs_is_stated() -> None:
    fixed = fix(trace_of([all_reduce(1, group="1")], groups={"1": (0,)}), SETTINGS)
    assert rules(fixed) == {Rule.STATE_DEVICE_OP: 1}
    assert ranks_of(fixed, "is_cpu_op") == [[0]]


def test_an_unknown_node_type_is_cleared() -> None:
    fixed = fix(trace_of([replace(compute(1), kind=77)]), SETTINGS)
    assert rules(fixed) == {Rule.CLEAR_UNKNOWN_KIND: 1}
    assert ranks_of(fixed, "kind") == [[NodeKind.INVALID]]


def test_durations_come_from_a_stated_speed_and_no_scale() -> None:
    trace = trace_of([compute(1, 0, num_ops=1_500), compute(2, 5), compute(3, 0)])
    fixed = fix(trace, WorkloadSettings(flops=10**9, time_scale=SETTINGS.time_scale * 100))
    assert rules(fixed) == {Rule.FILL_DURATION: 1}
    assert ranks_of(fixed, "duration_us") == [[2, 5, 0]]


def test_a_clean_trace_is_left_as_it_is() -> None:
    fixed = fix(CLEAN, SETTINGS)
    assert fixed.repairs == ()
    assert nodes_digest(fixed.trace) == nodes_digest(CLEAN)
    assert fixed.trace.groups == CLEAN.groups


def test_every_rule_has_its_sentence() -> None:
    assert set(SENTENCES) == set(Rule)


def official_messages(raw: bytes) -> list[Any]:
    """The messages of a file as protocol buffers read them."""
    messages: list[Any] = []
    at = 0
    while at < len(raw):
        size, shift = 0, 0
        while True:
            byte = raw[at]
            at += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        messages.append((OfficialNode if messages else OfficialMetadata).FromString(raw[at : at + size]))
        at += size
    return messages


def written(tmp_path: Path, trace: Trace) -> Trace:
    write_trace(tmp_path, [et_nodes(rank) for rank in trace.ranks], trace.groups)
    return read_trace(tmp_path)


def test_a_synthetic_job_survives_the_round_trip(tmp_path: Path) -> None:
    job = synthesize(SyntheticSpec(layers_per_stage=1, micro_batches=1))
    write_trace(tmp_path / "a", job.ranks, job.groups)
    first = read_trace(tmp_path / "a")
    fixed = fix(first, SETTINGS)
    assert fixed.repairs == ()
    second = written(tmp_path / "b", fixed.trace)
    assert nodes_digest(second) == nodes_digest(first)
    for name in ("w.0.et", "w.7.et"):
        ours = official_messages((tmp_path / "b" / name).read_bytes())
        theirs = official_messages((tmp_path / "a" / name).read_bytes())
        assert [node.SerializeToString(deterministic=True) for node in ours] != []
        for one, other in zip(ours[1:], theirs[1:], strict=True):
            assert {a.name: a.WhichOneof("value") for a in one.attr} == {
                a.name: a.WhichOneof("value") for a in other.attr
            }


def test_a_known_broken_set_comes_out_clean(tmp_path: Path) -> None:
    trace = known_set("chakra.0.et").read()
    fixed = fix(trace, SETTINGS)
    # Counted twice when the set was collected: expected.json and its README.
    assert rules(fixed)[Rule.DROP_SELF] == 383
    assert rules(fixed)[Rule.DROP_DANGLING] == 1277
    again = written(tmp_path, fixed.trace)
    everything = lint(again, SETTINGS)
    assert everything.errors == ()
    repaired = {
        Check.DEPENDENCY_SELF,
        Check.DEPENDENCY_DANGLING,
        Check.DEPENDENCY_DUPLICATE,
        Check.COMMUNICATOR_WORLD,
    }
    assert not repaired & {finding.check for finding in everything.findings}
    messages = official_messages((tmp_path / "w.0.et").read_bytes())
    assert messages[0].version == "1.0.0"
    assert len(messages) - 1 == len(trace.ranks[0])
    assert {a.name for node in messages[1:] for a in node.attr if a.WhichOneof("value") is None} == set()


def test_stage_sends_get_both_ends(tmp_path: Path) -> None:
    trace = known_set("gpt_8").read()
    fixed = fix(trace, WorkloadSettings(element_bytes=2))
    assert set(rules(fixed)) <= {Rule.FILL_OWN_END, Rule.SIZES_TO_BYTES}
    again = lint(written(tmp_path, fixed.trace), SETTINGS)
    before = lint(trace, WorkloadSettings(element_bytes=2))
    assert (again.collectives, again.sends, again.communicators) == (
        before.collectives,
        before.sends,
        before.communicators,
    )
    assert [one.check for one in again.findings if one.severity is not Severity.INFO] == [
        Check.COMPUTE_WITHOUT_DURATION
    ]


def test_splits_streams_and_fine_times_are_written() -> None:
    (rank,) = trace_of([all_reduce(1).having(comm_type=CollectiveKind.ALL_TO_ALL), compute(2)]).ranks
    rank = replace(
        rank,
        stream=np.array([7, ABSENT]),
        start_ns=np.array([5_999, ABSENT]),
        duration_ns=np.array([1, ABSENT]),
        send_splits=Rows(np.array([0, 2, 2]), np.array([1, 4095])),
    )
    raw = b"".join(encode_trace(et_nodes(rank)))
    _, first, second = official_messages(raw)
    attributes = {one.name: one for one in first.attr}
    assert attributes["stream"].int64_val == 7
    assert list(attributes[SPLIT_ATTRIBUTE].int64_list.values) == [1, 4095]
    assert (first.start_time_micros, first.duration_micros) == (5, 1)
    assert (attributes["start_nanos"].int64_val, attributes["duration_nanos"].int64_val) == (5_999, 1)
    assert (second.duration_micros, [one.name for one in second.attr]) == (1, [])


@given(st.lists(HOSTILE_NODES, max_size=3), st.sampled_from([None, {"a": (0, 1)}, {"b": ()}]))
def test_any_trace_can_be_fixed_once_and_then_no_more(
    ranks: list[list[HandNode]], groups: dict[str, tuple[int, ...]] | None
) -> None:
    settings = WorkloadSettings(flops=10**12)
    fixed = fix(trace_of(*ranks, groups=groups), settings)
    assert fix(fixed.trace, settings).repairs == ()
    for rank in fixed.trace.ranks:
        for message in official_messages(b"".join(encode_trace(et_nodes(rank))))[1:]:
            assert message.type <= max(NodeKind)


@given(st.integers(1, 12), st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=40))
def test_strongly_connected_sets_are_those_of_the_definition(
    count: int, pairs: list[tuple[int, int]]
) -> None:
    edges = [(a, b) for a, b in pairs if a < count and b < count and a != b]
    reach = [[a == b or (a, b) in edges for b in range(count)] for a in range(count)]
    for k in range(count):
        for a in range(count):
            for b in range(count):
                reach[a][b] = reach[a][b] or (reach[a][k] and reach[k][b])
    expected = {frozenset(b for b in range(count) if reach[a][b] and reach[b][a]) for a in range(count)}
    set_of = cycle_sets(
        count,
        np.array([a for a, _ in edges], dtype=np.int64),
        np.array([b for _, b in edges], dtype=np.int64),
    ).tolist()
    found = {frozenset(b for b in range(count) if set_of[b] == one) for one in set_of if one >= 0}
    assert found == {one for one in expected if len(one) > 1}
