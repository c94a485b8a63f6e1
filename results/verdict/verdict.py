"""Judges a run: evaluates its conditions and decides, for each and for all, whether the device is good enough.

Decides when the emulator and not the device was the limit. A condition then fails if no lateness or loss of our own can
explain the failure, passes if it holds whatever they did, and is inconclusive otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import setting
from etloop.contract.base.value_parsers import integer, share
from etloop.contract.model.run import RunEnd
from etloop.results.schema.needless import is_asked_for
from etloop.results.schema.summary import Summary
from etloop.results.schema.verdict import ConditionOutcome, RequestedCondition, Result, Verdict
from etloop.results.verdict.certainty import bounds_words, certain_result, quantity
from etloop.results.verdict.evaluation import UNKNOWN, Outcome, Results, evaluate
from etloop.results.verdict.parser import Condition, Vocabulary, dimension_of, parse
from etloop.results.verdict.terms import (
    Binary,
    Call,
    ColumnOf,
    ExpressionError,
    Node,
    Unary,
    comparisons_of,
)
from etloop.results.verdict.weakness import OwnShare, Weakness

ROWS_SHOWN: Final = 10
_OVER_TIME: Final = frozenset({"cc", "dut", "queues"})
"""Tables of readings over time: a count stays in every following row, so rows must not be summed."""
_COUNTS: Final = frozenset({"packets", "frames", "datagrams", "messages", "events", "count"})
"""Units of columns that may be summed over rows."""


@dataclass(frozen=True, slots=True)
class EmulatorLimits:
    """Thresholds above which the emulator itself counts as the limit; the scenario may state its own."""

    slip_share: float = setting("slip", share, 0.05)
    """Summed lateness of a rank's operations, as a share of the iteration."""
    busy_share: float = setting("busy", share, 0.98)
    """Share of turns of the engine's loop that had work."""
    own_lost_packets: int = setting("lost_packets", integer(0, 10**12), 0)
    """Packets lost in the emulator's own receive buffers."""
    needless_share: float = setting("needless", share, 0.001)
    """Share of sent packets that were retransmitted although the receiver had them and no packet was lost."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions and limits that decide the verdict of a run."""

    requested: tuple[RequestedCondition, ...] = ()
    limits: EmulatorLimits = EmulatorLimits()
    device: str = ""
    """Name of the device profile."""
    unreadable: str = ""
    """Why the conditions of that profile could not be read; "" otherwise."""
    notes: tuple[str, ...] = ()
    """Contradictions between the profile and the scenario or the rig; written into the results."""

    def __bool__(self) -> bool:
        """Return whether there is a condition to decide."""
        return bool(self.requested or self.unreadable)


def decide_verdict(
    conditions: Conditions, results: Results, vocabulary: Vocabulary, summary: Summary, part: str = ""
) -> Verdict:
    """Return the verdict of a run under `conditions`. `part` describes the part of the run that `results` cover; "" if
    all of it."""
    limits = _own_limits(results, conditions.limits, summary)
    emulator = limits.reasons
    own = results.own() if emulator and results.own is not None else None
    outcomes = tuple(
        decide_condition(requested, results, vocabulary, summary.state is RunEnd.DONE, own, limits)
        for requested in conditions.requested
    )
    broken_off = "the run ended early" if summary.state is not RunEnd.DONE else ""
    part_reason = f"conditions were evaluated over {part}" if part else ""
    inconsistent = "" if summary.is_consistent else "the records of the run are inconsistent (checks)"
    reasons = [
        f"{outcome.expression}: {outcome.value or 'does not hold'}"
        for outcome in outcomes
        if outcome.result is Result.FAIL
    ]
    result = Result.FAIL if reasons else Result.PASS
    open_reasons = [
        f"{outcome.expression}: {outcome.reason}"
        for outcome in outcomes
        if outcome.result is Result.INCONCLUSIVE
    ]
    open_reasons += [
        open_reason
        for open_reason in (conditions.unreadable, broken_off, part_reason, inconsistent)
        if open_reason
    ]
    if open_reasons and (result is Result.PASS or part_reason):
        result = Result.INCONCLUSIVE
    return Verdict(result, conditions.device, tuple(reasons + open_reasons), emulator, outcomes)


def find_condition_mistakes(
    conditions: Sequence[RequestedCondition], vocabulary: Vocabulary
) -> tuple[tuple[RequestedCondition, ExpressionError], ...]:
    """Return the conditions that cannot be parsed, each with its error, for a warning before the run."""
    mistakes = []
    for condition in conditions:
        try:
            parse(condition.expression, vocabulary)
        except ExpressionError as error:
            mistakes.append((condition, error))
    return tuple(mistakes)


@dataclass(frozen=True, slots=True)
class _OwnLimits:
    """In which respects the emulator was the limit."""

    reasons: tuple[str, ...]
    weak: Weakness


def _own_limits(results: Results, limits: EmulatorLimits, summary: Summary) -> _OwnLimits:
    """Return in which respects the emulator exceeded its `limits`."""
    figures = results.figures
    late, unbounded, lossy = [], [], list(summary.overload)
    slip, busy, lost = figures.get("slip_share"), figures.get("busy_share"), figures.get("own_lost_packets")
    if slip is not None and slip > limits.slip_share:
        late.append(
            f"lateness of the emulator can explain {slip:.1%} of an iteration, more than {limits.slip_share:.1%} (slip_share)"
        )
    if busy is not None and busy > limits.busy_share:
        unbounded.append(
            f"an engine had work in {busy:.1%} of its turns, more than {limits.busy_share:.1%} (busy_share)"
        )
    if lost is not None and lost > limits.own_lost_packets:
        lossy.append(f"{lost:.0f} packets were lost in receive buffers of the agents (own_lost_packets)")
    needless = figures.get("needless_share") or 0.0
    missed = figures.get("lost_packets", 0.0) or figures.get("dut_dropped_packets", 0.0)
    if needless > limits.needless_share and not missed and not is_asked_for(summary.transport):
        late.append(
            f"{needless:.2%} of the packets were retransmitted although the receiver had them and no packet was lost: the "
            "retransmission timer was shorter than the round trip, or an agent was descheduled; raise "
            "transport.timeout_floor (needless_share)"
        )
    weak = Weakness(bool(late or unbounded), bool(lossy), tuple(unbounded + lossy))
    return _OwnLimits((*late, *unbounded, *lossy), weak)


def decide_condition(
    requested: RequestedCondition,
    results: Results,
    vocabulary: Vocabulary,
    is_done: bool,
    own: OwnShare | None = None,
    limits: _OwnLimits | None = None,
) -> ConditionOutcome:
    """Return the outcome of one condition. `is_done`: the run did not break off; `limits`: those of an emulator, if any."""
    decided = ConditionOutcome(
        requested.expression, requested.why, requested.where, Result.INCONCLUSIVE, "", "", 0, 0, (), reason=""
    )
    try:
        condition = parse(requested.expression, vocabulary)
    except ExpressionError as error:
        return replace(decided, reason=f"cannot be read: {error}")
    with np.errstate(all="ignore"):
        outcome = evaluate(condition.tree, results)
    truths = np.atleast_1d(outcome.values)
    broken = np.flatnonzero(truths == 0)
    value, limit, order = _shown_values(condition, results, vocabulary, broken)
    decided = replace(decided, value=value, limit=limit, checked=truths.size, broken=broken.size)
    if broken.size:
        rows = _rows(outcome, order, results, _value_of_row(condition, results, vocabulary))
        rows = rows or _counted_rows(condition.tree, results)
        decided = replace(decided, rows=rows)
    elif not truths.size or (truths == UNKNOWN).any():
        return replace(decided, reason=_unknown(outcome, truths))
    if limits is not None and limits.reasons and broken.size:
        with np.errstate(all="ignore"):
            certain = certain_result(condition.tree, results, own, limits.weak)
            words = bounds_words(condition, (results, vocabulary), own, limits.weak)
        if certain is None:
            limit_words = "; ".join(limits.reasons)
            reason = f"does not hold, and the emulator itself was the limit: {words}; {limit_words}"
            return replace(decided, reason=reason)
        if words:
            decided = replace(decided, value=f"{value}; {words}")
    if broken.size:
        return replace(decided, result=Result.FAIL)
    if not is_done:
        return replace(decided, reason="holds up to the time at which the run ended early")
    return replace(decided, result=Result.PASS)


def _unknown(outcome: Outcome, truths: NDArray[np.generic]) -> str:
    """Return why a condition has no result."""
    if outcome.missing:
        return f"the run has no {' and no '.join(outcome.missing)}"
    if not truths.size:
        return "the table has no such row"
    return (
        f"a value is missing in {int((truths == UNKNOWN).sum())} of {truths.size} rows"
        if outcome.rows is not None
        else ("a value is missing")
    )


def _shown_values(
    condition: Condition, results: Results, vocabulary: Vocabulary, broken: NDArray[np.int64]
) -> tuple[str, str, NDArray[np.int64]]:
    """Return value and limit in words, and the rows that broke the condition (int64), the worst first."""
    values, limits = [], []
    order = broken
    for comparison in comparisons_of(condition.tree):
        with np.errstate(all="ignore"):
            left, right = evaluate(comparison.left, results), evaluate(comparison.right, results)
        dimension = dimension_of(comparison.left, vocabulary)
        worst, places = _worst_value(comparison, left.values, right.values, broken)
        if places.size and len(comparisons_of(condition.tree)) == 1:
            order = places
        whose = _row_words(comparison, left, places, (results, vocabulary))
        values.append(f"{condition.words(comparison.left)} = {quantity(worst, dimension)}{whose}")
        if right.rows is None:
            limits.append(f"{comparison.sign} {quantity(right.values[()], dimension)}")
        else:
            limits.append(f"{comparison.sign} {condition.words(comparison.right)}")
    return "; ".join(values), "; ".join(limits), order


def _row_words(
    comparison: Binary, left: Outcome, broken: NDArray[np.int64], names: tuple[Results, Vocabulary]
) -> str:
    """Describe which of several rows the value belongs to, and the sum over all rows for counts."""
    results, vocabulary = names
    count = left.values.size
    if left.rows is None or count < 2:
        return ""
    if not broken.size:
        numbers = left.values.dtype != object
        is_equal = numbers and bool((left.values == left.values[0]).all())
        return f" in each of {count} rows" if is_equal else f" in the row nearest to the limit, of {count}"
    frame = results.frames.get(left.table)
    row = "" if frame is None else f", {frame.label(int(left.rows[broken[0]]))}"
    units = _units_of(comparison.left, vocabulary)
    sum_words = (
        f"; {np.nansum(left.values.astype(np.float64)):.0f} in all {count} rows"
        if units and units <= _COUNTS and left.table not in _OVER_TIME
        else ""
    )
    return f" in the worst of {count} rows{row}{sum_words}"


def _units_of(node: Node, vocabulary: Vocabulary) -> frozenset[str]:
    """Return the units of the columns that a value is computed from, without those in brackets."""
    match node:
        case ColumnOf():
            return frozenset({vocabulary.tables[node.table][node.column]})
        case Binary():
            return _units_of(node.left, vocabulary) | _units_of(node.right, vocabulary)
        case _:
            return frozenset()


def _worst_value(
    comparison: Binary, left: NDArray[np.generic], right: NDArray[np.generic], broken: NDArray[np.int64]
) -> tuple[object, NDArray[np.int64]]:
    """Return the value furthest beyond the limit among the rows that broke it (among all, if none did), and the broken
    rows, worst first."""
    if left.shape == ():
        return left[()], np.empty(0, np.int64)
    rows = broken if broken.size and broken.max() < left.size else np.arange(left.size)
    if not left.size or left.dtype in {object, np.int8}:
        return (left[rows[0]] if rows.size else None), (rows if broken.size else np.empty(0, np.int64))
    beyond = left.astype(np.float64) - np.broadcast_to(right, left.shape).astype(np.float64)
    distance = {"<=": beyond, "<": beyond, ">=": -beyond, ">": -beyond}.get(comparison.sign, np.abs(beyond))[
        rows
    ]
    order = rows[np.argsort(-np.nan_to_num(distance, nan=-np.inf), kind="stable")]
    return left[order[0]], (order if broken.size else np.empty(0, np.int64))


def _rows(
    outcome: Outcome, order: NDArray[np.int64], results: Results, value_of: Callable[[int], str]
) -> tuple[str, ...]:
    """Return the first rows that broke the condition, in words; `order` lists them, worst first."""
    if outcome.rows is None or outcome.table not in results.frames:
        return ()
    frame = results.frames[outcome.table]
    return tuple(
        f"{outcome.table}: {frame.label(int(outcome.rows[place]))}{value_of(int(place))}"
        for place in order[:ROWS_SHOWN]
    )


def _counted_rows(node: Node, results: Results) -> tuple[str, ...]:
    """Return the first rows of tables that a condition counts, in words."""
    match node:
        case Call(function="count", argument=ColumnOf() as selection) if selection.table in results.frames:
            outcome = evaluate(selection, results)
            return _rows(outcome, np.arange(outcome.values.size), results, lambda _: "")
        case Binary():
            return _counted_rows(node.left, results) + _counted_rows(node.right, results)
        case Unary():
            return _counted_rows(node.operand, results)
        case _:
            return ()


def _value_of_row(condition: Condition, results: Results, vocabulary: Vocabulary) -> Callable[[int], str]:
    """Return a function from a row to its value in words; it returns "" unless the condition is a single comparison of a
    column."""
    comparisons = comparisons_of(condition.tree)
    if len(comparisons) != 1:
        return lambda _: ""
    with np.errstate(all="ignore"):
        left = evaluate(comparisons[0].left, results).values
    if left.shape == ():
        return lambda _: ""
    dimension = dimension_of(comparisons[0].left, vocabulary)
    return lambda place: f" (= {quantity(left[place], dimension)})"
