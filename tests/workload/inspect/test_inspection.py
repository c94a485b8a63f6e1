"""What a job is told to be: bytes against closed forms and known sets, roles against known parallelism, the ideal time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.workload.inspect.inspection import Inspection, inspect
from etloop.workload.inspect.parallelism import Shape, guess_roles, guess_stages
from etloop.workload.trace.ideal_network import IdealNetwork, op_durations_ns
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import CollectiveKind, Parallelism, Trace
from tests.support.traces.shared_traces import known_set
from tests.support.traces.traces_by_hand import (
    HandNode,
    all_reduce,
    collective,
    compute,
    recv,
    send,
    trace_of,
)
from tests.workload.lint.test_lint_report import HOSTILE_NODES

SETTINGS = WorkloadSettings()
GIGABYTE = IdealNetwork(link_bps=8_000_000_000, latency_ns=1_000)
"""One byte takes a nanosecond."""


def look(trace: Trace, network: IdealNetwork = GIGABYTE) -> Inspection:
    return inspect(trace, SETTINGS, network)


def alike(node: HandNode, ranks: int) -> list[list[HandNode]]:
    return [[node] for _ in range(ranks)]


RINGS = [
    ("all-reduce moves 2 S (n-1)", CollectiveKind.ALL_REDUCE, 2 * 1000 * 3),
    ("all-gather moves S n (n-1)", CollectiveKind.ALL_GATHER, 1000 * 4 * 3),
    ("reduce-scatter moves S (n-1)", CollectiveKind.REDUCE_SCATTER, 1000 * 3),
    ("broadcast moves S (n-1)", CollectiveKind.BROADCAST, 1000 * 3),
    ("reduce moves S (n-1)", CollectiveKind.REDUCE, 1000 * 3),
    ("all-to-all moves S (n-1)", CollectiveKind.ALL_TO_ALL, 1000 * 3),
    ("gather moves S (n-1)", CollectiveKind.GATHER, 1000 * 3),
    ("scatter moves what is not the root's", CollectiveKind.SCATTER, 750),
    ("a barrier moves nothing worth telling", CollectiveKind.BARRIER, 0),
]


@pytest.mark.parametrize(("kind", "wire_bytes"), [row[1:] for row in RINGS], ids=[row[0] for row in RINGS])
def test_bytes_of_a_collective(kind: CollectiveKind, wire_bytes: int) -> None:
    reported = look(trace_of(*alike(collective(1, kind, 1000), 4)))
    (one,) = reported.kinds
    assert (one.kind, one.operations, one.wire_bytes) == (kind, 1, wire_bytes)
    assert reported.traffic.matrix.sum() == wire_bytes
    assert np.diagonal(reported.traffic.matrix).sum() == 0


def test_a_ring_follows_the_order_of_the_group_file() -> None:
    trace = trace_of(*alike(all_reduce(1, 600, "g"), 3), groups={"g": (0, 2, 1)})
    assert look(trace).traffic.matrix.tolist() == [[0, 0, 800], [800, 0, 0], [0, 800, 0]]


def test_a_chain_runs_away_from_the_root_or_towards_it() -> None:
    broadcast = look(trace_of(*alike(collective(1, CollectiveKind.BROADCAST, 5), 3)))
    reduced = look(trace_of(*alike(collective(1, CollectiveKind.REDUCE, 5), 3)))
    assert broadcast.traffic.matrix.tolist() == [[0, 5, 0], [0, 0, 5], [0, 0, 0]]
    assert reduced.traffic.matrix.tolist() == broadcast.traffic.matrix.T.tolist()


def test_messages_are_counted_by_pair_and_distance() -> None:
    reported = look(trace_of([send(1, 1, 7), send(2, 1, 8)], [recv(1, 0, 7), recv(2, 0, 8)]))
    assert (reported.traffic.sends, reported.traffic.send_bytes, reported.traffic.distances) == (
        2,
        15,
        {1: 2},
    )
    assert reported.traffic.matrix.tolist() == [[0, 15], [0, 0]]


@given(st.sampled_from(list(CollectiveKind)[:8]), st.integers(0, 10_000), st.integers(1, 9))
def test_totals_are_whole_whatever_the_size(kind: CollectiveKind, size: int, ranks: int) -> None:
    if kind in (CollectiveKind.GATHER, CollectiveKind.SCATTER):
        return
    reported = look(trace_of(*alike(collective(1, kind, size), ranks)))
    factor = {CollectiveKind.ALL_REDUCE: 2, CollectiveKind.ALL_GATHER: ranks}.get(kind, 1)
    assert reported.kinds[0].wire_bytes == reported.traffic.matrix.sum() == factor * size * (ranks - 1)
    assert (reported.traffic.matrix >= 0).all()


ROLES = [
    ("gpt_8", {Parallelism.TENSOR: 4, Parallelism.DATA: 4}, 2),
    ("llama_small_8", {Parallelism.TENSOR: 4, Parallelism.DATA: 4}, 2),
    ("llama_fsdp_8", {Parallelism.SHARDED_DATA: 1}, 1),
    ("moe_small_8", {Parallelism.EXPERT: 1}, 1),
]


@pytest.mark.parametrize(("name", "roles", "stages"), ROLES, ids=[row[0] for row in ROLES])
def test_known_jobs_are_recognised(name: str, roles: dict[Parallelism, int], stages: int) -> None:
    known = known_set(name)
    reported = inspect(known.read(), WorkloadSettings(element_bytes=2), IdealNetwork())
    found = [one.role for one in reported.communicators]
    assert {role: found.count(role) for role in set(found)} == roles
    assert reported.pipeline_stages == stages
    moved = {one.kind.name: one.wire_bytes for one in reported.kinds}
    expected = known.facts["ring_wire_total"]
    for kind, units in expected.items():
        assert moved[kind] == 2 * units


def shape(members: range, **operations: int) -> Shape:
    return Shape(tuple(members), {CollectiveKind[name]: count for name, count in operations.items()})


SHAPES = [
    ("one group of all, reducing often, is data", [shape(range(8), ALL_REDUCE=30)], [Parallelism.DATA]),
    (
        "a few operations of all are statistics",
        [shape(range(8), ALL_REDUCE=1, BARRIER=1)],
        [Parallelism.EVERYONE],
    ),
    ("a group of one serves no parallelism", [shape(range(1), ALL_REDUCE=9)], [Parallelism.ALONE]),
    (
        "sharded optimizer states beside tensor groups",
        [
            *(shape(range(at, at + 2), ALL_REDUCE=40) for at in (0, 2)),
            *(shape(range(at, 4, 2), REDUCE_SCATTER=8, ALL_GATHER=8) for at in (0, 1)),
        ],
        [Parallelism.TENSOR, Parallelism.TENSOR, Parallelism.DATA, Parallelism.DATA],
    ),
    (
        "experts beside gradients over the same ranks",
        [shape(range(4), ALL_TO_ALL=64), shape(range(4), ALL_REDUCE=12)],
        [Parallelism.EXPERT, Parallelism.DATA],
    ),
]


@pytest.mark.parametrize(("shapes", "roles"), [row[1:] for row in SHAPES], ids=[row[0] for row in SHAPES])
def test_roles_by_shape(shapes: list[Shape], roles: list[Parallelism]) -> None:
    assert [guess.role for guess in guess_roles(8, shapes)] == roles


STAGES = [
    ("no messages, no pipeline", 8, {}, 1),
    ("two stages talk both ways", 8, {4: 16, -4: 16}, 2),
    ("four stages", 1024, {256: 1536, -256: 1536}, 4),
    ("the way around is longer", 8, {2: 4, -6: 1}, 4),
    ("distances that are no stages", 8, {3: 1}, 1),
    ("a message to nobody else", 8, {0: 1}, 1),
]


@pytest.mark.parametrize(
    ("world", "distances", "stages"), [row[1:] for row in STAGES], ids=[row[0] for row in STAGES]
)
def test_pipeline_stages(world: int, distances: dict[int, int], stages: int) -> None:
    assert guess_stages(world, distances) == stages


DURATIONS = [
    (CollectiveKind.ALL_REDUCE, 2 * 3 * (1000 + 1000)),
    (CollectiveKind.REDUCE_SCATTER, 3 * (1000 + 1000)),
    (CollectiveKind.ALL_GATHER, 3 * (1000 + 4000)),
    (CollectiveKind.BROADCAST, 3 * 1000 + 4000),
    (CollectiveKind.REDUCE, 3 * 1000 + 4000),
    (CollectiveKind.ALL_TO_ALL, 1000 + 3000),
    (CollectiveKind.BARRIER, 2 * 3 * 1000),
    (-1, 1000 + 4000),
]


@pytest.mark.parametrize(("kind", "duration_ns"), DURATIONS)
def test_ideal_durations(kind: int, duration_ns: int) -> None:
    columns = np.array([kind], dtype=np.int8), np.array([4000]), np.array([4])
    assert op_durations_ns(*columns, GIGABYTE).tolist() == [duration_ns]


def test_the_critical_path_goes_through_the_slowest_rank() -> None:
    trace = trace_of(
        [compute(1, 5), all_reduce(2, 2000).after(1), compute(3, 100).after(2)],
        [compute(1, 40), all_reduce(2, 2000).after(1), compute(3, 7).after(2)],
    )
    path = look(trace).path
    assert path is not None
    reduced_ns = 2 * (1000 + 1000)
    assert path.total_ns == 40_000 + reduced_ns + 100_000
    assert path.by_kind_ns == {"compute": 140_000, "all_reduce": reduced_ns}
    assert [(step.what, step.node_id, step.duration_ns) for step in path.longest] == [
        ("all_reduce", 2, reduced_ns)
    ]


def test_a_message_is_on_the_path_once() -> None:
    trace = trace_of([compute(1, 3), send(2, 1, 500).after(1)], [recv(1, 0, 500), compute(2, 4).after(1)])
    path = look(trace).path
    assert path is not None
    assert path.by_kind_ns == {"compute": 7_000, "send_recv": 1_500}


def test_compute_and_communication_are_compared() -> None:
    reported = look(trace_of([compute(1, 8), all_reduce(2, 2000)], [compute(1, 16), all_reduce(2, 2000)]))
    assert (reported.compute.least_ns, reported.compute.mean_ns, reported.compute.most_ns) == (
        8_000,
        12_000,
        16_000,
    )
    assert reported.communication.mean_ns == 4_000
    assert reported.compute_ratio == 3.0
    assert look(trace_of([compute(1)])).compute_ratio is None


def test_a_trace_with_errors_is_told_without_a_path() -> None:
    reported = look(
        trace_of([all_reduce(1, 100), all_reduce(2).without("comm_size")], alike(all_reduce(1, 100), 1)[0])
    )
    assert reported.path is None
    assert reported.errors > 0
    assert reported.traffic.matrix.sum() == 200


@given(
    st.lists(HOSTILE_NODES, max_size=3), st.sampled_from([None, {"a": (0, 1), "b": (1, 0, 2)}, {"a": (0, 9)}])
)
def test_any_trace_can_be_looked_at(
    ranks: list[list[HandNode]], groups: dict[str, tuple[int, ...]] | None
) -> None:
    reported = look(trace_of(*ranks, groups=groups))
    assert sum(reported.nodes.values()) == sum(map(len, ranks))
    assert (reported.path is None) == (reported.errors > 0)
    assert reported.traffic.matrix.shape == (len(ranks), len(ranks))
    assert all(
        one.duration_ns >= other.duration_ns
        for one, other in pairwise(reported.path.longest if reported.path else ())
    )
