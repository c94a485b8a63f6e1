"""The native engine. Each layer's section is written with its bind_*.cpp."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from contract.assignment import ScheduleTables

# bind_schedule.cpp

LaneTotalColumns: TypeAlias = tuple[
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int64],
]
"""position, send_to, recv_from, tx_messages, tx_bytes, rx_messages, rx_bytes."""

class StepTables:
    """Step tables that answer what a lane or a position moves.

    Raises ValueError for tables whose columns do not fit each other and for a schedule, position, lane or byte count
    that they do not have.
    """

    def __init__(self, tables: ScheduleTables) -> None: ...
    def lane_messages(
        self, schedule: int, position: int, lane: int, op_bytes: int, limit: int = 4194304
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """(kind, chunk, loop, bytes) of the lane's messages in order; ValueError beyond `limit` messages."""

    def lane_totals_of(self, schedule: int, position: int, op_bytes: int) -> LaneTotalColumns:
        """A row per lane of the position."""

    def schedule_totals(self, schedule: int, op_bytes: int) -> LaneTotalColumns:
        """A row per lane of the schedule, position by position."""

    def position_totals(
        self, schedule: NDArray[np.int32], position: NDArray[np.int32], op_bytes: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """(tx_messages, tx_bytes, rx_messages, rx_bytes), a row per op asked for."""
