"""Evaluates a condition between bounds: its result however the emulator's weakness acted within them.

Decides three values like `evaluation`: true and false are certain; unknown means that the result depends on where the
values lie between their bounds. Interval arithmetic treats each mention of a figure independently, so bounds may be wider
than necessary, never narrower. Pure.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.verdict.aggregate_bounds import aggregate_bounds
from etloop.results.verdict.evaluation import (
    UNKNOWN,
    Results,
    absent,
    aggregate,
    compare,
    evaluate,
    join,
    junction,
)
from etloop.results.verdict.own_share import column_bounds, figure_bounds
from etloop.results.verdict.terms import (
    COLUMN_UNITS,
    COMPARISONS,
    JUNCTIONS,
    Binary,
    Call,
    ColumnOf,
    Dimension,
    Name,
    Node,
    Unary,
)
from etloop.results.verdict.weakness import OwnShare, Weakness

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_SIGNS: Final[dict[str, Callable[..., NDArray[np.float64]]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": np.divide,
}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True, eq=False)
class Bounded:
    """Bounds of a part of a condition. Both ends of a truth or a text are equal; a truth that is not certain is `UNKNOWN`."""

    low: NDArray[np.generic]
    high: NDArray[np.generic]
    chosen: NDArray[np.int8] | None = None
    """For a column, per row of `low`: whether the brackets certainly select the row (int8); None: they select all rows."""

    is_exact: bool = False
    """Whether the emulator's weakness does not affect it."""


def bound(node: Node, results: Results, own: OwnShare | None, weak: Weakness) -> Bounded:
    """Return the bounds of a part of a condition without the emulator's weakness, given the known share `own` of it."""
    return _Bounding(results, own, weak).of(node, None)


class _Bounding:
    def __init__(self, results: Results, own: OwnShare | None, weak: Weakness) -> None:
        self._results = results
        self._own = own
        self._weak = weak

    def of(self, node: Node, table: str | None) -> Bounded:
        """Return the bounds of `node`; `table` names the table between whose brackets it is, None outside brackets."""
        match node:
            case Name():
                return self._name(node, table)
            case ColumnOf():
                return self._column(node)
            case Call():
                return self._call(node, table)
            case Unary():
                return _negate(node.sign, self.of(node.operand, table))
            case Binary():
                return _combine(node.sign, self.of(node.left, table), self.of(node.right, table))
            case _:
                return _exact_bounds(evaluate(node, self._results).values)

    def _name(self, node: Name, table: str | None) -> Bounded:
        frame = self._results.frames.get(table) if table is not None else None
        if frame is not None and table is not None and node.name in frame.columns:
            return self._of_column(table, node.name)
        measured = evaluate(node, self._results).values
        if measured.dtype != np.float64 or np.isnan(measured):
            return _exact_bounds(measured)
        value = self._results.figures[node.name]
        assert value is not None
        low, high = figure_bounds(node.name, value, self._own, self._weak)
        if low == high:
            return _exact_bounds(measured)
        factor = COLUMN_UNITS.get(self._results.figure_units.get(node.name, ""), (Dimension.PURE, 1.0))[1]
        return Bounded(np.array(low * factor), np.array(high * factor))

    def _of_column(self, table: str, column: str) -> Bounded:
        frame = self._results.frames[table]
        values = frame.columns[column]
        if values.dtype in {np.dtype(object), np.dtype(np.int8)}:
            return _exact_bounds(values)
        measured = values.astype(np.float64)
        factor = COLUMN_UNITS.get(frame.units[column], (Dimension.PURE, 1.0))[1]
        low, high = column_bounds(frame, (table, column), measured, self._own, self._weak)
        if low is high:
            return _exact_bounds(measured * factor)
        is_absent = np.isnan(measured)
        return Bounded(np.where(is_absent, np.nan, low * factor), np.where(is_absent, np.nan, high * factor))

    def _column(self, node: ColumnOf) -> Bounded:
        frame = self._results.frames.get(node.table)
        if frame is None or (node.column and node.column not in frame.columns):
            return _exact_bounds(np.empty(0))
        if node.column:
            bounds = self._of_column(node.table, node.column)
        else:
            bounds = _exact_bounds(np.ones(frame.rows, np.int8))
        if node.where is None:
            return bounds
        condition = self.of(node.where, node.table)
        selected = np.broadcast_to(condition.low, (frame.rows,)).astype(np.int8)
        if condition.is_exact:
            rows = selected == 1
            return (
                _exact_bounds(bounds.low[rows])
                if bounds.is_exact
                else Bounded(bounds.low[rows], bounds.high[rows])
            )
        rows = selected != 0
        return Bounded(bounds.low[rows], bounds.high[rows], (selected[rows] == 1).astype(np.int8))

    def _call(self, node: Call, table: str | None) -> Bounded:
        argument = self.of(node.argument, table)
        if argument.is_exact and argument.low.dtype != np.int8:
            if node.function == "count":
                return _exact_bounds(
                    evaluate(node, self._results).values
                    if table is None
                    else np.array(float(argument.low.size))
                )
            return _exact_bounds(np.array(aggregate(node.function, argument.low.astype(np.float64))))
        is_selected = np.ones(argument.low.shape, bool) if argument.chosen is None else argument.chosen == 1
        if node.function in {"all", "any"}:
            truths = argument.low.astype(np.int8)
            decided = 0 if node.function == "all" else 1
            # A row that is possibly not selected cannot decide the result.
            certain_truths = np.where(~is_selected & (truths == decided), UNKNOWN, truths).astype(np.int8)
            truth = join(certain_truths, node.function == "all")
            return Bounded(truth, truth, is_exact=argument.is_exact)
        if node.function == "count":
            if table is None and np.isnan(evaluate(node, self._results).values):
                return _exact_bounds(np.array(np.nan))
            is_truth = argument.low.dtype == np.int8
            hits = argument.low == 1 if is_truth else np.ones(argument.low.shape, bool)
            possible_hits = argument.low != 0 if is_truth else hits
            least, most = float((hits & is_selected).sum()), float(possible_hits.sum())
            return Bounded(np.array(least), np.array(most), is_exact=least == most)
        if not is_selected.all():
            return Bounded(np.array(-np.inf), np.array(np.inf))
        low, high = aggregate_bounds(
            node.function, argument.low.astype(np.float64), argument.high.astype(np.float64)
        )
        return Bounded(np.array(low), np.array(high))


def _exact_bounds(values: NDArray[np.generic]) -> Bounded:
    """Return bounds that are equal to the values."""
    return Bounded(values, values, is_exact=True)


def _negate(sign: str, operand: Bounded) -> Bounded:
    """Return the bounds of `not` or of the negated value."""
    if sign == "not":
        truths = operand.low.astype(np.int8)
        values = np.where(truths == UNKNOWN, UNKNOWN, 1 - truths).astype(np.int8)
        return Bounded(values, values, operand.chosen, operand.is_exact)
    low, high = -operand.high.astype(np.float64), -operand.low.astype(np.float64)
    return _exact_bounds(low) if operand.is_exact else Bounded(low, high, operand.chosen)


def _combine(sign: str, left: Bounded, right: Bounded) -> Bounded:
    """Return the bounds of a junction, a comparison or an arithmetic operation."""
    chosen = left.chosen if left.chosen is not None else right.chosen
    exact = left.is_exact and right.is_exact
    if sign in JUNCTIONS:
        truths = junction(sign, left.low, right.low)
        return Bounded(truths, truths, chosen, exact)
    if sign in COMPARISONS:
        truths = _compare_bounds(sign, left, right)
        return Bounded(truths, truths, chosen, exact)
    with np.errstate(all="ignore"):
        low, high = _arithmetic_bounds(sign, left, right)
    return _exact_bounds(low) if exact else Bounded(low, high, chosen)


def _compare_bounds(sign: str, left: Bounded, right: Bounded) -> NDArray[np.int8]:
    """Return the truths (int8) of a comparison of bounded values; `UNKNOWN` if both results are possible within the bounds."""
    if left.is_exact and right.is_exact:
        return compare(sign, left.low, right.low)
    if sign in {"==", "!="}:
        low, high = compare("<", left.high, right.low), compare(">", left.low, right.high)
        differs = (low == 1) | (high == 1)
        is_equal = (compare("==", left.low, right.high) == 1) & (compare("==", left.high, right.low) == 1)
        is_absent = absent(left.low) | absent(right.low)
        truths = np.where(is_absent, UNKNOWN, np.where(differs, 0, np.where(is_equal, 1, UNKNOWN)))
        if sign == "!=":
            truths = np.where(truths == UNKNOWN, UNKNOWN, 1 - truths)
        return truths.astype(np.int8)
    if sign in {">", ">="}:
        left, right, sign = right, left, _MIRRORED[sign]
    at_worst, at_best = compare(sign, left.high, right.low), compare(sign, left.low, right.high)
    return np.where(at_worst == 1, 1, np.where(at_best == 0, 0, UNKNOWN)).astype(np.int8)


def _arithmetic_bounds(
    sign: str, left: Bounded, right: Bounded
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the bounds (float64) of a sum, difference, product or quotient; infinite if the divisor may be zero, NaN if
    a value is absent."""
    ends = [
        np.asarray(_SIGNS[sign](left_end.astype(np.float64), right_end.astype(np.float64)))
        for left_end in (left.low, left.high)
        for right_end in (right.low, right.high)
    ]
    is_absent = np.isnan(left.low.astype(np.float64)) | np.isnan(right.low.astype(np.float64))
    # Zero times an unbounded value is zero.
    ends = [np.where(np.isnan(end) & ~is_absent, 0.0 if sign == "*" else np.nan, end) for end in ends]
    low, high = np.minimum.reduce(ends), np.maximum.reduce(ends)
    if sign == "/":
        bottom, top = right.low.astype(np.float64), right.high.astype(np.float64)
        is_zero = (bottom == 0) & (top == 0)
        open_ended = ~is_zero & (bottom <= 0) & (top >= 0)
        low, high = np.where(open_ended, -np.inf, low), np.where(open_ended, np.inf, high)
        is_absent = is_absent | is_zero
    low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
    return np.where(is_absent, np.nan, low), np.where(is_absent, np.nan, high)
