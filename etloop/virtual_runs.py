"""Runs from Python, in virtual time and by the agents of a rig: from the input of a caller to a directory."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from etloop.contract.base.errors import ConfigError, Problem
from etloop.controller.inputs.scenario.congestion import Plugin
from etloop.controller.plan.run_numbers import TWIN_ID
from etloop.controller.run.derived_rig import derived_rig
from etloop.controller.run.execute import SessionExecution
from etloop.controller.run.out_directory import refuse_used_directory
from etloop.controller.run.pipeline import (
    PrepareOptions,
    RunInputs,
    RunOptions,
    SilentWatcher,
    new_run_id,
    prepare,
    run_plan,
)
from etloop.controller.run.twin import TwinExecution
from etloop.input_files import input_file, with_plugin
from etloop.runs import Run, open_run
from etloop.traffic.python_congestion import registered, word_of
from etloop.traffic.twin import SAMPLE_INTERVAL_NS, TwinSettings

if TYPE_CHECKING:
    from etloop.input_files import FileOrValues
    from etloop.traffic.python_congestion import CongestionControl


def run_twin(
    scenario: FileOrValues,
    rig: FileOrValues | None,
    out_dir: str | os.PathLike[str],
    topology: FileOrValues | None,
    seed: int | None,
    control: type[CongestionControl] | None,
) -> Run:
    """Run the twin, see `etloop.run_twin`."""
    directory = Path(out_dir)
    refuse_used_directory(directory)
    switches = None if topology is None else input_file(topology, "topology.yaml")
    if rig is None and switches is None:
        raise ConfigError(Problem("rig", "is missing, and so is topology", "give one of them, or both"))
    ports = input_file(rig, "rig.yaml") if rig is not None else derived_rig(switches) if switches else None
    assert ports is not None
    settings = TwinSettings(seed=seed, sample_interval_ns=SAMPLE_INTERVAL_NS)
    options = PrepareOptions()
    job = input_file(scenario, "scenario.yaml")
    with ExitStack() as registrations:
        registration = None
        if control is not None:
            registration = registrations.enter_context(registered(control))
            name = f"{word_of(control)}.py"
            job = with_plugin(scenario, "scenario.yaml", name)
            plugin = Plugin(registration.algorithm, name, b"", registration.library)
            # A case could not contain the class.
            options = replace(options, read_plugin=lambda _: plugin, keeps_case=False)
            settings = replace(settings, cc_library=registration.library)
        prepared = prepare(RunInputs(job, ports, switches, TWIN_ID), options)
        run_plan(prepared, TwinExecution(settings), RunOptions(directory, expects=False), SilentWatcher())
        if registration is not None:
            registration.refuse_failures()
    return open_run(directory)


def run_rig(
    scenario: FileOrValues,
    rig: FileOrValues,
    out_dir: str | os.PathLike[str],
    topology: FileOrValues | None,
    *,
    with_twin: bool,
) -> Run:
    """Run by agents, see `etloop.run_rig`."""
    directory = Path(out_dir)
    refuse_used_directory(directory)
    inputs = RunInputs(
        input_file(scenario, "scenario.yaml"),
        input_file(rig, "rig.yaml"),
        None if topology is None else input_file(topology, "topology.yaml"),
        new_run_id(),
    )
    run_plan(prepare(inputs), SessionExecution(), RunOptions(directory, expects=with_twin), SilentWatcher())
    return open_run(directory)
