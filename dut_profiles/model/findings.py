"""What an examination of a profile finds: contradictions, remarks, and what could not be examined for want of a value.

Decides the shape of rules and findings. The rules are in the modules called `*contradictions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from etloop.contract.base.errors import Problem, Severity
from etloop.contract.base.late_dataclass import dataclass
from etloop.dut_profiles.model.stated import Stated

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NotStated:
    """A value that a rule needs and the profile lacks."""

    path: str


@dataclass(frozen=True, slots=True)
class Rule(Generic[S]):
    """One thing that is looked for, in a profile or in a profile and a job."""

    name: str
    severity: Severity
    meaning: str
    look: Callable[[S], Iterator[Problem | NotStated]]


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that found something."""

    rule: str
    severity: Severity
    problem: Problem


@dataclass(frozen=True, slots=True)
class SkippedRule:
    """A rule that could not be applied in full, and the values that it would have needed."""

    rule: str
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProfileVerdict:
    """All that came out."""

    findings: tuple[Finding, ...] = ()
    skipped: tuple[SkippedRule, ...] = ()

    @property
    def contradictions(self) -> tuple[Problem, ...]:
        """The problems that forbid a run."""
        return tuple(each.problem for each in self.findings if each.severity is Severity.ERROR)

    def __add__(self, other: ProfileVerdict) -> ProfileVerdict:
        return ProfileVerdict(self.findings + other.findings, self.skipped + other.skipped)


def apply(rules: Iterable[Rule[S]], subject: S) -> ProfileVerdict:
    """What all rules find, in their order."""
    findings: list[Finding] = []
    skipped: list[SkippedRule] = []
    for rule in rules:
        missing: dict[str, None] = {}
        for found in rule.look(subject):
            if isinstance(found, NotStated):
                missing[found.path] = None
            else:
                findings.append(Finding(rule.name, rule.severity, found))
        if missing:
            skipped.append(SkippedRule(rule.name, tuple(missing)))
    return ProfileVerdict(tuple(findings), tuple(skipped))


def where(stated: Stated[T], otherwise: str) -> str:
    """The place of the value that is believed, for a `Problem`."""
    claim = stated.best
    return claim.where or otherwise if claim is not None else otherwise


def absent(**values: Stated[object]) -> Iterator[NotStated]:
    """The names of what is not stated; double underscores stand for dots."""
    for name, stated in values.items():
        if stated.best is None:
            yield NotStated(name.replace("__", "."))
