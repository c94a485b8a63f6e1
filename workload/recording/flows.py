"""Follows the results of communication operations through storages: which of them reach the input of a later one. Pure."""

from __future__ import annotations

from collections.abc import Iterable

_NOTHING: frozenset[int] = frozenset()


class DataFlow:
    """For each storage, the latest operations whose results it holds or was computed from."""

    def __init__(self) -> None:
        self._reach: dict[int, frozenset[int]] = {}
        self._before: dict[int, int] = {}
        """For each operation, the bits of all operations that its input was computed from."""

    def compute(self, reads: Iterable[int], writes: Iterable[int]) -> None:
        """Note that storages are computed from others."""
        reach = self._union(reads)
        for storage in writes:
            self._reach[storage] = reach

    def operate(self, operation: int, reads: Iterable[int], writes: Iterable[int]) -> tuple[int, ...]:
        """Note that an operation takes some storages and writes others. Return the operations that its input comes from.

        Operations from which another of the returned ones comes are left out.
        """
        nearest: list[int] = []
        before = 0
        for source in sorted(self._union(reads), reverse=True):
            if not before >> source & 1:
                nearest.append(source)
                before |= self._before[source] | 1 << source
        self._before[operation] = before
        own = frozenset((operation,))
        for storage in writes:
            self._reach[storage] = own
        return tuple(reversed(nearest))

    def _union(self, storages: Iterable[int]) -> frozenset[int]:
        reaches = {self._reach[storage] for storage in storages if storage in self._reach}
        return next(iter(reaches)) if len(reaches) == 1 else _NOTHING.union(*reaches)
