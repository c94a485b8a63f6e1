"""Step tables as columns: the form that an assignment transports and the native cursor reads.

A schedule has its tables as lanes and entries, or, if these would be millions of objects, as columns directly
(`LazyTables`). Lanes that have the same tuple of entries share them here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from itertools import accumulate, chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from etloop.contract.model.assignment import ScheduleColumns, ScheduleTables
from etloop.traffic.collectives.core.lazy_tables import LazyTables, TableColumns
from etloop.traffic.collectives.core.table import Entry, Lane, Schedule

# Element types differ from column to column.
_Column = NDArray[Any]

_LANE_COLUMNS = (
    "lane_batch",
    "lane_send_to",
    "lane_recv_from",
    "lane_part",
    "lane_parts",
    "lane_span",
    "lane_share",
    "lane_shares",
    "lane_bytes",
    "lane_channel",
    "lane_first_entry",
    "lane_entry_count",
)
_ENTRY_COLUMNS = ("entry_kind", "entry_chunk", "entry_after_lane", "entry_after_entry")
_ALWAYS_WHOLE = frozenset({"lane_send_to", "entry_chunk"})
"""Columns that always have all rows, from which the number of rows is known."""


def to_columns(
    schedules: Sequence[Schedule], positions: Sequence[Sequence[int] | None] | None = None
) -> ScheduleTables:
    """Convert schedules to columns; schedule i of the result is `schedules[i]`.

    `positions[i]` are the positions of schedule i whose tables are included, ascending; None: all of them.
    """
    selected = positions if positions is not None else [None] * len(schedules)
    parts = [
        _columns_of(schedule, chosen_positions)
        for schedule, chosen_positions in zip(schedules, selected, strict=True)
    ]
    return ScheduleTables(
        schedules=_schedule_columns(schedules),
        table_offsets=_offsets(len(part.position) for part in parts),
        table_position=_concatenate([part.position for part in parts], np.int32),
        lane_offsets=_offsets(chain.from_iterable(part.lane_count.tolist() for part in parts)),
        **_lane_and_entry_columns(parts),
    )


def _schedule_columns(schedules: Sequence[Schedule]) -> ScheduleColumns:
    """Return the columns with one row per schedule."""
    return ScheduleColumns(
        size=np.array([s.size for s in schedules], np.int32),
        chunk_rule=np.array([s.chunk_rule for s in schedules], np.uint8),
        chunk_bytes=np.array([s.chunk_bytes for s in schedules], np.int64),
        chunks_per_loop=np.array([s.chunks_per_loop for s in schedules], np.int32),
        shrink_last=np.array([s.shrink_last for s in schedules], np.uint8),
        slices=np.array([s.slices for s in schedules], np.int32),
        min_slice_bytes=np.array([s.min_slice_bytes for s in schedules], np.int64),
        slots=np.array([s.slots for s in schedules], np.int32),
        empty_message=np.array([s.empty_message for s in schedules], np.uint8),
        slice_align_bytes=np.array([s.slice_align_bytes for s in schedules], np.int64),
        line_data_bytes=np.array([s.protocol.line_data_bytes for s in schedules], np.int64),
        line_wire_bytes=np.array([s.protocol.line_wire_bytes for s in schedules], np.int64),
        split=np.array([s.split for s in schedules], np.uint8),
        traffic_per_byte=np.array([s.traffic_per_byte for s in schedules], np.int64),
        handshake=np.array([s.handshake for s in schedules], np.uint8),
        completion=np.array([s.completion for s in schedules], np.uint8),
        eager_bytes=np.array([s.eager_bytes for s in schedules], np.int64),
        connection_slots=np.array([s.connection_slots for s in schedules], np.int32),
    )


def select_tables(
    tables: ScheduleTables, schedule: NDArray[np.int32], position: NDArray[np.int32]
) -> ScheduleTables:
    """Return the tables of some (schedule, position) pairs only; every schedule keeps its number.

    The pairs may be in any order and repeated. Raises KeyError if one has no table.
    """
    per_schedule = np.diff(tables.table_offsets)
    key_of_table = (
        np.repeat(np.arange(len(per_schedule), dtype=np.int64), per_schedule) << 32 | tables.table_position
    )
    requested = np.unique(schedule.astype(np.int64) << 32 | position)
    missing = requested[~np.isin(requested, key_of_table)]
    if len(missing):
        raise KeyError(f"schedule {missing[0] >> 32} has no table of position {missing[0] & 0xFFFFFFFF}")
    rows = np.searchsorted(key_of_table, requested)
    counts = np.diff(tables.lane_offsets)[rows]
    lanes = _ranges(tables.lane_offsets[:-1][rows], counts)
    all_lanes, all_entries = len(tables.lane_send_to), len(tables.entry_chunk)
    columns: dict[str, Any] = {
        name: _take_rows(getattr(tables, name), lanes, all_lanes) for name in _LANE_COLUMNS
    }
    entries, columns["lane_first_entry"] = _entries_in_use(
        columns["lane_first_entry"], columns["lane_entry_count"]
    )
    columns |= {name: _take_rows(getattr(tables, name), entries, all_entries) for name in _ENTRY_COLUMNS}
    columns = {name: _collapse(name, column) for name, column in columns.items()}
    of_schedule = np.searchsorted(requested, np.arange(len(per_schedule) + 1, dtype=np.int64) << 32)
    return replace(
        tables,
        table_offsets=of_schedule.astype(np.int32),
        table_position=tables.table_position[rows],
        lane_offsets=_offsets(counts.tolist()),
        **columns,
    )


def columns_of_tables(tables: Iterable[tuple[int, tuple[Lane, ...]]]) -> TableColumns:
    """Convert (position, table of lanes) pairs to columns."""
    numbered = list(tables)
    lanes = [lane for _, table in numbered for lane in table]
    entries: list[Entry] = []
    first_by_id: dict[int, int] = {}
    firsts = []
    for lane in lanes:
        # By identity: equal tuples that are different objects are rare, and hashing thousands of entries is slow.
        if id(lane.entries) not in first_by_id:
            first_by_id[id(lane.entries)] = len(entries)
            entries += lane.entries
        firsts.append(first_by_id[id(lane.entries)])
    # IntFlag members convert slowly; there are only a handful of kinds.
    int_kind = {kind: int(kind) for kind in {entry.kind for entry in entries}}
    return TableColumns(
        position=np.array([position for position, _ in numbered], np.int32),
        lane_count=np.array([len(table) for _, table in numbered], np.int32),
        lane_batch=np.array([lane.batch for lane in lanes], np.int32),
        lane_send_to=np.array([lane.send_to for lane in lanes], np.int32),
        lane_recv_from=np.array([lane.recv_from for lane in lanes], np.int32),
        lane_part=np.array([lane.part for lane in lanes], np.int32),
        lane_parts=np.array([lane.parts for lane in lanes], np.int32),
        lane_span=np.array([lane.span for lane in lanes], np.int32),
        lane_share=np.array([lane.share for lane in lanes], np.int32),
        lane_shares=np.array([lane.shares for lane in lanes], np.int32),
        lane_bytes=np.array([lane.lane_bytes for lane in lanes], np.int64),
        lane_channel=np.array([lane.channel for lane in lanes], np.int32),
        lane_first_entry=np.array(firsts, np.int32),
        lane_entry_count=np.array([len(lane.entries) for lane in lanes], np.int32),
        entry_kind=np.array([int_kind[entry.kind] for entry in entries], np.uint8),
        entry_chunk=np.array([entry.chunk for entry in entries], np.int32),
        entry_after_lane=np.array([entry.after_lane for entry in entries], np.int32),
        entry_after_entry=np.array([entry.after_entry for entry in entries], np.int32),
    )


def _columns_of(schedule: Schedule, positions: Sequence[int] | None) -> TableColumns:
    """Return the tables of some positions (None: all) as columns; conversions of all lazy tables are cached."""
    positions_wanted = range(len(schedule.tables)) if positions is None else positions
    tables = schedule.tables
    columns = tables.columns(positions_wanted) if isinstance(tables, LazyTables) else None
    if columns is not None:
        return columns
    if positions is not None or not isinstance(tables, LazyTables):
        return columns_of_tables((position, tables[position]) for position in positions_wanted)
    if tables.kept is None:
        tables.kept = columns_of_tables(enumerate(tables))
    return tables.kept


def _lane_and_entry_columns(parts: Sequence[TableColumns]) -> dict[str, Any]:
    """Concatenate the lane and entry columns of all parts, with entries renumbered."""
    lanes = [len(part.lane_send_to) for part in parts]
    entries = [len(part.entry_chunk) for part in parts]
    entries_before = [*accumulate(entries, initial=0)]
    columns: dict[str, Any] = {}
    for field in fields(TableColumns):
        name = field.name
        if name in ("position", "lane_count"):
            continue
        rows = lanes if name in _LANE_COLUMNS else entries
        values = [getattr(part, name) for part in parts]
        if name == "lane_first_entry":
            values = [value + first_entry for value, first_entry in zip(values, entries_before, strict=False)]
        full = [
            value if len(value) == count else np.repeat(value, count)
            for value, count in zip(values, rows, strict=True)
        ]
        dtype = np.int64 if name == "lane_bytes" else np.uint8 if name == "entry_kind" else np.int32
        columns[name] = _collapse(name, _concatenate(full, dtype))
    return columns


def _entries_in_use(first: _Column, count: _Column) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the entries that some lanes use, and the first entry of each lane within these."""
    pairs = np.stack([first, count], axis=1)
    distinct, inverse = np.unique(pairs, axis=0, return_inverse=True)
    begins = np.concatenate([[0], np.cumsum(distinct[:, 1])])[:-1]
    return _ranges(distinct[:, 0], distinct[:, 1]), begins.astype(np.int32)[inverse.reshape(-1)]


def _ranges(first: NDArray[np.int32], count: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return first[0], first[0] + 1, ... (`count[0]` numbers), then those of the next pair, as one array."""
    starts = np.concatenate([[0], np.cumsum(count)[:-1]]) if len(count) else np.zeros(0, np.int64)
    shift: NDArray[np.int64] = np.repeat(first - starts, count)
    return np.arange(len(shift), dtype=np.int64) + shift


def _take_rows(column: _Column, rows: NDArray[np.int64], whole: int) -> _Column:
    """Return `rows` of a column of `whole` rows; a single value is repeated."""
    return column[rows] if len(column) == whole else np.repeat(column, len(rows))


def _collapse(name: str, column: _Column) -> _Column:
    """Reduce a column to a single value if all rows have the same, unless it must be complete."""
    if name in _ALWAYS_WHOLE or len(column) <= 1 or np.any(column != column[0]):
        return np.ascontiguousarray(column)
    return column[:1].copy()


def _concatenate(columns: Sequence[_Column], kind: type[np.generic]) -> _Column:
    """Concatenate columns, or return an empty column."""
    return np.concatenate(columns, dtype=kind) if columns else np.zeros(0, kind)


def _offsets(counts: Iterable[int]) -> NDArray[np.int32]:
    """Return cumulative sums of `counts`, beginning with 0."""
    return np.array([*accumulate(counts, initial=0)], np.int32)
