"""Conditions on what a card does, judged by the intervals of its figures. Pure.

Decides that a condition holds only where it holds for every value that a figure may have, and fails only where it fails for all
of them; between, and where a figure was not seen, nothing is said of the card. The language is that of docs/verdict.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.experiments.nic.battery import FIGURES
from etloop.experiments.nic.dut_profile import value_words
from etloop.results.schema.verdict import RequestedCheck, Result
from etloop.results.verdict.evaluation import UNKNOWN, Results, evaluate
from etloop.results.verdict.parser import Condition, Vocabulary, parse
from etloop.results.verdict.terms import ExpressionError, names_of

if TYPE_CHECKING:
    from etloop.experiments.nic.document import NicProfile
    from etloop.experiments.nic.link.figures import Figure

UNITS: Final = {name: unit or "name" for name, unit in FIGURES.items()}
MOST_FIGURES: Final = 6
"""Of one condition: each may have two ends."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of one condition."""

    expression: str
    why: str
    result: Result
    found: str
    """The figures that it names, with their intervals."""


def judge(profile: NicProfile, checks: Sequence[RequestedCheck]) -> tuple[Judged, ...]:
    """Return what becomes of conditions. Raises `ConfigError` with all that cannot be read."""
    conditions: list[tuple[RequestedCheck, Condition]] = []
    problems: list[Problem] = []
    for check in checks:
        try:
            condition = parse(check.expression, Vocabulary(UNITS, {}))
        except ExpressionError as error:
            problems.append(
                Problem(check.where, f"{check.expression}: column {error.at + 1}: {error.what}", error.remedy)
            )
            continue
        named = len(names_of(condition.tree))
        if named > MOST_FIGURES:
            problems.append(Problem(check.where, f"names {named} figures", f"name at most {MOST_FIGURES}"))
        conditions.append((check, condition))
    if problems:
        raise ConfigError(*problems)
    return tuple(_judged(check, condition, profile.figures()) for check, condition in conditions)


def result_of(judged: Sequence[Judged]) -> Result:
    """Return what all of them come to: the worst."""
    found = {one.result for one in judged}
    return next((one for one in (Result.FAIL, Result.INCONCLUSIVE) if one in found), Result.PASS)


def _judged(check: RequestedCheck, condition: Condition, figures: dict[str, Figure]) -> Judged:
    names = sorted(names_of(condition.tree))
    words = {name: figures[name].word for name in names if name in figures and not FIGURES[name]}
    truths = {
        int(evaluate(condition.tree, Results(dict(zip(names, values, strict=True)), UNITS, {}, words)).values)
        for values in itertools.product(*(_ends(figures.get(name)) for name in names))
    }
    result = Result.INCONCLUSIVE
    if len(truths) == 1 and UNKNOWN not in truths:
        result = Result.PASS if truths == {1} else Result.FAIL
    found = "; ".join(f"{name}: {_said(figures.get(name))}" for name in names)
    return Judged(check.expression, check.why, result, found)


def _ends(figure: Figure | None) -> tuple[float | None, ...]:
    """What a figure may be at the least and at the most."""
    return (None,) if figure is None or figure.low is None else (figure.low, figure.high)


def _said(figure: Figure | None) -> str:
    return "not asked" if figure is None else value_words(figure)
