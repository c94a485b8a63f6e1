"""Futures of communication: what follows an operation runs on a stream of its own, and whoever waits joins that stream.

PyTorch's own future hands its callbacks a stream from a pool that waits for the operation (c10/core/ivalue_inl.h, `then`). Here
the operation is over at once, so a callback is called at once; the recording has it on a side stream, after the operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d

from .events import Refusal
from .recorder import Record

_PYTORCHS_OWN: Any = torch.futures.Future


class RecordedFuture(torch.futures.Future):
    """A value, and the operations to wait for before it is used."""

    record: Record
    """Record of this process."""

    def __init__(
        self, devices: Any = None, *, operations: Sequence[int] = (), stream: int | None = None
    ) -> None:
        """`operations` are those that compute the value, `stream` the side stream on which a callback did."""
        super().__init__()
        self._operations, self._stream = list(operations), stream
        self._outcome: tuple[Any] | None = None
        self._error: Exception | None = None
        self._followers: list[Callable[[], None]] = []

    def __class_getitem__(cls, kind: Any) -> Any:
        """Return what annotations say: PyTorch compares those of a hook with its own class."""
        return _PYTORCHS_OWN[kind]

    def set_result(self, result: Any) -> None:
        """Complete the future."""
        self._outcome = (result,)
        followers, self._followers = self._followers, []
        for follow in followers:
            follow()

    def set_exception(self, result: Any) -> None:
        """Complete the future with an error."""
        self._error = result
        self.set_result(None)

    def _has_outcome(self) -> bool:
        """Return whether the future is completed."""
        return self._outcome is not None

    done = _has_outcome

    def value(self) -> Any:
        """Return the result."""
        if self._error is not None:
            raise self._error
        if self._outcome is None:
            raise Refusal(
                "the script waits for a future that nothing completes", "complete it with set_result"
            )
        return self._outcome[0]

    def wait(self) -> Any:
        """Record the wait, and return the result."""
        value = self.value()
        self.record.wait(self._operations)
        if self._stream is not None:
            self.record.wait_stream(self._stream)
        return value

    def then(self, callback: Callable[[Any], Any]) -> Any:
        """Return the future of a callback, which is called on a side stream."""
        with self.record.side_stream() as stream:
            pass
        following = RecordedFuture(stream=stream)

        def follow() -> None:
            with self.record.side_stream(stream):
                self.wait()
                result = callback(self)
            following.set_result(result)

        self._when_done(follow)
        return following

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call a callback on a side stream."""
        self.then(callback)

    def _when_done(self, follow: Callable[[], None]) -> None:
        if self._has_outcome():
            follow()
        else:
            self._followers.append(follow)


def install(record: Record) -> None:
    """Replace futures, and those that communication operations return."""
    RecordedFuture.record = record

    def get_future(self: Any) -> RecordedFuture:
        operations, outputs = record.work_of(self)
        future = RecordedFuture(operations=operations)
        future.set_result(list(outputs))
        return future

    def collect_all(futures: Sequence[Any]) -> RecordedFuture:
        with record.side_stream() as stream:
            for future in futures:
                future.wait()
        collected = RecordedFuture(stream=stream)
        collected.set_result(list(futures))
        return collected

    for kind in (c10d.Work, c10d.FakeWork):
        kind.get_future = get_future
    torch.futures.Future = RecordedFuture
    torch.futures.collect_all = collect_all
    torch.futures.wait_all = lambda futures: [future.wait() for future in futures]
