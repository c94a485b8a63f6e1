"""Sources that start transfers while a run lasts: each decision depends on the transfers that have arrived."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class TransferSource(Protocol):
    """A source that the engine calls in virtual time. Times are nanoseconds since the start of the run."""

    @property
    def pairs(self) -> Sequence[tuple[int, int, int, int]]:
        """Return (sending rank, its SEND, receiving rank, its RECV) of every pair of ranks that it uses; ops by program row."""

    @property
    def first_ns(self) -> int:
        """Return when it is called first."""

    @property
    def over(self) -> bool:
        """Return whether it will start no more transfers and waits for none."""

    def act(
        self, now_ns: int, arrived: Sequence[tuple[int, int]]
    ) -> tuple[Sequence[tuple[int, int, int]], int | None]:
        """Take the transfers (number, time) that have arrived since the last call.

        Return those that begin now, (index of the pair, bytes, number), and when to call again; None: after an arrival.
        """
