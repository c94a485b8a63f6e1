"""Evaluates conditions on a card's behaviour by the intervals of its figures. Pure.

Decides that a condition holds only if it holds for every value in the intervals, and fails only if it fails for all of
them; otherwise, and if a figure was not measured, the result is inconclusive. The language is that of docs/verdict.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.experiments.nic.battery import FIGURES
from etloop.experiments.nic.dut_profile import value_words
from etloop.results.schema.verdict import RequestedCondition, Result
from etloop.results.verdict.evaluation import UNKNOWN, Results, evaluate
from etloop.results.verdict.parser import Condition, Vocabulary, parse
from etloop.results.verdict.terms import ExpressionError, names_of

if TYPE_CHECKING:
    from etloop.experiments.nic.document import NicProfile
    from etloop.experiments.nic.link.figures import Figure

UNITS: Final = {name: unit or "name" for name, unit in FIGURES.items()}
MOST_FIGURES: Final = 6
"""Most figures in one condition, since each may have two interval ends."""


@dataclass(frozen=True, slots=True)
class ConditionResult:
    """Result of one condition."""

    expression: str
    why: str
    result: Result
    found: str
    """Text with the figures that it names and their intervals."""


def evaluate_conditions(
    profile: NicProfile, checks: Sequence[RequestedCondition]
) -> tuple[ConditionResult, ...]:
    """Return the results of conditions. Raises `ConfigError` with all that cannot be parsed."""
    conditions: list[tuple[RequestedCondition, Condition]] = []
    problems: list[Problem] = []
    for check in checks:
        try:
            condition = parse(check.expression, Vocabulary(UNITS, {}))
        except ExpressionError as error:
            problems.append(
                Problem(check.where, f"{check.expression}: column {error.at + 1}: {error.what}", error.remedy)
            )
            continue
        figure_count = len(names_of(condition.tree))
        if figure_count > MOST_FIGURES:
            problems.append(
                Problem(check.where, f"names {figure_count} figures", f"name at most {MOST_FIGURES}")
            )
        conditions.append((check, condition))
    if problems:
        raise ConfigError(*problems)
    return tuple(_evaluate_condition(check, condition, profile.figures()) for check, condition in conditions)


def result_of(results: Sequence[ConditionResult]) -> Result:
    """Return the worst of all results."""
    distinct = {condition.result for condition in results}
    return next((result for result in (Result.FAIL, Result.INCONCLUSIVE) if result in distinct), Result.PASS)


def _evaluate_condition(
    check: RequestedCondition, condition: Condition, figures: dict[str, Figure]
) -> ConditionResult:
    names = sorted(names_of(condition.tree))
    words = {name: figures[name].word for name in names if name in figures and not FIGURES[name]}
    truths = {
        int(evaluate(condition.tree, Results(dict(zip(names, values, strict=True)), UNITS, {}, words)).values)
        for values in itertools.product(*(_ends(figures.get(name)) for name in names))
    }
    result = Result.INCONCLUSIVE
    if len(truths) == 1 and UNKNOWN not in truths:
        result = Result.PASS if truths == {1} else Result.FAIL
    figure_text = "; ".join(f"{name}: {_figure_words(figures.get(name))}" for name in names)
    return ConditionResult(check.expression, check.why, result, figure_text)


def _ends(figure: Figure | None) -> tuple[float | None, ...]:
    """Return the smallest and the largest value of a figure; (None,) without an interval."""
    return (None,) if figure is None or figure.low is None else (figure.low, figure.high)


def _figure_words(figure: Figure | None) -> str:
    return "not asked" if figure is None else value_words(figure)
