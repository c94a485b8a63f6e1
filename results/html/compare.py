"""The page of a comparison of two sets of runs: verdict, intervals, distributions, contributions, differing settings.

Decides order and wording. Templates escape everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.results.compare.change import change_text
from etloop.results.html.blocks import (
    Block,
    Cell,
    Fold,
    LegendEntry,
    Page,
    Plot,
    Section,
    Text,
    listing,
    table,
)
from etloop.results.html.distribution import TIMES, Times, compared_completion
from etloop.results.html.lanes import COLOURS
from etloop.results.html.render import render
from etloop.results.html.rows import Dot, Row, RowChart, row_chart
from etloop.results.html.timeline import scale_of
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

if TYPE_CHECKING:
    from etloop.results.compare.samples import Side

BADGES: Final = {
    Outcome.REGRESSION: "fail",
    Outcome.IMPROVEMENT: "pass",
    Outcome.ALIKE: "pass",
    Outcome.NOT_WORSE: "pass",
    Outcome.OPEN: "inconclusive",
}
BASES: Final = {
    Basis.RUNS: "run to run",
    Basis.PAIRS: "pair to pair: runs of the same repeat are compared with each other",
    Basis.ITERATIONS: "iterations of the one run, and an allowance",
    Basis.NOTHING: "nothing",
}
MOST_KINDS: Final = 8
"""Most kinds of collectives whose distributions are drawn."""
_COLOUR_OF: Final = {"fail": 10, "pass": 2, "inconclusive": 6}
"""Colour number of templates/style.css, by badge."""


def colour(number: int) -> int:
    """Return the colour of a side or setting, by its number."""
    return number % COLOURS


def comparison_html(found: Comparison, a: Side, b: Side) -> str:
    """Return the page."""
    sides = (("A", a), ("B", b))
    sections = (
        Section("verdict", "Verdict", (*verdict_blocks(found), *_sides(found))),
        Section(
            "changes-of",
            "Change, B against A",
            (*change_chart(found.metrics, "changes"), *tested_blocks(found)),
        ),
        Section("arisen", "Not in A, and in B", _arisen(found)),
        Section("losses", "Losses", _losses(found)),
        Section("conditions", "Conditions", _conditions(found)),
        Section("interference", "Interference", _interference(found)),
        Section("iterations-of", "Iterations", _iterations(sides)),
        Section("completion-of", "Completion", completion_blocks(sides, "completion")),
        Section("carriers", f"What became {_direction_word(found)}", carrier_blocks(found)),
        Section("bandwidth", "Bus bandwidth, all members present", _bandwidths(a, b)),
        Section("figures", "Key figures, means over runs, not tested", _plain(found)),
        Section("differing", "What A and B differ in", differing_blocks(found)),
    )
    names = f"{found.b.name} against {found.a.name}"
    subtitle = "A: the runs to compare with; B: the runs in question"
    badge = BADGES[found.verdict]
    return render(Page(f"ETLoop compare: {names}", subtitle, badge, WORDS[found.verdict], (), sections))


def _arisen(found: Comparison) -> tuple[Block, ...]:
    rows = [
        (counter.words, f"{counter.a:.6g} {counter.unit}", f"{counter.b:.6g} {counter.unit}")
        for counter in found.arisen
    ]
    return table("Counters, per run", ("counter", "A", "B"), list(rows), range(1, 3))


def _losses(found: Comparison) -> tuple[Block, ...]:
    return (
        table("Where the two sides differ", LOSS_HEADINGS, list(pair_cells(found.losses)), (1, 2))
        if found.losses
        else ()
    )


def _conditions(found: Comparison) -> tuple[Block, ...]:
    rows = [
        (Cell(pair.expression, is_code=True), pair.a or "-", pair.a_value, pair.b or "-", pair.b_value)
        for pair in found.conditions
    ]
    return table("Results of both sides", ("condition", "A", "value", "B", "value"), list(rows))


def verdict_blocks(found: Comparison) -> tuple[Block, ...]:
    """Return the verdict with its reasons and warnings."""
    outcome = Text("", badge=BADGES[found.verdict], badge_text=WORDS[found.verdict])
    return (outcome, *listing(found.reasons), *listing(found.warnings, "Mind:"))


def _sides(found: Comparison) -> tuple[Block, ...]:
    heads = ("side", "runs of", "runs", "iterations", "chance is known from", "left out", "the emulator")
    return table("Sides", heads, [_side_row("A", found.a), _side_row("B", found.b)], (2, 3))


def _side_row(name: str, side: SideRecord) -> tuple[str | Cell, ...]:
    left_out, doubts = Cell("", items=side.left_out), Cell("", items=side.doubts)
    return name, side.path, str(side.runs), str(side.iterations), BASES[side.basis], left_out, doubts


def tested_blocks(found: Comparison) -> tuple[Block, ...]:
    """Return every test with its numbers."""
    rows = [
        (
            line.name,
            Cell(WORDS[line.outcome], badge=BADGES[line.outcome], note=line.doubt or line.open_words),
            value_words(line.a, line.unit),
            _cv(line.a_cv),
            value_words(line.b, line.unit),
            _cv(line.b_cv),
            change_words(line),
            interval_words(line),
            f"{line.confidence:.2%}",
            f"{line.p_value:.2g}",
        )
        for line in found.metrics
    ]
    heads = ("tested", "outcome", "A", "CV", "B", "CV", "change", "interval", "of confidence", "p")
    table_blocks = table("Tests", heads, list(rows), range(2, 10))
    return (*table_blocks, Text(f"{false_alarms_text(found)}.", is_dim=True))


def _cv(cv: float | None) -> str:
    return "-" if cv is None else f"{cv:.2%}"


def change_chart(lines: Sequence[MetricResult], name: str) -> tuple[RowChart, ...]:
    """Return relative changes with their intervals, around 0."""
    rows = []
    for line in lines:
        if line.relative:
            low = line.change if line.low is None else line.low
            high = line.change if line.high is None else line.high
            of_outcome = _COLOUR_OF[BADGES[line.outcome]]
            dot = Dot(change_words(line), 100 * line.change, of_outcome, 100 * low, 100 * high)
            rows.append(Row(line.name, (dot,)))
    return row_chart(name, "Changes with their intervals", "change (%)", tuple(rows), reference=0.0)


def _iterations(sides: Sequence[tuple[str, Side]]) -> tuple[Block, ...]:
    unit = scale_of(max(float(run.jct_ns.max()) for _, side in sides for run in side.runs), TIMES, "ns")
    rows = tuple(
        Row(
            f"{name} {index + 1}",
            tuple(Dot(time_words(jct), jct / unit.size, colour(number)) for jct in run.jct_ns.tolist()),
        )
        for number, (name, side) in enumerate(sides)
        for index, run in enumerate(side.runs)
    )
    return row_chart(
        "iterations", "Every iteration, a row a run", f"iteration ({unit.name})", rows, _legend(sides)
    )


def _legend(sides: Sequence[tuple[str, Side]]) -> tuple[LegendEntry, ...]:
    return tuple(LegendEntry(name, colour(number)) for number, (name, _) in enumerate(sides))


def completion_blocks(sides: Sequence[tuple[str, Side]], name: str) -> tuple[Plot, ...]:
    """Return distributions of the times of iterations, and of collectives by kind: one line a side."""
    kinds = sorted(set.intersection(*(set(run.kinds) for _, side in sides for run in side.runs)))
    things = [
        (
            "iteration",
            [
                Times(name_of_side, np.concatenate([run.jct_ns for run in side.runs]))
                for name_of_side, side in sides
            ],
        )
    ]
    for kind in kinds[: MOST_KINDS - 1]:
        lines = [
            Times(name_of_side, np.concatenate([run.kinds[kind] for run in side.runs]))
            for name_of_side, side in sides
        ]
        things.append((kind, lines))
    # A single time is a step of zero length, which is invisible; the chart of iterations shows it as a dot.
    drawn = [(thing, lines) for thing, lines in things if any(len(line.times_ns) > 1 for line in lines)]
    return compared_completion(drawn, name) if drawn else ()


def _direction_word(found: Comparison) -> str:
    return "shorter" if found.verdict is Outcome.IMPROVEMENT else "longer"


def carrier_blocks(found: Comparison) -> tuple[Block, ...]:
    """Return the collectives, ranks and flows that contribute to the change."""
    blocks = [*_shifts("collective, per iteration", found.carriers), *_shifts("ops of", found.ranks)]
    rows = [
        (f"{trouble.src_rank} to {trouble.dst_rank}", trouble.what, f"{trouble.a:.6g}", f"{trouble.b:.6g}")
        for trouble in found.troubles
    ]
    blocks += table("More of in B, per run", ("flow", "what", "A", "B"), list(rows), (2, 3))
    if not blocks:
        blocks.append(Text("Nothing.", is_dim=True))
    if found.only_a or found.only_b:
        words = f"{found.only_a} collectives and pairs only A has, {found.only_b} only B."
        blocks.append(Text(words, is_dim=True))
    return tuple(blocks)


def _interference(found: Comparison) -> tuple[Block, ...]:
    rows = [
        (
            job.job,
            f"{job.factor:.3f}",
            "unknown" if job.low is None or job.high is None else f"{job.low:.3f} .. {job.high:.3f}",
        )
        for job in found.interference
    ]
    return table("Jobs beside others", ("job", "factor: time in B / in A", "interval"), list(rows), (1, 2))


def _shifts(title: str, shifts: Sequence[Shift]) -> list[Block]:
    rows = [
        (shift.what, time_words(shift.a_ns), time_words(shift.b_ns), time_words(shift.added_ns))
        for shift in shifts
    ]
    return list(table(f"Added by {title}", (title, "A", "B", "added"), list(rows), (1, 2, 3)))


def _bandwidths(a: Side, b: Side) -> tuple[Block, ...]:
    means = [
        {
            kind: float(np.mean([run.kind_bytes_per_s[kind] for run in side.runs]))
            for kind in sorted(set.intersection(*(set(run.kind_bytes_per_s) for run in side.runs)))
        }
        for side in (a, b)
    ]
    rows = [
        (kind, rate_words(rate), rate_words(means[1][kind]), change_text(means[1][kind] / rate - 1, 2))
        for kind, rate in means[0].items()
        if kind in means[1] and rate > 0
    ]
    table_blocks = table("Means over runs", ("collectives", "A", "B", "change"), list(rows), (1, 2, 3))
    return table_blocks or (Text("None.", is_dim=True),)


def _plain(found: Comparison) -> tuple[Block, ...]:
    rows = [
        (
            Cell(figure.name, is_code=True),
            value_words(figure.a, figure.unit),
            value_words(figure.b, figure.unit),
            "" if figure.change is None else change_text(figure.change, 2),
        )
        for figure in found.plain
    ]
    table_blocks = table(
        "By the names that conditions use", ("figure", "A", "B", "change"), list(rows), (1, 2, 3)
    )
    if not table_blocks:
        return (Text("The runs have no kpis.json.", is_dim=True),)
    return (Fold(f"All {len(rows)} figures", table_blocks),)


def differing_blocks(found: Comparison) -> tuple[Block, ...]:
    """Return the settings in which the two sides differ."""
    rows = [(difference.thing, difference.path, difference.a, difference.b) for difference in found.differing]
    more = found.differing_total - len(rows)
    rest = (Text(f"And {more} more.", is_dim=True),) if more else ()
    table_blocks = table("By their files", ("thing", "what", "A", "B"), list(rows))
    return (*(table_blocks or (Text("In nothing that their directories say.", is_dim=True),)), *rest)
