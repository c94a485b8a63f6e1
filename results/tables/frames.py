"""Tables of a run as conditions, key figures and reports read them: one numpy column at a time, with absent cells marked.

Decides how Arrow types become numpy types, and the label of a row. Columns are converted on first use, so a run of
millions of ops costs only the columns that are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from etloop.results.verdict.evaluation import Frame

if TYPE_CHECKING:
    from numpy.typing import NDArray

LABELS: Final[dict[str, tuple[str, ...]]] = {
    "ops": ("iteration", "rank", "name", "op", "kind", "collective", "communicator", "peer", "sequence"),
    "collectives": ("iteration", "name", "kind", "communicator", "src_rank", "dst_rank", "sequence"),
    "flows": ("agent", "role", "src_rank", "dst_rank", "local_qpn"),
    "connections": ("connection", "src_rank", "dst_rank", "src_port", "dst_port"),
    "ports": ("agent", "port", "port_index"),
    "iterations": ("iteration",),
    "kinds": ("kind", "algorithm", "ranks"),
    "switches": ("switch", "port", "cos", "peer"),
    "queues": ("switch", "port", "cos", "time_ns"),
    "cc": ("agent", "src_rank", "dst_rank", "local_qpn", "time_ns"),
    "comparison": ("iteration", "name", "kind", "communicator", "src_rank", "dst_rank", "sequence"),
    "findings": ("kind", "sentence"),
    "examinations": ("kind", "outcome", "why"),
    "jobs": ("round", "job", "phase", "pass"),
    "counters": ("source", "object", "counter"),
    "dut": ("source", "object", "counter", "time_ns"),
    "reconciliation": ("port", "device_port", "direction"),
    "classes": (
        *("port", "device_port", "dscp", "expected_queue"),
        *("queue_packets", "found_queue", "found_packets"),
    ),
}
"""Columns that identify a row for a reader."""


class LazyColumns(Mapping[str, "NDArray[np.generic]"]):
    """Columns by name, each made on first use."""

    def __init__(self, names: Iterable[str], make: Callable[[str], NDArray[np.generic]]) -> None:
        self._made: dict[str, NDArray[np.generic] | None] = dict.fromkeys(names)
        self._make = make

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        column = self._made[name]
        if column is None:
            column = self._made[name] = self._make(name)
        return column

    def __contains__(self, name: object) -> bool:
        return name in self._made  # without making the column, as Mapping would

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def frame_of(name: str, table: Any) -> Frame:
    """Return an Arrow table with units in its fields' metadata as a frame."""
    units = {field.name: (field.metadata or {}).get(b"unit", b"").decode() for field in table.schema}
    columns = LazyColumns(units, lambda name: _column(table.column(name).combine_chunks()))
    return Frame(columns, units, table.num_rows, _label(name, columns))


def frame_by_hand(name: str, columns: Mapping[str, NDArray[np.generic]], units: Mapping[str, str]) -> Frame:
    """Return a frame of computed columns, all of the same length."""
    rows = next((len(column) for column in columns.values()), 0)
    return Frame(columns, units, rows, _label(name, columns))


def _label(name: str, columns: Mapping[str, NDArray[np.generic]]) -> Callable[[int], str]:
    """Return a function from a row number to the label of the row."""
    label_columns = [column for column in LABELS.get(name, ()) if column in columns]

    def label(row: int) -> str:
        cells = ((column, columns[column][row]) for column in label_columns)
        return ", ".join(f"{column} {_cell(value)}" for column, value in cells if _has_value(value))

    return label


def _has_value(value: Any) -> bool:
    """Return whether a cell has a value."""
    return value is not None and value == value and value != ""


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return "".join(character if character.isprintable() else "?" for character in value[:80])
    return str(int(value)) if float(value).is_integer() else f"{float(value):g}"


def _column(array: Any) -> NDArray[np.generic]:
    """Return an Arrow array as numpy: objects with None for texts, int8 with -1 for absent truths, float64 with NaN for
    absent numbers."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    kind = array.type
    if pa.types.is_dictionary(kind):
        names = np.array([*array.dictionary.to_pylist(), None], object)
        codes = array.indices.fill_null(len(names) - 1).to_numpy(zero_copy_only=False)
        return np.asarray(names[codes])
    if pa.types.is_string(kind):
        return np.array(array.to_pylist(), object)
    if pa.types.is_boolean(kind):
        return np.asarray(array.cast(pa.int8()).fill_null(-1).to_numpy(zero_copy_only=False))
    return np.asarray(array.to_numpy(zero_copy_only=False), np.float64)
