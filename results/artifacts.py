"""Builds everything a run directory holds from the records of a run, step by step: measurement, comparison, device
counters, verdict.

Decides which tables and files there are. Every step takes a `RunArtifacts` and returns a larger one; `store.run_dir`
writes it to disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.device_counts import CountedDevice
from etloop.contract.model.run import ExpectedRun, PlanTables, RunOutcome
from etloop.results.device.losses import loss_input, reconcile_losses
from etloop.results.device.summary import DeviceBasis, device_results
from etloop.results.diagnosis.build import evidence_of
from etloop.results.diagnosis.diagnose import diagnose
from etloop.results.expected.expected_vs_measured import compare, compared_rows, expected_rows
from etloop.results.export.perfetto import MOST_OPS, MOST_OPS_OF_PART, perfetto_json
from etloop.results.html.report import report_html
from etloop.results.kpis.flow_sizes import flow_sizes
from etloop.results.kpis.input import KpiInput, of_jobs
from etloop.results.kpis.run_kpis import key_figures, results_of, vocabulary
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
from etloop.results.verdict.evaluation import Frame
from etloop.results.verdict.junit import junit_xml
from etloop.results.verdict.junit_names import run_class
from etloop.results.verdict.verdict import Conditions, decide_verdict

JUNIT_FILE: Final = "junit.xml"
PART_NOTE: Final = "key figures, conditions and pages are of"
"""Start of the note on a run whose tables were too long to be evaluated completely."""
REPORT_FILE: Final = "report.html"
PERFETTO_FILE: Final = "trace.perfetto.json"


@dataclass(frozen=True, slots=True, eq=False)
class RunRecords:
    """The records of a run that are to be measured, with its plan and input files."""

    outcome: RunOutcome
    plan: PlanTables
    connection_rows: Mapping[str, NDArray[np.int32]]
    """Per agent: row i of its `Assignment.connections` is row `connection_rows[agent][i]` of `plan.connections` (int32)."""
    port_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Per agent: names of its ports, in the order of its assignment."""
    texts: Mapping[str, str | bytes] = field(default_factory=dict)
    """By file name: contents of the scenario, the rig and the other input files of the run."""
    tables: Mapping[str, Any] = field(default_factory=dict)
    """By name: tables that only a twin has, such as the lanes of its switches."""


def measure_run_records(
    records: RunRecords, measurement: Measurement, made: Mapping[str, Path] | None = None
) -> RunArtifacts:
    """Return the tables and figures of a run, finished or not, from its `measurement`.

    `made` maps file names to files that are already written, including the complete tables of which `measurement` holds
    only a part.
    """
    outcome, plan, measurements = records.outcome, records.plan, measurement
    tables = {
        "ops": ops_table(outcome, plan, measurements.ops),
        "collectives": collectives_table(plan, measurements.groups, measurements.collectives),
        "flows": flows_table(outcome, plan, measurements.flows),
        "ports": ports_table(outcome, plan, records.port_names),
        "jobs": jobs_table(measurements.passes, plan),
        "cc": rates_table(outcome, plan, records.connection_rows),
        **records.tables,
    }
    existing_tables = {name: table for name, table in tables.items() if table is not None}
    texts = dict.fromkeys(INPUT_FILES, "") | dict(records.texts)
    return RunArtifacts(
        measurements.summary, plan, existing_tables, texts, dict(made or {}), _part(plan, measurements)
    )


def _part(plan: PlanTables, measurement: Measurement) -> str:
    """Return which part of the iterations the figures cover, in words; "" if they cover the whole run."""
    if not measurement.left_out:
        return ""
    ops = len(measurement.ops)
    return f"the first {measurement.iterations} of {plan.iterations} iterations ({ops} of {ops + measurement.left_out} ops)"


def add_comparison(
    run: RunArtifacts, measurement: Measurement, expected: Sequence[ExpectedRun], absent: tuple[str, ...]
) -> RunArtifacts:
    """Return the run with its comparison with the `expected` runs. `absent`: expected runs that are missing, each with
    the reason."""
    rows = [expected_rows(expected_run, run.plan, measurement.groups) for expected_run in expected]
    summary = replace(run.summary, comparison=compare(measurement, run.plan, rows, absent))
    table = comparison_table(run.plan, measurement.groups, compared_rows(measurement, rows))
    return replace(run, summary=summary, tables={**run.tables, "comparison": table})


def add_device_counters(run: RunArtifacts, counted: CountedDevice, basis: DeviceBasis) -> RunArtifacts:
    """Return the run with the device's own counters: `dut` of the summary, and their tables."""
    device = device_results(counted, basis, run.plan, run.frames())
    overload = device.summary.counters.get("port_overload_frames", 0)
    summary = replace(
        run.summary, dut=device.summary, overload_frames=max(run.summary.overload_frames, overload)
    )
    return replace(run, summary=summary, tables={**run.tables, **device.tables})


def add_joint_figures(run: RunArtifacts, basis: KpiBasis) -> RunArtifacts:
    """Return the run with the figures that need several tables: losses, flow completion and slow names. Replaces earlier
    ones."""
    frames = run.frames()
    return _with_joint_figures(run, basis, frames, kpi_input(run, basis, frames))


def _with_joint_figures(
    run: RunArtifacts, basis: KpiBasis, frames: Mapping[str, Frame], kpi_inputs: KpiInput
) -> RunArtifacts:
    losses = reconcile_losses(loss_input(run.summary, frames, basis.port_backends))
    flows, slow = flow_sizes(kpi_inputs), slow_names(kpi_inputs)
    return replace(run, summary=replace(run.summary, losses=losses, flow_sizes=flows, slow_names=slow))


def kpi_input(run: RunArtifacts, basis: KpiBasis, frames: Mapping[str, Frame] | None = None) -> KpiInput:
    """Return the input of the key figures: the tables of the run with the link speeds that the rig states.

    `frames`: those of the run, from a caller that has them.
    """
    plan, frames = run.plan, run.frames() if frames is None else frames
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


def add_verdict(
    run: RunArtifacts,
    basis: KpiBasis,
    conditions: Conditions,
    facts: DeviceFacts = NO_FACTS,
    *,
    pages: bool = True,
    junit: bool = True,
    place: str = "",
) -> RunArtifacts:
    """Return the run with its key figures, the verdict by `conditions`, and with `junit` junit.xml. Replaces earlier ones.

    `facts`: the device as the input files describe it, for the report. `place`: the location of the run, for the names of
    JUnit cases (`junit_names.place_of`). Without `pages` only machine-readable files are made: no report and no Perfetto
    trace.
    """
    kept_notes = tuple(note for note in run.summary.notes if not note.startswith(PART_NOTE))
    notes = tuple(note for note in conditions.notes if note not in kept_notes)
    if run.part:
        notes += (f"{PART_NOTE} {run.part}",)
    degraded = tuple(dict.fromkeys((*run.summary.degraded, *run.summary.overload)))
    run = replace(
        run, summary=replace(run.summary, notes=kept_notes + notes, degraded=degraded, verdict=None)
    )
    frames = run.frames()
    kpi_inputs = kpi_input(run, basis, frames)
    run = _with_joint_figures(run, basis, frames, kpi_inputs)
    kpi_inputs = replace(kpi_inputs, summary=run.summary)
    kpis = key_figures(kpi_inputs, basis)
    diagnosis = diagnose(partial(evidence_of, kpi_inputs, basis, kpis, facts.topology))
    run = replace(run, summary=replace(run.summary, diagnosis=diagnosis))
    kpi_inputs = replace(kpi_inputs, summary=run.summary)
    verdict = None
    if conditions:
        verdict = decide_verdict(
            conditions, results_of(kpi_inputs, kpis), vocabulary(), kpi_inputs.summary, run.part
        )
    summary = replace(run.summary, verdict=verdict)
    texts = {KPI_FILE: to_json(kpis)}
    if junit:
        input_texts = [run.texts.get(name, "") for name in (*INPUT_FILES, TOPOLOGY_FILE)]
        identity = ".".join(filter(None, (run_class(summary.workload.source, input_texts), place)))
        texts[JUNIT_FILE] = junit_xml(summary, verdict, identity)
    if pages:
        scenario, rig = (str(run.texts[name]) for name in INPUT_FILES)
        texts[PERFETTO_FILE] = perfetto_json(kpi_inputs, MOST_OPS_OF_PART if run.part else MOST_OPS)
        case = run.texts.get(CASE_FILE)
        steps = repeating_steps(case) if isinstance(case, bytes) else ()
        texts[REPORT_FILE] = report_html(kpi_inputs, kpis, summary, (scenario, rig), facts, steps)
    return replace(run, summary=summary, texts={**run.texts, **texts})
