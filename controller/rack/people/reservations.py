"""Ports that are kept for a user, or for nobody, from one time until another. Pure.

A job gets a reserved port if it is its user's, or if it is over by the time that the reservation begins, however long it may
take. Times are wall time, for people agree on those.
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
    """One window."""

    reservation_id: str
    ports: tuple[str, ...]
    """"agent/port"."""
    user: str
    """Whose jobs get them; "": nobody's, as for maintenance."""
    begins_ns: int
    """Wall time, since 1970 in UTC."""
    ends_ns: int
    who: str
    """Who made it."""
    reason: str

    def text(self) -> str:
        """Say what is reserved for whom: "reserved for ann from T until T by mqtt:ops: new firmware"."""
        whom = self.user or "nobody"
        why = f": {self.reason}" if self.reason else ""
        return f"reserved for {whom} from {time_text(self.begins_ns)} until {time_text(self.ends_ns)} by {self.who}{why}"


class Reservations:
    """The reservations of one rack."""

    def __init__(self, reservations: Iterable[Reservation] = ()) -> None:
        self._kept = {each.reservation_id: each for each in reservations}
        self.changes = 0
        """Counts them, so that who looked in vain need not look again before something has changed."""

    def all(self) -> tuple[Reservation, ...]:
        """Return every one that is not over, the one that begins first before the others."""
        return tuple(sorted(self._kept.values(), key=lambda each: (each.begins_ns, each.reservation_id)))

    def find(self, reservation_id: str) -> Reservation | None:
        """Return the reservation of that id."""
        return self._kept.get(reservation_id)

    def keep(self, reservation: Reservation) -> None:
        """A reservation was made."""
        self._kept[reservation.reservation_id] = reservation
        self.changes += 1

    def drop(self, reservation_id: str) -> None:
        """A reservation was taken back, or is over."""
        self._kept.pop(reservation_id, None)
        self.changes += 1

    def over(self, now_ns: int) -> tuple[Reservation, ...]:
        """Return those whose time has passed."""
        return tuple(each for each in self._kept.values() if each.ends_ns <= now_ns)

    def closed_to(self, owner: str, now_ns: int, until_ns: int) -> dict[str, str]:
        """Return the ports that a job of `owner`, which may run from now until `until_ns`, cannot have, and why."""
        found: dict[str, str] = {}
        for each in self.all():
            if (each.user and each.user == owner) or each.begins_ns >= until_ns or each.ends_ns <= now_ns:
                continue
            ahead = f"; the job may take until {time_text(until_ns)}" if each.begins_ns > now_ns else ""
            found |= dict.fromkeys(each.ports, f"{each.text()}{ahead}")
        return found

    def problems(
        self, ports: Sequence[str], user: str, window_ns: tuple[int, int], now_ns: int
    ) -> tuple[Problem, ...]:
        """Return what keeps ports from being reserved."""
        begins_ns, ends_ns = window_ns
        if ends_ns <= max(begins_ns, now_ns):
            what = f"{time_text(ends_ns)} is not after the beginning, or has passed"
            return (Problem("ends_at", what, "name a later end"),)
        if ends_ns - now_ns > _LONGEST_NS:
            return (
                Problem(
                    "ends_at", f"{time_text(ends_ns)} is too far off", "reserve for at most a year ahead"
                ),
            )
        if len(self._kept) >= MOST_RESERVATIONS:
            what = f"there are {MOST_RESERVATIONS} reservations, and no more are kept"
            return (Problem("reservations", what, "take some back"),)
        for each in self.all():
            shared = sorted(set(ports) & set(each.ports))
            if shared and each.user != user and begins_ns < each.ends_ns and each.begins_ns < ends_ns:
                what = f"{shared[0]} is {each.text()}"
                return (Problem("ports", what, f"choose another time, or take {each.reservation_id} back"),)
        return ()


def time_text(wall_ns: int) -> str:
    """Write a wall time in UTC, to the second."""
    return f"{datetime.fromtimestamp(wall_ns // NS_PER_S, UTC):%Y-%m-%dT%H:%M:%SZ}"


def parse_time_ns(where: str, text: str) -> int | Problem:
    """Return a wall time as people write it (ISO 8601 with an offset), or what is wrong with it."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            return Problem(where, f'"{text[:64]}" does not say of which time zone it is', _WRITE_TIME)
        return int(moment.astimezone(UTC).timestamp()) * NS_PER_S
    except (ValueError, OverflowError):
        return Problem(where, f'"{text[:64]}" is no time', _WRITE_TIME)
