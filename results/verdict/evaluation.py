"""Evaluates a condition over the figures and tables of a run, in three values: true, false, unknown.

Decides what is unknown: a figure or cell that does not exist, a division by zero, a condition over no rows at all.
Unknown combines as in Kleene's logic: `false and unknown` is false, `true and unknown` is unknown.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
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
    Number,
    Text,
    Truth,
    Unary,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.verdict.weakness import OwnShare

_PLAIN: Final[dict[str, Callable[..., np.float64]]] = {
    "min": np.min,
    "max": np.max,
    "sum": np.sum,
    "mean": np.mean,
}
SHARES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
"""Percentiles by the name of their function."""
UNKNOWN: Final = -1
"""Truth values are int8: 1 true, 0 false, -1 unknown."""

_COMPARE: Final[dict[str, Callable[..., NDArray[np.bool_]]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A table as conditions see it: numbers as float64 with NaN for absent values, texts as objects with None, truths as
    int8."""

    columns: Mapping[str, NDArray[np.generic]]
    units: Mapping[str, str]
    rows: int
    label: Callable[[int], str]
    """Returns the label of a row, for readers."""


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """Everything that conditions can refer to. A figure that does not exist is None; an absent table has no entry."""

    figures: Mapping[str, float | None]
    figure_units: Mapping[str, str]
    frames: Mapping[str, Frame]
    words: Mapping[str, str] = field(default_factory=dict)
    """Figures whose value is a word, with the unit `name`."""
    own: Callable[[], OwnShare] | None = None
    """Computes the upper bounds of the emulator's own share in the figures; None: not known."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Value of a part of a condition. A single value has shape (), a column one value for each row of `rows`."""

    values: NDArray[np.generic]
    table: str = ""
    rows: NDArray[np.int64] | None = None
    missing: tuple[str, ...] = ()
    """Figures and tables that do not exist."""


def evaluate(node: Node, results: Results) -> Outcome:
    """Return the value of a tree that `parser.parse` checked against the vocabulary."""
    return _Evaluation(results).of(node, None)


class _Evaluation:
    def __init__(self, results: Results) -> None:
        self._results = results

    def of(self, node: Node, inside: Outcome | None) -> Outcome:
        """Return the value of `node`; `inside` holds the table and rows if `node` is inside brackets."""
        match node:
            case Number():
                return Outcome(np.array(node.number))
            case Text():
                return Outcome(np.array(node.text, object))
            case Truth():
                return Outcome(np.array(int(node.holds), np.int8))
            case Name():
                return self._name(node.name, inside)
            case ColumnOf():
                return self._column(node)
            case Call():
                return self._call(node, inside)
            case Unary():
                return self._unary(node, inside)
            case Binary():
                return self._binary(node, inside)

    def _name(self, name: str, inside: Outcome | None) -> Outcome:
        if inside is not None:
            frame = self._results.frames.get(inside.table)
            if frame is None:
                return inside
            if name in frame.columns:
                return Outcome(_scale(frame, name), inside.table, np.arange(frame.rows))
        if name in self._results.words:
            return Outcome(np.array(self._results.words[name], object))
        figure = self._results.figures.get(name)
        if figure is None:
            return Outcome(np.array(np.nan), missing=(name,))
        unit = self._results.figure_units.get(name, "")
        if unit == "flag":
            return Outcome(np.array(int(figure), np.int8))
        return Outcome(np.array(float(figure) * COLUMN_UNITS.get(unit, (Dimension.PURE, 1.0))[1]))

    def _column(self, node: ColumnOf) -> Outcome:
        frame = self._results.frames.get(node.table)
        if frame is None or (node.column and node.column not in frame.columns):
            missing_name = node.table if frame is None else f"{node.table}.{node.column}"
            return Outcome(np.empty(0), node.table, np.empty(0, np.int64), (missing_name,))
        rows = np.arange(frame.rows)
        missing: tuple[str, ...] = ()
        if node.where is not None:
            selection = self.of(node.where, Outcome(np.empty(0), node.table, rows))
            rows = rows[np.broadcast_to(selection.values, rows.shape) == 1]
            missing = selection.missing
        values = _scale(frame, node.column)[rows] if node.column else np.ones(len(rows), np.int8)
        return Outcome(values, node.table, rows, missing)

    def _call(self, node: Call, inside: Outcome | None) -> Outcome:
        argument = self.of(node.argument, inside)
        if node.function in {"all", "any"}:
            return Outcome(join(argument.values, node.function == "all"), missing=argument.missing)
        if node.function == "count":
            is_truth = argument.values.dtype == np.int8
            number = float(np.count_nonzero(argument.values == 1) if is_truth else argument.values.size)
            is_absent = bool(argument.missing)
            return Outcome(np.array(np.nan if is_absent else number), missing=argument.missing)
        numbers = argument.values.astype(np.float64)
        return Outcome(np.array(aggregate(node.function, numbers)), missing=argument.missing)

    def _unary(self, node: Unary, inside: Outcome | None) -> Outcome:
        operand = self.of(node.operand, inside)
        if node.sign == "not":
            values: NDArray[np.generic] = np.where(
                operand.values == UNKNOWN, UNKNOWN, 1 - operand.values.astype(np.int8)
            ).astype(np.int8)
        else:
            values = -operand.values.astype(np.float64)
        return Outcome(values, operand.table, operand.rows, operand.missing)

    def _binary(self, node: Binary, inside: Outcome | None) -> Outcome:
        left, right = self.of(node.left, inside), self.of(node.right, inside)
        column = left if left.rows is not None else right
        missing = tuple(dict.fromkeys(left.missing + right.missing))
        if node.sign in COMPARISONS:
            values: NDArray[np.generic] = compare(node.sign, left.values, right.values)
        elif node.sign in JUNCTIONS:
            values = junction(node.sign, left.values, right.values)
        else:
            values = _arithmetic(node.sign, left.values, right.values)
        return Outcome(values, column.table, column.rows, missing)


def _scale(frame: Frame, name: str) -> NDArray[np.generic]:
    values = frame.columns[name]
    factor = COLUMN_UNITS.get(frame.units[name], (Dimension.PURE, 1.0))[1]
    return values * factor if factor != 1.0 else values  # type: ignore[operator]


def aggregate(function: str, numbers: NDArray[np.float64]) -> float:
    """Return `function` over rows (float64); NaN without rows, or if a value is NaN."""
    if not numbers.size or np.isnan(numbers).any():
        return float("nan")
    if function in _PLAIN:
        return float(_PLAIN[function](numbers))
    mean = float(numbers.mean())
    match function:
        case "cv":
            return float(numbers.std(ddof=1)) / mean if mean and numbers.size > 1 else float("nan")
        case "jain":
            squares = float((numbers**2).sum())
            return float(numbers.sum()) ** 2 / (numbers.size * squares) if squares else float("nan")
        case "max_to_mean":
            return float(numbers.max()) / mean if mean else float("nan")
        case _:
            place = int(np.ceil(round(numbers.size * SHARES[function], 9))) - 1
            return float(np.sort(numbers)[max(place, 0)])


def absent(values: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Return where a value is absent, as bool of the same shape."""
    if values.dtype == object:
        return np.array([value is None for value in values.reshape(-1)], bool).reshape(values.shape)
    if values.dtype == np.int8:
        return np.asarray(values == UNKNOWN)
    return np.isnan(values.astype(np.float64))


def compare(sign: str, left: NDArray[np.generic], right: NDArray[np.generic]) -> NDArray[np.int8]:
    """Return the truth of a comparison, value by value, as int8 (1, 0, `UNKNOWN`)."""
    unknown = absent(left) | absent(right)
    if object in {left.dtype, right.dtype}:
        # An absent text is represented by the number NaN, which is unlike every text; the result is unknown anyway.
        holds = np.asarray(left == right, bool) if sign == "==" else np.asarray(left != right, bool)
    else:
        with np.errstate(invalid="ignore"):
            holds = np.asarray(_COMPARE[sign](left, right))
    return np.where(unknown, UNKNOWN, holds.astype(np.int8)).astype(np.int8)


def junction(sign: str, left: NDArray[np.generic], right: NDArray[np.generic]) -> NDArray[np.int8]:
    """Return `left and right` or `left or right` of truths (int8), value by value."""
    decided = 0 if sign == "and" else 1
    certain = (left == decided) | (right == decided)
    unknown = (left == UNKNOWN) | (right == UNKNOWN)
    return np.where(certain, decided, np.where(unknown, UNKNOWN, 1 - decided)).astype(np.int8)


def join(truths: NDArray[np.generic], of_all: bool) -> NDArray[np.int8]:
    """Return one truth (int8) for the truths of rows: whether all of them hold, or any. Unknown without rows."""
    decided = 0 if of_all else 1
    if (truths == decided).any():
        return np.array(decided, np.int8)
    if not truths.size or (truths == UNKNOWN).any():
        return np.array(UNKNOWN, np.int8)
    return np.array(1 - decided, np.int8)


def _arithmetic(sign: str, left: NDArray[np.generic], right: NDArray[np.generic]) -> NDArray[np.float64]:
    left_numbers, right_numbers = left.astype(np.float64), right.astype(np.float64)
    if sign in "+-*":
        exact: NDArray[np.float64] = {"+": operator.add, "-": operator.sub, "*": operator.mul}[sign](
            left_numbers, right_numbers
        )
        return np.asarray(exact)
    shape = np.broadcast_shapes(left_numbers.shape, right_numbers.shape)
    quotient = np.full(shape, np.nan)
    np.divide(left_numbers, right_numbers, out=quotient, where=np.broadcast_to(right_numbers != 0, shape))
    return quotient
