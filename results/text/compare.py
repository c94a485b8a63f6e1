"""A comparison of two sets of runs in words: the table that `etloop compare` prints. Decides wording only."""

from __future__ import annotations

from typing import Final

from etloop.results.compare.change import change_text
from etloop.results.schema.comparison import Basis, Comparison, MetricResult, Outcome, Shift, SideRecord
from etloop.results.text.layout import aligned, each_wrapped, printable, wrapped
from etloop.results.text.losses import pair_cells
from etloop.results.text.units import time_words, value_words

WORDS: Final = {
    Outcome.REGRESSION: "REGRESSION",
    Outcome.IMPROVEMENT: "IMPROVEMENT",
    Outcome.ALIKE: "NO DIFFERENCE",
    Outcome.NOT_WORSE: "NOT WORSE",
    Outcome.OPEN: "INCONCLUSIVE",
}
LOSS_HEADINGS: Final = ("losses, packets a run", "A", "B", "counted by")
MOST_DIFFERING: Final = 12
MOST_PLAIN: Final = 12
_PLAIN_CHANGE: Final = 0.05
"""Relative change from which on a key figure that is not tested gets a line."""


def render_comparison(found: Comparison) -> str:
    """Return the table: verdict, sides, tested figures, contributions, and differing settings."""
    lines = wrapped("verdict", WORDS[found.verdict])
    lines += each_wrapped("", found.reasons)
    lines += _side("A", found.a) + _side("B", found.b)
    lines += [*each_wrapped("warning", found.warnings), "", *_tested(found)]
    lines += _interference(found)
    if found.arisen:
        lines += ["", "not in A, or far less, and in B, per run"]
        lines += [
            f"  {counter.name} {counter.a:.6g} -> {counter.b:.6g} {counter.unit}: {counter.words}"
            for counter in found.arisen
        ]
    lines += _losses(found)
    lines += _conditions(found)
    if found.verdict is not Outcome.ALIKE:
        title = "shorter in B" if found.verdict is Outcome.IMPROVEMENT else "longer in B"
        lines += _shifts(f"{title}: collectives, per iteration", found.carriers)
        lines += _shifts(f"{title}: ops of ranks, first packet to completion", found.ranks)
    if found.troubles:
        lines += ["", "more in B, per run"]
        lines += [
            f"  {trouble.src_rank} -> {trouble.dst_rank}: {trouble.b:.6g} {trouble.what} (A {trouble.a:.6g})"
            for trouble in found.troubles
        ]
    lines += _plain(found)
    lines += _differing(found)
    return "\n".join(printable(line) for line in lines) + "\n"


def false_alarms_text(found: Comparison) -> str:
    """Return the guarantee of the intervals in words."""
    settings = found.settings
    return (
        f"Changes of less than {settings.least_effect:.1%} do not count. Where nothing changed, anything is called a regression "
        f"or an improvement in at most {1 - settings.confidence:.1%} of comparisons"
    )


def _side(name: str, side: SideRecord) -> list[str]:
    runs_text = (
        f"{side.runs} runs{' in pairs' if side.basis is Basis.PAIRS else ''}" if side.runs > 1 else "1 run"
    )
    lines = wrapped(name, f"{side.path}: {runs_text}, {side.iterations} iterations")
    lines += each_wrapped("", (f"left out: {reason}" for reason in side.left_out))
    return lines + each_wrapped("", (f"the emulator: {doubt}" for doubt in side.doubts))


def _tested(found: Comparison) -> list[str]:
    rows = [("tested", "A", "CV", "B", "CV", "change", "interval", "p", "")]
    rows += [
        (
            line.name,
            value_words(line.a, line.unit),
            _cv(line.a_cv, line.a_basis),
            value_words(line.b, line.unit),
            _cv(line.b_cv, line.b_basis),
            change_words(line),
            interval_words(line),
            f"{line.p_value:.2g}",
            f"{line.open_words or WORDS[line.outcome].lower()}{'; ' + line.doubt if line.doubt else ''}",
        )
        for line in found.metrics
    ]
    return [*aligned(rows, (0, len(rows[0]) - 1)), false_alarms_text(found) + "."]


def change_words(line: MetricResult) -> str:
    """Return by how much B is more than A, as text."""
    return change_text(line.change, 2) if line.relative else f"{line.change:+.4g}"


def interval_words(line: MetricResult) -> str:
    """Return the bounds of the change, as text; "-" if there is no interval."""
    if line.low is None or line.high is None:
        return "-"
    if line.relative:
        return f"{change_text(line.low, 2)} .. {change_text(line.high, 2)}"
    return f"{line.low:+.4g} .. {line.high:+.4g}"


def _cv(cv: float | None, basis: Basis) -> str:
    if cv is None:
        return "-"
    return f"{cv:.1%}{'*' if basis is not Basis.RUNS else ''}"


def _interference(found: Comparison) -> list[str]:
    if not found.interference:
        return []
    lines = ["", "interference factor: time beside the jobs of B / beside those of A"]
    for job in found.interference:
        bounds = "" if job.low is None or job.high is None else f"  ({job.low:.3f} .. {job.high:.3f})"
        lines.append(f"  {job.job}: {job.factor:.3f}{bounds}")
    return lines


def _losses(found: Comparison) -> list[str]:
    if not found.losses:
        return []
    return ["", *aligned([LOSS_HEADINGS, *pair_cells(found.losses)], (0, 3))]


def _conditions(found: Comparison) -> list[str]:
    if not found.conditions:
        return []
    rows = [("condition", "A", "", "B", "")]
    rows += [
        (pair.expression, pair.a or "-", pair.a_value, pair.b or "-", pair.b_value)
        for pair in found.conditions
    ]
    return ["", *aligned(rows, range(5))]


def _shifts(title: str, shifts: tuple[Shift, ...]) -> list[str]:
    if not shifts:
        return []
    width = max(len(shift.what) for shift in shifts)
    return ["", title] + [
        f"  {shift.what.ljust(width)}  {time_words(shift.a_ns):>9} -> {time_words(shift.b_ns):>9}  "
        f"{'+' if shift.added_ns > 0 else '-'}{time_words(abs(shift.added_ns))}"
        for shift in shifts
    ]


def _plain(found: Comparison) -> list[str]:
    moved_figures = [
        figure
        for figure in found.plain
        if figure.a != figure.b and (figure.change is None or abs(figure.change) >= _PLAIN_CHANGE)
    ]
    if not moved_figures:
        return []
    more = f"; and {len(moved_figures) - MOST_PLAIN} more" if len(moved_figures) > MOST_PLAIN else ""
    lines = ["", f"key figures that moved by {_PLAIN_CHANGE:.0%} or more (told, not tested{more})"]
    for figure in moved_figures[:MOST_PLAIN]:
        change = "" if figure.change is None else f"  {change_text(figure.change, 1)}"
        lines.append(
            f"  {figure.name:<24} {value_words(figure.a, figure.unit)} -> {value_words(figure.b, figure.unit)}{change}"
        )
    return lines


def _differing(found: Comparison) -> list[str]:
    if not found.differing:
        return ["", "A and B are runs of the same files"]
    lines = ["", "A and B differ in"]
    lines += [
        f"  {difference.thing} {difference.path}: {difference.a} | {difference.b}"
        for difference in found.differing[:MOST_DIFFERING]
    ]
    more = found.differing_total - MOST_DIFFERING
    return [*lines, *([f"  and {more} more"] if more > 0 else [])]
