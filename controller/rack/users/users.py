"""The users of a rack: their rights and bounds. Pure.

A user is an account of the broker, whose ACL lets only that account write below `as/USER` (docs/rack.md). An account
that the file of users does not name has the rights of `others` in that file, or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from enum import Enum, StrEnum, auto
from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import format_duration, parse_duration_ns
from etloop.contract.base.value_parsers import bounded, integer, one_of
from etloop.contract.base.yaml_reader import ConfigFile, Section, read_document
from etloop.controller.rack.actor import is_user_name
from etloop.controller.rack.job import HIGHEST_PRIORITY, LOWEST_PRIORITY, Job, JobRequest

MOST_USERS: Final = 10_000
_MOST_JOBS: Final = 100_000
_time: Final = bounded(parse_duration_ns, NS_PER_S, 3650 * 86_400 * NS_PER_S, format_duration)


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


@dataclass(frozen=True, slots=True)
class User:
    """One account and its bounds; None if only the rack's own bounds apply."""

    name: str
    role: Role = Role.USER
    most_priority: int = HIGHEST_PRIORITY
    """Highest priority that the user may give a job."""
    queued_jobs: int | None = None
    running_jobs: int | None = None
    """Most jobs running at once; further ones wait, and claim no ports."""
    job_time_ns: int | None = None
    """Longest run time of a job, also of one that names none."""

    def may(self, right: Right) -> bool:
        """Return whether the user's role has a right."""
        return right in _RIGHTS[self.role]


@dataclass(frozen=True, slots=True)
class Users:
    """Content of a file of users."""

    named: Mapping[str, User] = field(default_factory=dict)
    others: User | None = None
    """Rights and bounds of accounts that the file does not name; None: they have none."""

    def find(self, name: str) -> User | None:
        """Return the user of an account; None if it has no rights."""
        user = self.named.get(name)
        return user if user is not None or self.others is None else replace(self.others, name=name)


def parse_users(text: bytes, source: str) -> Users:
    """Parse the users of a YAML text. Raises `ConfigError` with every mistake in it."""
    file = ConfigFile(source)
    top = read_document(text, file)
    user_of_name: dict[str, User] = {}
    section = top.section("users")
    names = section.entry_names()
    if len(names) > MOST_USERS:
        top.mistake("users", f"there are {len(names)} users", f"name at most {MOST_USERS}")
    for name in names[:MOST_USERS]:
        user = _user(section.section(name), name)
        if not is_user_name(name):
            remedy = "write the account's name at the broker: letters, digits, dots, dashes, underscores, at most 64"
            section.mistake(name, "is not an account name", remedy)
        user_of_name[name] = user
    others = _user(top.section("others"), "") if top.has("others") else None
    if not names and others is None:
        top.mistake(
            "users",
            "has neither users nor others: every request would be refused",
            "name users, or write others:",
        )
    section.close()
    top.close()
    file.refuse_mistakes()
    return Users(user_of_name, others)


def _user(section: Section, name: str) -> User:
    user = User(
        name,
        section.optional("role", one_of({role.value: role for role in Role}), Role.USER),
        section.optional("priority", integer(LOWEST_PRIORITY, HIGHEST_PRIORITY), HIGHEST_PRIORITY),
        section.optional("queued_jobs", integer(0, _MOST_JOBS), None),
        section.optional("running_jobs", integer(0, _MOST_JOBS), None),
        section.optional("time", _time, None),
    )
    section.close()
    return user


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
