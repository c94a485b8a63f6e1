"""Transfers between endpoints by number, their completions, and counts of both. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

import numpy as np

from etloop.contract.base.late_dataclass import dataclass

TransferId: TypeAlias = "str | int | None"
"""None: of no transfer of a caller."""
MOST_TRANSFERS: Final = 1 << 16
"""Most transfers under way at the same time."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes from one endpoint to another, by their numbers."""

    transfer_id: TransferId
    src: int
    dst: int
    transfer_bytes: int


@dataclass(frozen=True, slots=True)
class Done:
    """A completed transfer."""

    transfer_id: TransferId
    at_ns: int


@dataclass(frozen=True, slots=True)
class EndpointLoad:
    """Bytes of the transfers from and to one endpoint."""

    sent_bytes: int
    received_bytes: int
    waiting_out_bytes: int
    """Not yet sent, of transfers under way."""
    waiting_in_bytes: int


@dataclass(frozen=True, slots=True)
class TransferFigures:
    """Counts since the beginning."""

    started: int
    done: int
    cancelled: int
    most_under_way: int
    slowdown_mean: float
    """Duration of completed transfers over their duration alone; 0 if there are none."""
    slowdown_max: float
    endpoints: tuple[EndpointLoad, ...]
    link_bytes: tuple[int, ...]
    """Bytes that completed transfers carried over each link of `TransferWays.link_names`; empty with packets."""


class TransferCounts:
    """Counts since the beginning, of a network with so many endpoints."""

    def __init__(self, endpoints: int) -> None:
        self.started = self.done = self.cancelled = self.most_under_way = 0
        self._slowdown_sum = self._slowdown_max = 0.0
        self._endpoint_bytes = np.zeros((2, endpoints), np.int64)

    def count_done(self, transfer: Transfer, slowdown: float) -> None:
        """Count a completed transfer; `slowdown` is its duration over its duration alone."""
        self.done += 1
        self._slowdown_sum += slowdown
        self._slowdown_max = max(self._slowdown_max, slowdown)
        self._endpoint_bytes[0, transfer.src] += transfer.transfer_bytes
        self._endpoint_bytes[1, transfer.dst] += transfer.transfer_bytes

    def figures(
        self, waiting: Iterable[tuple[Transfer, int]], link_bytes: tuple[int, ...] = ()
    ) -> TransferFigures:
        """Return the counts; `waiting` has the transfers under way and the bytes that each has left to send."""
        waiting_bytes = np.zeros_like(self._endpoint_bytes)
        for transfer, left_bytes in waiting:
            waiting_bytes[0, transfer.src] += left_bytes
            waiting_bytes[1, transfer.dst] += left_bytes
        columns = np.concatenate([self._endpoint_bytes, waiting_bytes]).T.tolist()
        return TransferFigures(
            self.started,
            self.done,
            self.cancelled,
            self.most_under_way,
            self._slowdown_sum / self.done if self.done else 0.0,
            self._slowdown_max,
            tuple(EndpointLoad(*row) for row in columns),
            link_bytes,
        )
