"""`plan`: a scenario and a rig file become a plan, which is told and not run. `run` and `demo` prepare the same way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import ConfigError, InputError, Problem
from etloop.controller.inputs.files import read_file
from etloop.controller.inputs.rig import Rig, parse_rig
from etloop.controller.inputs.scenario.congestion import Plugin
from etloop.controller.inputs.scenario.scenario import Scenario, parse_scenario
from etloop.controller.plan.jobs import background_notes, build_jobs, with_all_schedule_files
from etloop.controller.plan.plan import Plan, plan_jobs
from etloop.controller.run.expectation import DescribedDevice, check_device
from etloop.traffic.cc_library import library_of, read_plugin
from etloop.traffic.congestion import of_library
from etloop.traffic.topology.topology_file import parse_topology
from etloop.workload.readers.files import Progress

if TYPE_CHECKING:
    from pathlib import Path

_TEXTS_KEPT: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """Everything that is known before the first agent is asked."""

    scenario: Scenario
    rig: Rig
    plan: Plan
    scenario_text: str
    rig_text: str
    device: DescribedDevice | None = None
    """What scenario or rig say that the ports are attached to."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file of settings, or what somebody made of it."""

    path: Path
    """Names it in messages; paths in it are relative to where it lies."""
    content: bytes | None = None
    """Instead of what the file holds; None: that."""

    def read(self) -> bytes:
        """Its text. Raises `ConfigError`."""
        return read_file(self.path) if self.content is None else self.content


def prepare(
    scenario_path: Path, rig_path: Path, run_id: str = "plan", progress: Progress | None = None
) -> Prepared:
    """Reads both files and the trace, and lays the job out.

    Raises an `InputError` with the mistakes of both files together, or with those of the trace or the plan.
    """
    return prepare_inputs(InputFile(scenario_path), InputFile(rig_path), None, run_id, progress)


def prepare_inputs(
    scenario_file: InputFile,
    rig_file: InputFile,
    topology_file: InputFile | None,
    run_id: str = "plan",
    progress: Progress | None = None,
) -> Prepared:
    """As `prepare`; a `topology_file` stands for the one that scenario or rig name."""
    problems: list[Problem] = []
    scenario = rig = None
    scenario_bytes = rig_bytes = b""
    try:
        scenario_bytes = scenario_file.read()
        path = scenario_file.path
        scenario = parse_scenario(scenario_bytes, str(path), path.parent, read_cc_plugin)
    except ConfigError as error:
        problems += error.problems
    try:
        rig_bytes = rig_file.read()
        rig = _rig_of(rig_bytes, rig_file.path)
    except ConfigError as error:
        problems += error.problems
    if scenario is not None:
        try:
            scenario = with_all_schedule_files(scenario)
        except InputError as error:
            problems += error.problems
    if scenario is None or rig is None or problems:
        raise ConfigError(*problems)
    if topology_file is None:
        device = read_device(scenario.twin or rig.topology)
    else:
        device = _device_of(topology_file)
    plan = lay_out(scenario, rig, run_id, progress)
    if device is not None:
        check_device(plan, device)
    texts = (scenario_bytes.decode("utf-8-sig"), rig_bytes.decode("utf-8-sig"))
    return Prepared(scenario, rig, plan, *texts, device)


def read_device(path: Path | None) -> DescribedDevice | None:
    """The topology of a file, None without one. Raises `ConfigError` with all its mistakes."""
    return None if path is None else _device_of(InputFile(path))


def _device_of(file: InputFile) -> DescribedDevice:
    return _described(file.read(), str(file.path))


# A sweep lays hundreds of points out on the same ports and switches.
@lru_cache(maxsize=_TEXTS_KEPT)
def _rig_of(content: bytes, path: Path) -> Rig:
    return parse_rig(content, str(path), path.parent)


@lru_cache(maxsize=_TEXTS_KEPT)
def _described(content: bytes, source: str) -> DescribedDevice:
    return DescribedDevice(parse_topology(content, source), source)


def lay_out(scenario: Scenario, rig: Rig, run_id: str, progress: Progress | None = None) -> Plan:
    """Reads what the scenario names and plans it on the rig. Raises an `InputError` with what cannot be used."""
    scenario = replace(scenario, notes=(*scenario.notes, *background_notes(scenario)))
    return plan_jobs(scenario, rig, build_jobs(scenario, progress), run_id)


def read_cc_plugin(path: Path) -> Plugin:
    """A congestion control plugin, compiled here to learn its parameters. Agents compile it again, for their hosts."""
    content = read_plugin(path)
    library = str(library_of(path.name, content))
    try:
        return Plugin(of_library(library), path.name, content, library)
    except ValueError as error:
        raise ConfigError(
            Problem(str(path), f"cannot be used: {error}", "see examples/cc_plugin and etloop_cc.h")
        ) from None
