"""The page of a sweep: for every group of points a table, times, distributions and bandwidths next to each other.

Decides order, wording and limits. Templates escape everything that a file or a trace named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.results.html.blocks import Block, Fold, LegendEntry, Page, Section, Text, table_blocks
from etloop.results.html.compare import (
    change_chart,
    colour,
    completion_blocks,
    contribution_blocks,
    differing_blocks,
    network_blocks,
    tested_blocks,
    verdict_blocks,
)
from etloop.results.html.distribution import TIMES
from etloop.results.html.render import render
from etloop.results.html.rows import Dot, Row, row_chart
from etloop.results.html.timeline import scale_of
from etloop.results.report.comparison import BADGES, WORDS
from etloop.results.report.sweep import broken_table, group_table, mean_jct_ns, promise_words
from etloop.results.report.values import first_upper, rate_words, time_words

if TYPE_CHECKING:
    from etloop.results.compare.samples import Side
    from etloop.results.compare.sweep_results import Group
    from etloop.results.schema.comparison import ComparisonSettings
    from etloop.results.schema.sweep import PointResult, SweepRecord

MOST_GROUPS: Final = 40
"""Most groups that are drawn; sweep.json has all of them."""
MOST_DETAILS: Final = 60
"""Most comparisons that are shown in full."""


def sweep_html(
    record: SweepRecord, groups: Sequence[Group], sides: Mapping[str, Side], settings: ComparisonSettings
) -> str:
    """Return the page."""
    results = {result.name: result for result in record.results}
    group_sections = [
        Section(
            f"group{number}", group.words or record.compare, _group(record, group, results, sides, number)
        )
        for number, group in enumerate(groups[:MOST_GROUPS])
    ]
    groups_left_out = len(groups) - MOST_GROUPS
    more = (
        (Text(f"{groups_left_out} more groups are in sweep.json.", is_dim=True),)
        if groups_left_out > 0
        else ()
    )
    broken = broken_table(record)
    sections = (
        Section("promise", "False alarms", (Text(first_upper(promise_words(settings))),)),
        Section("all", "All groups", _overview(record, groups, results) if len(groups) > 1 else ()),
        *group_sections,
        Section("more", "More", more),
        Section("details", "In full", _details(groups, record.compare)),
        Section("broken", "Runs that ended early", table_blocks(broken, MOST_DETAILS)),
    )
    subtitle = (
        f"{len(record.points)} points, {record.repeats} runs each, {len(record.runs)} done; {record.mode}; {record.order} (seed "
        f"{record.seed}); settings of {record.compare} are compared with the first"
    )
    return render(Page(f"ETLoop sweep: {record.source}", subtitle, "", "", (), sections))


def _overview(
    record: SweepRecord, groups: Sequence[Group], results: Mapping[str, PointResult]
) -> tuple[Block, ...]:
    """Return a chart of the job's time by setting, for every group relative to its first point."""
    labels = list(dict.fromkeys(point.labels[record.compare] for group in groups for point in group.points))
    rows = []
    for group in groups[:MOST_GROUPS]:
        points_with_results = [point for point in group.points if point.name in results]
        if not points_with_results or points_with_results[0] is not group.points[0]:
            continue
        base = mean_jct_ns(results[points_with_results[0].name])
        dots = tuple(
            Dot(
                f"{label}: {mean_jct_ns(results[point.name]) / base:.4g}",
                mean_jct_ns(results[point.name]) / base,
                colour(labels.index(label)),
            )
            for point in points_with_results
            for label in (point.labels[record.compare],)
        )
        rows.append(Row(group.words, dots))
    legend = tuple(LegendEntry(label, colour(number)) for number, label in enumerate(labels[:12]))
    title = f"Iteration by {record.compare}, against the first setting"
    return row_chart("overview", title, "iteration (of the first setting's)", tuple(rows), legend, 1.0)


def _group(
    record: SweepRecord,
    group: Group,
    results: Mapping[str, PointResult],
    sides: Mapping[str, Side],
    number: int,
) -> tuple[Block, ...]:
    settings_with_runs = [
        (point.labels[record.compare], sides[point.name]) for point in group.points if point.name in sides
    ]
    table = group_table(group, record.compare, results, record.runs)
    blocks = table_blocks(table, len(table.rows))
    if not settings_with_runs:
        return blocks
    return (
        *blocks,
        *_times(settings_with_runs, f"times{number}"),
        *completion_blocks(settings_with_runs, f"completion{number}"),
        *_bandwidths(settings_with_runs, f"bandwidth{number}"),
    )


def _times(settings: Sequence[tuple[str, Side]], name: str) -> tuple[Block, ...]:
    """Return a chart of the job's time in every run, one row a setting."""
    unit = scale_of(max(float(run.jct_ns.mean()) for _, side in settings for run in side.runs), TIMES, "ns")
    rows = tuple(
        Row(
            label,
            tuple(
                Dot(f"{repeat}: {time_words(mean)}", mean / unit.size, colour(number))
                for repeat, mean in zip(
                    side.repeats, [float(run.jct_ns.mean()) for run in side.runs], strict=True
                )
            ),
        )
        for number, (label, side) in enumerate(settings)
    )
    return row_chart(name, "Every run, a row a setting", f"iteration, mean of a run ({unit.name})", rows)


def _bandwidths(settings: Sequence[tuple[str, Side]], name: str) -> tuple[Block, ...]:
    """Return a chart of the bus bandwidth by kind of collective with standard deviations, one colour a setting."""
    kinds = sorted({kind for _, side in settings for run in side.runs for kind in run.kind_bytes_per_s})
    rows = []
    for kind in kinds:
        dots = []
        for number, (label, side) in enumerate(settings):
            values = [run.kind_bytes_per_s[kind] for run in side.runs if kind in run.kind_bytes_per_s]
            if values:
                mean = float(np.mean(values))
                spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
                ends = ((mean - spread) / 1e9, (mean + spread) / 1e9)
                dots.append(Dot(f"{label}: {rate_words(mean)}", mean / 1e9, colour(number), *ends))
        rows.append(Row(kind, tuple(dots)))
    legend = tuple(LegendEntry(label, colour(number)) for number, (label, _) in enumerate(settings))
    return row_chart(name, "Bus bandwidth, all members present", "bus bandwidth (GB/s)", tuple(rows), legend)


def _details(groups: Sequence[Group], axis: str) -> tuple[Block, ...]:
    all_comparisons = [
        (group, name, comparison) for group in groups for name, comparison in group.comparisons.items()
    ]
    blocks: list[Block] = []
    for number, (group, name, comparison) in enumerate(all_comparisons[:MOST_DETAILS]):
        labels = {point.name: point.labels[axis] for point in group.points}
        words = f": {group.words}" if group.words else ""
        title = f"{labels[name]} against {labels[group.points[0].name]}{words} ({name})"
        parts = (
            *verdict_blocks(comparison),
            *network_blocks(comparison),
            *change_chart(comparison.metrics, f"changes{number}"),
            *tested_blocks(comparison),
            *contribution_blocks(comparison),
            *differing_blocks(comparison),
        )
        blocks.append(Fold(title, parts, BADGES[comparison.verdict], WORDS[comparison.verdict]))
    if len(all_comparisons) > MOST_DETAILS:
        words = f"{len(all_comparisons) - MOST_DETAILS} more: etloop compare POINT POINT shows each."
        blocks.append(Text(words, is_dim=True))
    return tuple(blocks)
