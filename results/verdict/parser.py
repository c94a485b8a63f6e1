"""Reads a condition on the results of a run: `lost_share <= 10ppm`, `switches[cos == 3].queue_dropped_packets == 0`.

Decides the grammar and the mistakes that are refused before a run: unknown names, numbers without their unit, comparisons of
unlike things, columns of different rows. Only the resulting tree is evaluated, never the text. docs/verdict.md describes the
language.

    condition  := conjunct ("or" conjunct)*            sum    := product (("+" | "-") product)*
    conjunct   := negation ("and" negation)*           product:= signed (("*" | "/") signed)*
    negation   := "not" negation | comparison          signed := "-" signed | atom
    comparison := sum [("<=" | ">=" | "==" | "!=" | "<" | ">") sum]
    atom       := number[unit] | "text" | true | false | figure | table["[" condition "]"].column
                | function "(" condition ")" | "count(" table["[" condition "]"] ")" | "(" condition ")"
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.verdict.terms import (
    COLUMN_UNITS,
    COMPARISONS,
    DEEPEST,
    EXAMPLES,
    FUNCTIONS,
    JUNCTIONS,
    LONGEST_TEXT,
    OF_TRUTH,
    UNITS,
    Binary,
    Call,
    ColumnOf,
    Dimension,
    ExpressionError,
    Name,
    Node,
    Number,
    Span,
    Text,
    Truth,
    Unary,
)

_TOKEN: Final = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?P<unit>%|[A-Za-z]+(?:/[A-Za-z]+)?)?"
    r"|(?P<name>[A-Za-z_][A-Za-z_0-9]*)"
    r"|\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'"
    r"|(?P<sign><=|>=|==|!=|[<>()\[\].+\-*/])"
)
_MOST_NAMES: Final = 40
"""Most names listed as possible spellings."""
_WORDS: Final = frozenset({"and", "or", "not", "true", "false"})


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The names that conditions may use, each with its unit."""

    figures: Mapping[str, str]
    tables: Mapping[str, Mapping[str, str]]
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By "table.column": the texts that a column can have; columns of any text have no entry."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A parsed text with its tree."""

    text: str
    tree: Node

    def words(self, node: Node) -> str:
        """Return the part of the text that `node` was parsed from."""
        return self.text[node.span.first : node.span.end]


def parse(text: str, vocabulary: Vocabulary) -> Condition:
    """Return the parsed condition. Raises `ExpressionError` at the first mistake."""
    if len(text) > LONGEST_TEXT:
        problem = f"{len(text)} characters, and at most {LONGEST_TEXT} are read"
        raise ExpressionError(LONGEST_TEXT, problem, "write several checks")
    reader = _Reader(text)
    tree = reader.condition()
    reader.finish()
    shape = _Shapes(vocabulary).of(tree, None)
    if shape.dimension is not Dimension.TRUTH:
        problem = f"this is {shape.dimension} and no condition"
        raise ExpressionError(tree.span.first, problem, f"compare it, as in <= {EXAMPLES[shape.dimension]}")
    return Condition(text, tree)


def dimension_of(node: Node, vocabulary: Vocabulary) -> Dimension:
    """Return the dimension of a part of a parsed condition."""
    return _Shapes(vocabulary).of(node, None).dimension


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    span: Span
    unit: str = ""


def _tokens(text: str) -> list[_Token]:
    """Return the tokens of a text, ended by a token of kind "end". Raises `ExpressionError` at a character that starts no
    token."""
    tokens = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            remedy = "write ==" if text[position] == "=" else "see docs/verdict.md for the language"
            raise ExpressionError(position, f"{text[position]!r} means nothing here", remedy)
        position = match.end()
        span = Span(match.start(), position)
        if match["number"] is not None:
            tokens.append(_Token("number", match["number"], span, match["unit"] or ""))
        elif match["name"] is not None:
            tokens.append(_Token("word" if match["name"] in _WORDS else "name", match["name"], span))
        elif match["sign"] is not None:
            tokens.append(_Token("sign", match["sign"], span))
        elif match["space"] is None:
            tokens.append(_Token("text", match["double"] or match["single"] or "", span))
    tokens.append(_Token("end", "", Span(len(text), len(text))))
    return tokens


class _Reader:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self._left = _tokens(text)
        self._at = 0
        self._depth = 0
        self._brackets = 0

    def finish(self) -> None:
        """Raise `ExpressionError` unless all tokens are used up."""
        if self._now.kind != "end":
            raise ExpressionError(
                self._now.span.first, f"{self._now.text!r} is too much", "join conditions by and, or"
            )

    @property
    def _now(self) -> _Token:
        return self._left[self._at]

    def _take(self) -> _Token:
        token = self._now
        self._at += token.kind != "end"
        return token

    def _is(self, *texts: str) -> bool:
        return self._now.kind in {"sign", "word"} and self._now.text in texts

    def _expect(self, sign: str) -> _Token:
        if not self._is(sign):
            actual = repr(self._now.text) if self._now.kind != "end" else "the end"
            raise ExpressionError(self._now.span.first, f"expected {sign!r}, found {actual}", f"write {sign}")
        return self._take()

    def condition(self) -> Node:
        """Parse a whole condition, from the operator that binds loosest (`or`) down."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise ExpressionError(
                self._now.span.first, f"nested more than {DEEPEST} deep", "write several checks"
            )
        tree = self._chain(("or",), lambda: self._chain(("and",), self._negation))
        self._depth -= 1
        return tree

    def _chain(self, signs: tuple[str, ...], part: Callable[[], Node]) -> Node:
        tree = part()
        while self._is(*signs):
            sign = self._take().text
            right = part()
            tree = Binary(Span(tree.span.first, right.span.end), sign, tree, right)
        return tree

    def _negation(self) -> Node:
        signs = []
        while self._is("not"):
            signs.append(self._take())
        tree = self._comparison()
        for sign in reversed(signs):
            tree = Unary(Span(sign.span.first, tree.span.end), "not", tree)
        if len(signs) > DEEPEST:
            raise ExpressionError(signs[0].span.first, "too many nots", "take pairs of them away")
        return tree

    def _comparison(self) -> Node:
        left = self._sum()
        if not self._is(*COMPARISONS):
            return left
        sign = self._take().text
        right = self._sum()
        if self._is(*COMPARISONS):
            raise ExpressionError(
                self._now.span.first, "comparisons cannot be chained", "join two of them by and"
            )
        return Binary(Span(left.span.first, right.span.end), sign, left, right)

    def _sum(self) -> Node:
        return self._chain(("+", "-"), lambda: self._chain(("*", "/"), self._parse_signed))

    def _parse_signed(self) -> Node:
        if not self._is("-"):
            return self._atom()
        minus = self._take()
        operand = self._atom()
        return Unary(Span(minus.span.first, operand.span.end), "-", operand)

    def _atom(self) -> Node:
        token = self._take()
        match token.kind, token.text:
            case "number", _:
                return _number(token)
            case "text", text:
                return Text(token.span, text)
            case "word", ("true" | "false") as word:
                return Truth(token.span, word == "true")
            case "sign", "(":
                tree = self.condition()
                self._expect(")")
                return tree
            case "name", name:
                return self._parse_name(token, name)
            case _:
                actual = repr(token.text) if token.text else "the end"
                remedy = "write a figure, a table's column, a number or a text"
                raise ExpressionError(
                    token.span.first, f"expected a value to compare, found {actual}", remedy
                )

    def _parse_name(self, token: _Token, name: str) -> Node:
        if self._is("("):
            self._take()
            argument = self.condition()
            if name == "count" and isinstance(argument, Name) and not self._brackets:
                argument = ColumnOf(argument.span, argument.name, None, "")
            return Call(Span(token.span.first, self._expect(")").span.end), name, argument)
        where = None
        if self._is("["):
            self._take()
            self._brackets += 1
            where = self.condition()
            self._brackets -= 1
            end = self._expect("]").span.end
            if not self._is("."):
                return ColumnOf(Span(token.span.first, end), name, where, "")
        elif not self._is("."):
            return Name(token.span, name)
        self._expect(".")
        column = self._take()
        if column.kind != "name":
            raise ExpressionError(column.span.first, f"{name} without a column", f"write {name}.COLUMN")
        return ColumnOf(Span(token.span.first, column.span.end), name, where, column.text)


def _number(token: _Token) -> Number:
    """Return a number with its unit applied. Raises `ExpressionError` for an unknown unit or a number above 1e30."""
    if token.unit and token.unit not in UNITS:
        problem = f"{token.unit!r} is not a unit"
        raise ExpressionError(token.span.first, problem, f"write one of {', '.join(UNITS)}")
    dimension, factor = UNITS.get(token.unit, (Dimension.PURE, 1.0))
    number = float(token.text) * factor
    if number > 1e30:
        raise ExpressionError(token.span.first, "the number is out of all proportion", "write at most 1e30")
    return Number(token.span, number, dimension)


@dataclass(frozen=True, slots=True)
class _Shape:
    """Type of a part: its dimension; which rows it has, if it is a column; whether it is a plain 0, which fits every unit."""

    dimension: Dimension
    rows: tuple[object, ...] | None = None
    zero: bool = False


class _Shapes:
    """Type checker of a tree against the vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def of(self, node: Node, inside: str | None) -> _Shape:
        """Return the shape of `node`; `inside` names the table between whose brackets it is. Raises `ExpressionError`."""
        match node:
            case Number():
                return _Shape(node.dimension, zero=node.number == 0)
            case Text():
                return _Shape(Dimension.TEXT)
            case Truth():
                return _Shape(Dimension.TRUTH)
            case Name():
                return self._name(node, inside)
            case ColumnOf():
                return self._column(node)
            case Call():
                return self._call(node, inside)
            case Unary():
                wanted_dimension = Dimension.TRUTH if node.sign == "not" else None
                shape = self.of(node.operand, inside)
                self._refuse(node, wanted_dimension, shape)
                return shape
            case Binary():
                return self._binary(node, inside)

    def _name(self, node: Name, inside: str | None) -> _Shape:
        figures = self._vocabulary.figures
        if inside is not None and node.name in self._vocabulary.tables[inside]:
            return _Shape(_dimension(self._vocabulary.tables[inside][node.name]), (inside,))
        if node.name in figures:
            return _Shape(_dimension(figures[node.name]))
        known_names = [*figures, *(self._vocabulary.tables[inside] if inside else ())]
        if node.name in self._vocabulary.tables:
            problem = f"{node.name} is a table"
            raise ExpressionError(node.span.first, problem, f"write {node.name}.COLUMN")
        problem = (
            f"no column of {inside} or figure is called {node.name}"
            if inside
            else f"no figure is called {node.name}"
        )
        raise ExpressionError(node.span.first, problem, _nearest(node.name, known_names))

    def _column(self, node: ColumnOf) -> _Shape:
        self._refuse_selection(node)
        columns = self._vocabulary.tables[node.table]
        if not node.column:
            remedy = f"write count({node.table}[...]) or {node.table}[...].COLUMN"
            raise ExpressionError(node.span.first, f"{node.table} without a column", remedy)
        if node.column not in columns:
            problem = f"{node.table} has no column {node.column}"
            raise ExpressionError(node.span.first, problem, _nearest(node.column, columns))
        return _Shape(_dimension(columns[node.column]), (node.table, node.where))

    def _refuse_selection(self, node: ColumnOf) -> None:
        """Raise `ExpressionError` unless the table exists and the brackets hold a condition on its rows."""
        tables = self._vocabulary.tables
        if node.table not in tables:
            raise ExpressionError(
                node.span.first, f"no table is called {node.table}", _nearest(node.table, tables)
            )
        if node.where is not None:
            self._refuse(node.where, Dimension.TRUTH, self.of(node.where, node.table))

    def _call(self, node: Call, inside: str | None) -> _Shape:
        if node.function not in FUNCTIONS:
            problem = f"no function is called {node.function}"
            raise ExpressionError(node.span.first, problem, _nearest(node.function, FUNCTIONS))
        shape = self._argument(node, inside)
        if shape.rows is None:
            problem = f"{node.function} is of a column, and this is one value"
            raise ExpressionError(
                node.argument.span.first, problem, "write a table's column between the parentheses"
            )
        if node.function == "count" or shape.dimension is Dimension.TRUTH or node.function in OF_TRUTH:
            if node.function not in OF_TRUTH or (
                node.function != "count" and shape.dimension is not Dimension.TRUTH
            ):
                problem = f"{node.function} of {shape.dimension}"
                raise ExpressionError(
                    node.span.first, problem, "all and any are of conditions, the others of numbers"
                )
            return _Shape(Dimension.PURE if node.function == "count" else Dimension.TRUTH)
        self._refuse(node.argument, None, shape)
        pure = node.function in {"cv", "jain", "max_to_mean"}
        return _Shape(Dimension.PURE if pure else shape.dimension)

    def _argument(self, node: Call, inside: str | None) -> _Shape:
        """Return the shape of a function's argument; only `count` accepts rows without a column."""
        argument = node.argument
        if node.function == "count" and isinstance(argument, ColumnOf) and not argument.column:
            self._refuse_selection(argument)
            return _Shape(Dimension.TRUTH, (argument.table, argument.where))
        return self.of(argument, inside)

    def _binary(self, node: Binary, inside: str | None) -> _Shape:
        left, right = self.of(node.left, inside), self.of(node.right, inside)
        rows = left.rows if left.rows is not None else right.rows
        if right.rows is not None and right.rows != rows:
            problem = "the two sides are columns of different rows"
            raise ExpressionError(
                node.span.first, problem, "select both alike, or take max(...), sum(...) of one"
            )
        if node.sign in JUNCTIONS:
            for side, shape in ((node.left, left), (node.right, right)):
                self._refuse(side, Dimension.TRUTH, shape)
            return _Shape(Dimension.TRUTH, rows)
        if node.sign in COMPARISONS:
            self._refuse_unlike(node, left, right)
            self._refuse_impossible(node, inside)
            return _Shape(Dimension.TRUTH, rows)
        for side, shape in ((node.left, left), (node.right, right)):
            self._refuse(side, None, shape)
        if node.sign in "+-":
            self._refuse_unlike(node, left, right)
            return _Shape(right.dimension if left.zero else left.dimension, rows)
        return _Shape(_product(node, left.dimension, right.dimension), rows)

    def _refuse(self, node: Node, wanted: Dimension | None, shape: _Shape) -> None:
        """Raise `ExpressionError` unless `shape` has the `wanted` dimension; None accepts any number."""
        number = shape.dimension not in {Dimension.TEXT, Dimension.TRUTH}
        if shape.dimension is not wanted if wanted else not number:
            problem = f"expected {wanted or 'a number'}, found {shape.dimension}"
            remedy = (
                f"compare it, as in <= {EXAMPLES[shape.dimension]}" if number else "compare it by == or !="
            )
            raise ExpressionError(node.span.first, problem, remedy)

    def _refuse_impossible(self, node: Binary, inside: str | None) -> None:
        """Raise `ExpressionError` if a column is compared with a text that it can never have."""
        for column, text in ((node.left, node.right), (node.right, node.left)):
            if not isinstance(text, Text):
                continue
            match column:
                case Name():
                    name = f"{inside}.{column.name}"
                case ColumnOf():
                    name = f"{column.table}.{column.column}"
                case _:
                    continue
            if text.text not in (known := self._vocabulary.texts.get(name, (text.text,))):
                problem = f'{name} is never "{text.text}"'
                raise ExpressionError(text.span.first, problem, _nearest(text.text, known))

    def _refuse_unlike(self, node: Binary, left: _Shape, right: _Shape) -> None:
        """Raise `ExpressionError` unless both sides have the same dimension and the operator is defined for it."""
        unordered = {Dimension.TEXT, Dimension.TRUTH}
        if left.dimension is not right.dimension and not (
            (left.zero and right.dimension not in unordered)
            or (right.zero and left.dimension not in unordered)
        ):
            problem = f"{left.dimension} on the left of {node.sign}, {right.dimension} on its right"
            raise ExpressionError(
                node.span.first, problem, f"write both alike, such as {EXAMPLES[left.dimension]}"
            )
        if left.dimension in unordered and node.sign not in {"==", "!="}:
            problem = f"{left.dimension} has no order"
            raise ExpressionError(node.span.first, problem, "compare it by == or !=")


def _product(node: Binary, left: Dimension, right: Dimension) -> Dimension:
    """Return the dimension of a product or quotient. Raises `ExpressionError` if it has none."""
    if right is Dimension.PURE:
        return left
    if node.sign == "/" and left is right:
        return Dimension.PURE
    if node.sign == "*" and left is Dimension.PURE:
        return right
    problem = f"{left} {node.sign} {right} has no unit here"
    raise ExpressionError(node.span.first, problem, "divide alike things, or multiply by a plain number")


def _dimension(unit: str) -> Dimension:
    return COLUMN_UNITS.get(unit, (Dimension.PURE, 1.0))[0]


def _nearest(name: str, known: Iterable[str]) -> str:
    """Return a remedy that names the known names most similar to `name`."""
    names = list(known)
    near = difflib.get_close_matches(name, names, 3, 0.5)
    if near:
        return f"did you mean {' or '.join(near)}?"
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"write one of {', '.join(sorted(names)[:_MOST_NAMES])}{more} (docs/metrics.md)"
