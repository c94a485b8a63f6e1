"""Runs a single scenario, or a serving workload, through a lab of its own, without a sweep."""

from __future__ import annotations

import os
from pathlib import Path

from etloop.controller.plan.serving_jobs import required_load
from etloop.controller.run.execute import SessionExecution
from etloop.controller.run.out_directory import refuse_used_directory
from etloop.controller.run.pipeline import RunInputs, RunOptions, SilentWatcher, new_run_id, prepare, run_plan
from etloop.controller.run.prepare import InputFile, Prepared, PrepareOptions
from etloop.controller.run.serving import serve_on_rig
from etloop.experiments.sweep.file import LabWish
from etloop.experiments.sweep.own_lab import OwnLab
from etloop.results.serving.run import ServingRun


def run_in_lab(
    scenario: InputFile,
    topology: InputFile,
    out_dir: str | os.PathLike[str],
    *,
    backend: str,
    overcommit: bool,
    plugins: bool,
) -> Path:
    """Bring a lab up, run a scenario through it and take it down; return the directory of the run.

    Raises an `InputError` before any traffic.
    """
    directory = Path(out_dir)
    refuse_used_directory(directory)
    lab = OwnLab(LabWish(backend=backend), allow_overcommit=overcommit, allow_plugins=plugins)
    inputs = RunInputs(scenario, lab.rig(topology), topology, new_run_id())
    prepared = prepare(inputs)
    try:
        lab.up(topology)
        run_plan(prepared, SessionExecution(), RunOptions(directory, lab=lab.name), SilentWatcher())
    finally:
        lab.down()
    return directory


def serve_in_lab(scenario: InputFile, topology: InputFile) -> tuple[ServingRun, Prepared]:
    """Bring a lab up, run a serving workload through it and take it down. Raises an `InputError` before any traffic."""
    lab = OwnLab(LabWish(), allow_overcommit=False, allow_plugins=False)
    inputs = RunInputs(scenario, lab.rig(topology), topology, new_run_id())
    prepared = prepare(inputs, PrepareOptions(keeps_case=False))
    load = required_load(prepared.scenario)
    try:
        lab.up(topology)
        return serve_on_rig(prepared, load, lab.name, SilentWatcher()), prepared
    finally:
        lab.down()
