"""Runs from Python, in virtual time and by the agents of a rig: from the input of a caller to a directory."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.controller.inputs.scenario.congestion import Plugin
from etloop.controller.plan.run_numbers import TWIN_ID
from etloop.controller.plan.serving_jobs import required_load
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
from etloop.controller.run.serving import serve_in_twin, serve_on_rig
from etloop.controller.run.twin import TwinExecution, TwinHosts
from etloop.experiments.sweep.one_run import serve_in_lab
from etloop.input_files import input_file, with_plugin
from etloop.results.serving.store import write_serving
from etloop.runs import Run, open_run
from etloop.traffic.python_congestion import register_class, word_of
from etloop.traffic.twin import SAMPLE_INTERVAL_NS, TwinSettings

if TYPE_CHECKING:
    from etloop.controller.run.pipeline import InputFile
    from etloop.input_files import FileOrValues
    from etloop.results.serving.run import ServingRun
    from etloop.traffic.python_congestion import CongestionControl

_SERVING_LEVELS: Final = ("packet", "flow", "rig", "lab")


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
    ports, switches = _network(rig, topology)
    settings = TwinSettings(seed=seed, sample_interval_ns=SAMPLE_INTERVAL_NS)
    options = PrepareOptions()
    job = input_file(scenario, "scenario.yaml")
    with ExitStack() as registrations:
        registration = None
        if control is not None:
            registration = registrations.enter_context(register_class(control))
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


def _network(rig: FileOrValues | None, topology: FileOrValues | None) -> tuple[InputFile, InputFile | None]:
    """Return rig and topology; without a rig, that of a port for each attachment."""
    switches = None if topology is None else input_file(topology, "topology.yaml")
    if rig is not None:
        return input_file(rig, "rig.yaml"), switches
    if switches is None:
        raise ConfigError(Problem("rig", "is missing, and so is topology", "give one of them, or both"))
    return derived_rig(switches), switches


def serve(
    scenario: FileOrValues,
    rig: FileOrValues | None,
    topology: FileOrValues | None,
    level: str,
    hosts: str,
    seed: int | None,
    out_dir: str | os.PathLike[str] | None,
) -> ServingRun:
    """Run a serving workload, see `etloop.serve`."""
    if level not in _SERVING_LEVELS:
        remedy = f"write one of {', '.join(_SERVING_LEVELS)}"
        raise ConfigError(Problem("level", f'"{level[:64]}" is not one of the choices', remedy))
    if out_dir is not None:
        refuse_used_directory(Path(out_dir))
    job, settings = input_file(scenario, "scenario.yaml"), TwinSettings(seed=seed)
    if level == "lab":
        if rig is not None or topology is None:
            raise ConfigError(Problem("rig", "is not for a lab", "give the topology alone"))
        run, prepared = serve_in_lab(job, input_file(topology, "topology.yaml"))
    else:
        ports, switches = _network(rig, topology)
        run_id = new_run_id() if level == "rig" else TWIN_ID
        inputs = RunInputs(job, ports, switches, run_id)
        prepared = prepare(inputs, PrepareOptions(keeps_case=False))
        load = required_load(prepared.scenario)
        if level == "rig":
            run = serve_on_rig(prepared, load, prepared.rig.lab, SilentWatcher())
        else:
            run = serve_in_twin(prepared, load, settings, TwinHosts(hosts), level, SilentWatcher())
    if out_dir is not None:
        write_serving(Path(out_dir), run, prepared.texts)
    return run


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
