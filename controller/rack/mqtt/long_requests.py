"""Long requests that wait to be read, in an order that is fair to accounts: what one has had read counts against it.

Who sends many has them read one after another; another account's first one passes them. Pure but for the wait for a place: time
is an argument.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Generic, TypeVar

from etloop.contract.base.clock import NS_PER_S

T = TypeVar("T")

MOST_EACH: Final = 16
"""Of one account; who sends more is told when to come again."""
MOST_IN_ALL: Final = 32
_HALF_LIFE_NS: Final = 60 * NS_PER_S
"""After so long, time that was spent on an account counts half."""
_MOST_ACCOUNTS: Final = 256
"""Whose time is kept; beyond it those that have had least are forgotten."""


class LongRequests(Generic[T]):
    """The long requests of one rack."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[T]] = {}
        self._spent: dict[str, tuple[int, int]] = {}
        """Account -> time that was spent on it, and when that was so much."""
        self._changed = asyncio.Event()

    def is_full(self, account: str) -> bool:
        """Whether no further one of that account may wait."""
        in_all = sum(map(len, self._waiting.values()))
        return in_all >= MOST_IN_ALL or len(self._waiting.get(account, ())) >= MOST_EACH

    def put(self, account: str, request: T) -> bool:
        """Let a request wait; whether there was a place for it."""
        if self.is_full(account):
            return False
        self._waiting.setdefault(account, deque()).append(request)
        self._changed.set()
        return True

    async def put_patiently(self, account: str, request: T) -> None:
        """Let a request wait as soon as there is a place for it."""
        while not self.put(account, request):
            self._changed.clear()
            await self._changed.wait()

    def take(self, now_ns: int) -> tuple[str, T] | None:
        """Return the next request to read, and its account: of who has had least; None if none waits."""
        if not self._waiting:
            return None
        account = min(self._waiting, key=lambda each: self._spent_ns(each, now_ns))
        requests = self._waiting[account]
        request = requests.popleft()
        if not requests:
            del self._waiting[account]
        self._changed.set()
        return account, request

    async def next(self, now_ns: int) -> tuple[str, T]:
        """As `take`, once there is one. `now_ns`: when it is asked for."""
        while (found := self.take(now_ns)) is None:
            self._changed.clear()
            await self._changed.wait()
        return found

    def charge(self, account: str, spent_ns: int, now_ns: int) -> None:
        """Count time that was spent on a request of that account."""
        self._spent[account] = self._spent_ns(account, now_ns) + spent_ns, now_ns
        if len(self._spent) > _MOST_ACCOUNTS:
            del self._spent[min(self._spent, key=lambda each: self._spent_ns(each, now_ns))]

    def _spent_ns(self, account: str, now_ns: int) -> int:
        spent_ns, at_ns = self._spent.get(account, (0, now_ns))
        return spent_ns >> min((now_ns - at_ns) // _HALF_LIFE_NS, 63)
