"""Ports reserved for a user's jobs, or against all jobs, in a time window. Pure.

A job gets a reserved port if it is that user's, or if even its longest duration ends before the reservation begins.
Times are wall time, since people agree on those.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass

MOST_RESERVATIONS: Final = 1000
_LONGEST_NS: Final = 366 * 86_400 * NS_PER_S
_WRITE_TIME: Final = "write a time with its offset, as 2026-11-24T08:00:00Z or 2026-11-24T09:00+01:00"


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation of ports in one window."""

    reservation_id: str
    ports: tuple[str, ...]
    """"agent/port"."""
    user: str
    """User whose jobs get the ports; "": no job gets them, as for maintenance."""
    begins_ns: int
    """Wall time in ns since 1970, UTC."""
    ends_ns: int
    who: str
    """Who made it."""
    reason: str

    def text(self) -> str:
        """Format the reservation: "reserved for ann from T until T by mqtt:ops: new firmware"."""
        beneficiary = self.user or "no user"
        why = f": {self.reason}" if self.reason else ""
        return f"reserved for {beneficiary} from {time_text(self.begins_ns)} until {time_text(self.ends_ns)} by {self.who}{why}"


class Reservations:
    """The reservations of one rack."""

    def __init__(self, reservations: Iterable[Reservation] = ()) -> None:
        self._kept = {reservation.reservation_id: reservation for reservation in reservations}
        self.changes = 0
        """Counts changes, so that the queue need not be checked again before one."""

    def all(self) -> tuple[Reservation, ...]:
        """Return all reservations that are not over, the earliest beginning first."""
        return tuple(sorted(self._kept.values(), key=lambda entry: (entry.begins_ns, entry.reservation_id)))

    def find(self, reservation_id: str) -> Reservation | None:
        """Return the reservation of that id; None if there is none."""
        return self._kept.get(reservation_id)

    def keep(self, reservation: Reservation) -> None:
        """Add a reservation."""
        self._kept[reservation.reservation_id] = reservation
        self.changes += 1

    def drop(self, reservation_id: str) -> None:
        """Remove a reservation that was withdrawn or is over."""
        self._kept.pop(reservation_id, None)
        self.changes += 1

    def over(self, now_ns: int) -> tuple[Reservation, ...]:
        """Return the reservations whose end has passed."""
        return tuple(entry for entry in self._kept.values() if entry.ends_ns <= now_ns)

    def closed_to(self, owner: str, now_ns: int, until_ns: int) -> dict[str, str]:
        """Return the ports that a job of `owner`, which may run from now until `until_ns`, cannot have, and why."""
        reasons: dict[str, str] = {}
        for entry in self.all():
            if (entry.user and entry.user == owner) or entry.begins_ns >= until_ns or entry.ends_ns <= now_ns:
                continue
            hint = f"; the job may take until {time_text(until_ns)}" if entry.begins_ns > now_ns else ""
            reasons |= dict.fromkeys(entry.ports, f"{entry.text()}{hint}")
        return reasons

    def problems(
        self, ports: Sequence[str], user: str, window_ns: tuple[int, int], now_ns: int
    ) -> tuple[Problem, ...]:
        """Return why ports cannot be reserved in that window."""
        begins_ns, ends_ns = window_ns
        if ends_ns <= max(begins_ns, now_ns):
            problem = f"{time_text(ends_ns)} is not after the start, or has passed"
            return (Problem("ends_at", problem, "give a later end"),)
        if ends_ns - now_ns > _LONGEST_NS:
            return (
                Problem(
                    "ends_at",
                    f"{time_text(ends_ns)} is more than a year ahead",
                    "reserve at most a year ahead",
                ),
            )
        if len(self._kept) >= MOST_RESERVATIONS:
            problem = f"there are {MOST_RESERVATIONS} reservations, the most allowed"
            return (Problem("reservations", problem, "cancel some"),)
        for entry in self.all():
            shared = sorted(set(ports) & set(entry.ports))
            if shared and entry.user != user and begins_ns < entry.ends_ns and entry.begins_ns < ends_ns:
                problem = f"{shared[0]} is {entry.text()}"
                return (Problem("ports", problem, f"choose another time, or cancel {entry.reservation_id}"),)
        return ()


def time_text(wall_ns: int) -> str:
    """Format a wall time in UTC, to the second."""
    return f"{datetime.fromtimestamp(wall_ns // NS_PER_S, UTC):%Y-%m-%dT%H:%M:%SZ}"


def parse_time_ns(where: str, text: str) -> int | Problem:
    """Parse a wall time (ISO 8601 with offset) to ns since 1970; return a `Problem` if it is invalid."""
    try:
        parsed_time = datetime.fromisoformat(text)
        if parsed_time.tzinfo is None:
            return Problem(where, f'"{text[:64]}" has no UTC offset', _WRITE_TIME)
        return int(parsed_time.astimezone(UTC).timestamp()) * NS_PER_S
    except (ValueError, OverflowError):
        return Problem(where, f'"{text[:64]}" is not a time', _WRITE_TIME)
