"""Orders in force: ports drained, jobs held, the queue paused. Pure.

The job store keeps them, so that an order outlives its controller. `operators` decides which orders are valid; `api`
and `dispatch` decide which jobs an order keeps from starting.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.rack.users.reservations import Reservations

MOST_REASON_CHARACTERS: Final = 500


class OrderKind(StrEnum):
    """Kinds of orders. The values are those of the job store, and read as "X is VALUE"."""

    DRAINED = "drained"
    """A port gets no further job; its present one may finish."""
    HELD = "held"
    """A job stays queued."""
    PAUSED = "paused"
    """No job starts."""
    QUARANTINED = "out of service"
    """A port gets no job because its preparation failed: the controller's own order."""


@dataclass(frozen=True, slots=True)
class StandingOrder:
    """An order in force."""

    kind: OrderKind
    subject: str
    """Label of the port, id of the job; "" for the whole queue."""
    who: str
    reason: str
    since: str
    """Wall time in UTC, ISO 8601."""

    def text(self) -> str:
        """Format the order: "drained by mqtt (says "ann"): its cable is swapped"."""
        why = f": {self.reason}" if self.reason else ""
        return f"{self.kind} by {self.who}{why}"


class StandingOrders:
    """All orders in force."""

    def __init__(
        self, orders: Iterable[StandingOrder] = (), reservations: Reservations | None = None
    ) -> None:
        self.reservations = reservations or Reservations()
        self._orders = {(order.kind, order.subject): order for order in orders}

    def find(self, kind: OrderKind, subject: str = "") -> StandingOrder | None:
        """Return the order about a subject; None if there is none."""
        return self._orders.get((kind, subject))

    def texts(self, kind: OrderKind) -> dict[str, str]:
        """Return subject -> formatted order, for all orders of a kind."""
        return {order.subject: order.text() for order in self._orders.values() if order.kind is kind}

    def keep(self, order: StandingOrder) -> None:
        """Add an order, or replace the one of its kind about the same subject."""
        self._orders[order.kind, order.subject] = order

    def drop(self, kind: OrderKind, subject: str = "") -> None:
        """Remove an order that was withdrawn or whose subject is gone."""
        self._orders.pop((kind, subject), None)
