"""Decides which users' requests a rack accepts, by its file of users, which is checked for every request.

Without such a file, every client that the broker admits may ask for anything that its ACL permits, and user names serve
the audit trail only. If the file becomes unusable, every request is refused with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from etloop.contract.base.errors import ConfigError, Problem
from etloop.controller.rack.job import Job, JobRequest
from etloop.controller.rack.users.users import (
    Right,
    User,
    Users,
    bounded_request,
    priority_bound,
    request_bounds,
    right_problem,
)


class People:
    """The present users of one rack."""

    def __init__(self, users: Callable[[], Users] | None = None) -> None:
        """Keep `users`, which raises `ConfigError` while the file of users is unusable."""
        self._users = users
        self._last = Users()

    def problem(self, name: str, right: Right) -> Problem | None:
        """Return why a user may not do something; None if allowed. `name` is "" for a request without a user."""
        if self._users is None:
            return None
        if not name:
            problem = "the request names no user; this rack has users and accepts only theirs"
            remedy = "publish below as/USER, as etloop does with --username"
            return Problem("user", problem, remedy)
        try:
            user = self._now().find(name)
        except ConfigError as error:
            problem = f"the rack's file of users cannot be used: {error.problems[0].what}"
            return Problem("user", problem, "have an operator correct it")
        return right_problem(user, name, right)

    def with_time_bound(self, request: JobRequest) -> JobRequest:
        """Return a request with its user's time bound as its limit, if it names none."""
        user = self._user(request.owner)
        return request if user is None else bounded_request(user, request)

    def problems(self, request: JobRequest, queued: Iterable[Job]) -> tuple[Problem, ...]:
        """Return which of its user's bounds a new job would exceed."""
        user = self._user(request.owner)
        if user is None:
            return ()
        return request_bounds(user, request, sum(job.request.owner == user.name for job in queued))

    def priority_problems(self, name: str, priority: int) -> tuple[Problem, ...]:
        """Return why a user may not give a job that priority."""
        user = self._user(name)
        return () if user is None else priority_bound(user, priority)

    def left(self, queued: Iterable[Job], running: Iterable[Job]) -> dict[str, int]:
        """Return how many further jobs may start, for each bounded user with queued jobs."""
        if self._users is None:
            return {}
        running_of = Counter(job.request.owner for job in running)
        jobs_left: dict[str, int] = {}
        for name in {job.request.owner for job in queued}:
            user = self._user(name)
            if user is not None and user.running_jobs is not None:
                jobs_left[name] = user.running_jobs - running_of[name]
        return jobs_left

    def _user(self, name: str) -> User | None:
        """Return the user whose bounds apply; as last read while the file is unusable."""
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
