"""Runs a case in the twin, and gives its diagnosis."""

from __future__ import annotations

from pathlib import Path

from etloop.controller.run.execution import FinishedRun
from etloop.controller.run.pipeline import (
    PrepareOptions,
    RunInputs,
    RunOptions,
    SilentWatcher,
    prepare,
    run_plan,
)
from etloop.controller.run.twin import TwinExecution
from etloop.traffic.twin import SAMPLE_INTERVAL_NS, TwinSettings
from tests.measure.planting.cases import Case

LIMIT_NS = 20_000_000_000
"""Virtual time after which a job is given up: one in a deadlock never ends."""


def run_in_twin(case: Case, directory: Path) -> FinishedRun:
    """Write a case below `directory`, and run it there without pages. Raises `EtloopError` if the twin refuses it."""
    case.write(directory)
    inputs = RunInputs.of(
        directory / "scenario.yaml", directory / "rig.yaml", directory / "topology.yaml", "planted"
    )
    options = RunOptions(directory / "run", expects=False, pages=False)
    execution = TwinExecution(TwinSettings(limit_ns=LIMIT_NS, sample_interval_ns=SAMPLE_INTERVAL_NS))
    return run_plan(prepare(inputs, PrepareOptions()), execution, options, SilentWatcher())
