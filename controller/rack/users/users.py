"""The users of a rack: their rights and bounds. Pure.

A user is an account of the broker, whose ACL lets only that account write below `as/USER` (docs/rack.md). An account
that the file of users does not name has the rights of `others` in that file, or none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from enum import Enum, StrEnum, auto
from typing import Final

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import mapping_setting, optional_group, setting
from etloop.contract.base.settings_reader import read_file
from etloop.contract.base.units import QuantityError, format_duration
from etloop.contract.base.value_form import pattern_form, with_form
from etloop.contract.base.value_parsers import integer, word_of
from etloop.controller.rack.actor import is_user_name
from etloop.controller.rack.job import HIGHEST_PRIORITY, LOWEST_PRIORITY, Job, JobRequest
from etloop.controller.rack.submissions import long_time

MOST_USERS: Final = 10_000
_jobs: Final = integer(0, 100_000)


class Role(StrEnum):
    """Role of a user. The values are those of the file."""

    VIEWER = "viewer"
    USER = "user"
    OPERATOR = "operator"


class Right(Enum):
    """Right that a request needs."""

    LOOK = auto()
    """List jobs, agents and ports."""
    SUBMIT = auto()
    OWN = auto()
    """Cancel, hold, reorder or requeue one's own job."""
    OPERATE = auto()
    """The same with jobs of other users; drain and reserve ports, pause the queue."""


_RIGHTS: Final[Mapping[Role, frozenset[Right]]] = {
    Role.VIEWER: frozenset((Right.LOOK,)),
    Role.USER: frozenset((Right.LOOK, Right.SUBMIT, Right.OWN)),
    Role.OPERATOR: frozenset(Right),
}
_WORDS: Final = {
    Right.LOOK: "look at the rack",
    Right.SUBMIT: "submit jobs",
    Right.OWN: "change jobs",
    Right.OPERATE: "change other users' jobs, ports or the queue",
}


@with_form(pattern_form("name of an account", "[A-Za-z0-9._-]{1,64}"))
def _account(text: str) -> str:
    if not is_user_name(text):
        remedy = (
            "write the account's name at the broker: letters, digits, dots, dashes, underscores, at most 64"
        )
        raise QuantityError("is not an account name", remedy)
    return text


@dataclass(frozen=True, slots=True)
class User:
    """One account and its bounds; None if only the rack's own bounds apply."""

    name: str = ""
    role: Role = setting("role", word_of(Role), Role.USER)
    """Rights: list jobs and ports (viewer), submit and change own jobs (user), change everything (operator)."""
    most_priority: int = setting("priority", integer(LOWEST_PRIORITY, HIGHEST_PRIORITY), HIGHEST_PRIORITY)
    """Highest priority that the account may give a job."""
    queued_jobs: int | None = setting("queued_jobs", _jobs, None)
    """Most jobs that the account may have queued; the rack's limit if left out."""
    running_jobs: int | None = setting("running_jobs", _jobs, None)
    """Most jobs of the account that run at once; further ones wait, and claim no ports. The rack's limit if left out."""
    job_time_ns: int | None = setting("time", long_time, None)
    """Longest run time of a job, also of one that names none."""

    def may(self, right: Right) -> bool:
        """Return whether the user's role has a right."""
        return right in _RIGHTS[self.role]


@dataclass(frozen=True, slots=True)
class Users:
    """Content of a file of users."""

    accounts: Mapping[str, User] = mapping_setting(
        User, "users", _account, "Rights and bounds of the account.", most=MOST_USERS
    )
    """Accounts of the broker, by name."""
    others: User | None = optional_group(User, "others")
    """Rights and bounds of accounts that are not named; they have no rights if left out."""

    def find(self, name: str) -> User | None:
        """Return the user of an account; None if it has no rights."""
        user = self.accounts.get(name, self.others)
        return None if user is None else replace(user, name=name)

    def broken_rules(self, _: Collection[str]) -> Iterator[Problem]:
        """Yield a file by which no account has rights."""
        if not self.accounts and self.others is None:
            problem = "names no account, so no request would be served"
            yield Problem("users", problem, "name users, or write others:")


def parse_users(text: bytes, source: str) -> Users:
    """Parse the users of a YAML text. Raises `ConfigError` with every mistake in it."""
    return read_file(Users, text, source)


def right_over(job: Job | None, name: str) -> Right:
    """Return the right that user `name` needs to change the job; `Right.OWN` if there is no such job."""
    return Right.OPERATE if job is not None and job.request.owner != name else Right.OWN


def right_problem(user: User | None, name: str, right: Right) -> Problem | None:
    """Return why an account lacks a right; None if it has it."""
    if user is None:
        return Problem(
            "user", f'the rack has no user "{name}"', "have an operator add it to the file of users"
        )
    if user.may(right):
        return None
    least = next(role for role in Role if right in _RIGHTS[role])
    problem = f'"{name}" is {user.role} and may not {_WORDS[right]}'
    return Problem("user", problem, f"ask a user with role {least}, or ask an operator for that role")


def bounded_request(user: User, request: JobRequest) -> JobRequest:
    """Return a request in which a job without a time limit gets the user's."""
    if user.job_time_ns is None or request.time_limit_ns:
        return request
    return replace(request, time_limit_ns=user.job_time_ns)


def request_bounds(user: User, request: JobRequest, queued_jobs: int) -> tuple[Problem, ...]:
    """Return which of its user's bounds a new job would exceed; `queued_jobs` counts the user's queued jobs."""
    problems = list(priority_bound(user, request.priority))
    if user.job_time_ns is not None and request.time_limit_ns > user.job_time_ns:
        limit_text = format_duration(user.job_time_ns)
        problem = f"{format_duration(request.time_limit_ns)} is above the limit of {user.name}"
        problems.append(Problem("time_limit", problem, f"ask for at most {limit_text}"))
    if user.queued_jobs is not None and queued_jobs >= user.queued_jobs:
        problem = f"{user.name} has {queued_jobs} queued jobs, the most allowed"
        problems.append(Problem("queue", problem, "wait until jobs start, or cancel some"))
    return tuple(problems)


def priority_bound(user: User, priority: int) -> tuple[Problem, ...]:
    """Return why a user may not give a job that priority."""
    if priority <= user.most_priority:
        return ()
    problem = f"{priority} is above the highest priority of {user.name}"
    return (Problem("priority", problem, f"give at most {user.most_priority}"),)
