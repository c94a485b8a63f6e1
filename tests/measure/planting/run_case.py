"""Runs a case in the twin, and gives its diagnosis."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final, Literal

import etloop
from etloop.controller.run.pipeline import (
    PrepareOptions,
    RunInputs,
    RunOptions,
    SilentWatcher,
    prepare,
    run_plan,
)
from etloop.controller.run.twin import TwinExecution
from etloop.controller.run.verdict import judge_again
from etloop.results.schema.findings import Diagnosis
from etloop.traffic.twin import SAMPLE_INTERVAL_NS, TwinSettings
from tests.measure.planting.cases import Case

LIMIT_NS: Final = 20_000_000_000
"""Virtual time after which a job is given up: one in a deadlock never ends."""
PAUSING: Final = ("storm",)
"""Causes of which hosts send pause frames."""
RUN: Final = "run"
"""Directory of the results next to the files of the case."""


def diagnose_in_lab(case: Case, directory: Path) -> Diagnosis:
    """Run a case in a lab of this machine, in `directory`. Raises `EtloopError` if there can be none."""
    shutil.rmtree(directory, ignore_errors=True)
    case.write(directory)
    files = (directory / "scenario.yaml", directory / "topology.yaml")
    # Kernel sockets send no pause frames.
    backend: Literal["udp", "packet"] = "packet" if case.cause in PAUSING else "udp"
    return etloop.run_lab(*files, directory / RUN, backend=backend, allow_overcommit=True).summary.diagnosis


def diagnose_in_twin(case: Case, directory: Path) -> Diagnosis:
    """Run a case in `directory` without pages; a run of the same files that is there is diagnosed again. Raises
    `EtloopError` if the twin refuses it.
    """
    if (directory / RUN / "summary.json").exists() and case.is_written(directory):
        return judge_again(directory / RUN).diagnosis
    shutil.rmtree(directory, ignore_errors=True)
    case.write(directory)
    scenario, rig, topology = (directory / f"{name}.yaml" for name in ("scenario", "rig", "topology"))
    inputs = RunInputs.of(scenario, rig, topology, run_id="planted")
    execution = TwinExecution(TwinSettings(limit_ns=LIMIT_NS, sample_interval_ns=SAMPLE_INTERVAL_NS))
    options = RunOptions(directory / RUN, expects=False, pages=False)
    return run_plan(prepare(inputs, PrepareOptions()), execution, options, SilentWatcher()).summary.diagnosis
