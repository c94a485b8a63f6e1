"""Results of a sweep: figures of every point over its runs, and each setting of the compared axis compared with the
first.

Decides which points are compared, and how the probability of a false alarm is divided among the settings of a group
(Bonferroni): the requested confidence holds for every group as a whole. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.compare.compare import compare_runs
from etloop.results.compare.samples import Side
from etloop.results.compare.statistics import variation
from etloop.results.schema.comparison import Comparison, ComparisonSettings
from etloop.results.schema.kpis import FIGURES
from etloop.results.schema.sweep import PointRecord, PointResult, Spread, SweepRecord
from etloop.results.verdict.evaluation import aggregate

JCT: Final = "jct_ns"
"""The job's time per iteration (`iterations`) without warm-up, as it is tested."""
P99: Final = "jct_ns_p99"
"""The 99th percentile of the time over the iterations of a run."""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Points that differ only in the compared axis."""

    labels: dict[str, str]
    """Settings that they have in common, by axis."""
    points: tuple[PointRecord, ...]
    """The first one is the reference of the comparisons."""
    comparisons: dict[str, Comparison]
    """By name of the point that is compared with the first; only points with runs."""

    @property
    def words(self) -> str:
        """Return the settings that the points have in common, for people."""
        return ", ".join(f"{axis}={label}" for axis, label in self.labels.items())


def groups(record: SweepRecord, sides: Mapping[str, Side], settings: ComparisonSettings) -> tuple[Group, ...]:
    """Return all groups in the order of their points; `sides` are the runs of points by name."""
    members: dict[tuple[tuple[str, str], ...], list[PointRecord]] = {}
    for point in record.points:
        common = tuple((axis, label) for axis, label in point.labels.items() if axis != record.compare)
        members.setdefault(common, []).append(point)
    return tuple(
        _group(dict(common), group_points, sides, settings) for common, group_points in members.items()
    )


def _group(
    labels: dict[str, str],
    points: Sequence[PointRecord],
    sides: Mapping[str, Side],
    settings: ComparisonSettings,
) -> Group:
    """Return a group with the comparisons of its points with the first one."""
    first, other_points = points[0], points[1:]
    shared = 1 - (1 - settings.confidence) / max(len(other_points), 1)
    pair_settings = replace(settings, confidence=shared, paired=True)
    comparisons = {
        point.name: compare_runs(sides[first.name], sides[point.name], pair_settings)
        for point in other_points
        if first.name in sides and point.name in sides
    }
    return Group(labels, tuple(points), comparisons)


def point_results(groups: Sequence[Group], sides: Mapping[str, Side]) -> tuple[PointResult, ...]:
    """Return the results of every point that has runs, in the order of their names."""
    results = []
    for group in groups:
        for point in group.points:
            if point.name in sides:
                comparison = group.comparisons.get(point.name)
                results.append(_result(point.name, sides[point.name], comparison, group.points[0].name))
    return tuple(sorted(results, key=lambda result: result.name))


def _result(name: str, side: Side, comparison: Comparison | None, against: str) -> PointResult:
    first = comparison.metrics[0] if comparison is not None else None
    return PointResult(
        name=name,
        runs=len(side.runs),
        left_out=side.left_out,
        figures=spreads(side),
        against=against if comparison is not None else "",
        outcome=comparison.verdict if comparison is not None else None,
        change=first.change if first is not None else None,
        low=first.low if first is not None else None,
        high=first.high if first is not None else None,
        reasons=comparison.reasons if comparison is not None else (),
        open_words=first.open_words if first is not None else "",
    )


def spreads(side: Side) -> tuple[Spread, ...]:
    """Return the job's time without warm-up, every key figure, and bus bandwidth by kind: each over the runs that have it."""
    all_spreads = [_spread(JCT, "ns", [float(run.jct_ns.mean()) for run in side.runs])]
    all_spreads.append(_spread(P99, "ns", [aggregate("p99", run.jct_ns) for run in side.runs]))
    for figure in FIGURES:
        values = [run.figures[figure.name] for run in side.runs if figure.name in run.figures]
        if values:
            all_spreads.append(_spread(figure.name, figure.unit, values))
    for kind in sorted({kind for run in side.runs for kind in run.kind_bytes_per_s}):
        values = [run.kind_bytes_per_s[kind] for run in side.runs if kind in run.kind_bytes_per_s]
        all_spreads.append(_spread(f"busbw of {kind}", "bytes/s", values))
    return tuple(all_spreads)


def _spread(name: str, unit: str, values: list[float]) -> Spread:
    array = np.array(values, np.float64)
    return Spread(
        name, unit, len(values), float(array.mean()), variation(array), float(array.min()), float(array.max())
    )
