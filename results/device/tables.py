"""The device's counters as Arrow tables: dut.parquet (values over time) and counters.parquet (increases over the run).

Decides which samples are stored: of a run of equal values only the first and the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import BY_OBJECT_AND_NAME, CounterNature
from etloop.contract.model.device_counts import CountedSource, SamplePhase
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
    series = [row for indexed_source in sources for row in _series_rows(indexed_source.source)]
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
            **_columns_of_rows(series, number.astype(np.int64)),
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


@dataclass(frozen=True, slots=True, eq=False)
class SeriesColumns:
    """The columns of counters.parquet that identify its rows, a row for every series: equal for all runs of a device."""

    identity: Mapping[str, object]
    """Columns of `_SERIES`."""
    natures: pa.Array
    is_cumulative: NDArray[np.bool_]


def series_columns(sources: Sequence[CountedSource]) -> SeriesColumns:
    """Return the identifying columns of all series of sources."""
    rows = [row for source in sources for row in _series_rows(source)]
    number = np.arange(len(rows))
    natures = [
        BY_OBJECT_AND_NAME[series.object.kind, series.counter].nature
        for source in sources
        for series in source.series
    ]
    return SeriesColumns(
        _columns_of_rows(rows, number),
        text_column(number, [nature.value for nature in natures]),
        np.array([nature is CounterNature.CUMULATIVE for nature in natures], bool),
    )


def counters_table(sources: tuple[IndexedSource, ...]) -> pa.Table:
    """Return counters.parquet: a row for every counter of every object."""

    def all_values(name: str, kind: type[np.generic]) -> NDArray[Any]:
        columns = (getattr(source.increases, name) for source in sources)
        return np.concatenate([np.empty(0, kind), *columns])

    increase, is_whole = all_values("increase", np.int64), all_values("whole", np.bool_)
    columns = series_columns([source.source for source in sources])
    return column_table(
        COUNTERS,
        {
            **columns.identity,
            "nature": columns.natures,
            "increase": pa.array(increase, mask=~(is_whole & columns.is_cumulative)),
            "seen_increase": pa.array(increase, mask=~columns.is_cumulative),
            "last": all_values("last", np.uint64),
            "most": all_values("most", np.uint64),
            "samples": all_values("samples", np.int64),
        },
    )


def table_since_zero(columns: SeriesColumns, values: NDArray[np.int64]) -> pa.Table:
    """Return counters.parquet of devices that started with the run: each counter was 0 before, and its value after."""
    increase = pa.array(np.where(columns.is_cumulative, values, 0), mask=~columns.is_cumulative)
    last = values.astype(np.uint64)
    return column_table(
        COUNTERS,
        {
            **columns.identity,
            "nature": columns.natures,
            "increase": increase,
            "seen_increase": increase,
            "last": last,
            "most": last,
            "samples": np.full(len(values), 2, np.int64),
        },
    )


def _series_rows(source: CountedSource) -> Iterator[tuple[object, ...]]:
    """Yield the values of `_SERIES` of every series of a source."""
    peers = dict(source.peers)
    for series in source.series:
        counted_object = series.object
        yield (
            source.name,
            str(counted_object),
            counted_object.kind.value,
            counted_object.name,
            counted_object.number,
            peers.get(counted_object.name),
            series.counter,
            BY_OBJECT_AND_NAME[counted_object.kind, series.counter].unit,
        )


def _columns_of_rows(rows: Sequence[tuple[object, ...]], number: NDArray[np.int64]) -> dict[str, object]:
    """Return the columns of `_SERIES` for rows whose series have the given numbers."""
    names = (column.name for column in _SERIES)
    fields = dict(zip(names, zip(*rows, strict=True) if rows else [()] * len(_SERIES), strict=True))
    numbers = np.array(fields["number"], np.int32)[number]
    return {name: text_column(number, values) for name, values in fields.items()} | {"number": numbers}
