"""Queue of long requests that is fair to accounts: processing time counts against the account. Pure but for waits.

An account that sends many long requests has them read one after another; the first one of another account overtakes
them. Time is an argument.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Generic, TypeVar

from etloop.contract.base.clock import NS_PER_S

T = TypeVar("T")

MOST_EACH: Final = 16
"""Most waiting requests of one account; further ones are answered with a time after which to repeat them."""
MOST_IN_ALL: Final = 32
_HALF_LIFE_NS: Final = 60 * NS_PER_S
"""Time after which processing time of the past counts half."""
_MOST_ACCOUNTS: Final = 256
"""Accounts whose processing time is kept; beyond it those with the least are forgotten."""


class LongRequests(Generic[T]):
    """The waiting long requests of one rack."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[T]] = {}
        self._spent: dict[str, tuple[int, int]] = {}
        """Account -> processing time spent on it, and the time of that count."""
        self._changed = asyncio.Event()

    def is_full(self, account: str) -> bool:
        """Return whether no further request of that account may wait."""
        total = sum(map(len, self._waiting.values()))
        return total >= MOST_IN_ALL or len(self._waiting.get(account, ())) >= MOST_EACH

    def put(self, account: str, request: T) -> bool:
        """Queue a request and return true; return false if there is no place."""
        if self.is_full(account):
            return False
        self._waiting.setdefault(account, deque()).append(request)
        self._changed.set()
        return True

    async def put_patiently(self, account: str, request: T) -> None:
        """Queue a request as soon as there is a place for it."""
        while not self.put(account, request):
            self._changed.clear()
            await self._changed.wait()

    def pop(self, now_ns: int) -> tuple[str, T] | None:
        """Return (account, request) of the account with the least processing time; None if none waits."""
        if not self._waiting:
            return None
        account = min(self._waiting, key=lambda name: self._spent_ns(name, now_ns))
        requests = self._waiting[account]
        request = requests.popleft()
        if not requests:
            del self._waiting[account]
        self._changed.set()
        return account, request

    async def next(self, now_ns: int) -> tuple[str, T]:
        """Wait for a request and return it as `pop` does, with processing times as of `now_ns`."""
        while (entry := self.pop(now_ns)) is None:
            self._changed.clear()
            await self._changed.wait()
        return entry

    def charge(self, account: str, spent_ns: int, now_ns: int) -> None:
        """Add processing time to an account."""
        self._spent[account] = self._spent_ns(account, now_ns) + spent_ns, now_ns
        if len(self._spent) > _MOST_ACCOUNTS:
            del self._spent[min(self._spent, key=lambda name: self._spent_ns(name, now_ns))]

    def _spent_ns(self, account: str, now_ns: int) -> int:
        spent_ns, at_ns = self._spent.get(account, (0, now_ns))
        return spent_ns >> min((now_ns - at_ns) // _HALF_LIFE_NS, 63)
