"""Schedules the samples of one path of a stream, and selects the updates to send. Pure: the time is an argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etloop.counters.gnmi.messages import Encoding
    from etloop.counters.gnmi.requests import SubscribedPath
    from etloop.counters.gnmi.tree import Tree


class Sampled:
    """A subscription in mode SAMPLE, from its first sample on."""

    def __init__(self, asked: SubscribedPath) -> None:
        self.asked = asked
        self._begin_ns = -1
        self._beat_ns = 0
        self._sent: dict[bytes, bytes] = {}
        self.next_ns = 0
        """Time of the next sample; the first is taken at once."""

    def due(self, tree: Tree, now_ns: int, encoding: Encoding) -> tuple[Any, ...]:
        """Return the updates of the current sample and schedule the next one. Raise `Refused` if the path can never have a
        value."""
        if self._begin_ns < 0:
            self._begin_ns = self._beat_ns = now_ns
        # Counted from the first sample, so that samples do not drift; missed samples are skipped.
        intervals = (now_ns - self._begin_ns) // self.asked.sample_ns
        self.next_ns = self._begin_ns + (intervals + 1) * self.asked.sample_ns
        updates = tree.subscription_updates(self.asked.path, encoding)
        return self._changed_updates(updates, now_ns) if self.asked.suppress_redundant else updates

    def _changed_updates(self, updates: tuple[Any, ...], now_ns: int) -> tuple[Any, ...]:
        """Return the updates whose value differs from the one sent last; all of them with a heartbeat."""
        heartbeat_ns = self.asked.heartbeat_ns
        is_heartbeat = heartbeat_ns > 0 and now_ns - self._beat_ns >= heartbeat_ns
        if is_heartbeat:
            self._beat_ns += (now_ns - self._beat_ns) // heartbeat_ns * heartbeat_ns
        previous, self._sent = self._sent, {}
        changed = []
        for update in updates:
            path, value = update.path.SerializeToString(deterministic=True), update.val.SerializeToString()
            self._sent[path] = value
            if is_heartbeat or previous.get(path) != value:
                changed.append(update)
        return tuple(changed)
