"""Contraction against an executor that runs the full graph: no operation moves, and the rank ends when it did."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from etloop.workload.trace.contraction import Dag, contract


def dag_of(*nodes: tuple[int | None, tuple[int, ...]]) -> Dag:
    """Nodes as (delay in ns, or None for an operation; indices it waits for)."""
    rows = [sorted(set(deps)) for _, deps in nodes]
    return Dag(
        np.array([delay is None for delay, _ in nodes], dtype=np.bool_),
        np.array([delay or 0 for delay, _ in nodes], dtype=np.int64),
        np.cumsum([0, *map(len, rows)]).astype(np.int64),
        np.array([one for row in rows for one in row], dtype=np.int64),
    )


def run(dag: Dag, took_ns: dict[int, int]) -> tuple[dict[int, int], int]:
    """(start of each operation, end of all) when operation i takes took_ns[i]."""
    ends: list[int] = []
    starts = {}
    for node in range(len(dag)):
        deps = dag.deps[dag.dep_offsets[node] : dag.dep_offsets[node + 1]]
        start = max((ends[one] for one in deps), default=0)
        if dag.is_op[node]:
            starts[node] = start
        ends.append(start + (took_ns[node] if dag.is_op[node] else int(dag.delay_ns[node])))
    return starts, max(ends, default=0)


@st.composite
def dags(draw: st.DrawFn) -> tuple[Dag, dict[int, int]]:
    count = draw(st.integers(0, 24))
    nodes = [
        (
            draw(st.one_of(st.none(), st.sampled_from([0, 0, 1, 5, 7, 100]))),
            tuple(draw(st.sets(st.integers(0, node - 1), max_size=4)) if node else ()),
        )
        for node in range(count)
    ]
    dag = dag_of(*nodes)
    return dag, {node: draw(st.integers(0, 50)) for node in range(count) if dag.is_op[node]}


@given(dags())
def test_no_operation_moves_and_the_rank_ends_when_it_did(given_dag: tuple[Dag, dict[int, int]]) -> None:
    dag, took_ns = given_dag
    small = contract(dag)
    number = {int(node): position for position, node in enumerate(small.kept)}
    assert {node for node in number if dag.is_op[node]} == set(took_ns)
    starts, end = run(dag, took_ns)
    small_starts, small_end = run(small.dag, {number[node]: one for node, one in took_ns.items()})
    assert {node: small_starts[number[node]] for node in took_ns} == starts
    assert small_end == end


@given(dags())
def test_the_result_is_no_larger_and_stays_in_order(given_dag: tuple[Dag, dict[int, int]]) -> None:
    dag, _ = given_dag
    small = contract(dag)
    assert len(small.dag) <= len(dag)
    assert len(small.dag.deps) <= len(dag.deps)
    assert (np.diff(small.kept) > 0).all()
    rows = np.repeat(np.arange(len(small.dag)), np.diff(small.dag.dep_offsets))
    assert (small.dag.deps < rows).all()


@given(dags())
def test_contracting_again_changes_nothing(given_dag: tuple[Dag, dict[int, int]]) -> None:
    small = contract(given_dag[0]).dag
    again = contract(small).dag
    assert again.delay_ns.tolist() == small.delay_ns.tolist()
    assert again.deps.tolist() == small.deps.tolist()


def shape(dag: Dag) -> list[tuple[int | None, list[int]]]:
    return [
        (
            None if dag.is_op[node] else int(dag.delay_ns[node]),
            dag.deps[dag.dep_offsets[node] : dag.dep_offsets[node + 1]].tolist(),
        )
        for node in range(len(dag))
    ]


def test_a_chain_of_delays_becomes_one_delay_named_by_its_last_node() -> None:
    small = contract(dag_of((None, ()), (3, (0,)), (4, (1,)), (None, (2,))))
    assert shape(small.dag) == [(None, []), (7, [0]), (None, [1])]
    assert small.kept.tolist() == [0, 2, 3]


def test_a_delay_of_zero_between_operations_goes() -> None:
    assert shape(contract(dag_of((None, ()), (0, (0,)), (None, (1,)))).dag) == [(None, []), (None, [0])]


def test_a_delay_of_zero_that_saves_edges_stays() -> None:
    wide = dag_of(
        (None, ()), (None, ()), (None, ()), (0, (0, 1, 2)), (None, (3,)), (None, (3,)), (None, (3,))
    )
    assert len(contract(wide).dag) == 7


def test_an_implied_edge_goes() -> None:
    assert shape(contract(dag_of((None, ()), (None, (0,)), (None, (0, 1)))).dag)[2] == (None, [1])


def test_of_delays_side_by_side_the_longest_stays() -> None:
    small = contract(dag_of((None, ()), (3, (0,)), (9, (0,)), (None, (1, 2))))
    assert shape(small.dag) == [(None, []), (9, [0]), (None, [1])]


def test_delays_behind_no_operation_become_one_delay_from_the_start() -> None:
    small = contract(dag_of((3, ()), (9, ()), (4, (0,)), (2, (0, 1)), (None, (2, 3))))
    assert shape(small.dag) == [(11, []), (None, [0])]


def test_delays_in_front_of_no_operation_become_the_longest_way_to_the_end() -> None:
    small = contract(dag_of((None, ()), (3, (0,)), (9, (0,)), (4, (1,)), (2, (1, 2))))
    assert shape(small.dag) == [(None, []), (11, [0])]


def test_a_rank_without_operations_takes_as_long_as_its_longest_chain() -> None:
    assert shape(contract(dag_of((3, ()), (9, (0,)), (4, (0,)))).dag) == [(12, [])]


def test_nothing_stays_nothing() -> None:
    assert len(contract(dag_of()).dag) == 0


def test_a_delay_joins_the_next_past_one_that_ends_at_a_known_time() -> None:
    launched = dag_of((None, ()), (5, (0,)), (30, ()), (7, (1, 2)), (None, (3,)))
    assert shape(contract(launched).dag) == [(None, []), (25, []), (12, [0, 1]), (None, [2])]


def test_a_delay_from_the_start_that_is_always_over_goes() -> None:
    launched = dag_of((None, ()), (5, (0,)), (4, ()), (7, (1, 2)), (None, (3,)))
    assert shape(contract(launched).dag) == [(None, []), (12, [0]), (None, [1])]


def test_a_stream_of_launched_kernels_becomes_one_delay_and_one_start() -> None:
    nodes: list[tuple[int | None, tuple[int, ...]]] = [(None, ())]
    for kernel in range(50):
        nodes += [(10 * kernel, ()), (3, (len(nodes) - 1, len(nodes)))]
    small = contract(dag_of(*nodes, (None, (len(nodes) - 1,))))
    assert shape(small.dag) == [(None, []), (490 - 3 * 49, []), (150, [0, 1]), (None, [2])]
