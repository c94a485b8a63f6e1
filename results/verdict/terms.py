"""Parts of a verdict's expressions: dimensions and units, the tree, and the error for a text that cannot be parsed.

Decides which units exist and the size limits of an expression. `parser` parses a text into the tree and checks it against
the existing names; `evaluation` evaluates it.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass


class Dimension(StrEnum):
    """Dimension of a value; only values of the same dimension are compared or added."""

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
"""Units that a number in an expression may have, each with its factor to ns, bytes or bit/s."""

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
"""Greatest nesting depth of parentheses, calls and negations."""

FUNCTIONS: Final = (
    *("min", "max", "sum", "mean", "count", "cv", "jain", "max_to_mean"),
    *("p50", "p90", "p95", "p99", "p999", "all", "any"),
)
"""Functions of a column, over its rows."""
OF_TRUTH: Final = ("all", "any", "count")


class ExpressionError(ValueError):
    """A text that is not a valid condition: the position, the mistake, and the remedy."""

    def __init__(self, at: int, problem: str, remedy: str) -> None:
        super().__init__(f"column {at + 1}: {problem}; {remedy}")
        self.at = at
        self.what = problem
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Span:
    """Position of a part of an expression in its text, from `first` up to but not including `end`. Nodes are compared
    without it."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Number:
    """A number in ns, bytes, bit/s, or without a unit."""

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
    """A figure of the run; between brackets, a column of the table in front of them."""

    span: Span = field(compare=False)
    name: str


@dataclass(frozen=True, slots=True)
class ColumnOf:
    """A column of the rows of a table for which `where` holds."""

    span: Span = field(compare=False)
    table: str
    where: Node | None
    column: str
    """"": the rows themselves, which only `count` accepts."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function over the rows of a column."""

    span: Span = field(compare=False)
    function: str
    argument: Node


@dataclass(frozen=True, slots=True)
class Unary:
    """`not`, or a minus sign."""

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
    """Return the comparisons that a condition consists of, from left to right."""
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
    """Return the names that a tree reads: figures, and `table.column` for columns."""
    match node:
        case Name():
            return frozenset({node.name})
        case ColumnOf():
            inside = frozenset(
                f"{node.table}.{name}" if "." not in name else name for name in names_of(node.where)
            )
            return inside | {f"{node.table}.{node.column}" if node.column else node.table}
        case Call():
            return names_of(node.argument)
        case Unary():
            return names_of(node.operand)
        case Binary():
            return names_of(node.left) | names_of(node.right)
        case _:
            return frozenset()
