"""What the people who run a rack may order: drain and reserve ports, hold and reorder jobs, pause the queue, run a job again.

Decides whether an order makes sense and says all that is wrong with it at once; then nothing of it is carried out. Giving an
order twice does what giving it once does. All orders are in the audit trail. No I/O but the store's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.printable import printable
from etloop.controller.rack.actor import is_user_name
from etloop.controller.rack.dispatch import RackPort
from etloop.controller.rack.job import ENDED, HIGHEST_PRIORITY, LOWEST_PRIORITY, Job, JobState
from etloop.controller.rack.people.reservations import Reservation, parse_time_ns
from etloop.controller.rack.standing_orders import MOST_REASON_CHARACTERS, OrderKind

if TYPE_CHECKING:
    from etloop.controller.rack.api import Rack

_MOST_NAMED: Final = 16
"""Names that an error lists."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A reservation as somebody asks for it; times in ISO 8601 with their offset."""

    ports: Sequence[str]
    user: str
    """"": nobody's jobs get them."""
    begins_at: str
    """"": now."""
    ends_at: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was done; all that is wrong."""

    problems: tuple[Problem, ...]


class Operators:
    """Orders to one rack. Every method raises `StoreFailed`, and has changed nothing, if it cannot be noted."""

    def __init__(self, rack: Rack) -> None:
        self._rack = rack

    def drain(self, names: Sequence[str], reason: str, who: str) -> tuple[RackPort, ...] | Refused:
        """No job gets these ports from now on; one that runs there ends by itself. `names`: "agent/port", or an agent for all of
        its ports. Returns the ports meant."""
        ports = self._ports(names, reason)
        if not isinstance(ports, Refused):
            for port in ports:
                self._order(OrderKind.DRAINED, port.label, reason, who)
        return ports

    def undrain(self, names: Sequence[str], reason: str, who: str) -> tuple[RackPort, ...] | Refused:
        """Jobs may have these ports again, also those that were out of service because they could not be prepared."""
        ports = self._ports(names, reason)
        if not isinstance(ports, Refused):
            for port in ports:
                self._withdraw(OrderKind.DRAINED, port.label, reason, who)
                self._rack.health.restored(port.label)
                self._rack.reconsider(OrderKind.DRAINED, port.label)
        return ports

    def reserve(self, reservation_id: str, wanted: Wanted, who: str, now_ns: int) -> Reservation | Refused:
        """Keeps ports for a user's jobs, or from all, in a window; jobs that run there may end. `now_ns`: wall time."""
        ports = self._ports(wanted.ports, wanted.reason)
        found = list(ports.problems) if isinstance(ports, Refused) else []
        if wanted.user and not is_user_name(wanted.user):
            what = f'"{printable(wanted.user[:64])}" is no name of a user'
            found.append(
                Problem("user", what, "name an account of the broker, or leave it out for maintenance")
            )
        begins_ns = parse_time_ns("begins_at", wanted.begins_at) if wanted.begins_at else now_ns
        ends_ns = parse_time_ns("ends_at", wanted.ends_at)
        found += [time for time in (begins_ns, ends_ns) if isinstance(time, Problem)]
        if (
            found
            or isinstance(ports, Refused)
            or isinstance(begins_ns, Problem)
            or isinstance(ends_ns, Problem)
        ):
            return Refused(tuple(found))
        labels = tuple(port.label for port in ports)
        window_ns = (max(begins_ns, now_ns), ends_ns)
        if problems := self._rack.orders.reservations.problems(labels, wanted.user, window_ns, now_ns):
            return Refused(problems)
        made = Reservation(reservation_id, labels, wanted.user, *window_ns, who, wanted.reason)
        self._rack.store.reserve(made)
        self._rack.orders.reservations.keep(made)
        return made

    def unreserve(self, reservation_id: str, reason: str, who: str) -> Reservation | Refused | None:
        """Takes a reservation back; None if there is none of that id."""
        made = self._rack.orders.reservations.find(reservation_id)
        if made is None:
            return None
        if found := reason_problems(reason):
            return Refused(found)
        self._rack.store.unreserve(made, reason, who)
        self._rack.orders.reservations.drop(reservation_id)
        return made

    def pause(self, reason: str, who: str) -> Refused | None:
        """No job starts from now on; those that run go on, and more may be submitted."""
        if found := reason_problems(reason):
            return Refused(found)
        self._order(OrderKind.PAUSED, "", reason, who)
        return None

    def resume(self, reason: str, who: str) -> Refused | None:
        """Jobs start again."""
        if found := reason_problems(reason):
            return Refused(found)
        self._withdraw(OrderKind.PAUSED, "", reason, who)
        return None

    def hold(self, job_id: str, reason: str, who: str) -> Job | Refused | None:
        """A queued job waits until it is released; None if there is no such job."""
        return self._of_queued(job_id, reason, who, OrderKind.HELD)

    def release(self, job_id: str, reason: str, who: str) -> Job | Refused | None:
        """A held job may start; None if there is no such job."""
        return self._of_queued(job_id, reason, who, None)

    def prioritise(self, job_id: str, priority: int, who: str) -> Job | Refused | None:
        """A queued job gets another place; None if there is no such job."""
        job = self._rack.store.find(job_id)
        if job is None:
            return None
        if not LOWEST_PRIORITY <= priority <= HIGHEST_PRIORITY:
            what = f"{priority} is outside {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}"
            return Refused((Problem("priority", what, "give a number in that range"),))
        if job.state is not JobState.QUEUED:
            return _refused_for_state(job, "only one that is queued can be given another priority")
        return self._rack.prioritise(job, priority, who)

    def requeue(self, job_id: str, who: str) -> Job | Refused | None:
        """What an ended job asked for is queued as a new job, which is returned; asked again, it is the same one. None if there
        is no such job."""
        job = self._rack.store.find(job_id)
        if job is None:
            return None
        if job.state not in ENDED:
            return _refused_for_state(job, "only one that has ended can be run again")
        if found := self._rack.traces.problems(job.request.scenario_text):
            return Refused(found)
        return self._rack.requeue(job, job.request, who)

    # ---- inside

    def _order(self, kind: OrderKind, subject: str, reason: str, who: str) -> None:
        self._rack.orders.keep(self._rack.store.order(kind, subject, reason, who))
        self._rack.reconsider(kind, subject)

    def _withdraw(self, kind: OrderKind, subject: str, reason: str, who: str) -> None:
        if self._rack.store.withdraw(kind, subject, reason, who):
            self._rack.orders.drop(kind, subject)
            self._rack.reconsider(kind, subject)

    def _of_queued(self, job_id: str, reason: str, who: str, kind: OrderKind | None) -> Job | Refused | None:
        job = self._rack.store.find(job_id)
        if job is None:
            return None
        if found := reason_problems(reason):
            return Refused(found)
        if job.state is not JobState.QUEUED:
            return _refused_for_state(job, "only one that is queued can be held or released")
        if kind is None:
            self._withdraw(OrderKind.HELD, job_id, reason, who)
        else:
            self._order(kind, job_id, reason, who)
        return job

    def _ports(self, names: Sequence[str], reason: str) -> tuple[RackPort, ...] | Refused:
        found = list(reason_problems(reason))
        ports = self._rack.ports
        known = {port.label for port in ports} | {port.agent for port in ports}
        unknown = [name for name in names if name not in known]
        if unknown:
            there = ", ".join(sorted(known)[:_MOST_NAMED])
            what = f'the rack has no agent or port "{printable(unknown[0][:128])}"'
            found.append(Problem("ports", what, f"name some of: {there}"))
        if not names:
            found.append(Problem("ports", "none is named", 'name ports as "agent/port", or agents'))
        if found:
            return Refused(tuple(found))
        return tuple(port for port in ports if port.label in names or port.agent in names)


def reason_problems(reason: str) -> tuple[Problem, ...]:
    """Return what keeps a reason from being kept: it is bounded, and every character of it can be seen."""
    if len(reason) > MOST_REASON_CHARACTERS:
        what = f"{len(reason)} characters"
        return (Problem("reason", what, f"give at most {MOST_REASON_CHARACTERS}"),)
    if not reason.isprintable():
        what = f'"{printable(reason)}" has characters that cannot be printed'
        return (Problem("reason", what, "give a reason of one line, without control characters"),)
    return ()


def _refused_for_state(job: Job, rule: str) -> Refused:
    return Refused((Problem(f"job {job.job_id}", f"is {job.state}, and {rule}", "see etloop submit --list"),))
