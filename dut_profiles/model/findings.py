"""What an examination of a profile finds: contradictions, remarks, and what could not be examined for want of a value.

Decides the shape of rules and findings. The rules are in the modules called `*contradictions`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, TypeVar

from etloop.contract.base.errors import Problem
from etloop.dut_profiles.model.stated import Stated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

S = TypeVar("S")
T = TypeVar("T")


class Gravity(StrEnum):
    """How bad a finding is."""

    CONTRADICTION = "contradiction"
    """Both cannot be true, or a run cannot be what it is meant to be."""
    REMARK = "remark"
    """Possible, and worth knowing before a run."""


@dataclass(frozen=True, slots=True)
class NotStated:
    """A value that a rule needs and the profile lacks."""

    path: str


@dataclass(frozen=True, slots=True)
class Rule(Generic[S]):
    """One thing that is looked for, in a profile or in a profile and a job."""

    name: str
    gravity: Gravity
    meaning: str
    look: Callable[[S], Iterator[Problem | NotStated]]


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that found something."""

    rule: str
    gravity: Gravity
    problem: Problem


@dataclass(frozen=True, slots=True)
class Unexamined:
    """A rule that could not be applied in full, and the values that it would have needed."""

    rule: str
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Examination:
    """All that came out."""

    findings: tuple[Finding, ...] = ()
    unexamined: tuple[Unexamined, ...] = ()

    @property
    def contradictions(self) -> tuple[Problem, ...]:
        """The problems that forbid a run."""
        return tuple(each.problem for each in self.findings if each.gravity is Gravity.CONTRADICTION)

    def __add__(self, other: Examination) -> Examination:
        return Examination(self.findings + other.findings, self.unexamined + other.unexamined)


def apply(rules: Iterable[Rule[S]], subject: S) -> Examination:
    """What all rules find, in their order."""
    findings: list[Finding] = []
    unexamined: list[Unexamined] = []
    for rule in rules:
        missing: dict[str, None] = {}
        for found in rule.look(subject):
            if isinstance(found, NotStated):
                missing[found.path] = None
            else:
                findings.append(Finding(rule.name, rule.gravity, found))
        if missing:
            unexamined.append(Unexamined(rule.name, tuple(missing)))
    return Examination(tuple(findings), tuple(unexamined))


def where(stated: Stated[T], otherwise: str) -> str:
    """The place of the value that is believed, for a `Problem`."""
    claim = stated.best
    return claim.where or otherwise if claim is not None else otherwise


def number(stated: Stated[int]) -> int:
    """The value of something that is known to be stated."""
    value = stated.value
    assert value is not None
    return value


def absent(**values: Stated[object]) -> Iterator[NotStated]:
    """The names of what is not stated; double underscores stand for dots."""
    for name, stated in values.items():
        if stated.best is None:
            yield NotStated(name.replace("__", "."))
