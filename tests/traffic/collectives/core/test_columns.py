"""Step tables as columns: the same tables however they are made, and only those that were asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from etloop.contract.model.assignment import ScheduleTables
from etloop.traffic.collectives.core.columns import select_tables, to_columns
from etloop.traffic.collectives.core.lazy_tables import LazyTables
from etloop.traffic.collectives.core.table import Schedule
from etloop.traffic.collectives.nccl.rails import RAILED
from tests.support.traffic.algorithm_cases import (
    CASES,
    Shape,
    least_channels,
    nccl_p2p,
    nccl_ring,
    shapes_of,
    whole,
)
from tests.support.traffic.whole_columns import unpacked

Row = tuple[Any, ...]


def lanes_of(tables: ScheduleTables) -> dict[tuple[int, int], list[tuple[Row, list[Row]]]]:
    """Every lane with its entries, by schedule and position."""
    whole_tables = unpacked(tables)
    entries = list(
        zip(
            whole_tables.entry_kind.tolist(),
            whole_tables.entry_chunk.tolist(),
            whole_tables.entry_after_lane.tolist(),
            whole_tables.entry_after_entry.tolist(),
            strict=True,
        )
    )
    names = ("batch", "send_to", "recv_from", "part", "parts", "span", "share", "shares", "bytes", "channel")
    rows = list(zip(*(getattr(whole_tables, f"lane_{name}").tolist() for name in names), strict=True))
    found: dict[tuple[int, int], list[tuple[Row, list[Row]]]] = {}
    for schedule in range(len(tables.schedules.size)):
        for table in range(*tables.table_offsets[schedule : schedule + 2].tolist()):
            lanes = found.setdefault((schedule, int(tables.table_position[table])), [])
            for lane in range(*tables.lane_offsets[table : table + 2].tolist()):
                first = int(whole_tables.lane_first_entry[lane])
                count = int(whole_tables.lane_entry_count[lane])
                lanes.append((rows[lane], entries[first : first + count]))
    return found


def as_lanes(schedule: Schedule) -> Schedule:
    """The same schedule without columns of its own."""
    return replace(schedule, tables=tuple(schedule.tables))


REGULAR = ["ring-all-reduce", "ring-all-gather", "ring-reduce-scatter", "bidirectional_ring-all-reduce"]


@settings(max_examples=25)
@given(
    st.sampled_from(REGULAR), st.integers(2, 13), st.sampled_from([1, 2, 3, 4, 8]), st.sampled_from([2, 4, 6])
)
def test_columns_of_rings_are_their_lanes(name: str, size: int, ranks_per_host: int, channels: int) -> None:
    case = next(case for case in CASES if case.name == name)
    schedule = case.build(Shape(size, ranks_per_host), nccl_ring(channels))
    assert isinstance(schedule.tables, LazyTables)
    assert schedule.tables.columns([0]) is not None
    assert lanes_of(to_columns((schedule,))) == lanes_of(to_columns((as_lanes(schedule),)))


@settings(max_examples=25)
@given(st.integers(2, 18), st.sampled_from([1, 2, 3, 4, 8]), st.sampled_from([1, 2, 4, 8]), st.integers(1, 2))
def test_columns_of_an_all_to_all_are_its_lanes(
    size: int, ranks_per_host: int, channels: int, parts: int
) -> None:
    case = next(case for case in CASES if case.name == "p2p-all-to-all")
    cutting = nccl_p2p(channels=channels, parts=min(parts, channels))
    schedule = case.build(Shape(size, ranks_per_host), cutting)
    assert isinstance(schedule.tables, LazyTables)
    assert schedule.tables.columns([0]) is not None
    assert lanes_of(to_columns((schedule,))) == lanes_of(to_columns((as_lanes(schedule),)))


SYMMETRIC = [
    f"{algorithm}-{collective}"
    for algorithm, collectives in (
        ("direct", ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")),
        ("bruck", ("all-to-all", "all-gather")),
        ("pairwise", ("all-to-all", "reduce-scatter")),
        ("scattered", ("all-to-all",)),
        ("deepep", ("all-to-all",)),
        ("hierarchical", ("all-reduce", "all-to-all")),
        ("pxn", ("all-to-all",)),
        *((case.algorithm, (case.collective,)) for case in CASES if case.algorithm in RAILED),
        ("recursive_doubling", ("all-reduce", "all-gather")),
        ("pat", ("all-gather", "reduce-scatter")),
        ("gloo_ring", ("all-reduce",)),
    )
    for collective in collectives
]


@settings(max_examples=100)
@given(
    st.sampled_from(SYMMETRIC),
    st.integers(2, 6),
    st.sampled_from([1, 2, 3, 4]),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([0, 1, 3, 20]),
    st.sampled_from([1, 2, 1 << 20]),
)
def test_columns_turned_from_the_first_position_are_the_lanes_of_all(
    name: str, hosts: int, ranks_per_host: int, channels: int, window: int, aggregation: int
) -> None:
    case = next(case for case in CASES if case.name == name)
    shape = Shape(hosts * ranks_per_host, ranks_per_host)
    assume(shape.size > 1)
    if case.algorithm == "gloo_ring":
        cutting = whole(segments=shape.size * (2 + window))
    else:
        cutting = whole(channels=channels, window=window, aggregation=aggregation)
    assume(case.serves(shape, cutting))
    schedule = case.build(shape, cutting)
    assert isinstance(schedule.tables, LazyTables)
    folded = case.algorithm == "recursive_doubling" and shape.size & (shape.size - 1) != 0
    assert (schedule.tables.columns([0]) is None) == folded, "what is folded is not the same for all"
    assert lanes_of(to_columns((schedule,))) == lanes_of(to_columns((as_lanes(schedule),)))


@settings(max_examples=25)
@given(st.data())
def test_selected_tables_are_those_asked_for(data: st.DataObject) -> None:
    cases = data.draw(st.lists(st.sampled_from(CASES), min_size=1, max_size=2))
    schedules = [case.build(shapes_of(case, 4)[0], whole(channels=least_channels(case))) for case in cases]
    tables = to_columns(schedules)
    everything = lanes_of(tables)
    asked = data.draw(st.lists(st.sampled_from(sorted(everything)), max_size=8))
    chosen = select_tables(
        tables,
        np.array([schedule for schedule, _ in asked], np.int32),
        np.array([position for _, position in asked], np.int32),
    )
    assert lanes_of(chosen) == {key: everything[key] for key in sorted(set(asked))}
    by_position = [sorted({p for s, p in asked if s == index}) for index in range(len(schedules))]
    assert lanes_of(to_columns(schedules, by_position)) == lanes_of(chosen)


def test_channels_of_one_ring_share_their_entries() -> None:
    case = next(case for case in CASES if case.name == "ring-all-reduce")
    one, many = (to_columns((case.build(Shape(64), nccl_ring(channels)),)) for channels in (1, 16))
    assert len(one.entry_chunk) == len(many.entry_chunk) == 64 * 127
    assert len(many.lane_send_to) == 64 * 16


def test_a_column_with_one_value_is_sent_once() -> None:
    tables = to_columns(
        (next(c for c in CASES if c.name == "ring-all-reduce").build(Shape(8), nccl_ring(2)),)
    )
    assert [len(getattr(tables, f"lane_{name}")) for name in ("batch", "parts", "span", "bytes")] == [1] * 4
    assert len(tables.lane_send_to) == 16
    assert len(tables.entry_after_lane) == 1


def test_a_position_that_is_asked_for_must_be_there() -> None:
    tables = to_columns(
        (next(c for c in CASES if c.name == "ring-all-reduce").build(Shape(3), nccl_ring(1)),), [[1]]
    )
    with pytest.raises(KeyError, match="schedule 0 has no table of position 2"):
        select_tables(tables, np.array([0], np.int32), np.array([2], np.int32))
