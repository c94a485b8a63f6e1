"""The users of a rack: what each may ask for, and how much of it he may have. Pure.

A user is an account of the broker: its ACL lets nobody else write below `as/USER` (docs/rack.md). Who a file of users does
not name may do nothing, or what it says of `others`.
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
    """What somebody is to a rack. The values are those of the file."""

    VIEWER = "viewer"
    USER = "user"
    OPERATOR = "operator"


class Right(Enum):
    """What a request takes."""

    LOOK = auto()
    """List jobs, agents and ports."""
    SUBMIT = auto()
    OWN = auto()
    """Cancel, hold, reorder or run again a job of one's own."""
    OPERATE = auto()
    """The same with jobs of others; drain and reserve ports, pause the queue."""


_RIGHTS: Final[Mapping[Role, frozenset[Right]]] = {
    Role.VIEWER: frozenset((Right.LOOK,)),
    Role.USER: frozenset((Right.LOOK, Right.SUBMIT, Right.OWN)),
    Role.OPERATOR: frozenset(Right),
}
_WORDS: Final = {
    Right.LOOK: "look at the rack",
    Right.SUBMIT: "submit jobs",
    Right.OWN: "change jobs",
    Right.OPERATE: "change jobs of others, ports or the queue",
}


@dataclass(frozen=True, slots=True)
class User:
    """One account, and its bounds; None where the rack's own are the only ones."""

    name: str
    role: Role = Role.USER
    most_priority: int = HIGHEST_PRIORITY
    """Of a job that he submits or reorders."""
    queued_jobs: int | None = None
    running_jobs: int | None = None
    """At once; further ones wait, and keep no port from jobs of others."""
    job_time_ns: int | None = None
    """Longest that a job may run; one that names no time gets this."""

    def may(self, right: Right) -> bool:
        """Whether the role has a right."""
        return right in _RIGHTS[self.role]


@dataclass(frozen=True, slots=True)
class Users:
    """All that a file of users says."""

    named: Mapping[str, User] = field(default_factory=dict)
    others: User | None = None
    """What somebody is whom the file does not name; None: nobody."""

    def find(self, name: str) -> User | None:
        """Return what is said of an account; None if it may do nothing."""
        found = self.named.get(name)
        return found if found is not None or self.others is None else replace(self.others, name=name)


def parse_users(text: bytes, source: str) -> Users:
    """Return the users of a YAML text. Raises `ConfigError` with every mistake of it."""
    file = ConfigFile(source)
    top = read_document(text, file)
    named: dict[str, User] = {}
    section = top.section("users")
    names = section.entry_names()
    if len(names) > MOST_USERS:
        top.mistake("users", f"there are {len(names)} users", f"name at most {MOST_USERS}")
    for name in names[:MOST_USERS]:
        user = _user(section.section(name), name)
        if not is_user_name(name):
            remedy = "write the broker's name of it: letters, digits, dots, dashes, underscores, at most 64"
            section.mistake(name, "is no name of an account", remedy)
        named[name] = user
    others = _user(top.section("others"), "") if top.has("others") else None
    if not names and others is None:
        top.mistake("users", "names nobody, so that nobody may do anything", "name users, or write others:")
    section.close()
    top.close()
    file.refuse_mistakes()
    return Users(named, others)


def _user(section: Section, name: str) -> User:
    user = User(
        name,
        section.optional("role", one_of({each.value: each for each in Role}), Role.USER),
        section.optional("priority", integer(LOWEST_PRIORITY, HIGHEST_PRIORITY), HIGHEST_PRIORITY),
        section.optional("queued_jobs", integer(0, _MOST_JOBS), None),
        section.optional("running_jobs", integer(0, _MOST_JOBS), None),
        section.optional("time", _time, None),
    )
    section.close()
    return user


def right_over(job: Job | None, name: str) -> Right:
    """Return what it takes of a user to change a job; None: one that is not there."""
    return Right.OPERATE if job is not None and job.request.owner != name else Right.OWN


def right_problem(user: User | None, name: str, right: Right) -> Problem | None:
    """Return why an account may not do something; None if it may."""
    if user is None:
        return Problem(
            "user", f'the rack does not know "{name}"', "have an operator add it to the file of users"
        )
    if user.may(right):
        return None
    least = next(role for role in Role if right in _RIGHTS[role])
    what = f'"{name}" is {user.role}, and may not {_WORDS[right]}'
    return Problem("user", what, f"ask somebody who is {least}, or an operator for that role")


def bounded_request(user: User, request: JobRequest) -> JobRequest:
    """Return a request as its user's: a job that names no time gets the user's."""
    if user.job_time_ns is None or request.time_limit_ns:
        return request
    return replace(request, time_limit_ns=user.job_time_ns)


def request_bounds(user: User, request: JobRequest, queued_jobs: int) -> tuple[Problem, ...]:
    """Return which of its user's bounds a new job would break; `queued_jobs` are those that he has queued."""
    found = list(priority_bound(user, request.priority))
    if user.job_time_ns is not None and request.time_limit_ns > user.job_time_ns:
        most = format_duration(user.job_time_ns)
        what = f"{format_duration(request.time_limit_ns)} is longer than a job of {user.name} may run"
        found.append(Problem("time_limit", what, f"ask for at most {most}"))
    if user.queued_jobs is not None and queued_jobs >= user.queued_jobs:
        what = f"{user.name} has {queued_jobs} jobs queued, and may have no more"
        found.append(Problem("queue", what, "wait for some to start, or cancel some"))
    return tuple(found)


def priority_bound(user: User, priority: int) -> tuple[Problem, ...]:
    """Return what keeps a user from giving a job a priority."""
    if priority <= user.most_priority:
        return ()
    what = f"{priority} is above what {user.name} may give"
    return (Problem("priority", what, f"give at most {user.most_priority}"),)
