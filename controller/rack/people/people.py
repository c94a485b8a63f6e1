"""Whom a rack takes requests from. Decides by its file of users; reads that whenever it is asked.

Without such a file everybody whom the broker lets in may ask for anything that its ACL lets through, and a user's name is for
the audit trail only. With one that cannot be used any more nobody may do anything: closed, and the reason is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from etloop.contract.base.errors import ConfigError, Problem
from etloop.controller.rack.job import Job, JobRequest
from etloop.controller.rack.people.users import (
    Right,
    User,
    Users,
    bounded_request,
    priority_bound,
    request_bounds,
    right_problem,
)


class People:
    """The users of one rack as they are now."""

    def __init__(self, users: Callable[[], Users] | None = None) -> None:
        """`users` raises `ConfigError` while there are none that can be used."""
        self._users = users
        self._last = Users()

    def problem(self, name: str, right: Right) -> Problem | None:
        """Return why somebody may not do something; "": who did not say as whom he asks."""
        if self._users is None:
            return None
        if not name:
            what = "the request does not say whose it is, and this rack takes those of users only"
            remedy = "ask on the topics below as/USER, as etloop does with --username"
            return Problem("user", what, remedy)
        try:
            user = self._now().find(name)
        except ConfigError as error:
            what = f"the rack's file of users cannot be used: {error.problems[0].what}"
            return Problem("user", what, "have an operator put it right")
        return right_problem(user, name, right)

    def bounded(self, request: JobRequest) -> JobRequest:
        """Return a request with what its user's bounds add to it."""
        user = self._user(request.owner)
        return request if user is None else bounded_request(user, request)

    def problems(self, request: JobRequest, queued: Iterable[Job]) -> tuple[Problem, ...]:
        """Return which of its user's bounds a new job would break."""
        user = self._user(request.owner)
        if user is None:
            return ()
        return request_bounds(user, request, sum(job.request.owner == user.name for job in queued))

    def priority_problems(self, name: str, priority: int) -> tuple[Problem, ...]:
        """Return what keeps somebody from giving a job a priority."""
        user = self._user(name)
        return () if user is None else priority_bound(user, priority)

    def left(self, queued: Iterable[Job], running: Iterable[Job]) -> dict[str, int]:
        """Return how many further jobs may start of the users that have some queued and a bound."""
        if self._users is None:
            return {}
        run = Counter(job.request.owner for job in running)
        found: dict[str, int] = {}
        for name in {job.request.owner for job in queued}:
            user = self._user(name)
            if user is not None and user.running_jobs is not None:
                found[name] = user.running_jobs - run[name]
        return found

    def _user(self, name: str) -> User | None:
        """Return whose bounds hold; as they last were while the file cannot be used."""
        if self._users is None:
            return None
        try:
            return self._now().find(name)
        except ConfigError:
            return self._last.find(name)

    def _now(self) -> Users:
        assert self._users is not None
        self._last = self._users()
        return self._last
