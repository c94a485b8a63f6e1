"""Runs in virtual time by themselves: the ideal network and the twin beside each other, where nothing was measured.

Decides which figures stand beside each other; how each is worked out is decided by `results.comparison`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from etloop.contract.model.run import ExpectedRun, PlanTables
from etloop.results.expected.expected_vs_measured import (
    IDEAL,
    TWIN,
    expected_reasons,
    expected_rows,
    expected_summary,
    job_figures,
    job_kinds,
    kind_figures,
    ratio,
)
from etloop.results.measure.collectives import group_ops
from etloop.results.measure.job_shares import counted_ops
from etloop.results.schema.summary import ExpectedSummary, JobFigures, KindFigures


@dataclass(frozen=True, slots=True)
class ExpectedKind:
    """Collectives of one kind, algorithm and size of group; None where there is no such run."""

    kind: str
    algorithm: str
    ranks: int
    ideal: KindFigures | None
    twin: KindFigures | None
    twin_per_ideal: float | None
    """Of `joined_avg_ns`."""


@dataclass(frozen=True, slots=True)
class ExpectedFigures:
    """The job and its collectives, as expected."""

    expected: tuple[ExpectedSummary, ...]
    absent: tuple[str, ...]
    """What could not be worked out, and why."""
    ideal: JobFigures | None
    twin: JobFigures | None
    twin_per_ideal: float | None
    """Of iterations of the job, on the average."""
    kinds: tuple[ExpectedKind, ...]
    notes: tuple[str, ...]
    """What was left out."""


def expected_figures(
    runs: Sequence[ExpectedRun], absent: tuple[str, ...], tables: PlanTables
) -> ExpectedFigures:
    """At most one run of each network."""
    groups = group_ops(tables)
    found = [expected_rows(run, tables, groups) for run in runs]
    by_network = {rows.run.network: rows for rows in found}
    sides = [by_network.get(name) for name in (IDEAL, TWIN)]
    per_iteration = int(counted_ops(tables).sum())
    ideal, twin = (job_figures(side.ops, per_iteration) if side else None for side in sides)
    kinds = []
    for kind in job_kinds(groups, tables):
        of_ideal, of_twin = (
            kind_figures(side.collectives, groups, kind.member, kind.factor) if side else None
            for side in sides
        )
        per_ideal = ratio(
            of_twin.joined_avg_ns if of_twin else None, of_ideal.joined_avg_ns if of_ideal else None
        )
        kinds.append(ExpectedKind(kind.name, kind.algorithm, kind.ranks, of_ideal, of_twin, per_ideal))
    return ExpectedFigures(
        expected=tuple(expected_summary(rows, tables) for rows in found),
        absent=absent,
        ideal=ideal,
        twin=twin,
        twin_per_ideal=ratio(
            twin.iteration_jct_avg_ns if twin else None, ideal.iteration_jct_avg_ns if ideal else None
        ),
        kinds=tuple(kinds),
        notes=tuple(expected_reasons(tables, found)),
    )
