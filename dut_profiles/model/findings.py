"""Results of an examination of a profile: contradictions, remarks, and rules that could not be applied because a value is
missing.

Decides the form of rules and findings. The rules are in `rules`.
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
    """One check, of a profile alone or of a profile with a job or a rig."""

    name: str
    severity: Severity
    meaning: str
    look: Callable[[S], Iterator[Problem | NotStated]]


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem that a rule found."""

    rule: str
    severity: Severity
    problem: Problem


@dataclass(frozen=True, slots=True)
class SkippedRule:
    """A rule that could not be applied in full, and the values that it lacked."""

    rule: str
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProfileVerdict:
    """All findings and skipped rules of an examination."""

    findings: tuple[Finding, ...] = ()
    skipped: tuple[SkippedRule, ...] = ()

    @property
    def contradictions(self) -> tuple[Problem, ...]:
        """Return the problems that forbid a run: those of severity error."""
        return tuple(finding.problem for finding in self.findings if finding.severity is Severity.ERROR)

    def __add__(self, other: ProfileVerdict) -> ProfileVerdict:
        return ProfileVerdict(self.findings + other.findings, self.skipped + other.skipped)


def apply(rules: Iterable[Rule[S]], subject: S) -> ProfileVerdict:
    """Apply all rules in their order and return their findings, and the rules that lacked values."""
    findings: list[Finding] = []
    skipped: list[SkippedRule] = []
    for rule in rules:
        missing: dict[str, None] = {}
        for outcome in rule.look(subject):
            if isinstance(outcome, NotStated):
                missing[outcome.path] = None
            else:
                findings.append(Finding(rule.name, rule.severity, outcome))
        if missing:
            skipped.append(SkippedRule(rule.name, tuple(missing)))
    return ProfileVerdict(tuple(findings), tuple(skipped))


def where(stated: Stated[T], otherwise: str) -> str:
    """Return the place of the best claim for a `Problem`, or `otherwise` if it has none."""
    claim = stated.best
    return claim.where or otherwise if claim is not None else otherwise


def absent(**values: Stated[object]) -> Iterator[NotStated]:
    """Yield the paths of the values that are not stated; a double underscore in a name is a dot of the path."""
    for name, stated in values.items():
        if stated.best is None:
            yield NotStated(name.replace("__", "."))
