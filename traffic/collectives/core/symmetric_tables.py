"""Columns of algorithms in which all positions do the same: the table of position 0, with peers and chunks turned.

A *turn* says what becomes of a number at position 0 when another position stands in its place: r + 1 becomes p + r + 1, or
r xor 1 becomes p xor r xor 1. One table of lanes is then enough for any number of positions. The lanes of the algorithms are
the definition; a property test holds these columns equal to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Final, TypeVar

import numpy as np
from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic.collectives.core.columns import columns_of_tables
from etloop.traffic.collectives.core.lazy_tables import TableColumns
from etloop.traffic.collectives.core.table import Lane
from numpy.typing import NDArray

Turn = Callable[["NDArray[np.int32]", "NDArray[np.int32]"], "NDArray[np.int32]"]
"""(numbers at position 0, positions) -> these numbers at those positions; both are broadcast against each other."""
_Value = TypeVar("_Value", bound=np.generic)
_NO_PEER: Final = -1


@dataclass(frozen=True, slots=True)
class Symmetry:
    """How peers and chunks of the table of position 0 turn; without `chunks` these are the same everywhere."""

    peers: Turn
    chunks: Turn | None = None


def ahead(size: int) -> Turn:
    """Every position counts from itself: r becomes p + r."""

    def turn(numbers: NDArray[np.int32], positions: NDArray[np.int32]) -> NDArray[np.int32]:
        return ((numbers + positions) % size).astype(np.int32)

    return turn


def groups_ahead(size: int, each: int) -> Turn:
    """The same of chunks of which every position has so many, one after another."""

    def turn(numbers: NDArray[np.int32], positions: NDArray[np.int32]) -> NDArray[np.int32]:
        return ((numbers + positions * np.int32(each)) % (size * each)).astype(np.int32)

    return turn


def crosswise(numbers: NDArray[np.int32], positions: NDArray[np.int32]) -> NDArray[np.int32]:
    """Every position pairs with r xor p; of groups that are a power of two."""
    return (numbers ^ positions).astype(np.int32)


def ahead_in_grid(hosts: int, places: int) -> Turn:
    """Hosts and places within them are counted from the position's own, each by itself."""

    def turn(numbers: NDArray[np.int32], positions: NDArray[np.int32]) -> NDArray[np.int32]:
        host = (numbers // places + positions // places) % hosts
        return (host * places + (numbers + positions) % places).astype(np.int32)

    return turn


def slices_of_grid(hosts: int, places: int) -> Turn:
    """The same of chunks that are numbered place by place, with one for each host."""

    def turn(numbers: NDArray[np.int32], positions: NDArray[np.int32]) -> NDArray[np.int32]:
        place = (numbers // hosts + positions) % places
        return (place * hosts + (numbers + positions // places) % hosts).astype(np.int32)

    return turn


def symmetric_tables(table: tuple[Lane, ...], symmetry: Symmetry, positions: Sequence[int]) -> TableColumns:
    """The tables of some positions, where `table` is that of position 0. Entries are shared where no chunk turns."""
    first = columns_of_tables([(0, table)])
    position = np.array(positions, np.int32)
    turning, count = position[:, None], len(position)
    lanes, entries = len(table), len(first.entry_chunk)

    def peers(column: NDArray[np.int32]) -> NDArray[np.int32]:
        turned = np.where(column == _NO_PEER, np.int32(_NO_PEER), symmetry.peers(column, turning))
        return turned.reshape(-1).astype(np.int32)

    copies, first_entry, chunk = 1, np.tile(first.lane_first_entry, count), first.entry_chunk
    if symmetry.chunks is not None:
        copies = count
        begins = np.arange(count, dtype=np.int32)[:, None] * np.int32(entries)
        first_entry = (first.lane_first_entry + begins).reshape(-1).astype(np.int32)
        chunk = symmetry.chunks(first.entry_chunk, turning).reshape(-1)
        # What only waits names no chunk.
        idle = np.tile(first.entry_kind == 0, count)
        chunk[idle] = np.tile(first.entry_chunk, count)[idle]
    turned = replace(
        first,
        position=position,
        lane_count=np.full(count, lanes, np.int32),
        lane_send_to=peers(first.lane_send_to),
        lane_recv_from=peers(first.lane_recv_from),
        lane_first_entry=first_entry,
        entry_chunk=chunk,
    )
    return replace(
        turned,
        **{
            name: _repeated(getattr(first, name), copies if name.startswith("entry") else count)
            for name in (field.name for field in fields(TableColumns))
            if getattr(turned, name) is getattr(first, name) and name != "entry_chunk"
        },
    )


def _repeated(column: NDArray[_Value], times: int) -> NDArray[_Value]:
    """So many times over; a single value where all rows have the same."""
    if len(column) and np.all(column == column[0]):
        return column[:1]
    return np.tile(column, times)
