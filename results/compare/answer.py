"""The answer of a comparison: its verdict, and reasons that name the change of the completion time, what changed in the
network, and where.

Decides the order: completion first, then causes that only B has, counters, and ports, queues and classes. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.compare.change import change_text, figure_text, ratio_text
from etloop.results.compare.objects import BYTES, CLASS_PACKETS, DRAIN
from etloop.results.schema.comparison import (
    CountRow,
    FindingMove,
    MetricResult,
    Move,
    ObjectMove,
    Outcome,
    Shift,
)

if TYPE_CHECKING:
    from etloop.results.compare.samples import Side

MOST_NAMED: Final = 3
"""Most ports, links or collectives that one reason names."""


@dataclass(frozen=True, slots=True)
class Mechanism:
    """Changes in the network."""

    block: tuple[CountRow, ...]
    moved: tuple[ObjectMove, ...]
    findings: tuple[FindingMove, ...]
    own_doubt: str
    """Why timeouts and retransmissions may be the emulator's; "" if they are not."""

    @property
    def changed_rows(self) -> tuple[CountRow, ...]:
        """Return the rows of the block that changed."""
        return tuple(row for row in self.block if row.move not in {Move.SAME, Move.UNKNOWN})

    @property
    def is_worse(self) -> bool:
        """Return whether B has a trouble that A does not have, or far less of."""
        return (
            any(row.move is Move.WORSE for row in self.block)
            or any(move.is_new for move in self.findings)
            or any(move.figure == DRAIN and move.b < move.a for move in self.moved)
        )

    @property
    def is_different(self) -> bool:
        """Return whether the network certainly behaved differently."""
        return bool(self.changed_rows) or any(
            move.figure in {DRAIN, CLASS_PACKETS, BYTES} for move in self.moved
        )


def answer(
    sides: tuple[Side, Side],
    lines: Sequence[MetricResult],
    mechanism: Mechanism,
    carriers: Sequence[Shift],
    *,
    counts_ignored: bool,
) -> tuple[Outcome, tuple[str, ...]]:
    """Return the verdict and its reasons, the change of the completion time first."""
    by_time, further = _by_time(sides, lines)
    verdict = by_time
    if mechanism.is_worse and not counts_ignored:
        verdict = Outcome.REGRESSION
    elif mechanism.is_different and not counts_ignored and by_time not in _DECIDED:
        verdict = Outcome.DIFFERENT
    changes = _mechanism_reasons(mechanism)
    explained = carriers if verdict is not Outcome.ALIKE else ()
    return verdict, (_completion(lines[0], mechanism, explained), *changes, *further)


_DECIDED: Final = frozenset({Outcome.REGRESSION, Outcome.IMPROVEMENT})


def _by_time(sides: tuple[Side, Side], lines: Sequence[MetricResult]) -> tuple[Outcome, list[str]]:
    """Return the outcome by times and tested figures, and the reasons for it in addition to the completion time."""
    first, *other_lines = lines
    worse, better = (
        [_metric_reason(line) for line in other_lines if line.outcome is outcome]
        for outcome in (Outcome.REGRESSION, Outcome.IMPROVEMENT)
    )
    if worse or first.outcome is Outcome.REGRESSION:
        return Outcome.REGRESSION, worse
    reasons = [f"{_metric_reason(line)}, but {line.doubt}" for line in other_lines if line.doubt]
    is_open = bool(reasons) or bool(first.doubt) or not first.surely_no_regression
    for name, side in zip("AB", sides, strict=True):
        if side.left_out:
            is_open = True
            total = len(side.left_out) + len(side.runs)
            reasons.append(f"{name}: {len(side.left_out)} of {total} runs left out: {side.left_out[0]}")
    if is_open:
        return Outcome.OPEN, reasons
    if better or first.outcome is Outcome.IMPROVEMENT:
        return Outcome.IMPROVEMENT, better
    return first.outcome, []


def _completion(first: MetricResult, mechanism: Mechanism, carriers: Sequence[Shift]) -> str:
    """Return the change of the completion time, with the ports and links, and the collectives, that explain it."""
    words = (
        f"{_metric_reason(first)}, {figure_text(first.a, first.unit)} to {figure_text(first.b, first.unit)}"
    )
    if first.doubt:
        words += f", but {first.doubt}"
    elif first.open_words:
        words += f"; {first.open_words}"
    elif first.outcome is Outcome.OPEN:
        words += "; inconclusive: more or longer runs are needed"
    places = dict.fromkeys(
        [move.place for move in mechanism.moved if move.figure == DRAIN]
        + [place for row in mechanism.changed_rows for place in row.places]
    )
    if places:
        words += f"; at {', '.join(list(places)[:MOST_NAMED])}"
    if carriers:
        sign = "+" if carriers[0].added_ns > 0 else "-"
        named = (
            f"{shift.what} ({sign}{figure_text(abs(shift.added_ns), 'ns')})"
            for shift in carriers[:MOST_NAMED]
        )
        words += f"; most in {', '.join(named)}"
    return words


def _metric_reason(line: MetricResult) -> str:
    return f"{line.name}: {metric_change_words(line)}"


def metric_change_words(line: MetricResult) -> str:
    """Return the change of a figure with its interval, as text."""
    if not line.relative:
        bounds = "" if line.low is None or line.high is None else f" ({line.low:+.6g} to {line.high:+.6g})"
        return f"{line.change:+.6g} {line.unit}{bounds}"
    if line.low is None or line.high is None:
        return change_text(line.change, 1)
    return f"{change_text(line.change, 1)} ({change_text(line.low, 1)} to {change_text(line.high, 1)})"


def _mechanism_reasons(mechanism: Mechanism) -> list[str]:
    """Return a reason for each new finding, changed counter, and changed rate or class."""
    reasons = [f"only in B: {move.sentence}; {move.remedy}" for move in mechanism.findings if move.is_new]
    for figure in (DRAIN, CLASS_PACKETS):
        moves = [move for move in mechanism.moved if move.figure == figure]
        reasons += [_object_reason(move) for move in moves[:MOST_NAMED]]
    reasons += [_row_reason(row, mechanism.own_doubt) for row in mechanism.changed_rows]
    if not mechanism.changed_rows:
        moves = [move for move in mechanism.moved if move.figure == BYTES]
        reasons += [_object_reason(move) for move in moves[:MOST_NAMED]]
    return reasons


def _object_reason(move: ObjectMove) -> str:
    values = f"{figure_text(move.a, move.unit)} in A, {figure_text(move.b, move.unit)} in B"
    return f"{move.place}: {move.figure} {values} ({ratio_text(move.ratio)})"


def _row_reason(row: CountRow, own_doubt: str) -> str:
    assert row.a is not None
    assert row.b is not None
    words = f"{row.name}: {_bare(row.a, row.unit)} in A, {figure_text(row.b, row.unit)} a run in B"
    if row.ratio is not None:
        words += f" ({ratio_text(row.ratio)})"
    if row.places:
        words += f"; most at {', '.join(row.places)}"
    return f"{words}; {own_doubt}" if own_doubt and row.name in OWN_ROWS else words


def _bare(value: float, unit: str) -> str:
    """Return a count without its unit, which follows with the other one; bytes with theirs."""
    return figure_text(value, unit if unit == "bytes" else "")


OWN_ROWS: Final = frozenset({"timeouts", "retransmissions"})
"""Rows that a late emulator causes by itself."""
