"""What becomes of a rank's dependencies, and in which order its nodes are issued."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from etloop.workload.graph.dependencies import RankGraph, clean_edges, cycle_among, rank_graph, ready_order
from etloop.workload.trace.settings import DependencyPolicy
from etloop.workload.trace.trace import Rows
from tests.support.traces.traces_by_hand import HandNode, compute, trace_of


def graph_of(*nodes: HandNode, policy: DependencyPolicy = DependencyPolicy.DATA) -> RankGraph:
    return rank_graph(trace_of(list(nodes)).ranks[0], policy)


def edges(graph: RankGraph) -> list[tuple[int, int]]:
    return list(zip(graph.waiting.tolist(), graph.awaited.tolist(), strict=True))


def test_the_ready_node_of_smallest_id_goes_first_wherever_it_stands_in_the_file() -> None:
    graph = graph_of(compute(30), compute(10).after(20), compute(20), compute(5).after(30))
    assert graph.order.tolist() == [2, 1, 0, 3]


def test_self_dangling_and_duplicate_dependencies_are_dropped_and_counted() -> None:
    graph = graph_of(compute(1), compute(2).after(1, 2, 1, 77, 1, 78))
    assert edges(graph) == [(1, 0)]
    assert graph.data.on_self.tolist() == [1]
    assert graph.data.dangling_ids.tolist() == [77, 78]
    assert graph.data.duplicates == 2


def test_ids_above_the_int64_range_are_ids_like_any_other() -> None:
    top = (1 << 64) - 1
    assert edges(graph_of(compute(top), compute(0).after(top))) == [(1, 0)]


def test_ctrl_edges_join_under_their_policy_and_those_that_repeat_data_edges_do_not_count() -> None:
    nodes = (compute(1), compute(2).after(1).ctrl_after(1), compute(3).ctrl_after(2))
    assert edges(graph_of(*nodes)) == [(1, 0)]
    with_ctrl = graph_of(*nodes, policy=DependencyPolicy.DATA_CTRL)
    assert edges(with_ctrl) == [(1, 0), (2, 1)]
    assert with_ctrl.ctrl_added == 1


def test_of_a_cyclic_rank_the_rest_follows_in_file_order_and_a_short_cycle_is_named() -> None:
    graph = graph_of(
        compute(9).after(8), compute(8).after(7), compute(7).after(8, 9), compute(1), compute(5).after(9)
    )
    assert graph.order.tolist() == [3, 0, 1, 2, 4]
    assert graph.never_ready == 4
    assert sorted(graph.cycle) == [1, 2]


def test_an_empty_rank_has_an_empty_order() -> None:
    assert graph_of().order.tolist() == []


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    count = draw(st.integers(1, 12))
    node = st.integers(0, count - 1)
    pairs = draw(st.sets(st.tuples(node, node).filter(lambda pair: pair[0] != pair[1]), max_size=24))
    return count, sorted(pairs)


@given(graphs())
def test_every_order_respects_its_edges_and_what_is_left_out_holds_a_real_cycle(
    graph: tuple[int, list[tuple[int, int]]],
) -> None:
    count, pairs = graph
    waiting = np.array([pair[0] for pair in pairs], dtype=np.int64)
    awaited = np.array([pair[1] for pair in pairs], dtype=np.int64)
    order = ready_order(np.arange(count)[::-1].copy(), waiting, awaited).tolist()
    place = {node: position for position, node in enumerate(order)}
    for later, earlier in pairs:
        assert later not in place or place[earlier] < place[later]
    stuck = np.array([node not in place for node in range(count)])
    if stuck.any():
        cycle = cycle_among(stuck, waiting, awaited)
        assert len(set(cycle)) == len(cycle) >= 2
        for node, following in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
            assert (node, following) in pairs


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(0, 6))
def test_every_dependency_ends_up_in_exactly_one_account(deps: list[int], count: int) -> None:
    node_id = np.arange(count, dtype=np.uint64)
    offsets = np.zeros(count + 1, dtype=np.int64)
    if count:
        offsets[-1] = len(deps)
    named = deps if count else []
    clean = clean_edges(node_id, Rows(offsets, np.array(named, dtype=np.uint64)))
    assert len(clean.waiting) + len(clean.on_self) + len(clean.dangling) + clean.duplicates == len(named)
