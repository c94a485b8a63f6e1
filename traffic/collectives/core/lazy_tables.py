"""Tables that are made when they are asked for: a schedule of 1,024 positions would else be millions of objects.

An algorithm whose tables are regular can also give them as columns at once; whoever changes one of the two keeps the
other equal (a property test compares them).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, overload

from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic.collectives.core.table import Lane

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class TableColumns:
    """Some tables of one schedule. Columns of lanes and entries have one value per row, or a single one for all;
    `lane_send_to` and `entry_chunk` always have all rows. Entries are counted from 0 within these tables."""

    position: NDArray[np.int32]
    lane_count: NDArray[np.int32]
    lane_batch: NDArray[np.int32]
    lane_send_to: NDArray[np.int32]
    lane_recv_from: NDArray[np.int32]
    lane_part: NDArray[np.int32]
    lane_parts: NDArray[np.int32]
    lane_span: NDArray[np.int32]
    lane_share: NDArray[np.int32]
    lane_shares: NDArray[np.int32]
    lane_bytes: NDArray[np.int64]
    lane_channel: NDArray[np.int32]
    lane_first_entry: NDArray[np.int32]
    lane_entry_count: NDArray[np.int32]
    entry_kind: NDArray[np.uint8]
    entry_chunk: NDArray[np.int32]
    entry_after_lane: NDArray[np.int32]
    entry_after_entry: NDArray[np.int32]


class LazyTables(Sequence["tuple[Lane, ...]"]):
    """The tables of `size` positions, each made anew by `make_table` whenever it is read."""

    __slots__ = ("_make_columns", "_make_table", "_size", "kept")

    def __init__(
        self,
        size: int,
        make_table: Callable[[int], tuple[Lane, ...]],
        make_columns: Callable[[Sequence[int]], TableColumns] | None = None,
    ) -> None:
        self._size = size
        self._make_table = make_table
        self._make_columns = make_columns
        self.kept: TableColumns | None = None
        """All of them as columns, where that had to be made of lanes: slow, and small beside these."""

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, position: int) -> tuple[Lane, ...]: ...

    @overload
    def __getitem__(self, position: slice) -> tuple[tuple[Lane, ...], ...]: ...

    def __getitem__(self, position: int | slice) -> tuple[Lane, ...] | tuple[tuple[Lane, ...], ...]:
        if isinstance(position, slice):
            return tuple(self._make_table(each) for each in range(self._size)[position])
        return self._make_table(range(self._size)[position])

    def columns(self, positions: Sequence[int]) -> TableColumns | None:
        """The tables of some positions as columns; None if this algorithm has them as lanes only."""
        return None if self._make_columns is None else self._make_columns(positions)
