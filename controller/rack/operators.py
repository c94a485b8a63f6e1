"""Orders of a rack's operators: drain and reserve ports, hold and reorder jobs, pause the queue, run a job again.

Decides whether an order is valid and reports all its problems at once; an order with problems changes nothing.
Repeating an order has no further effect. All orders are in the audit trail. No I/O but the store's.
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
from etloop.controller.rack.maintenance import MOST_REASON_CHARACTERS, OrderKind
from etloop.controller.rack.users.reservations import Reservation, parse_time_ns

if TYPE_CHECKING:
    from etloop.controller.rack.api import Rack

_MOST_NAMED: Final = 16
"""Most names that an error lists."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A requested reservation; times in ISO 8601 with offset."""

    ports: Sequence[str]
    user: str
    """User whose jobs get the ports; "": no job gets them."""
    begins_at: str
    """"": from now on."""
    ends_at: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """An order that was not carried out, with all its problems."""

    problems: tuple[Problem, ...]


class Operators:
    """Orders to one rack. Methods raise `StoreFailed`, and change nothing, if an order cannot be recorded."""

    def __init__(self, rack: Rack) -> None:
        self._rack = rack

    def drain(self, names: Sequence[str], reason: str, who: str) -> tuple[RackPort, ...] | Refused:
        """Give these ports to no further job; a job that runs there may finish. Returns the ports.

        `names` are "agent/port", or an agent for all of its ports.
        """
        ports = self._ports(names, reason)
        if not isinstance(ports, Refused):
            for port in ports:
                self._order(OrderKind.DRAINED, port.label, reason, who)
        return ports

    def undrain(self, names: Sequence[str], reason: str, who: str) -> tuple[RackPort, ...] | Refused:
        """Return drained ports to service, also those quarantined after failed preparations. Returns the ports."""
        ports = self._ports(names, reason)
        if not isinstance(ports, Refused):
            for port in ports:
                self._withdraw(OrderKind.DRAINED, port.label, reason, who)
                self._rack.health.restore(port.label)
                self._rack.reconsider(OrderKind.DRAINED, port.label)
        return ports

    def reserve(self, reservation_id: str, wanted: Wanted, who: str, now_ns: int) -> Reservation | Refused:
        """Reserve ports for a user's jobs, or against all jobs, in a window. `now_ns` is wall time.

        Jobs that run there already may finish.
        """
        ports = self._ports(wanted.ports, wanted.reason)
        request_problems = list(ports.problems) if isinstance(ports, Refused) else []
        if wanted.user and not is_user_name(wanted.user):
            problem = f'"{printable(wanted.user[:64])}" is not a user name'
            request_problems.append(
                Problem("user", problem, "name an account of the broker, or leave it out for maintenance")
            )
        begins_ns = parse_time_ns("begins_at", wanted.begins_at) if wanted.begins_at else now_ns
        ends_ns = parse_time_ns("ends_at", wanted.ends_at)
        request_problems += [time for time in (begins_ns, ends_ns) if isinstance(time, Problem)]
        if (
            request_problems
            or isinstance(ports, Refused)
            or isinstance(begins_ns, Problem)
            or isinstance(ends_ns, Problem)
        ):
            return Refused(tuple(request_problems))
        labels = tuple(port.label for port in ports)
        window_ns = (max(begins_ns, now_ns), ends_ns)
        if problems := self._rack.orders.reservations.problems(labels, wanted.user, window_ns, now_ns):
            return Refused(problems)
        reservation = Reservation(reservation_id, labels, wanted.user, *window_ns, who, wanted.reason)
        self._rack.store.reserve(reservation)
        self._rack.orders.reservations.keep(reservation)
        return reservation

    def unreserve(self, reservation_id: str, reason: str, who: str) -> Reservation | Refused | None:
        """Withdraw a reservation and return it; None if there is none of that id."""
        reservation = self._rack.orders.reservations.find(reservation_id)
        if reservation is None:
            return None
        if problems := reason_problems(reason):
            return Refused(problems)
        self._rack.store.unreserve(reservation, reason, who)
        self._rack.orders.reservations.drop(reservation_id)
        return reservation

    def pause(self, reason: str, who: str) -> Refused | None:
        """Start no further job; running jobs continue, and more may be submitted."""
        if problems := reason_problems(reason):
            return Refused(problems)
        self._order(OrderKind.PAUSED, "", reason, who)
        return None

    def resume(self, reason: str, who: str) -> Refused | None:
        """Let jobs start again."""
        if problems := reason_problems(reason):
            return Refused(problems)
        self._withdraw(OrderKind.PAUSED, "", reason, who)
        return None

    def hold(self, job_id: str, reason: str, who: str) -> Job | Refused | None:
        """Hold a queued job until it is released; None if there is no such job."""
        return self._of_queued(job_id, reason, who, OrderKind.HELD)

    def release(self, job_id: str, reason: str, who: str) -> Job | Refused | None:
        """Release a held job; None if there is no such job."""
        return self._of_queued(job_id, reason, who, None)

    def prioritise(self, job_id: str, priority: int, who: str) -> Job | Refused | None:
        """Change the priority of a queued job; None if there is no such job."""
        job = self._rack.store.find(job_id)
        if job is None:
            return None
        if not LOWEST_PRIORITY <= priority <= HIGHEST_PRIORITY:
            problem = f"{priority} is outside {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}"
            return Refused((Problem("priority", problem, "give a number in that range"),))
        if job.state is not JobState.QUEUED:
            return _refused_for_state(job, "only a queued job can get another priority")
        return self._rack.prioritise(job, priority, who)

    def requeue(self, job_id: str, who: str) -> Job | Refused | None:
        """Queue the request of an ended job as a new job and return that; None if there is no such job.

        Repeating it returns the same new job.
        """
        job = self._rack.store.find(job_id)
        if job is None:
            return None
        if job.state not in ENDED:
            return _refused_for_state(job, "only an ended job can be run again")
        if problems := self._rack.traces.problems(job.request.scenario_text):
            return Refused(problems)
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
        if problems := reason_problems(reason):
            return Refused(problems)
        if job.state is not JobState.QUEUED:
            return _refused_for_state(job, "only a queued job can be held or released")
        if kind is None:
            self._withdraw(OrderKind.HELD, job_id, reason, who)
        else:
            self._order(kind, job_id, reason, who)
        return job

    def _ports(self, names: Sequence[str], reason: str) -> tuple[RackPort, ...] | Refused:
        problems = list(reason_problems(reason))
        ports = self._rack.ports
        valid_names = {port.label for port in ports} | {port.agent for port in ports}
        unknown = [name for name in names if name not in valid_names]
        if unknown:
            names_text = ", ".join(sorted(valid_names)[:_MOST_NAMED])
            problem = f'the rack has no agent or port "{printable(unknown[0][:128])}"'
            problems.append(Problem("ports", problem, f"name some of: {names_text}"))
        if not names:
            problems.append(Problem("ports", "the list is empty", 'name ports as "agent/port", or agents'))
        if problems:
            return Refused(tuple(problems))
        return tuple(port for port in ports if port.label in names or port.agent in names)


def reason_problems(reason: str) -> tuple[Problem, ...]:
    """Return why a reason cannot be stored: it is too long or has unprintable characters."""
    if len(reason) > MOST_REASON_CHARACTERS:
        problem = f"{len(reason)} characters"
        return (Problem("reason", problem, f"give at most {MOST_REASON_CHARACTERS}"),)
    if not reason.isprintable():
        problem = f'"{printable(reason)}" has unprintable characters'
        return (Problem("reason", problem, "give a reason of one line, without control characters"),)
    return ()


def _refused_for_state(job: Job, rule: str) -> Refused:
    return Refused((Problem(f"job {job.job_id}", f"is {job.state}, and {rule}", "see etloop submit --list"),))
