"""What the people who run a rack have ordered and not taken back: ports drained, jobs held, the queue paused. Pure.

Kept in the job store, so that an order outlives its controller. Who may give one, and what it must name, is decided by
`operators`; what it keeps from starting by `api` and `dispatch`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.rack.people.reservations import Reservations

MOST_REASON_CHARACTERS: Final = 500


class OrderKind(StrEnum):
    """What is ordered. The values are those of the job store, and read as "X is VALUE"."""

    DRAINED = "drained"
    """A port gets no job; one that has it may end."""
    HELD = "held"
    """A job stays queued."""
    PAUSED = "paused"
    """No job starts."""
    QUARANTINED = "out of service"
    """A port gets no job, because it could not be prepared: the controller's own order."""


@dataclass(frozen=True, slots=True)
class StandingOrder:
    """One order that stands."""

    kind: OrderKind
    subject: str
    """Label of the port, id of the job; "" of the whole queue."""
    who: str
    reason: str
    since: str
    """Wall time in UTC, ISO 8601."""

    def text(self) -> str:
        """Say what is ordered, by whom and why: "drained by mqtt (says "ann"): its cable is swapped"."""
        why = f": {self.reason}" if self.reason else ""
        return f"{self.kind} by {self.who}{why}"


class StandingOrders:
    """The orders that stand now."""

    def __init__(
        self, orders: Iterable[StandingOrder] = (), reservations: Reservations | None = None
    ) -> None:
        self.reservations = reservations or Reservations()
        self._orders = {(order.kind, order.subject): order for order in orders}

    def find(self, kind: OrderKind, subject: str = "") -> StandingOrder | None:
        """Return the order about something; None if there is none."""
        return self._orders.get((kind, subject))

    def texts(self, kind: OrderKind) -> dict[str, str]:
        """Return what is said of every subject of a kind."""
        return {order.subject: order.text() for order in self._orders.values() if order.kind is kind}

    def keep(self, order: StandingOrder) -> None:
        """An order was given, or given anew with another reason."""
        self._orders[order.kind, order.subject] = order

    def drop(self, kind: OrderKind, subject: str = "") -> None:
        """An order was taken back, or there is nothing left that it is about."""
        self._orders.pop((kind, subject), None)
