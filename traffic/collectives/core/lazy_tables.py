"""Tables that are built when they are read: a schedule of 1,024 positions would otherwise be millions of objects.

An algorithm whose tables are regular can also build them as columns directly; both forms must stay equal (a property
test compares them).
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
    """Some tables of one schedule as columns.

    Columns of lanes and entries have one value per row, or a single value for all rows; `lane_send_to` and
    `entry_chunk` always have all rows. Entries are numbered from 0 within these tables.
    """

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
    """The tables of `size` positions, each built by `make_table` whenever it is read."""

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
        """All tables as columns if they had to be converted from lanes: slow to build, and small compared to lanes."""

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, position: int) -> tuple[Lane, ...]: ...

    @overload
    def __getitem__(self, position: slice) -> tuple[tuple[Lane, ...], ...]: ...

    def __getitem__(self, position: int | slice) -> tuple[Lane, ...] | tuple[tuple[Lane, ...], ...]:
        if isinstance(position, slice):
            return tuple(self._make_table(number) for number in range(self._size)[position])
        return self._make_table(range(self._size)[position])

    def columns(self, positions: Sequence[int]) -> TableColumns | None:
        """Return the tables of some positions as columns; None if the algorithm builds lanes only."""
        return None if self._make_columns is None else self._make_columns(positions)
