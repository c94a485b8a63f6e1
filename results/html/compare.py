"""The page of a comparison of two sets of runs: verdict, intervals, distributions, what carries the change, what differs.

Decides order and wording. Everything that a trace, a file or an agent named is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import plotly.graph_objects as go
from etloop.results.html.page import listed, page, table
from etloop.results.html.plots import distributions, piece
from etloop.results.kpis.job import curve
from etloop.results.schema.comparison import Basis, Comparison, MetricResult, Outcome, Shift, SideRecord
from etloop.results.text.compare import (
    LOSS_HEADINGS,
    WORDS,
    change_words,
    false_alarms_text,
    interval_words,
)
from etloop.results.text.losses import pair_cells
from etloop.results.text.units import rate_words, time_words, value_words
from numpy.typing import NDArray

if TYPE_CHECKING:
    from etloop.results.compare.samples import RunSamples, Side

BADGES: Final = {
    Outcome.REGRESSION: "fail",
    Outcome.IMPROVEMENT: "pass",
    Outcome.ALIKE: "pass",
    Outcome.NOT_WORSE: "pass",
    Outcome.OPEN: "inconclusive",
}
BASES: Final = {
    Basis.RUNS: "run to run",
    Basis.PAIRS: "pair to pair: runs of the same repeat are held against each other",
    Basis.ITERATIONS: "iterations of the one run, and an allowance",
    Basis.NOTHING: "nothing",
}
MOST_KINDS: Final = 8
"""Of which distributions are drawn."""
COLOURS: Final = ("#2f6db3", "#d9822b", "#3a9a5b", "#b3261e", "#7d5ba6", "#5c6b77", "#c2a83e", "#2aa3a3")


def colour(number: int) -> str:
    """That of a side or setting, by its number."""
    return COLOURS[number % len(COLOURS)]


def comparison_html(found: Comparison, a: Side, b: Side) -> str:
    """The page."""
    sides = (("A", a), ("B", b))
    parts = [
        f"<h1>{escape(found.b.name)} against {escape(found.a.name)}</h1>",
        verdict_part(found),
        _sides(found),
        "<h2>Change, B against A</h2>" + piece(change_figure(found.metrics), "changes"),
        tested_table(found),
        _arisen(found),
        _losses(found),
        _conditions(found),
        _interference(found),
        "<h2>Iterations</h2>" + piece(iterations_figure(sides), "iterations"),
        "<h2>Completion</h2>" + piece(completion_figure(sides), "completion"),
        carriers_part(found),
        _bandwidths(a, b),
        _plain(found),
        differing_part(found),
    ]
    return page(f"ETLoop compare: {found.b.name} against {found.a.name}", parts)


def _arisen(found: Comparison) -> str:
    if not found.arisen:
        return ""
    rows = [(escape(one.words), f"{one.a:.6g} {one.unit}", f"{one.b:.6g} {one.unit}") for one in found.arisen]
    return "<h2>Not in A, and in B</h2>" + table(("counter", "A", "B, per run"), rows, numbers=range(1, 3))


def _losses(found: Comparison) -> str:
    if not found.losses:
        return ""
    rows = [tuple(escape(cell) for cell in cells) for cells in pair_cells(found.losses)]
    return "<h2>Losses</h2>" + table(LOSS_HEADINGS, rows)


def _conditions(found: Comparison) -> str:
    if not found.conditions:
        return ""
    rows = [
        (escape(one.expression), one.a or "-", escape(one.a_value), one.b or "-", escape(one.b_value))
        for one in found.conditions
    ]
    return "<h2>Conditions</h2>" + table(("condition", "A", "value", "B", "value"), rows)


def verdict_part(found: Comparison) -> str:
    """Verdict, why, and what to be warned of."""
    warnings = "".join(f"<p><b>Mind:</b> {escape(warning)}</p>" for warning in found.warnings)
    return f"<p>{badge(found.verdict)}</p>{listed(found.reasons)}{warnings}"


def badge(outcome: Outcome) -> str:
    """An outcome as a coloured word."""
    return f"<span class='badge {BADGES[outcome]}'>{WORDS[outcome]}</span>"


def _sides(found: Comparison) -> str:
    heads = ("", "runs of", "runs", "iterations", "chance is known from", "left out", "the emulator")
    return table(heads, [_side_row("A", found.a), _side_row("B", found.b)])


def _side_row(name: str, side: SideRecord) -> tuple[str, ...]:
    basis = BASES[side.basis]
    left_out, doubts = ("<br>".join(escape(one) for one in many) for many in (side.left_out, side.doubts))
    return name, escape(side.path), str(side.runs), str(side.iterations), basis, left_out, doubts


def tested_table(found: Comparison) -> str:
    """Every test with its numbers."""
    rows = [
        (
            escape(line.name),
            value_words(line.a, line.unit),
            _cv(line.a_cv),
            value_words(line.b, line.unit),
            _cv(line.b_cv),
            change_words(line),
            interval_words(line),
            f"{line.confidence:.2%}",
            f"{line.p_value:.2g}",
            badge(line.outcome) + (f"<br><span class=dim>{escape(line.doubt)}</span>" if line.doubt else ""),
        )
        for line in found.metrics
    ]
    heads = ("tested", "A", "CV", "B", "CV", "change", "interval", "of confidence", "p", "")
    note = f"<p class=dim>{escape(false_alarms_text(found))}.</p>"
    return table(heads, rows, numbers=range(1, 9)) + note


def _cv(cv: float | None) -> str:
    return "-" if cv is None else f"{cv:.2%}"


def change_figure(lines: Sequence[MetricResult]) -> Any:
    """Relative changes with their intervals, around 0."""
    shown = [line for line in reversed(lines) if line.relative]
    figure = go.Figure()
    for line in shown:
        low = line.change if line.low is None else line.low
        high = line.change if line.high is None else line.high
        of_outcome = {"fail": "#b3261e", "pass": "#1b7f4b"}.get(BADGES[line.outcome], "#9a6b00")
        figure.add_trace(
            go.Scatter(
                x=[100 * line.change],
                y=[escape(line.name)],
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": [100 * (high - line.change)],
                    "arrayminus": [100 * (line.change - low)],
                },
                mode="markers",
                marker={"color": of_outcome, "size": 9},
                showlegend=False,
            )
        )
    figure.add_vline(x=0, line={"color": "#75828f", "dash": "dot"})
    figure.update_layout(height=140 + 34 * len(shown), xaxis={"title": "change (%)", "ticksuffix": " %"})
    return figure


def iterations_figure(sides: Sequence[tuple[str, Side]]) -> Any:
    """Every iteration of every run, one box a run."""
    figure = go.Figure()
    for number, (name, side) in enumerate(sides):
        for index, run in enumerate(side.runs):
            figure.add_trace(
                go.Box(
                    y=run.jct_ns / 1000,
                    name=f"{escape(name)} {index + 1}",
                    legendgroup=name,
                    showlegend=False,
                    boxpoints="all",
                    marker={"color": colour(number), "size": 3},
                )
            )
    figure.update_layout(height=380, yaxis={"title": "iteration (us)"}, xaxis={"title": "run"})
    return figure


def completion_figure(sides: Sequence[tuple[str, Side]]) -> Any:
    """Distributions of the times of iterations, and of collectives by kind: one line a side."""
    kinds = sorted(set.intersection(*(set(run.kinds) for _, side in sides for run in side.runs)))
    things: list[tuple[str, Callable[[RunSamples], NDArray[np.float64]]]] = [
        ("iteration", lambda run: run.jct_ns)
    ]
    things += [(kind, lambda run, kind=kind: run.kinds[kind]) for kind in kinds[: MOST_KINDS - 1]]  # type: ignore[misc]
    return distributions(
        (
            (
                curve(f"{name}: {thing}", np.concatenate([of(run) for run in side.runs])),
                {
                    "mode": "lines",
                    "line_color": colour(number),
                    "visible": True if place == 0 else "legendonly",
                },
            )
            for place, (thing, of) in enumerate(things)
            for number, (name, side) in enumerate(sides)
        ),
        "time (us), of collectives the mean of an iteration",
    )


def carriers_part(found: Comparison) -> str:
    """Collectives, ranks and flows behind the change."""
    way = "shorter" if found.verdict is Outcome.IMPROVEMENT else "longer"
    parts = [f"<h2>What became {way}</h2>", _shift_table("collective, per iteration", found.carriers)]
    parts.append(_shift_table("ops of", found.ranks))
    if found.troubles:
        rows = [
            (f"{one.src_rank} &rarr; {one.dst_rank}", one.what, f"{one.a:.6g}", f"{one.b:.6g}")
            for one in found.troubles
        ]
        parts.append("<p>More of in B, per run:</p>")
        parts.append(table(("flow", "what", "A", "B"), rows, numbers=(2, 3)))
    apart = f"{found.only_a} collectives and pairs only A has, {found.only_b} only B."
    if found.only_a or found.only_b:
        parts.append(f"<p class=dim>{apart}</p>")
    if not (found.carriers or found.ranks or found.troubles):
        parts.append("<p class=dim>Nothing.</p>")
    return "".join(parts)


def _interference(found: Comparison) -> str:
    rows = [
        (
            escape(one.job),
            f"{one.factor:.3f}",
            "unknown" if one.low is None or one.high is None else f"{one.low:.3f} .. {one.high:.3f}",
        )
        for one in found.interference
    ]
    heads = ("job", "factor: time in B / in A", "interval")
    return f"<h2>Interference</h2>{table(heads, rows, numbers=(1, 2))}" if rows else ""


def _shift_table(title: str, shifts: Sequence[Shift]) -> str:
    rows = [
        (escape(one.what), time_words(one.a_ns), time_words(one.b_ns), time_words(one.added_ns))
        for one in shifts
    ]
    return table((title, "A", "B", "added"), rows, numbers=(1, 2, 3))


def _bandwidths(a: Side, b: Side) -> str:
    means = [
        {
            kind: float(np.mean([run.kind_bytes_per_s[kind] for run in side.runs]))
            for kind in sorted(set.intersection(*(set(run.kind_bytes_per_s) for run in side.runs)))
        }
        for side in (a, b)
    ]
    rows = [
        (escape(kind), rate_words(rate), rate_words(means[1][kind]), f"{means[1][kind] / rate - 1:+.2%}")
        for kind, rate in means[0].items()
        if kind in means[1] and rate > 0
    ]
    body = table(("collectives", "A", "B", "change"), rows, numbers=(1, 2, 3))
    return f"<h2>Bus bandwidth, all members present</h2>{body or '<p class=dim>None.</p>'}"


def _plain(found: Comparison) -> str:
    rows = [
        (
            f"<code>{escape(one.name)}</code>",
            value_words(one.a, one.unit),
            value_words(one.b, one.unit),
            "" if one.change is None else f"{one.change:+.2%}",
        )
        for one in found.plain
    ]
    body = table(("figure", "A", "B", "change"), rows, numbers=(1, 2, 3))
    title = "<h2>Key figures, means over runs, not tested</h2>"
    return title + (body or "<p class=dim>The runs have no kpis.json.</p>")


def differing_part(found: Comparison) -> str:
    """In what the two were not runs of the same thing."""
    rows = [(escape(one.thing), escape(one.path), escape(one.a), escape(one.b)) for one in found.differing]
    more = found.differing_total - len(rows)
    rest = f"<p class=dim>And {more} more.</p>" if more else ""
    body = table(("", "what", "A", "B"), rows) or "<p class=dim>In nothing that their directories tell.</p>"
    return f"<h2>What A and B differ in</h2>{body}{rest}"
