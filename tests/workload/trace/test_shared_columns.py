"""Equal columns are kept once, different ones apart, and a rank means what it meant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from etloop.workload.trace.shared_columns import ColumnStore
from tests.support.traces.shared_traces import known_set, nodes_digest
from tests.support.traces.traces_by_hand import all_reduce, compute, trace_of


def test_equal_ranks_share_every_column() -> None:
    trace = trace_of(*([compute(1), all_reduce(2).after(1)] for _ in range(3)))
    store = ColumnStore()
    first, second, third = (store.share(rank) for rank in trace.ranks)
    held = len(store)
    assert first.data_deps.values is second.data_deps.values is third.data_deps.values
    assert first.name_bytes is second.name_bytes
    assert len(store) == held
    assert [first.rank, second.rank, third.rank] == [0, 1, 2]


def test_ranks_that_differ_keep_what_differs() -> None:
    trace = trace_of([compute(1, 5)], [compute(1, 6)])
    store = ColumnStore()
    first, second = (store.share(rank) for rank in trace.ranks)
    assert first.duration_us.tolist() == [5]
    assert second.duration_us.tolist() == [6]
    assert first.node_id is second.node_id


def test_the_same_bytes_of_another_type_are_another_column() -> None:
    (rank,) = trace_of([compute(1)]).ranks
    shared = ColumnStore().share(
        replace(rank, start_us=np.zeros(0, np.uint64), node_id=np.zeros(0, np.int64))
    )
    assert shared.start_us.dtype == np.uint64
    assert shared.node_id.dtype == np.int64


def test_columns_cannot_be_written_by_one_rank_for_all() -> None:
    (rank,) = trace_of([compute(1)]).ranks
    with pytest.raises(ValueError, match="read-only"):
        ColumnStore().share(rank).duration_us[0] = 7


def test_absent_columns_stay_absent() -> None:
    (rank,) = trace_of([compute(1)]).ranks
    assert ColumnStore().share(rank).send_splits is None


def test_a_read_job_holds_each_column_once() -> None:
    trace = known_set("gpt_8").read()
    assert nodes_digest(trace) == known_set("gpt_8").facts["nodes_digest"]
    # Two stages of four ranks: the heavy columns exist twice, whatever the number of ranks.
    assert len({id(rank.data_deps.values) for rank in trace.ranks}) == 2
    assert len({id(rank.name_bytes) for rank in trace.ranks}) == 2
