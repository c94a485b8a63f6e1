"""What a device counted, as Arrow tables: dut.parquet (values over time), counters.parquet (increases of the run), and
switches.parquet and queues.parquet in the shape that the twin's have.

Decides which samples are kept: of a value that stands still only where it begins and ends to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from etloop.contract.model.counters import BY_OBJECT_AND_NAME, CounterObject
from etloop.contract.model.device_counts import SamplePhase
from etloop.results.device.index import IndexedSource
from etloop.results.schema.columns import Column, ColumnType
from etloop.results.tables.arrow_tables import column_table, text_column

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SERIES: Final = (
    Column("source", ColumnType.TEXT, "name"),
    Column("object", ColumnType.TEXT, "name"),
    Column("kind", ColumnType.TEXT, "name"),
    Column("port", ColumnType.TEXT, "name"),
    Column("number", ColumnType.INT32, "id"),
    Column("peer", ColumnType.TEXT, "name", nullable=True),
    Column("counter", ColumnType.TEXT, "name"),
    Column("unit", ColumnType.TEXT, "name"),
)
"""Which counter of which object."""
DUT: Final = (
    Column("time_ns", ColumnType.INT64, "ns"),
    Column("error_ns", ColumnType.INT64, "ns"),
    Column("phase", ColumnType.TEXT, "name"),
    *_SERIES,
    Column("value", ColumnType.UINT64, "count"),
)
"""dut.parquet."""
COUNTERS: Final = (
    *_SERIES,
    Column("nature", ColumnType.TEXT, "name"),
    Column("increase", ColumnType.INT64, "count", nullable=True),
    Column("seen_increase", ColumnType.INT64, "count", nullable=True),
    Column("last", ColumnType.UINT64, "count"),
    Column("most", ColumnType.UINT64, "count"),
    Column("samples", ColumnType.INT64, "count"),
)
"""counters.parquet."""


def dut_table(sources: tuple[IndexedSource, ...], start_ns: int) -> pa.Table:
    """dut.parquet, by source, series and time; times from the begin of the job at `start_ns`."""
    series = [(one, number) for one in sources for number in range(len(one.source.series))]
    first = np.cumsum([0, *(len(one.source.series) for one in sources)])
    rows: list[tuple[NDArray[np.integer], ...]] = []
    for one, offset in zip(sources, first, strict=False):
        source = one.source
        kept = _kept(source.row_series, source.row_value, source.row_phase)
        rows.append(
            (
                source.row_time_ns[kept] - start_ns,
                source.row_error_ns[kept],
                source.row_phase[kept],
                source.row_series[kept] + offset,
                source.row_value[kept],
            )
        )
    kinds = (np.int64, np.int64, np.int8, np.int64, np.uint64)
    time_ns, error_ns, phase, number, value = (
        np.concatenate([np.empty(0, kind), *(row[index] for row in rows)]) for index, kind in enumerate(kinds)
    )
    fields = _series_fields(series)
    return column_table(
        DUT,
        {
            "time_ns": time_ns,
            "error_ns": error_ns,
            "phase": text_column(phase, [one.name.lower() for one in SamplePhase]),
            **{name: text_column(number, fields[name]) for name in ("source", "object", "kind", "port")},
            "number": np.array(fields["number"], np.int32)[number.astype(np.int64)],
            **{name: text_column(number, fields[name]) for name in ("peer", "counter", "unit")},
            "value": value,
        },
    )


def _kept(series: NDArray[np.int32], value: NDArray[np.uint64], phase: NDArray[np.int8]) -> NDArray[np.int64]:
    """Rows worth storing, by series and time: those next to a change of value or phase, and the ends of every series."""
    order = np.argsort(series, kind="stable")
    differs = np.ones(len(order) + 1, bool)
    if len(order):
        at, what, when = series[order], value[order], phase[order]
        differs[1:-1] = (at[1:] != at[:-1]) | (what[1:] != what[:-1]) | (when[1:] != when[:-1])
    return np.asarray(order[differs[:-1] | differs[1:]])


def counters_table(sources: tuple[IndexedSource, ...]) -> pa.Table:
    """counters.parquet: a row for every counter of every object."""
    series = [(one, number) for one in sources for number in range(len(one.source.series))]
    fields = _series_fields(series)

    def joined(name: str) -> NDArray[np.generic]:
        return np.concatenate([np.empty(0, np.int64), *(getattr(one.increases, name) for one in sources)])

    whole, cumulative = joined("whole").astype(bool), joined("cumulative").astype(bool)
    increase = joined("increase").astype(np.int64)
    number = np.arange(len(series))
    natures = [BY_OBJECT_AND_NAME[_key(one, index)].nature.value for one, index in series]
    return column_table(
        COUNTERS,
        {
            **{name: text_column(number, fields[name]) for name in ("source", "object", "kind", "port")},
            "number": np.array(fields["number"], np.int32),
            **{name: text_column(number, fields[name]) for name in ("peer", "counter", "unit")},
            "nature": text_column(number, natures),
            "increase": pa.array(increase, mask=~(whole & cumulative)),
            "seen_increase": pa.array(increase, mask=~cumulative),
            "last": np.concatenate([np.empty(0, np.uint64), *(one.increases.last for one in sources)]),
            "most": np.concatenate([np.empty(0, np.uint64), *(one.increases.most for one in sources)]),
            "samples": joined("samples").astype(np.int64),
        },
    )


def _key(one: IndexedSource, number: int) -> tuple[CounterObject, str]:
    series = one.source.series[number]
    return series.object.kind, series.counter


def _series_fields(series: list[tuple[IndexedSource, int]]) -> dict[str, list[object]]:
    """Texts and numbers of every series, by column."""
    found: dict[str, list[object]] = {
        name: [] for name in ("source", "object", "kind", "port", "number", "peer", "counter", "unit")
    }
    peers = {id(one): dict(one.source.peers) for one, _ in series}
    for one, number in series:
        at = one.source.series[number]
        for name, value in (
            ("source", one.source.name),
            ("object", str(at.object)),
            ("kind", at.object.kind.value),
            ("port", at.object.name),
            ("number", at.object.number),
            ("peer", peers[id(one)].get(at.object.name)),
            ("counter", at.counter),
            ("unit", BY_OBJECT_AND_NAME[_key(one, number)].unit),
        ):
            found[name].append(value)
    return found
