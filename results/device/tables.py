"""The device's counters as Arrow tables: dut.parquet (values over time) and counters.parquet (increases over the run).

Decides which samples are stored: of a run of equal values only the first and the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from etloop.contract.model.counters import BY_OBJECT_AND_NAME, CounterObject
from etloop.contract.model.device_counts import SamplePhase
from etloop.results.device.index import IndexedSource
from etloop.results.schema.columns import Column, ColumnType, columns_of
from etloop.results.tables.arrow_tables import column_table, text_column

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SERIES: Final = (
    *columns_of(ColumnType.TEXT, "name", "source", "object", "kind", "port"),
    Column("number", ColumnType.INT32, "id"),
    Column("peer", ColumnType.TEXT, "name", nullable=True),
    *columns_of(ColumnType.TEXT, "name", "counter", "unit"),
)
"""Columns that identify a counter of an object."""
DUT: Final = (
    *columns_of(ColumnType.INT64, "ns", "time_ns", "error_ns"),
    Column("phase", ColumnType.TEXT, "name"),
    *_SERIES,
    Column("value", ColumnType.UINT64, "count"),
)
"""Columns of dut.parquet."""
COUNTERS: Final = (
    *_SERIES,
    Column("nature", ColumnType.TEXT, "name"),
    *columns_of(ColumnType.INT64, "count", "increase", "seen_increase", nullable=True),
    *columns_of(ColumnType.UINT64, "count", "last", "most"),
    Column("samples", ColumnType.INT64, "count"),
)
"""Columns of counters.parquet."""


def dut_table(sources: tuple[IndexedSource, ...], start_ns: int) -> pa.Table:
    """Return dut.parquet, by source, series and time; times are relative to the start of the job at `start_ns`."""
    series = [
        (indexed_source, number)
        for indexed_source in sources
        for number in range(len(indexed_source.source.series))
    ]
    first = np.cumsum([0, *(len(indexed_source.source.series) for indexed_source in sources)])
    rows: list[tuple[NDArray[np.integer], ...]] = []
    for indexed_source, offset in zip(sources, first, strict=False):
        source = indexed_source.source
        stored_rows = _rows_to_store(source.row_series, source.row_value, source.row_phase)
        rows.append(
            (
                source.row_time_ns[stored_rows] - start_ns,
                source.row_error_ns[stored_rows],
                source.row_phase[stored_rows],
                source.row_series[stored_rows] + offset,
                source.row_value[stored_rows],
            )
        )
    kinds = (np.int64, np.int64, np.int8, np.int64, np.uint64)
    time_ns, error_ns, phase, number, value = (
        np.concatenate([np.empty(0, kind), *(row[index] for row in rows)]) for index, kind in enumerate(kinds)
    )
    return column_table(
        DUT,
        {
            "time_ns": time_ns,
            "error_ns": error_ns,
            "phase": text_column(phase, [sample_phase.name.lower() for sample_phase in SamplePhase]),
            **_series_columns(series, number.astype(np.int64)),
            "value": value,
        },
    )


def _rows_to_store(
    series: NDArray[np.int32], value: NDArray[np.uint64], phase: NDArray[np.int8]
) -> NDArray[np.int64]:
    """Return the rows to store (int64), by series and time: those next to a change of value or phase, and the ends of
    every series."""
    order = np.argsort(series, kind="stable")
    differs = np.ones(len(order) + 1, bool)
    if len(order):
        sorted_series, sorted_value, sorted_phase = series[order], value[order], phase[order]
        differs[1:-1] = (
            (sorted_series[1:] != sorted_series[:-1])
            | (sorted_value[1:] != sorted_value[:-1])
            | (sorted_phase[1:] != sorted_phase[:-1])
        )
    return np.asarray(order[differs[:-1] | differs[1:]])


def counters_table(sources: tuple[IndexedSource, ...]) -> pa.Table:
    """Return counters.parquet: a row for every counter of every object."""
    series = [(source, number) for source in sources for number in range(len(source.source.series))]

    def all_values(name: str) -> NDArray[np.generic]:
        return np.concatenate(
            [np.empty(0, np.int64), *(getattr(source.increases, name) for source in sources)]
        )

    is_whole, cumulative = all_values("whole").astype(bool), all_values("cumulative").astype(bool)
    increase = all_values("increase").astype(np.int64)
    number = np.arange(len(series))
    natures = [BY_OBJECT_AND_NAME[_counter_key(source, index)].nature.value for source, index in series]
    return column_table(
        COUNTERS,
        {
            **_series_columns(series, number),
            "nature": text_column(number, natures),
            "increase": pa.array(increase, mask=~(is_whole & cumulative)),
            "seen_increase": pa.array(increase, mask=~cumulative),
            "last": np.concatenate([np.empty(0, np.uint64), *(source.increases.last for source in sources)]),
            "most": np.concatenate([np.empty(0, np.uint64), *(source.increases.most for source in sources)]),
            "samples": all_values("samples").astype(np.int64),
        },
    )


def _counter_key(source: IndexedSource, number: int) -> tuple[CounterObject, str]:
    series = source.source.series[number]
    return series.object.kind, series.counter


def _series_columns(series: list[tuple[IndexedSource, int]], number: NDArray[np.int64]) -> dict[str, object]:
    """Return the columns of `_SERIES` for rows whose series have the given numbers."""
    rows = []
    peers = {id(source): dict(source.source.peers) for source, _ in series}
    for source, index in series:
        counted_object, counter = source.source.series[index].object, source.source.series[index].counter
        unit = BY_OBJECT_AND_NAME[counted_object.kind, counter].unit
        peer = peers[id(source)].get(counted_object.name)
        rows.append(
            (
                source.source.name,
                str(counted_object),
                counted_object.kind.value,
                counted_object.name,
                counted_object.number,
                peer,
                counter,
                unit,
            )
        )
    fields = dict(
        zip((column.name for column in _SERIES), zip(*rows, strict=True) if rows else [()] * 8, strict=True)
    )
    numbers = np.array(fields["number"], np.int32)[number]
    return {name: text_column(number, values) for name, values in fields.items()} | {"number": numbers}
