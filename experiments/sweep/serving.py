"""Sweeps of serving workloads: a run of every point and repeat, and the figures of each point over its runs.

A repeat draws its requests anew. Runs have directories of their own, as those of other sweeps; their figures are compared by
their spread, since they have no iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.yaml_tree import values_by_path
from etloop.controller.plan.run_numbers import TWIN_ID
from etloop.controller.plan.serving_jobs import redrawn, required_load
from etloop.controller.run.execution import SilentWatcher
from etloop.controller.run.prepare import PrepareOptions, RunInputs, new_run_id, prepare
from etloop.controller.run.serving import serve_in_twin, serve_on_rig
from etloop.controller.run.twin import TwinHosts
from etloop.experiments.sweep.one_run import serve_in_lab
from etloop.experiments.sweep.points import Point, PointFiles
from etloop.experiments.sweep.run import SEEDS_OF_A_REPEAT
from etloop.results.schema.sweep import Mode, PointResult, RunRecord, Spread, SweepRecord
from etloop.results.schema.verdict import RunResult
from etloop.results.serving.run import ServingRun
from etloop.results.serving.store import write_serving
from etloop.results.serving.verdict import serving_results
from etloop.traffic.twin import TwinSettings


@dataclass(frozen=True, slots=True)
class ServedPoint:
    """One run of a point."""

    record: RunRecord
    figures: dict[str, float]
    units: dict[str, str]


def is_serving(files: PointFiles) -> bool:
    """Return whether the scenario of a point has a serving workload."""
    content = files.scenario.content or b""
    return any("workload.serving." in path for path in values_by_path(content, "scenario"))


def serve_point(
    point: Point, files: PointFiles, repeat: int, mode: Mode, level: str, run_dir: Path
) -> ServedPoint:
    """Make one run and write its directory. Raises an `InputError` before anything is sent."""
    if mode is Mode.LAB:
        assert files.topology is not None
        run, prepared = serve_in_lab(files.scenario, files.topology)
    else:
        run_id = TWIN_ID if mode is Mode.TWIN else new_run_id()
        inputs = RunInputs(files.scenario, files.rig, files.topology, run_id)
        prepared = prepare(inputs, PrepareOptions(keeps_case=False))
        load = redrawn(required_load(prepared.scenario), repeat * SEEDS_OF_A_REPEAT)
        if mode is Mode.TWIN:
            settings = TwinSettings(seed=None if repeat == 0 else repeat * SEEDS_OF_A_REPEAT)
            run = serve_in_twin(prepared, load, settings, TwinHosts.CARDS, level, SilentWatcher())
        else:
            run = serve_on_rig(prepared, load, prepared.rig.lab, SilentWatcher())
    write_serving(run_dir, run, prepared.texts)
    return _point_of(point, repeat, run)


def _point_of(point: Point, repeat: int, run: ServingRun) -> ServedPoint:
    results = serving_results(run.records, run.figures)
    figures = {name: value for name, value in results.figures.items() if value is not None}
    reason = run.failure.splitlines()[0] if run.failure else ""
    units = {name: results.figure_units[name] for name in figures}
    return ServedPoint(RunRecord(point.name, repeat, run.result, reason), figures, units)


def with_results(record: SweepRecord, served: Sequence[ServedPoint]) -> SweepRecord:
    """Return the index of a sweep with its runs, and the figures of every point over its unbroken runs."""
    results = []
    for point in record.points:
        runs = [run for run in served if run.record.point == point.name]
        whole = [run for run in runs if run.record.result is not RunResult.BROKEN]
        left_out = tuple(f"r{run.record.repeat:03d}: {run.record.reason}" for run in runs if run not in whole)
        names = whole[0].figures if whole else {}
        figures = tuple(_spread(name, whole) for name in names if all(name in run.figures for run in whole))
        results.append(PointResult(point.name, len(whole), left_out, figures, "", None, None, None, None, ()))
    return replace(record, runs=tuple(run.record for run in served), results=tuple(results))


def _spread(name: str, runs: Sequence[ServedPoint]) -> Spread:
    values = np.array([run.figures[name] for run in runs])
    mean = float(values.mean())
    cv = float(values.std(ddof=1) / mean) if len(values) > 1 and mean else None
    unit = runs[0].units[name]
    return Spread(name, unit, len(values), mean, cv, float(values.min()), float(values.max()))
