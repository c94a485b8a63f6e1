"""The first step of every run: from its files to the plan, before any agent is contacted.

Decides in which order files are read, and reports the mistakes of all of them together. A caller that prepares for another
user, such as a rack, states in `PrepareOptions` what that user may not do.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Mistakes, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.case.named_files import of_ports
from etloop.controller.case.pack import CaseInputs, CaseMaker, Origin, lab_options
from etloop.controller.inputs.files import read_file
from etloop.controller.inputs.rig import Rig, parse_rig
from etloop.controller.inputs.scenario.congestion import Plugin, PluginReader
from etloop.controller.inputs.scenario.scenario import Scenario, parse_scenario
from etloop.controller.plan.device_traffic import refuse_idle_device
from etloop.controller.plan.job_set import JobSet
from etloop.controller.plan.jobs import (
    background_notes,
    build_jobs,
    strict_about_traces,
    with_all_schedule_files,
)
from etloop.controller.plan.plan import Plan, plan_jobs
from etloop.controller.plan.run_numbers import PLAN_ID
from etloop.controller.plan.summary import PlanSummary, summarise
from etloop.controller.plan.timeouts import patient
from etloop.controller.run.device_check import contradictions_of, topology_verdict
from etloop.controller.run.topology_check import DescribedDevice, check_device
from etloop.controller.run.verdict import refuse_mistaken_conditions
from etloop.dut_profiles.device_topology import parse_modelled_topology, with_device
from etloop.dut_profiles.reading.catalogue import profile_content
from etloop.results.schema.case import CaseRole
from etloop.results.store.run_dir import INPUT_FILES, PROFILE_FILE, TOPOLOGY_FILE
from etloop.runtime.clock import wall_time_text
from etloop.traffic.cc_library import library_of, read_plugin
from etloop.traffic.congestion import of_library

_TEXTS_KEPT: Final = 16


@dataclass(frozen=True, slots=True)
class InputFile:
    """A settings file, or a text to use instead of its content."""

    path: Path
    """Path of the file; paths in the file are relative to its directory."""
    content: bytes | None = None
    """Text to use instead of the file's content; None to read the file."""
    name: str = ""
    """Name in messages instead of the path."""

    @property
    def source(self) -> str:
        """Return the name of the file in messages."""
        return self.name or str(self.path)

    def read(self) -> bytes:
        """Return the content. Raises `ConfigError` if the file cannot be read."""
        return read_file(self.path) if self.content is None else self.content


@dataclass(frozen=True, slots=True)
class RunInputs:
    """The files of a run, and its id."""

    scenario: InputFile
    rig: InputFile
    topology: InputFile | None = None
    """Topology to use instead of the one that scenario or rig name."""
    run_id: str = PLAN_ID

    @classmethod
    def of(
        cls, scenario: Path, rig: Path, topology: Path | None = None, run_id: str | None = None
    ) -> RunInputs:
        """Return the inputs of a run from the paths of its files; without a `run_id` it gets a new one."""
        topology_file = None if topology is None else InputFile(topology)
        return cls(
            InputFile(scenario), InputFile(rig), topology_file, new_run_id() if run_id is None else run_id
        )


def _admit_all(_: Scenario) -> None:
    """Admit every scenario."""


def read_cc_plugin(path: Path) -> Plugin:
    """Compile a congestion control plugin here to learn its parameters. Agents compile it again, for their hosts."""
    content = read_plugin(path)
    library = str(library_of(path.name, content))
    try:
        return Plugin(of_library(library), path.name, content, library)
    except ValueError as error:
        raise ConfigError(
            Problem(str(path), f"cannot be used: {error}", "see examples/cc_plugin and etloop_cc.h")
        ) from None


@dataclass(frozen=True, slots=True)
class PrepareOptions:
    """Options of callers that prepare runs; the defaults are those of `etloop run`."""

    device: str = ""
    """Profile of the switches in the topology that name neither a device nor a preset."""
    strict: bool = False
    """Whether contradictions to the device's profile, and communication of a trace that cannot be replayed, are
    errors."""
    jobs: Callable[[Scenario], JobSet] = build_jobs
    """Makes the jobs of a scenario; by default from its traces and loads."""
    plan: Callable[..., Plan] = plan_jobs
    """Makes the plan, with the arguments of `plan_jobs`."""
    read_plugin: PluginReader = read_cc_plugin
    admit: Callable[[Scenario], None] = _admit_all
    """Check that raises `ConfigError` for a scenario that may not run here."""
    confine: Callable[[], AbstractContextManager[None]] = nullcontext
    """Context that is entered while files named by the scenario are read."""
    ports: tuple[str, ...] | None = None
    """Ports that the run may use, as "agent/port"; None for every port of the rig."""
    busy_threads: Mapping[str, int] = field(default_factory=dict)
    """Number of engine threads of each agent that other runs use; threads of this run are numbered after them."""
    keeps_case: bool = True
    """Whether to collect the case of the run, so that it can be repeated; false for jobs without a scenario."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A run that is ready to be executed."""

    scenario: Scenario
    rig: Rig
    plan: Plan
    texts: Mapping[str, str | bytes]
    """Texts of scenario and rig, and of the device's topology and profile if any, by their names in a run directory."""
    device: DescribedDevice | None = None
    """The topology that the ports are attached to, if there is one."""
    case: CaseInputs | None = None
    """The case of the run; None if not kept."""


def new_run_id() -> str:
    """Return a new run id: wall time to the millisecond, so that runs of one controller sort by their start."""
    return re.sub(r"[-:]|\+.*", "", wall_time_text()).replace("T", "-")


def prepare(inputs: RunInputs, options: PrepareOptions | None = None) -> Prepared:
    """Read the files and the traces of a run, and plan it.

    Raises an `InputError` with the mistakes of all files together, or with those of the traces or the plan.
    """
    options = options or PrepareOptions()
    files = _read(inputs, options)
    scenario, rig, device = files.scenario, files.rig, files.device
    with options.confine():
        scenario = replace(scenario, notes=(*scenario.notes, *background_notes(scenario)))
        slowest_bps = min(port.link_bps for port in rig.ports.values())
        topology = None if device is None else device.topology
        scenario = patient(scenario, slowest_bps, topology)
        jobs, drawn_nonce = options.jobs(scenario), secrets.randbits(32)
        plan = options.plan(scenario, rig, jobs, inputs.run_id, topology, drawn_nonce=drawn_nonce)
    refuse_idle_device(scenario, plan.tables, inputs.scenario.source)
    if device is not None:
        check_device(plan, device)
    texts: dict[str, str | bytes] = dict(zip(INPUT_FILES, (files.scenario_text, files.rig_text), strict=True))
    if device is not None:
        texts[TOPOLOGY_FILE] = device.content
    if rig.dut is not None:
        texts[PROFILE_FILE] = profile_content(rig.dut.profile)
    case = _case_of(inputs, options, scenario, rig, texts) if options.keeps_case else None
    return Prepared(scenario, rig, _number_threads(plan, options.busy_threads), texts, device, case)


@dataclass(frozen=True, slots=True)
class _ReadFiles:
    """The parsed files of a run, checked against each other."""

    scenario: Scenario
    scenario_text: str
    rig: Rig
    rig_text: str
    device: DescribedDevice | None


def summarise_run(inputs: RunInputs, options: PrepareOptions | None = None) -> PlanSummary:
    """Read the files and the traces of a run, and return its totals without a plan. Raises as `prepare`."""
    options = options or PrepareOptions()
    files = _read(inputs, options)
    with options.confine():
        return summarise(files.scenario, files.rig, options.jobs(files.scenario))


def _read(inputs: RunInputs, options: PrepareOptions) -> _ReadFiles:
    mistakes = Mistakes()
    parsed_scenario = mistakes.of(partial(_read_scenario, inputs.scenario, options))
    parsed_rig = mistakes.of(partial(_read_rig, inputs.rig, options.ports))
    device = None
    if inputs.topology is not None:
        device = mistakes.of(partial(_device_of, inputs.topology, options.device))
    mistakes.refuse(ConfigError)
    assert parsed_scenario is not None
    assert parsed_rig is not None
    (scenario, scenario_text), (rig, rig_text) = parsed_scenario, parsed_rig
    if options.strict:
        scenario = strict_about_traces(scenario)
    refuse_mistaken_conditions(scenario, rig)
    if options.strict and (problems := contradictions_of(scenario, rig)):
        raise ConfigError(*problems)
    with options.confine():
        if inputs.topology is None:
            device = read_device(scenario.twin, options.device)
    if device is None:
        device = read_device(rig.topology, options.device)
    if options.strict and (problems := topology_verdict(scenario, rig, device).contradictions):
        raise ConfigError(*problems)
    return _ReadFiles(scenario, scenario_text, rig, rig_text, device)


def _case_of(
    inputs: RunInputs,
    options: PrepareOptions,
    scenario: Scenario,
    rig: Rig,
    texts: Mapping[str, str | bytes],
) -> CaseInputs:
    """Return the inputs of the run for its case. Raises an `InputError` if a named file cannot be read."""
    maker = CaseMaker()
    content = {name: text.encode() if isinstance(text, str) else text for name, text in texts.items()}
    scenario_file, rig_file = INPUT_FILES
    topology_path = rig.topology if scenario.twin is None else scenario.twin
    if inputs.topology is not None:
        topology_path = inputs.topology.path

    def take_topology() -> None:
        if topology_path is not None:
            text = content[TOPOLOGY_FILE]
            maker.add_text(
                Origin(CaseRole.TOPOLOGY, text, str(topology_path), topology_path.parent), options.device
            )

    scenario_input = inputs.scenario
    with options.confine():
        maker.add_text(
            Origin(
                CaseRole.SCENARIO, content[scenario_file], scenario_input.source, scenario_input.path.parent
            )
        )
        if inputs.topology is None and scenario.twin is not None:
            take_topology()
    text = content[rig_file]
    if options.ports is not None:
        text = of_ports(text, inputs.rig.source, options.ports)
    maker.add_text(Origin(CaseRole.RIG, text, inputs.rig.source, inputs.rig.path.parent))
    if inputs.topology is not None or scenario.twin is None:
        take_topology()
    if topology_path is not None:
        maker.name_topology()
    if PROFILE_FILE in content:
        maker.put(PROFILE_FILE, CaseRole.PROFILE, content[PROFILE_FILE])
    return maker.to_inputs(lab_options(rig))


def _read_scenario(file: InputFile, options: PrepareOptions) -> tuple[Scenario, str]:
    content = file.read()
    scenario = parse_scenario(content, file.source, file.path.parent, options.read_plugin)
    options.admit(scenario)
    with options.confine():
        return with_all_schedule_files(scenario), content.decode("utf-8-sig")


def _read_rig(file: InputFile, leased: tuple[str, ...] | None) -> tuple[Rig, str]:
    content = file.read()
    rig, text = read_rig(file), content.decode("utf-8-sig")
    if leased is None:
        return rig, text
    rig = rig.only(leased)
    if not rig.agents:
        raise ConfigError(Problem("ports", "none of the leased ports is in the rig", "submit the job again"))
    return rig, f"# Ports leased to this run: {', '.join(leased)}\n{text}"


def read_rig(file: InputFile) -> Rig:
    """Return the rig of a file. Raises `ConfigError` with all its mistakes."""
    return _parse_rig(file.read(), file.source, file.path.parent)


def read_device(path: Path | None, device: str = "") -> DescribedDevice | None:
    """Return the topology of a file, None without one. Raises `ConfigError` with all its mistakes.

    `device` is the profile of the switches that name neither a device nor a preset.
    """
    return None if path is None else _device_of(InputFile(path), device)


def read_device_file(file: InputFile, device: str = "") -> DescribedDevice:
    """Return the topology of an input file; see `read_device`."""
    return _device_of(file, device)


def _device_of(file: InputFile, device: str) -> DescribedDevice:
    return _parse_device(file.read(), file.source, file.path.parent, device)


# Cached because a sweep plans hundreds of points on the same ports and switches.
@lru_cache(maxsize=_TEXTS_KEPT)
def _parse_rig(content: bytes, source: str, directory: Path) -> Rig:
    return parse_rig(content, source, directory)


@lru_cache(maxsize=_TEXTS_KEPT)
def _parse_device(content: bytes, source: str, directory: Path, device: str) -> DescribedDevice:
    topology = parse_modelled_topology(content, source, directory, device)
    return DescribedDevice(topology, source, with_device(content, source, device) if device else content)


def _number_threads(plan: Plan, busy_threads: Mapping[str, int]) -> Plan:
    """Return the plan with engine threads numbered after the `busy_threads` of other runs; itself if there are none."""
    if not any(busy_threads.values()):
        return plan
    assignments = {}
    for name, assignment in plan.assignments.items():
        threads_of_plan, busy = assignment.threads, busy_threads.get(name, 0)
        threads = replace(
            threads_of_plan, first=threads_of_plan.first + busy, total=threads_of_plan.total + busy, busy=busy
        )
        assignments[name] = replace(assignment, threads=threads)
    return replace(plan, assignments=assignments)
