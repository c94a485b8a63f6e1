"""Sets of nodes that wait for each other, against the definition: each can be reached from the other."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from etloop.workload.graph.dependencies import cycle_sets


def sets_of(count: int, pairs: list[tuple[int, int]]) -> list[int]:
    columns = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    found: list[int] = cycle_sets(count, columns[:, 0], columns[:, 1]).tolist()
    return found


def test_a_node_on_no_cycle_is_in_no_set() -> None:
    assert sets_of(4, [(1, 0), (2, 1), (3, 2)]) == [-1, -1, -1, -1]
    assert sets_of(0, []) == []


def test_two_cycles_with_a_bridge_are_two_sets() -> None:
    found = sets_of(5, [(0, 1), (1, 0), (2, 1), (2, 3), (3, 4), (4, 2)])
    assert found[0] == found[1] != found[2] == found[3] == found[4]
    assert min(found) >= 0


def test_a_chain_of_a_hundred_thousand_nodes_needs_no_deep_stack() -> None:
    count = 100_000
    around = [(node, (node + 1) % count) for node in range(count)]
    assert set(sets_of(count, around)) == {0}


@given(
    st.integers(1, 9).flatmap(
        lambda count: st.tuples(
            st.just(count),
            st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=24),
        )
    )
)
def test_two_nodes_share_a_set_exactly_if_each_waits_for_the_other(
    graph: tuple[int, list[tuple[int, int]]],
) -> None:
    count, pairs = graph
    reach = np.eye(count, dtype=bool)
    for waiting, awaited in pairs:
        reach[waiting, awaited] = True
    for through in range(count):
        reach |= reach[:, through, None] & reach[None, through, :]
    found = sets_of(count, pairs)
    for one in range(count):
        for other in range(count):
            if one != other:
                together = found[one] >= 0 and found[one] == found[other]
                assert together == bool(reach[one, other] and reach[other, one])
