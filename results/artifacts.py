"""From the records of a run to all that its directory holds, step by step: measured, compared, counted, with a verdict.

Decides which tables and files there are. Every step takes what is known and returns more; `store.run_dir` keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.device_counts import CountedDevice
from etloop.contract.model.run import ExpectedRun, PlanTables, RunOutcome
from etloop.results.device.losses import loss_input, reconcile_losses
from etloop.results.device.summary import DeviceBasis, device_results
from etloop.results.expected.expected_vs_measured import compare, compared_rows, expected_rows
from etloop.results.export.perfetto import MOST_OPS, MOST_OPS_OF_PART, perfetto_json
from etloop.results.html.report import report_html
from etloop.results.kpis.all import key_figures, results_of, vocabulary
from etloop.results.kpis.flow_sizes import flow_sizes
from etloop.results.kpis.input import KpiInput, of_jobs
from etloop.results.kpis.slow_ops import slow_names
from etloop.results.measure.summary import Measurement
from etloop.results.schema.case import CASE_FILE
from etloop.results.schema.device_facts import NO_FACTS, DeviceFacts
from etloop.results.schema.kpis import KPI_FILE, KpiBasis
from etloop.results.schema.typed_json import to_json
from etloop.results.store.case_archive import repeating_steps
from etloop.results.store.run_dir import INPUT_FILES, TOPOLOGY_FILE, RunArtifacts
from etloop.results.tables.arrow_tables import (
    collectives_table,
    comparison_table,
    flows_table,
    jobs_table,
    ops_table,
    ports_table,
    rates_table,
)
from etloop.results.verdict.junit import junit_xml
from etloop.results.verdict.junit_names import run_class
from etloop.results.verdict.verdict import Conditions, decide_verdict
from numpy.typing import NDArray

JUNIT_FILE: Final = "junit.xml"
PART_NOTE: Final = "key figures, conditions and pages are of"
"""Begins the note on a run whose tables were too long to be worked through as a whole."""
REPORT_FILE: Final = "report.html"
PERFETTO_FILE: Final = "trace.perfetto.json"


@dataclass(frozen=True, slots=True, eq=False)
class RunRecords:
    """What a run left to be measured, and what it was made of."""

    outcome: RunOutcome
    plan: PlanTables
    connection_rows: Mapping[str, NDArray[np.int32]]
    """Per agent: row i of its `Assignment.connections` is this row of `plan.connections`."""
    port_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Per agent: the names of its ports in the order of its assignment."""
    texts: Mapping[str, str | bytes] = field(default_factory=dict)
    """By file name: scenario, rig and what else the run was made of."""
    tables: Mapping[str, Any] = field(default_factory=dict)
    """By name: what only a twin knows, such as the lanes of its switches."""


def measured_run(
    records: RunRecords, measurement: Measurement, made: Mapping[str, Path] | None = None
) -> RunArtifacts:
    """Return the tables and figures of a run, finished or not, of which `measurement` was made.

    `made`: its files that are written already, those of the tables that `measurement` has only in part among them.
    """
    outcome, plan, found = records.outcome, records.plan, measurement
    tables = {
        "ops": ops_table(outcome, plan, found.ops),
        "collectives": collectives_table(plan, found.groups, found.collectives),
        "flows": flows_table(outcome, plan, found.flows),
        "ports": ports_table(outcome, plan, records.port_names),
        "jobs": jobs_table(found.passes, plan),
        "cc": rates_table(outcome, plan, records.connection_rows),
        **records.tables,
    }
    there = {name: table for name, table in tables.items() if table is not None}
    texts = dict.fromkeys(INPUT_FILES, "") | dict(records.texts)
    return RunArtifacts(found.summary, plan, there, texts, dict(made or {}), _part(plan, found))


def _part(plan: PlanTables, found: Measurement) -> str:
    if not found.left_out:
        return ""
    ops = len(found.ops)
    return (
        f"the first {found.iterations} of {plan.iterations} iterations ({ops} of {ops + found.left_out} ops)"
    )


def compared_run(
    run: RunArtifacts, measurement: Measurement, expected: Sequence[ExpectedRun], absent: tuple[str, ...]
) -> RunArtifacts:
    """Return a run held against what was expected of it. `absent`: what is not there to compare with, and why."""
    rows = [expected_rows(one, run.plan, measurement.groups) for one in expected]
    summary = replace(run.summary, comparison=compare(measurement, run.plan, rows, absent))
    table = comparison_table(run.plan, measurement.groups, compared_rows(measurement, rows))
    return replace(run, summary=summary, tables={**run.tables, "comparison": table})


def counted_run(run: RunArtifacts, counted: CountedDevice, basis: DeviceBasis) -> RunArtifacts:
    """Return a run with what was read of the device's own counters."""
    found = device_results(counted, basis, run.plan, run.frames())
    overload = found.summary.counters.get("port_overload_frames", 0)
    summary = replace(
        run.summary, dut=found.summary, overload_frames=max(run.summary.overload_frames, overload)
    )
    return replace(run, summary=summary, tables={**run.tables, **found.tables})


def with_joint_figures(run: RunArtifacts, basis: KpiBasis) -> RunArtifacts:
    """Return a run with what its tables make together: losses, flow completion, slow names; in the place of earlier ones."""
    losses = reconcile_losses(loss_input(run.summary, run.frames(), basis.port_backends))
    given = kpi_input(run, basis)
    flows, slow = flow_sizes(given), slow_names(given)
    return replace(run, summary=replace(run.summary, losses=losses, flow_sizes=flows, slow_names=slow))


def kpi_input(run: RunArtifacts, basis: KpiBasis) -> KpiInput:
    """Return a run with what the rig says of it, as key figures are worked out."""
    plan, frames = run.plan, run.frames()
    speeds = {}
    for agent, port in zip(plan.rank_agent, plan.rank_port, strict=True):
        name = port if "/" in port else f"{agent}/{port}"
        if name in basis.port_bps:
            speeds[agent, port] = basis.port_bps[name]
    compute = None if basis.compute_ns is None else np.array(basis.compute_ns, np.int64)
    jobs = of_jobs(frames, plan)
    return KpiInput(
        run.summary, plan, jobs, speeds, compute, basis.mtu_bytes, frames["ops"], basis.lone_network
    )


def run_with_verdict(
    run: RunArtifacts,
    basis: KpiBasis,
    conditions: Conditions,
    facts: DeviceFacts = NO_FACTS,
    *,
    pages: bool = True,
    place: str = "",
) -> RunArtifacts:
    """Return a run with its key figures, the verdict by `conditions` and junit.xml, in the place of earlier ones.

    `facts`: what files say of the device, for the report. `place`: where the run is, for the names of cases (`junit_names.place_of`). Without `pages` only what programs read is made: no report, no trace
    for a viewer.
    """
    kept = tuple(note for note in run.summary.notes if not note.startswith(PART_NOTE))
    notes = tuple(note for note in conditions.notes if note not in kept)
    if run.part:
        notes += (f"{PART_NOTE} {run.part}",)
    degraded = tuple(dict.fromkeys((*run.summary.degraded, *run.summary.overload)))
    run = replace(run, summary=replace(run.summary, notes=kept + notes, degraded=degraded, verdict=None))
    run = with_joint_figures(run, basis)
    given = kpi_input(run, basis)
    kpis = key_figures(given, basis)
    verdict = None
    if conditions:
        verdict = decide_verdict(conditions, results_of(given, kpis), vocabulary(), given.summary, run.part)
    summary = replace(run.summary, verdict=verdict)
    made_of = [run.texts.get(name, "") for name in (*INPUT_FILES, TOPOLOGY_FILE)]
    identity = ".".join(filter(None, (run_class(summary.workload.source, made_of), place)))
    texts = {KPI_FILE: to_json(kpis), JUNIT_FILE: junit_xml(summary, verdict, identity)}
    if pages:
        scenario, rig = (str(run.texts[name]) for name in INPUT_FILES)
        texts[PERFETTO_FILE] = perfetto_json(given, MOST_OPS_OF_PART if run.part else MOST_OPS)
        case = run.texts.get(CASE_FILE)
        steps = repeating_steps(case) if isinstance(case, bytes) else ()
        texts[REPORT_FILE] = report_html(given, kpis, summary, (scenario, rig), facts, steps)
    return replace(run, summary=summary, texts={**run.texts, **texts})
