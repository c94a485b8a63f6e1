"""Columns of algorithms that are symmetric in all positions: the table of position 0, with peers and chunks
transformed.

A *turn* maps a number in the table of position 0 to the number in that of another position: r + 1 becomes p + r + 1, or
r xor 1 becomes p xor r xor 1. One table of lanes is then enough for any number of positions. The lanes of the
algorithms are the definition; a property test checks that these columns are equal to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic.collectives.core.columns import columns_of_tables
from etloop.traffic.collectives.core.lazy_tables import TableColumns
from etloop.traffic.collectives.core.table import Lane

Turn = Callable[["NDArray[np.int32]", "NDArray[np.int32]"], "NDArray[np.int32]"]
"""(numbers at position 0, positions) -> the corresponding numbers at those positions; the arguments are broadcast."""
_Value = TypeVar("_Value", bound=np.generic)
_NO_PEER: Final = -1


@dataclass(frozen=True, slots=True)
class Symmetry:
    """Turns of peers and chunks of position 0's table; without `chunks`, chunks are the same at all positions."""

    peers: Turn
    chunks: Turn | None = None


def ahead(size: int) -> Turn:
    """Return the turn that counts from the own position: r becomes p + r (modulo `size`)."""

    def turn(numbers: NDArray[np.int32], positions: NDArray[np.int32]) -> NDArray[np.int32]:
        return ((numbers + positions) % size).astype(np.int32)

    return turn


def groups_ahead(size: int, per_position: int) -> Turn:
    """Return the turn of chunks if every position has `per_position` consecutive ones, counted from the own position's."""

    def turn(numbers: NDArray[np.int32], positions: NDArray[np.int32]) -> NDArray[np.int32]:
        return ((numbers + positions * np.int32(per_position)) % (size * per_position)).astype(np.int32)

    return turn


def crosswise(numbers: NDArray[np.int32], positions: NDArray[np.int32]) -> NDArray[np.int32]:
    """Turn r into r xor p; for groups whose size is a power of two."""
    return (numbers ^ positions).astype(np.int32)


def ahead_in_grid(hosts: int, places: int) -> Turn:
    """Return the turn that counts hosts, and places within hosts, from the own position's, independently."""

    def turn(numbers: NDArray[np.int32], positions: NDArray[np.int32]) -> NDArray[np.int32]:
        host = (numbers // places + positions // places) % hosts
        return (host * places + (numbers + positions) % places).astype(np.int32)

    return turn


def slices_of_grid(hosts: int, places: int) -> Turn:
    """Return the same turn for chunks numbered by place, then by host: chunk = place * hosts + host."""

    def turn(numbers: NDArray[np.int32], positions: NDArray[np.int32]) -> NDArray[np.int32]:
        place = (numbers // hosts + positions) % places
        return (place * hosts + (numbers + positions // places) % hosts).astype(np.int32)

    return turn


def symmetric_tables(table: tuple[Lane, ...], symmetry: Symmetry, positions: Sequence[int]) -> TableColumns:
    """Return the tables of some positions, where `table` is that of position 0. Entries are shared unless chunks turn."""
    first = columns_of_tables([(0, table)])
    position = np.array(positions, np.int32)
    position_column, count = position[:, None], len(position)
    lanes, entries = len(table), len(first.entry_chunk)

    def peers(column: NDArray[np.int32]) -> NDArray[np.int32]:
        columns = np.where(column == _NO_PEER, np.int32(_NO_PEER), symmetry.peers(column, position_column))
        return columns.reshape(-1).astype(np.int32)

    entry_copies, first_entry, entry_chunks = 1, np.tile(first.lane_first_entry, count), first.entry_chunk
    if symmetry.chunks is not None:
        entry_copies = count
        entry_starts = np.arange(count, dtype=np.int32)[:, None] * np.int32(entries)
        first_entry = (first.lane_first_entry + entry_starts).reshape(-1).astype(np.int32)
        entry_chunks = symmetry.chunks(first.entry_chunk, position_column).reshape(-1)
        # Entries that only wait have no chunk to turn.
        idle = np.tile(first.entry_kind == 0, count)
        entry_chunks[idle] = np.tile(first.entry_chunk, count)[idle]
    columns = replace(
        first,
        position=position,
        lane_count=np.full(count, lanes, np.int32),
        lane_send_to=peers(first.lane_send_to),
        lane_recv_from=peers(first.lane_recv_from),
        lane_first_entry=first_entry,
        entry_chunk=entry_chunks,
    )
    return replace(
        columns,
        **{
            name: _tile(getattr(first, name), entry_copies if name.startswith("entry") else count)
            for name in (field.name for field in fields(TableColumns))
            if getattr(columns, name) is getattr(first, name) and name != "entry_chunk"
        },
    )


def _tile(column: NDArray[_Value], times: int) -> NDArray[_Value]:
    """Repeat a column `times` times; return a single value if all rows have the same."""
    if len(column) and np.all(column == column[0]):
        return column[:1]
    return np.tile(column, times)
