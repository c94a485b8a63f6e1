"""What expressions of a verdict are made of: dimensions and units, the tree, and what is wrong with a text.

Decides which units there are and how sizes of one expression are bounded. `expression` reads a text into the tree and holds
it against the names that exist; `expression_value` works it out.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass


class Dimension(StrEnum):
    """What a number is of; only alike numbers are compared or added."""

    PURE = "a plain number"
    TIME = "a time"
    BYTES = "bytes"
    RATE = "a rate"
    TEXT = "text"
    TRUTH = "true or false"


UNITS: Final[dict[str, tuple[Dimension, float]]] = {
    "%": (Dimension.PURE, 1e-2),
    "ppm": (Dimension.PURE, 1e-6),
    "ns": (Dimension.TIME, 1.0),
    "us": (Dimension.TIME, 1e3),
    "ms": (Dimension.TIME, 1e6),
    "s": (Dimension.TIME, 1e9),
    "min": (Dimension.TIME, 60e9),
    "B": (Dimension.BYTES, 1.0),
    "kB": (Dimension.BYTES, 1e3),
    "MB": (Dimension.BYTES, 1e6),
    "GB": (Dimension.BYTES, 1e9),
    "KiB": (Dimension.BYTES, float(1 << 10)),
    "MiB": (Dimension.BYTES, float(1 << 20)),
    "GiB": (Dimension.BYTES, float(1 << 30)),
    "bps": (Dimension.RATE, 1.0),
    "kbps": (Dimension.RATE, 1e3),
    "Mbps": (Dimension.RATE, 1e6),
    "Gbps": (Dimension.RATE, 1e9),
    "Tbps": (Dimension.RATE, 1e12),
    "B/s": (Dimension.RATE, 8.0),
    "kB/s": (Dimension.RATE, 8e3),
    "MB/s": (Dimension.RATE, 8e6),
    "GB/s": (Dimension.RATE, 8e9),
}
"""Units that a number of an expression may have, and what one of them is in ns, bytes or bit/s."""

COLUMN_UNITS: Final[dict[str, tuple[Dimension, float]]] = {
    "ns": (Dimension.TIME, 1.0),
    "bytes": (Dimension.BYTES, 1.0),
    "bytes/s": (Dimension.RATE, 8.0),
    "bit/s": (Dimension.RATE, 1.0),
    "name": (Dimension.TEXT, 1.0),
    "flag": (Dimension.TRUTH, 1.0),
}
"""Units of figures and columns; all others are counts, which are plain numbers."""

EXAMPLES: Final = {
    Dimension.PURE: "1.05 or 5%",
    Dimension.TIME: "20us",
    Dimension.BYTES: "64KiB",
    Dimension.RATE: "90Gbps",
    Dimension.TEXT: '"all_reduce"',
    Dimension.TRUTH: "true",
}

LONGEST_TEXT: Final = 1000
DEEPEST: Final = 32
"""Parentheses, calls and negations inside each other."""

FUNCTIONS: Final = (
    *("min", "max", "sum", "mean", "count", "cv", "jain", "max_to_mean"),
    *("p50", "p90", "p95", "p99", "p999", "all", "any"),
)
"""Of a column, over its rows."""
OF_TRUTH: Final = ("all", "any", "count")


class ExpressionError(ValueError):
    """A text that is no condition: where in it, what is wrong, and what to do."""

    def __init__(self, at: int, what: str, remedy: str) -> None:
        super().__init__(f"column {at + 1}: {what}; {remedy}")
        self.at = at
        self.what = what
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Span:
    """Where a part of an expression stands in its text. Parts that say the same are equal wherever they stand."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Number:
    """A number in ns, bytes, bit/s or as it is."""

    span: Span = field(compare=False)
    number: float
    dimension: Dimension


@dataclass(frozen=True, slots=True)
class Text:
    """A quoted text."""

    span: Span = field(compare=False)
    text: str


@dataclass(frozen=True, slots=True)
class Truth:
    """`true` or `false`."""

    span: Span = field(compare=False)
    holds: bool


@dataclass(frozen=True, slots=True)
class Name:
    """A figure of the run; between brackets a column of the table before them."""

    span: Span = field(compare=False)
    name: str


@dataclass(frozen=True, slots=True)
class ColumnOf:
    """A column of the rows of a table for which `where` holds."""

    span: Span = field(compare=False)
    table: str
    where: Node | None
    column: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function over the rows of a column."""

    span: Span = field(compare=False)
    function: str
    argument: Node


@dataclass(frozen=True, slots=True)
class Unary:
    """`not` or a minus."""

    span: Span = field(compare=False)
    sign: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic, a comparison, `and` or `or`."""

    span: Span = field(compare=False)
    sign: str
    left: Node
    right: Node


Node = Number | Text | Truth | Name | ColumnOf | Call | Unary | Binary

COMPARISONS: Final = ("<=", ">=", "==", "!=", "<", ">")
JUNCTIONS: Final = ("and", "or")


def comparisons_of(node: Node) -> tuple[Binary, ...]:
    """The comparisons that a condition is joined of, from left to right."""
    match node:
        case Binary() if node.sign in COMPARISONS:
            return (node,)
        case Binary() if node.sign in JUNCTIONS:
            return comparisons_of(node.left) + comparisons_of(node.right)
        case Unary() if node.sign == "not":
            return comparisons_of(node.operand)
        case Call():
            return comparisons_of(node.argument)
        case _:
            return ()


def names_of(node: Node | None) -> frozenset[str]:
    """The figures, and `table.column` of the columns, that a tree reads."""
    match node:
        case Name():
            return frozenset({node.name})
        case ColumnOf():
            inside = frozenset(
                f"{node.table}.{name}" if "." not in name else name for name in names_of(node.where)
            )
            return inside | {f"{node.table}.{node.column}"}
        case Call():
            return names_of(node.argument)
        case Unary():
            return names_of(node.operand)
        case Binary():
            return names_of(node.left) | names_of(node.right)
        case _:
            return frozenset()
