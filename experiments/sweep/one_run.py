"""Runs a single scenario through a lab of its own, without a sweep."""

from __future__ import annotations

import os
from pathlib import Path

from etloop.controller.run.execute import SessionExecution
from etloop.controller.run.out_directory import refuse_used_directory
from etloop.controller.run.pipeline import RunInputs, RunOptions, SilentWatcher, new_run_id, prepare, run_plan
from etloop.controller.run.prepare import InputFile
from etloop.experiments.sweep.file import LabWish
from etloop.experiments.sweep.own_lab import OwnLab


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
