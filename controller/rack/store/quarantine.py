"""Keeps in the job store which ports are out of service, so that a restart does not put them back. A shell: the store.

What takes a port out of service, and what brings it back, is `port_health`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etloop.controller.rack.actor import CONTROLLER
from etloop.controller.rack.standing_orders import OrderKind

if TYPE_CHECKING:
    from etloop.controller.rack.port_health import PortHealth
    from etloop.controller.rack.store.job_store import JobStore


class QuarantineRecord:
    """What the store knows of the health of a rack's ports. Raises `StoreFailed` if the store cannot be read."""

    def __init__(self, health: PortHealth, store: JobStore) -> None:
        self._health = health
        self._store = store
        orders = store.standing_orders()
        self._kept = {each.subject: each.reason for each in orders if each.kind is OrderKind.QUARANTINED}
        health.recall(self._kept)

    def keep(self) -> None:
        """Write down what has changed. Raises `StoreFailed`, and goes on where it was when it is called again."""
        now = self._health.quarantined()
        if now == self._kept:
            return
        for label, reason in now.items():
            if self._kept.get(label) != reason:
                self._store.order(OrderKind.QUARANTINED, label, reason, CONTROLLER)
                self._kept[label] = reason
        for label in [label for label in self._kept if label not in now]:
            self._store.withdraw(OrderKind.QUARANTINED, label, "", CONTROLLER)
            del self._kept[label]
