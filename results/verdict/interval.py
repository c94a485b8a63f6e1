"""Works a condition out between bounds: what it comes to whatever our own weakness did within them.

Decides three values like `evaluation`: true and false are certain, unknown means that it depends on where in their bounds the
values lie. Interval arithmetic treats each mention of a figure on its own, so bounds may be wider than they need be, never
narrower. Pure.
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
    compared,
    evaluate,
    joined,
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
    """What a part lies between. Of a truth or a text both ends are the same; a truth that depends is `UNKNOWN`."""

    low: NDArray[np.generic]
    high: NDArray[np.generic]
    chosen: NDArray[np.int8] | None = None
    """Of a column, per row of `low` whether it surely is one of those that the brackets choose; None: all are."""

    is_exact: bool = False
    """Whether our weakness does not touch it."""


def bounded(node: Node, results: Results, own: OwnShare | None, weak: Weakness) -> Bounded:
    """Return between what a part of a condition lies without our weakness, of which `own` is known."""
    return _Bounding(results, own, weak).of(node, None)


class _Bounding:
    def __init__(self, results: Results, own: OwnShare | None, weak: Weakness) -> None:
        self._results = results
        self._own = own
        self._weak = weak

    def of(self, node: Node, table: str | None) -> Bounded:
        """Return the bounds of `node`, which stands between the brackets of `table`, or outside of any."""
        match node:
            case Name():
                return self._name(node, table)
            case ColumnOf():
                return self._column(node)
            case Call():
                return self._call(node, table)
            case Unary():
                return _negated(node.sign, self.of(node.operand, table))
            case Binary():
                return _combined(node.sign, self.of(node.left, table), self.of(node.right, table))
            case _:
                return _exact(evaluate(node, self._results).values)

    def _name(self, node: Name, table: str | None) -> Bounded:
        frame = self._results.frames.get(table) if table is not None else None
        if frame is not None and table is not None and node.name in frame.columns:
            return self._of_column(table, node.name)
        measured = evaluate(node, self._results).values
        if measured.dtype != np.float64 or np.isnan(measured):
            return _exact(measured)
        value = self._results.figures[node.name]
        assert value is not None
        low, high = figure_bounds(node.name, value, self._own, self._weak)
        if low == high:
            return _exact(measured)
        factor = COLUMN_UNITS.get(self._results.figure_units.get(node.name, ""), (Dimension.PURE, 1.0))[1]
        return Bounded(np.array(low * factor), np.array(high * factor))

    def _of_column(self, table: str, column: str) -> Bounded:
        frame = self._results.frames[table]
        values = frame.columns[column]
        if values.dtype in {np.dtype(object), np.dtype(np.int8)}:
            return _exact(values)
        measured = values.astype(np.float64)
        factor = COLUMN_UNITS.get(frame.units[column], (Dimension.PURE, 1.0))[1]
        low, high = column_bounds(frame, (table, column), measured, self._own, self._weak)
        if low is high:
            return _exact(measured * factor)
        gone = np.isnan(measured)
        return Bounded(np.where(gone, np.nan, low * factor), np.where(gone, np.nan, high * factor))

    def _column(self, node: ColumnOf) -> Bounded:
        frame = self._results.frames.get(node.table)
        if frame is None or node.column not in frame.columns:
            return _exact(np.empty(0))
        found = self._of_column(node.table, node.column)
        if node.where is None:
            return found
        where = self.of(node.where, node.table)
        chosen = np.broadcast_to(where.low, (frame.rows,)).astype(np.int8)
        if where.is_exact:
            rows = chosen == 1
            return _exact(found.low[rows]) if found.is_exact else Bounded(found.low[rows], found.high[rows])
        rows = chosen != 0
        return Bounded(found.low[rows], found.high[rows], (chosen[rows] == 1).astype(np.int8))

    def _call(self, node: Call, table: str | None) -> Bounded:
        argument = self.of(node.argument, table)
        if argument.is_exact and argument.low.dtype != np.int8:
            if node.function == "count":
                return _exact(
                    evaluate(node, self._results).values
                    if table is None
                    else np.array(float(argument.low.size))
                )
            return _exact(np.array(aggregate(node.function, argument.low.astype(np.float64))))
        sure = np.ones(argument.low.shape, bool) if argument.chosen is None else argument.chosen == 1
        if node.function in {"all", "any"}:
            truths = argument.low.astype(np.int8)
            decided = 0 if node.function == "all" else 1
            # A row that may not be one of those chosen cannot decide by itself.
            doubted = np.where(~sure & (truths == decided), UNKNOWN, truths).astype(np.int8)
            truth = joined(doubted, node.function == "all")
            return Bounded(truth, truth, is_exact=argument.is_exact)
        if node.function == "count":
            if table is None and np.isnan(evaluate(node, self._results).values):
                return _exact(np.array(np.nan))
            is_truth = argument.low.dtype == np.int8
            hits = argument.low == 1 if is_truth else np.ones(argument.low.shape, bool)
            maybe = argument.low != 0 if is_truth else hits
            return Bounded(np.array(float((hits & sure).sum())), np.array(float(maybe.sum())))
        if not sure.all():
            return Bounded(np.array(-np.inf), np.array(np.inf))
        low, high = aggregate_bounds(
            node.function, argument.low.astype(np.float64), argument.high.astype(np.float64)
        )
        return Bounded(np.array(low), np.array(high))


def _exact(values: NDArray[np.generic]) -> Bounded:
    return Bounded(values, values, is_exact=True)


def _negated(sign: str, operand: Bounded) -> Bounded:
    if sign == "not":
        truths = operand.low.astype(np.int8)
        values = np.where(truths == UNKNOWN, UNKNOWN, 1 - truths).astype(np.int8)
        return Bounded(values, values, operand.chosen, operand.is_exact)
    low, high = -operand.high.astype(np.float64), -operand.low.astype(np.float64)
    return _exact(low) if operand.is_exact else Bounded(low, high, operand.chosen)


def _combined(sign: str, left: Bounded, right: Bounded) -> Bounded:
    chosen = left.chosen if left.chosen is not None else right.chosen
    exact = left.is_exact and right.is_exact
    if sign in JUNCTIONS:
        truths = junction(sign, left.low, right.low)
        return Bounded(truths, truths, chosen, exact)
    if sign in COMPARISONS:
        truths = _compared_bounds(sign, left, right)
        return Bounded(truths, truths, chosen, exact)
    with np.errstate(all="ignore"):
        low, high = _arithmetic_bounds(sign, left, right)
    return _exact(low) if exact else Bounded(low, high, chosen)


def _compared_bounds(sign: str, left: Bounded, right: Bounded) -> NDArray[np.int8]:
    if left.is_exact and right.is_exact:
        return compared(sign, left.low, right.low)
    if sign in {"==", "!="}:
        low, high = compared("<", left.high, right.low), compared(">", left.low, right.high)
        apart = (low == 1) | (high == 1)
        same = (compared("==", left.low, right.high) == 1) & (compared("==", left.high, right.low) == 1)
        gone = absent(left.low) | absent(right.low)
        truths = np.where(gone, UNKNOWN, np.where(apart, 0, np.where(same, 1, UNKNOWN)))
        if sign == "!=":
            truths = np.where(truths == UNKNOWN, UNKNOWN, 1 - truths)
        return truths.astype(np.int8)
    if sign in {">", ">="}:
        left, right, sign = right, left, _MIRRORED[sign]
    at_worst, at_best = compared(sign, left.high, right.low), compared(sign, left.low, right.high)
    return np.where(at_worst == 1, 1, np.where(at_best == 0, 0, UNKNOWN)).astype(np.int8)


def _arithmetic_bounds(
    sign: str, left: Bounded, right: Bounded
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    ends = [
        np.asarray(_SIGNS[sign](one.astype(np.float64), other.astype(np.float64)))
        for one in (left.low, left.high)
        for other in (right.low, right.high)
    ]
    gone = np.isnan(left.low.astype(np.float64)) | np.isnan(right.low.astype(np.float64))
    # Zero times anything is zero, however little is known of it.
    ends = [np.where(np.isnan(end) & ~gone, 0.0 if sign == "*" else np.nan, end) for end in ends]
    low, high = np.minimum.reduce(ends), np.maximum.reduce(ends)
    if sign == "/":
        bottom, top = right.low.astype(np.float64), right.high.astype(np.float64)
        nothing = (bottom == 0) & (top == 0)
        open_ended = ~nothing & (bottom <= 0) & (top >= 0)
        low, high = np.where(open_ended, -np.inf, low), np.where(open_ended, np.inf, high)
        gone = gone | nothing
    low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
    return np.where(gone, np.nan, low), np.where(gone, np.nan, high)
