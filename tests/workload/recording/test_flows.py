"""Results of operations are followed through storages, and only the nearest are named."""

from __future__ import annotations

from etloop.workload.recording.flows import DataFlow


def test_an_operation_comes_from_those_whose_results_reach_it() -> None:
    flow = DataFlow()
    assert flow.operate(1, [10], [10]) == ()
    assert flow.operate(2, [20], [21]) == ()
    flow.compute([10, 21, 5], [30])
    assert flow.operate(3, [30], [31]) == (1, 2)
    flow.compute([31, 10], [32])
    assert flow.operate(4, [32], [32]) == (3,)


def test_a_storage_that_is_overwritten_holds_nothing_of_before() -> None:
    flow = DataFlow()
    flow.operate(1, [10], [10])
    flow.compute([7], [10])
    assert flow.operate(2, [10], [10]) == ()
