"""The first step of every run: from its files to all that is known before the first agent is asked.

Decides in which order files are read and that the mistakes of all of them are reported together. Who prepares for somebody
else, such as a rack, says in `PrepareOptions` what that somebody may not do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import ConfigError, Mistakes, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.case.making import CaseInputs, CaseMaker, Origin, lab_options
from etloop.controller.case.named_files import of_ports
from etloop.controller.inputs.files import read_file
from etloop.controller.inputs.rig import Rig, parse_rig
from etloop.controller.inputs.scenario.congestion import Plugin, PluginReader
from etloop.controller.inputs.scenario.scenario import Scenario, parse_scenario
from etloop.controller.plan.crossing import refuse_idle_device
from etloop.controller.plan.job_set import JobSet
from etloop.controller.plan.jobs import background_notes, build_jobs, with_all_schedule_files
from etloop.controller.plan.patience import patient
from etloop.controller.plan.plan import Plan, plan_jobs
from etloop.controller.plan.run_numbers import PLAN_ID
from etloop.controller.plan.summary import PlanSummary, summarise
from etloop.controller.run.device_check import contradictions_of
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
    """A file of settings, or what somebody made of it."""

    path: Path
    """Paths in it are relative to where it lies."""
    content: bytes | None = None
    """Instead of what the file holds; None: that."""
    name: str = ""
    """Instead of the path, in messages."""

    @property
    def source(self) -> str:
        """What messages call it."""
        return self.name or str(self.path)

    def read(self) -> bytes:
        """Return its text. Raises `ConfigError`."""
        return read_file(self.path) if self.content is None else self.content


@dataclass(frozen=True, slots=True)
class RunInputs:
    """What a run is made of."""

    scenario: InputFile
    rig: InputFile
    topology: InputFile | None = None
    """Instead of the one that scenario or rig name."""
    run_id: str = PLAN_ID

    @classmethod
    def of(
        cls, scenario: Path, rig: Path, topology: Path | None = None, run_id: str | None = None
    ) -> RunInputs:
        """Return the inputs of a run by the paths of its files; without a `run_id` it gets a new one."""
        described = None if topology is None else InputFile(topology)
        return cls(InputFile(scenario), InputFile(rig), described, new_run_id() if run_id is None else run_id)


def _admit(_: Scenario) -> None:
    """Every scenario is welcome."""


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
    """In what those who prepare runs differ; the defaults are those of `etloop run`."""

    device: str = ""
    """Profile of all switches of the topology which name neither a device nor a preset."""
    strict: bool = False
    """Whether what the device's profile contradicts is an error."""
    jobs: Callable[[Scenario], JobSet] = build_jobs
    """Makes the jobs of a scenario, from its traces unless it says otherwise."""
    read_plugin: PluginReader = read_cc_plugin
    admit: Callable[[Scenario], None] = _admit
    """Raises `ConfigError` for a scenario that may not run here."""
    confine: Callable[[], AbstractContextManager[None]] = nullcontext
    """Is open while files are read that the scenario names."""
    ports: tuple[str, ...] | None = None
    """"agent/port" of those that the run may use; None: every port of the rig."""
    busy_threads: Mapping[str, int] = field(default_factory=dict)
    """By agent: its engine threads are numbered from here on, for other runs have some of those before."""
    keeps_case: bool = True
    """Whether what the run is made of is kept, too, so that it can be repeated; not of jobs that no scenario describes."""


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """Everything that is known before the first agent is asked."""

    scenario: Scenario
    rig: Rig
    plan: Plan
    texts: Mapping[str, str | bytes]
    """Scenario, rig, and topology and profile of the device if it has them, by their names in a run directory."""
    device: DescribedDevice | None = None
    """What scenario or rig say that the ports are attached to."""
    case: CaseInputs | None = None
    """All that the run is made of."""


def new_run_id() -> str:
    """Return a name for a run: wall time to the millisecond, so that runs of one controller sort by their start."""
    return re.sub(r"[-:]|\+.*", "", wall_time_text()).replace("T", "-")


def prepare(inputs: RunInputs, options: PrepareOptions | None = None) -> Prepared:
    """Read the files and the traces of a run, and lay it out.

    Raises an `InputError` with the mistakes of all files together, or with those of the traces or the plan.
    """
    options = options or PrepareOptions()
    read = _read(inputs, options)
    scenario, rig, device = read.scenario, read.rig, read.device
    with options.confine():
        scenario = replace(scenario, notes=(*scenario.notes, *background_notes(scenario)))
        slowest_bps = min(port.link_bps for port in rig.ports.values())
        topology = None if device is None else device.topology
        scenario = patient(scenario, slowest_bps, topology)
        plan = plan_jobs(scenario, rig, options.jobs(scenario), inputs.run_id, topology)
    refuse_idle_device(scenario, plan.tables, inputs.scenario.source)
    if device is not None:
        check_device(plan, device)
    texts: dict[str, str | bytes] = dict(zip(INPUT_FILES, (read.scenario_text, read.rig_text), strict=True))
    if device is not None:
        texts[TOPOLOGY_FILE] = device.content
    if rig.dut is not None:
        texts[PROFILE_FILE] = profile_content(rig.dut.profile)
    case = _case_of(inputs, options, scenario, rig, texts) if options.keeps_case else None
    return Prepared(scenario, rig, _after_others(plan, options.busy_threads), texts, device, case)


@dataclass(frozen=True, slots=True)
class _ReadFiles:
    """The files of a run, read and found to fit each other."""

    scenario: Scenario
    scenario_text: str
    rig: Rig
    rig_text: str
    device: DescribedDevice | None


def summarised(inputs: RunInputs, options: PrepareOptions | None = None) -> PlanSummary:
    """Read the files and the traces of a run, and lay it out on paper. Raises as `prepare`."""
    options = options or PrepareOptions()
    read = _read(inputs, options)
    with options.confine():
        return summarise(read.scenario, read.rig, options.jobs(read.scenario))


def _read(inputs: RunInputs, options: PrepareOptions) -> _ReadFiles:
    found = Mistakes()
    scenario_read = found.of(partial(_read_scenario, inputs.scenario, options))
    rig_read = found.of(partial(_read_rig, inputs.rig, options.ports))
    device = None
    if inputs.topology is not None:
        device = found.of(partial(_device_of, inputs.topology, options.device))
    found.refuse(ConfigError)
    assert scenario_read is not None
    assert rig_read is not None
    (scenario, scenario_text), (rig, rig_text) = scenario_read, rig_read
    refuse_mistaken_conditions(scenario, rig)
    if options.strict and (problems := contradictions_of(scenario, rig)):
        raise ConfigError(*problems)
    with options.confine():
        if inputs.topology is None:
            device = read_device(scenario.twin, options.device)
    if device is None:
        device = read_device(rig.topology, options.device)
    return _ReadFiles(scenario, scenario_text, rig, rig_text, device)


def _case_of(
    inputs: RunInputs,
    options: PrepareOptions,
    scenario: Scenario,
    rig: Rig,
    texts: Mapping[str, str | bytes],
) -> CaseInputs:
    """Return what the run is made of. Raises an `InputError` where a file cannot be read again."""
    maker = CaseMaker()
    content = {name: text.encode() if isinstance(text, str) else text for name, text in texts.items()}
    scenario_file, rig_file = INPUT_FILES
    described = rig.topology if scenario.twin is None else scenario.twin
    if inputs.topology is not None:
        described = inputs.topology.path

    def take_topology() -> None:
        if described is not None:
            text = content[TOPOLOGY_FILE]
            maker.take(Origin(CaseRole.TOPOLOGY, text, str(described), described.parent), options.device)

    own = inputs.scenario
    with options.confine():
        maker.take(Origin(CaseRole.SCENARIO, content[scenario_file], own.source, own.path.parent))
        if inputs.topology is None and scenario.twin is not None:
            take_topology()
    text = content[rig_file]
    if options.ports is not None:
        text = of_ports(text, inputs.rig.source, options.ports)
    maker.take(Origin(CaseRole.RIG, text, inputs.rig.source, inputs.rig.path.parent))
    if inputs.topology is not None or scenario.twin is None:
        take_topology()
    if described is not None:
        maker.name_topology()
    if PROFILE_FILE in content:
        maker.put(PROFILE_FILE, CaseRole.PROFILE, content[PROFILE_FILE])
    return maker.made(lab_options(rig))


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
    return _rig_of(file.read(), file.source, file.path.parent)


def read_device(path: Path | None, device: str = "") -> DescribedDevice | None:
    """Return the topology of a file, None without one. Raises `ConfigError` with all its mistakes.

    `device` is the profile of all its switches which name neither one nor a preset.
    """
    return None if path is None else _device_of(InputFile(path), device)


def read_device_file(file: InputFile, device: str = "") -> DescribedDevice:
    """Return the topology of a file, or of what somebody made of it; see `read_device`."""
    return _device_of(file, device)


def _device_of(file: InputFile, device: str) -> DescribedDevice:
    return _described(file.read(), file.source, file.path.parent, device)


# A sweep lays hundreds of points out on the same ports and switches.
@lru_cache(maxsize=_TEXTS_KEPT)
def _rig_of(content: bytes, source: str, directory: Path) -> Rig:
    return parse_rig(content, source, directory)


@lru_cache(maxsize=_TEXTS_KEPT)
def _described(content: bytes, source: str, directory: Path, device: str) -> DescribedDevice:
    topology = parse_modelled_topology(content, source, directory, device)
    return DescribedDevice(topology, source, with_device(content, source, device) if device else content)


def _after_others(plan: Plan, busy_threads: Mapping[str, int]) -> Plan:
    """Return the plan with its engine threads numbered after those of other runs."""
    assignments = {}
    for name, assignment in plan.assignments.items():
        own, others = assignment.threads, busy_threads.get(name, 0)
        threads = replace(own, first=own.first + others, total=own.total + others, busy=others)
        assignments[name] = replace(assignment, threads=threads)
    return replace(plan, assignments=assignments)
