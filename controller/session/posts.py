"""Messages that begin while a run lasts, in real time: a transfer source decides, agents begin both ends. Pure.

The source gets timers and arrivals in the order of their times, as in virtual time: an arrival counts from its time at the
receiving agent, not from that of its report. Only the start of a message is late, by the way of a report and an order: its slip.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import ProtocolError
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.transfer_source import TransferSource

PostValues: TypeAlias = tuple[int, int, int, int]
"""Values of a row of `POST_RECORD`."""


class Posts:
    """The messages of a run. Times are nanoseconds since its start."""

    def __init__(self, source: TransferSource, assignments: Mapping[str, Assignment]) -> None:
        self._source = source
        self._pairs = source.pairs
        self._agent_of = {
            rank.rank: name for name, assignment in assignments.items() for rank in assignment.ranks
        }
        self._receives = {(dst, recv) for _, _, dst, recv in self._pairs}
        self._sends = {(src, send) for src, send, _, _ in self._pairs}
        self._next_ns: int | None = source.first_ns
        self._now_ns = 0
        self._arrived: list[tuple[int, int]] = []
        """Heap of (time, number) that the source does not know yet."""
        self._under_way: set[int] = set()
        self._intended_ns: dict[int, int] = {}
        """By message whose SEND has not been reported."""
        self.late_ns = array("q")
        """By reported SEND: when its agent began it, less when it was to begin."""
        self.over = False
        """Whether the source has ended; nothing more begins."""

    @property
    def waits(self) -> bool:
        """Return whether a message is under way."""
        return bool(self._under_way)

    @property
    def next_ns(self) -> int | None:
        """Return when `act` is to be called without an arrival; None: only after one."""
        return None if self.over else self._next_ns

    def take(self, ops: NDArray[np.void], start_ns: int) -> None:
        """Take op records of an agent, on whose clock the run began at `start_ns`.

        Raises `ProtocolError` for a message that was not ordered, or arrived before.
        """
        columns = (ops[name].tolist() for name in ("rank", "op", "iteration", "issued_ns", "completed_ns"))
        for rank, op, number, issued_ns, completed_ns in zip(*columns, strict=True):
            if (rank, op) in self._sends:
                if number not in self._intended_ns:
                    raise ProtocolError(f"message {number} was sent by rank {rank}, but not ordered")
                self.late_ns.append(issued_ns - start_ns - self._intended_ns.pop(number))
                continue
            if (rank, op) not in self._receives:
                continue
            if number not in self._under_way:
                raise ProtocolError(f"message {number} arrived at rank {rank}, but is not under way")
            self._under_way.discard(number)
            heapq.heappush(self._arrived, (completed_ns - start_ns, number))

    def act(self, now_ns: int) -> dict[str, list[PostValues]]:
        """Let the source act on everything up to `now_ns`; return by agent what begins."""
        posts: dict[str, list[PostValues]] = {}
        while not self.over:
            arrival_ns = self._arrived[0][0] if self._arrived else None
            due_ns = self._next_ns
            times = [time_ns for time_ns in (arrival_ns, due_ns) if time_ns is not None]
            if not times or min(times) > now_ns:
                break
            # A report may come after a timer that was later than its arrival.
            self._now_ns = max(self._now_ns, min(times))
            arrived = []
            if arrival_ns is not None and (due_ns is None or arrival_ns <= due_ns):
                arrived = [(heapq.heappop(self._arrived)[1], self._now_ns)]
            started, self._next_ns = self._source.act(self._now_ns, arrived)
            self.over = self._source.over
            self._begin(started, posts)
        return posts

    def _begin(
        self,
        started: Iterable[tuple[int, int, int]],
        posts: dict[str, list[PostValues]],
    ) -> None:
        for pair, message_bytes, number in started:
            src, send, dst, recv = self._pairs[pair]
            self._under_way.add(number)
            self._intended_ns[number] = self._now_ns
            for rank, op in ((dst, recv), (src, send)):
                posts.setdefault(self._agent_of[rank], []).append((rank, op, message_bytes, number))
