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
    Fold,
    LegendEntry,
    Page,
    Plot,
    Section,
    Text,
    listing,
    table_blocks,
)
from etloop.results.html.distribution import TIMES, Times, compare_completion
from etloop.results.html.lanes import COLOURS
from etloop.results.html.render import render
from etloop.results.html.rows import Dot, Row, RowChart, row_chart
from etloop.results.html.timeline import scale_of
from etloop.results.report.comparison import (
    BADGES,
    WORDS,
    block_table,
    change_words,
    conditions_table,
    contribution_tables,
    differing_table,
    direction_word,
    findings_table,
    interference_table,
    losses_table,
    moved_table,
    plain_table,
    sides_table,
    tested_table,
)
from etloop.results.report.table import Column, Table, Unit
from etloop.results.report.values import time_words
from etloop.results.schema.comparison import Comparison, MetricResult

if TYPE_CHECKING:
    from etloop.results.compare.samples import Side

MOST_KINDS: Final = 8
"""Most kinds of collectives whose distributions are drawn."""
_COLOUR_OF: Final = {"fail": 10, "pass": 2, "inconclusive": 6}
"""Colour number of templates/style.css, by badge."""


def colour(number: int) -> int:
    """Return the colour of a side or setting, by its number."""
    return number % COLOURS


def comparison_html(comparison: Comparison, a: Side, b: Side) -> str:
    """Return the page."""
    sides = (("A", a), ("B", b))
    plain = table_blocks(plain_table(comparison), len(comparison.plain))
    sections = (
        Section("verdict", "Verdict", (*verdict_blocks(comparison), *table_blocks(sides_table(comparison)))),
        Section(
            "network",
            "The network",
            network_blocks(comparison),
        ),
        Section(
            "changes-of",
            "Change, B against A",
            (*change_chart(comparison.metrics, "changes"), *tested_blocks(comparison)),
        ),
        Section("losses", "Losses", table_blocks(losses_table(comparison))),
        Section("conditions", "Conditions", table_blocks(conditions_table(comparison))),
        Section("interference", "Interference", table_blocks(interference_table(comparison))),
        Section("iterations-of", "Iterations", _iterations(sides)),
        Section("completion-of", "Completion", completion_blocks(sides, "completion")),
        Section("carriers", f"What became {direction_word(comparison)}", contribution_blocks(comparison)),
        Section("bandwidth", "Bus bandwidth, all members present", _bandwidths(a, b)),
        Section(
            "figures",
            "Key figures, means over runs, not tested",
            (Fold(f"All {len(comparison.plain)} figures", plain),)
            if plain
            else (Text("The runs have no kpis.json.", is_dim=True),),
        ),
        Section("differing", "Settings in which A and B differ", differing_blocks(comparison)),
    )
    names = f"{comparison.b.name} against {comparison.a.name}"
    subtitle = "A: the runs to compare with; B: the runs in question"
    badge = BADGES[comparison.verdict]
    return render(Page(f"ETLoop compare: {names}", subtitle, badge, WORDS[comparison.verdict], (), sections))


def verdict_blocks(comparison: Comparison) -> tuple[Block, ...]:
    """Return the verdict with its reasons and warnings."""
    outcome = Text("", badge=BADGES[comparison.verdict], badge_text=WORDS[comparison.verdict])
    return (outcome, *listing(comparison.reasons), *listing(comparison.warnings, "Warnings:"))


def network_blocks(comparison: Comparison) -> tuple[Block, ...]:
    """Return the fixed block, the objects that moved, and the findings that differ."""
    tables = (block_table(comparison), moved_table(comparison), findings_table(comparison))
    return tuple(block for table in tables for block in table_blocks(table, len(table.rows)))


def tested_blocks(comparison: Comparison) -> tuple[Block, ...]:
    """Return every test with its numbers."""
    return table_blocks(tested_table(comparison), len(comparison.metrics))


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
    return compare_completion(drawn, name) if drawn else ()


def contribution_blocks(comparison: Comparison) -> tuple[Block, ...]:
    """Return the collectives, ranks and flows that contribute to the change."""
    blocks = [block for table in contribution_tables(comparison) for block in table_blocks(table)]
    if not blocks:
        blocks.append(Text("Nothing.", is_dim=True))
    if comparison.only_a or comparison.only_b:
        words = f"{comparison.only_a} collectives and pairs only A has, {comparison.only_b} only B."
        blocks.append(Text(words, is_dim=True))
    return tuple(blocks)


_BANDWIDTH_COLUMNS: Final = (
    Column("collectives", "collectives"),
    Column("a", "A", Unit.RATE),
    Column("b", "B", Unit.RATE),
    Column("change", "change", Unit.NUMBER),
)


def _bandwidths(a: Side, b: Side) -> tuple[Block, ...]:
    means = [
        {
            kind: float(np.mean([run.kind_bytes_per_s[kind] for run in side.runs]))
            for kind in sorted(set.intersection(*(set(run.kind_bytes_per_s) for run in side.runs)))
        }
        for side in (a, b)
    ]
    rows = tuple(
        (kind, rate, means[1][kind], change_text(means[1][kind] / rate - 1, 2))
        for kind, rate in means[0].items()
        if kind in means[1] and rate > 0
    )
    table = Table("bandwidths", "Means over runs", _BANDWIDTH_COLUMNS, rows)
    return table_blocks(table, len(rows)) or (Text("None.", is_dim=True),)


def differing_blocks(comparison: Comparison) -> tuple[Block, ...]:
    """Return the settings in which the two sides differ."""
    differing = differing_table(comparison)
    return table_blocks(differing, len(differing.rows)) or (
        Text("A and B are runs of the same files.", is_dim=True),
    )
