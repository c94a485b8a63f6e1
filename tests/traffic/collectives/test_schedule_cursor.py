"""The native cursor against NCCL: the oracle schedules, worked numbers, and the cut written a second time in elements."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.model.assignment import ScheduleTables
from etloop.traffic._native import StepTables
from etloop.traffic.collectives.core.columns import to_columns
from etloop.traffic.collectives.core.table import EntryKind, Schedule
from etloop.traffic.collectives.selection import CollectiveName
from tests.support.places import SHARED
from tests.support.traffic.one_channel_schedules import SEND_RECV, schedule_for
from tests.support.traffic.whole_columns import unpacked

ORACLE: Final = SHARED / "facts" / "schedules.json"
KIND_NAMES: Final = {
    EntryKind.SEND: "S",
    EntryKind.RECV | EntryKind.REDUCE | EntryKind.SEND: "RS",
    EntryKind.RECV | EntryKind.REDUCE | EntryKind.COPY | EntryKind.SEND: "RC",
    EntryKind.RECV | EntryKind.COPY | EntryKind.SEND: "CS",
    EntryKind.RECV | EntryKind.COPY: "R",
}
MIB: Final = 1 << 20


def messages_of(
    schedule: Schedule, position: int, op_bytes: int, lane: int = 0
) -> list[tuple[str, int, int, int]]:
    """(kind, chunk, loop, bytes) of every message of a lane."""
    tables = StepTables(to_columns([schedule]))
    kinds, chunks, loops, sizes = (c.tolist() for c in tables.lane_messages(0, position, lane, op_bytes))
    names = [KIND_NAMES.get(EntryKind(kind), "?") for kind in kinds]
    return list(zip(names, chunks, loops, sizes, strict=True))


def sizes_of(schedule: Schedule, position: int, op_bytes: int) -> list[int]:
    """Bytes of every message of the first lane."""
    return [size for *_, size in messages_of(schedule, position, op_bytes)]


def oracle_ring_cases() -> list[dict[str, Any]]:
    if not ORACLE.exists():
        return []
    cases: list[dict[str, Any]] = json.loads(ORACLE.read_text())["ring_allreduce"]["cases"]
    return cases


@pytest.mark.skipif(not ORACLE.exists(), reason="the oracle schedules are not beside the repository")
@pytest.mark.parametrize("case", oracle_ring_cases(), ids=lambda case: f"{case['ranks']}x{case['bytes']}")
def test_ring_all_reduce_is_the_oracle_step_by_step(case: dict[str, Any]) -> None:
    size, op_bytes = case["ranks"], case["bytes"]
    schedule = schedule_for(CollectiveName.ALL_REDUCE, size)
    tables = StepTables(to_columns([schedule]))
    for expected in case["per_rank"]:
        messages = messages_of(schedule, expected["rank"], op_bytes)
        steps = [
            [kind, loop, index % (2 * size - 1), chunk, [first, messages[2 * index + 1][3]]]
            for index, (kind, chunk, loop, first) in enumerate(messages[::2])
        ]
        assert steps == expected["ops"]
        sent = [size for kind, _, _, size in messages if kind != "R"]
        assert (len(sent), sent.count(0), sum(sent)) == (
            expected["messages"],
            expected["empty_messages"],
            expected["bytes"],
        )
        _, send_to, recv_from, tx_messages, tx_bytes, *_ = tables.lane_totals_of(
            0, expected["rank"], op_bytes
        )
        assert (send_to.tolist(), recv_from.tolist()) == ([expected["next"]], [expected["prev"]])
        assert (tx_messages.tolist(), tx_bytes.tolist()) == ([expected["messages"]], [expected["bytes"]])


@pytest.mark.parametrize(
    ("op_bytes", "count", "sizes"),
    [
        (64 * MIB, 96, {MIB}),
        (MIB, 12, {131072}),
        (262144, 12, {32768}),
        (131072, 12, {32768, 0}),
        (4096, 12, {1024, 0}),
    ],
)
def test_all_reduce_of_four_sends_the_worked_numbers(op_bytes: int, count: int, sizes: set[int]) -> None:
    messages = messages_of(schedule_for(CollectiveName.ALL_REDUCE, 4), 1, op_bytes)
    sent = [size for kind, _, _, size in messages if kind != "R"]
    assert (len(sent), set(sent)) == (count, sizes)


def slices(elements: int, element_bytes: int) -> list[int]:
    """NCCL's genericOp with two slices of a ring chunk, in elements as NCCL counts."""
    cut = max(-(-elements // 32) * 16, 32768 // element_bytes)
    first = min(cut, elements)
    return [first * element_bytes, min(cut, elements - first) * element_bytes]


def ring_chunks(elements: int, size: int) -> list[list[int]]:
    """Elements of chunk 0..n-1 of every loop of NCCL's ring all-reduce, float32."""
    loops = []
    chunk = 2 * MIB // 4
    offset = 0
    while offset < elements:
        rest = elements - offset
        now = chunk if rest >= size * chunk else (-(-rest // size) + 3) // 4 * 4
        loops.append([min(max(rest - c * now, 0), now) for c in range(size)])
        offset += size * chunk
    return loops


@given(st.integers(2, 24), st.integers(1, 12 * MIB), st.data())
def test_all_reduce_is_cut_as_nccl_counts_elements(size: int, elements: int, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, size - 1))
    schedule = schedule_for(CollectiveName.ALL_REDUCE, size)
    chunks = [entry.chunk for entry in schedule.tables[position][0].entries]
    expected = [s for loop in ring_chunks(elements, size) for chunk in chunks for s in slices(loop[chunk], 4)]
    assert sizes_of(schedule, position, 4 * elements) == expected


@given(st.integers(2, 24), st.integers(1, 3 * MIB))
def test_equal_blocks_are_scattered_as_nccl_counts_elements(size: int, elements: int) -> None:
    chunk = 2 * MIB // 4
    expected = [
        s
        for offset in range(0, elements, chunk)
        for _ in range(size)
        for s in slices(min(chunk, elements - offset), 4)
    ]
    schedule = schedule_for(CollectiveName.REDUCE_SCATTER, size)
    assert sizes_of(schedule, size // 2, 4 * elements * size) == expected


@given(st.integers(2, 24), st.integers(1, 9 * MIB))
def test_shards_are_gathered_as_nccl_counts_bytes(size: int, shard_bytes: int) -> None:
    chunk = 2 * MIB
    expected = [
        s
        for offset in range(0, shard_bytes, chunk)
        for _ in range(size)
        for s in slices(min(chunk, shard_bytes - offset), 1)
    ]
    assert sizes_of(schedule_for(CollectiveName.ALL_GATHER, size), 0, shard_bytes) == expected


@pytest.mark.parametrize(
    ("op_bytes", "sizes"),
    [
        (0, [0]),
        (1, [1]),
        (65537, [32768, 32768, 1]),
        (131071, [32768, 32768, 32768, 32767]),
        (131072, [65536, 65536]),
        (MIB - 1, [65536] * 15 + [65535]),
        (MIB, [131072] * 8),
    ],
)
def test_a_send_is_cut_by_its_size_and_an_empty_one_is_a_message(op_bytes: int, sizes: list[int]) -> None:
    assert sizes_of(SEND_RECV, 0, op_bytes) == sizes
    assert sizes_of(SEND_RECV, 1, op_bytes) == sizes


def test_a_broadcast_goes_in_pieces_of_512_kib() -> None:
    schedule = schedule_for(CollectiveName.BROADCAST, 3)
    assert messages_of(schedule, 1, 3 * MIB // 2 + 5) == [
        ("CS", 0, 0, MIB // 2),
        ("CS", 0, 1, MIB // 2),
        ("CS", 0, 2, MIB // 2),
        ("CS", 0, 3, 5),
    ]


def test_a_collective_of_nothing_has_no_messages_but_a_barrier_has() -> None:
    for name in CollectiveName:
        messages = messages_of(schedule_for(name, 4), 0, 0)
        assert bool(messages) == (name is CollectiveName.BARRIER)


@given(
    st.sampled_from(CollectiveName),
    st.integers(2, 16),
    st.one_of(st.integers(0, 300_000), st.integers(0, 40 * MIB)),
)
def test_totals_in_closed_form_are_what_the_cursor_walks(
    name: CollectiveName, size: int, op_bytes: int
) -> None:
    schedule = schedule_for(name, size)
    tables = StepTables(to_columns([SEND_RECV, schedule]))
    position, send_to, recv_from, *totals = (
        column.tolist() for column in tables.schedule_totals(1, op_bytes)
    )
    rows = list(zip(position, send_to, recv_from, *totals, strict=True))
    index = dict.fromkeys(range(size), 0)
    for at, to, sender, tx_messages, tx_bytes, rx_messages, rx_bytes in rows:
        lane = schedule.tables[at][index[at]]
        assert (to, sender) == (lane.send_to, lane.recv_from)
        if at == size // 2:
            kinds, _, _, sizes = tables.lane_messages(1, at, index[at], op_bytes)
            sends, receives = kinds & 1 != 0, kinds & 2 != 0
            assert (tx_messages, tx_bytes) == (sends.sum(), sizes[sends].sum())
            assert (rx_messages, rx_bytes) == (receives.sum(), sizes[receives].sum())
        index[at] += 1
    own = np.array([row[3:] for row in rows if row[0] == size // 2]).sum(axis=0).tolist()
    asked = tables.position_totals(
        np.array([1], np.int32), np.array([size // 2], np.int32), np.array([op_bytes], np.int64)
    )
    assert [int(column[0]) for column in asked] == own


def test_questions_about_what_is_not_there_are_refused_by_name() -> None:
    tables = StepTables(to_columns([SEND_RECV]))
    with pytest.raises(ValueError, match=r"^schedule 1 does not exist$"):
        tables.schedule_totals(1, 0)
    with pytest.raises(ValueError, match=r"^position 2 is outside schedule 0$"):
        tables.lane_totals_of(0, 2, 0)
    with pytest.raises(ValueError, match=r"^lane 1 does not exist$"):
        tables.lane_messages(0, 0, 1, 0)
    with pytest.raises(ValueError, match=r"^-1 bytes are outside 0 to 64 TiB$"):
        tables.lane_totals_of(0, 0, -1)
    with pytest.raises(ValueError, match=r"^the lane has more than 3 messages$"):
        tables.lane_messages(0, 0, 0, MIB, 3)


@pytest.mark.parametrize(
    ("column", "index", "value", "error"),
    [
        ("chunk_bytes", 0, 0, "schedules[0]: rule, chunk, slice or slot numbers are out of range"),
        ("chunk_rule", 0, 3, "schedules[0]: rule, chunk, slice or slot numbers are out of range"),
        ("slice_align_bytes", 0, 0, "schedules[0]: rule, chunk, slice or slot numbers are out of range"),
        (
            "table_offsets",
            1,
            9,
            "schedules.table_offsets does not rise from 0 to the length of the next level",
        ),
        (
            "lane_offsets",
            1,
            -1,
            "schedules.lane_offsets does not rise from 0 to the length of the next level",
        ),
        (
            "lane_entry_count",
            1,
            2,
            "schedules.lanes[1]: batch, peer, part, bytes or entries are out of range",
        ),
        (
            "lane_first_entry",
            0,
            -1,
            "schedules.lanes[0]: batch, peer, part, bytes or entries are out of range",
        ),
        ("lane_span", 0, 0, "schedules.lanes[0]: batch, peer, part, bytes or entries are out of range"),
        ("lane_span", 0, 16385, "schedules.lanes[0]: batch, peer, part, bytes or entries are out of range"),
        ("lane_share", 0, 1, "schedules.lanes[0]: batch, peer, part, bytes or entries are out of range"),
        ("lane_channel", 0, -1, "schedules.lanes[0]: batch, peer, part, bytes or entries are out of range"),
        ("size", 0, 0, "schedules[0]: rule, chunk, slice or slot numbers are out of range"),
        ("line_wire_bytes", 0, 16, "schedules[0]: rule, chunk, slice or slot numbers are out of range"),
        ("split", 0, 3, "schedules[0]: rule, chunk, slice or slot numbers are out of range"),
        ("handshake", 0, 2, "schedules[0]: rule, chunk, slice or slot numbers are out of range"),
        ("table_position", 1, 0, "schedules.table_position[1]: does not rise within its schedule"),
        ("entry_after_lane", 0, 0, "schedules.entries[0]: kind, chunk or wait does not fit its lane"),
        ("entry_after_lane", 0, 1, "schedules.entries[0]: kind, chunk or wait does not fit its lane"),
        ("entry_after_entry", 0, 0, "schedules.entries[0]: kind, chunk or wait does not fit its lane"),
        ("lane_send_to", 0, 2, "schedules.lanes[0]: batch, peer, part, bytes or entries are out of range"),
        ("lane_parts", 1, 0, "schedules.lanes[1]: batch, peer, part, bytes or entries are out of range"),
        ("lane_bytes", 0, -2, "schedules.lanes[0]: batch, peer, part, bytes or entries are out of range"),
        (
            "lane_bytes",
            0,
            (1 << 46) + 1,
            "schedules.lanes[0]: batch, peer, part, bytes or entries are out of range",
        ),
        ("entry_kind", 0, 0, "schedules.entries[0]: kind, chunk or wait does not fit its lane"),
        ("entry_kind", 1, 3, "schedules.entries[1]: kind, chunk or wait does not fit its lane"),
        ("entry_chunk", 1, 1, "schedules.entries[1]: kind, chunk or wait does not fit its lane"),
    ],
)
def test_columns_that_do_not_fit_are_refused_by_name(column: str, index: int, value: int, error: str) -> None:
    tables: ScheduleTables = unpacked(to_columns([SEND_RECV]))
    getattr(tables if hasattr(tables, column) else tables.schedules, column)[index] = value
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        StepTables(tables)
    assert str(refused.value) == error
