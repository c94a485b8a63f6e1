"""Stores which ports are out of service, so that a restart does not return them to service. A shell: the store.

`port_health` decides when a port is quarantined and when it is restored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etloop.controller.rack.actor import CONTROLLER
from etloop.controller.rack.maintenance import OrderKind

if TYPE_CHECKING:
    from etloop.controller.rack.port_health import PortHealth
    from etloop.controller.rack.store.job_store import JobStore


class QuarantineRecord:
    """Quarantined ports in the job store. Raises `StoreFailed` if the store cannot be read."""

    def __init__(self, health: PortHealth, store: JobStore) -> None:
        self._health = health
        self._store = store
        orders = store.standing_orders()
        self._kept = {order.subject: order.reason for order in orders if order.kind is OrderKind.QUARANTINED}
        health.recall(self._kept)

    def keep(self) -> None:
        """Store all changes. May be called again after `StoreFailed`, and then continues."""
        quarantined = self._health.quarantine_reasons()
        if quarantined == self._kept:
            return
        for label, reason in quarantined.items():
            if self._kept.get(label) != reason:
                self._store.order(OrderKind.QUARANTINED, label, reason, CONTROLLER)
                self._kept[label] = reason
        for label in [label for label in self._kept if label not in quarantined]:
            self._store.withdraw(OrderKind.QUARANTINED, label, "", CONTROLLER)
            del self._kept[label]
