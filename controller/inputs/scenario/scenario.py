"""`scenario.yaml`: the workload, how it is mapped and scaled, and how its traffic is carried.

Decides the keys of a scenario and their defaults. The meaning of a trace is decided by `workload`, the place of ranks by
`placement`; the machines are in `rig.yaml`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import group, setting
from etloop.contract.base.settings_reader import read_settings
from etloop.contract.base.units import (
    NS_PER_S,
    format_duration,
    format_rate,
    parse_duration_ns,
    parse_rate_bps,
    parse_share_per_million,
)
from etloop.contract.base.value_parsers import SEED, integer, with_bounds, words, yes_or_no
from etloop.contract.base.yaml_reader import ConfigFile, Section, read_document
from etloop.controller.inputs.file_kinds import refuse_other_kind
from etloop.controller.inputs.scenario.collectives import Collectives, ScheduleFile, read_collectives
from etloop.controller.inputs.scenario.congestion import PluginReader, refuse_plugins
from etloop.controller.inputs.scenario.flows import with_processes
from etloop.controller.inputs.scenario.job_transport import JobTransports
from etloop.controller.inputs.scenario.jobs import (
    JOB_NAME,
    BackgroundEntry,
    JobEntry,
    StreamEntry,
    Usual,
    read_background,
    read_jobs,
)
from etloop.controller.inputs.scenario.mapping import Mapping, read_mapping
from etloop.controller.inputs.scenario.timeline import TimelineEvent, read_timeline
from etloop.controller.inputs.scenario.transport import Transport, read_transport
from etloop.controller.inputs.scenario.verdict import VerdictSettings, read_verdict
from etloop.controller.inputs.scenario.workload import Scales, in_nccl_order, read_source

DEFAULT_SEED: Final = 1
MOST_ITERATIONS: Final = 1_000_000
_wait: Final = with_bounds(parse_duration_ns, NS_PER_S // 10, 3600 * NS_PER_S, format_duration)


@dataclass(frozen=True, slots=True)
class ScaleUp:
    """`scale_up:`, the modelled links inside a host. Defaults are of NVLink's class: 450 GB/s and about a microsecond."""

    bandwidth_bps: int = setting(
        "bandwidth",
        with_bounds(parse_rate_bps, 1_000_000, 100_000_000_000_000, format_rate),
        3_600_000_000_000,
    )
    """In one direction, of one rank."""
    latency_ns: int = setting("latency", with_bounds(parse_duration_ns, 0, NS_PER_S, format_duration), 1000)
    """Latency of one message."""


@dataclass(frozen=True, slots=True)
class Loss:
    """`faults:`, the loss that agents make."""

    drop_per_million: int = setting("drop", parse_share_per_million, 0)
    """Share of received packets that agents discard."""
    seed: int = setting("seed", SEED, DEFAULT_SEED)
    """Draws the packets; the scenario's seed if left out."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`limits:`, how long the controller waits."""

    stall_timeout_ns: int = setting("stall_timeout", _wait, 5 * NS_PER_S)
    """A run without progress for so long is ended and diagnosed. A plan may lengthen the default."""
    gather_timeout_ns: int = setting("gather_timeout", _wait, 60 * NS_PER_S)
    """How long all agents may take to join."""
    # With less than a second, a late heartbeat would end a run.
    lost_after_ns: int = setting(
        "lost_after",
        with_bounds(parse_duration_ns, NS_PER_S, 3600 * NS_PER_S, format_duration),
        60 * NS_PER_S,
    )
    """Silence on an open control connection after which an agent counts as lost. TCP repairs an interruption within twice its
    length, so a run survives one of half of this."""
    pause_ns: int = setting(
        "pause", with_bounds(parse_duration_ns, 0, 3600 * NS_PER_S, format_duration), 10 * NS_PER_S
    )
    """Longest pause of the controller or of a run's process that a run survives in every state; it may survive a longer one."""


@dataclass(frozen=True, slots=True)
class General:
    """Keys at the top of the file that are read before all others."""

    seed: int = setting("seed", SEED, DEFAULT_SEED)
    """Draws everything that is drawn and has no seed of its own."""
    iterations: int = setting("iterations", integer(1, MOST_ITERATIONS), 1)
    """Passes of each job; with `rounds` in each phase of a round."""
    twin: str = setting("twin", words, "")
    """Topology of the device under test, for the twin that the run is compared with."""
    allow_local: bool = setting("allow_local", yes_or_no, False)
    """Accept a job of which no byte crosses the device under test."""
    scale: Scales = group(Scales, "scale")
    """Replay a smaller job."""
    scale_up: ScaleUp = group(ScaleUp, "scale_up")
    """The modelled links inside a host, such as NVLink."""
    limits: Limits = group(Limits, "limits")
    """How long the controller waits."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """The contents of `scenario.yaml`."""

    jobs: tuple[JobEntry, ...]
    """At least one: a file with a `workload` is one job."""
    bytes_scale_text: str
    time_scale_text: str
    iterations: int
    """Number of passes of each job; with `rounds` in each phase of a round."""
    mapping: Mapping
    """Mapping of jobs that state none."""
    collectives: Collectives
    """Collectives of jobs that state none."""
    transport: Transport
    """Transport of jobs that state none; keys common to all kinds of transport apply to all jobs."""
    scale_up: ScaleUp
    loss: Loss
    limits: Limits
    seed: int
    twin: Path | None = None
    """Topology file of the device under test, for the twin that the run is compared with."""
    notes: tuple[str, ...] = ()
    """Notes on decisions that the file does not state."""
    verdict: VerdictSettings = VerdictSettings()
    rounds: int = 0
    """Number of rounds, each with every job alone and then all together; 0 for all together once."""
    background: tuple[BackgroundEntry, ...] = ()
    streams: tuple[StreamEntry, ...] = ()
    """Background streams of plain UDP."""
    timeline: tuple[TimelineEvent, ...] = ()
    stall_open: bool = False
    """Whether the file states no `stall_timeout`, so that the planner may raise it."""
    allow_local: bool = False
    """Whether a plan without traffic through the device under test is allowed."""
    other_transports: tuple[Transport, ...] = ()
    """Transports of jobs and background that state one."""

    @property
    def transports(self) -> tuple[Transport, ...]:
        """Return all transports, in the order that jobs and background index them."""
        return (self.transport, *self.other_transports)

    @property
    def used_transports(self) -> tuple[Transport, ...]:
        """Return the transports that some job or background uses, the one at the top of the file first."""
        used_numbers = {job.transport for job in self.jobs} | {load.transport for load in self.background}
        return tuple(transport for number, transport in enumerate(self.transports) if number in used_numbers)

    def with_transports(self, change: Callable[[Transport], Transport]) -> Scenario:
        """Return the scenario with `change` applied to every transport."""
        others = tuple(change(transport) for transport in self.other_transports)
        return replace(self, transport=change(self.transport), other_transports=others)

    @property
    def plan_iterations(self) -> int:
        """Return the iterations of the plan: passes of a single job, or rounds of several."""
        return self.jobs[0].passes if len(self.jobs) == 1 else max(self.rounds, 1)

    @property
    def schedule_files(self) -> tuple[ScheduleFile, ...]:
        """Return the user's schedule files of all jobs, each once."""
        sections = (self.collectives, *(job.collectives for job in self.jobs))
        return tuple(dict.fromkeys(file for section in sections for file in section.files))


def parse_scenario(
    text: bytes, source: str, directory: Path, read_plugin: PluginReader = refuse_plugins
) -> Scenario:
    """Parse the YAML text of a scenario. `source` names the file in messages; its paths are relative to `directory`.

    Raises `ConfigError` with all mistakes of the file.
    """
    refuse_other_kind(text, source, "scenario")
    file = ConfigFile(source)
    top = read_document(text, file)
    general = read_settings(General, top)
    seed, iterations, scales = general.seed, general.iterations, general.scale
    faults = top.section("faults", "Loss that agents make.")
    mapping = read_mapping(
        top.section("mapping", "Which ranks share a host, and which ports hosts are placed on.")
    )
    collectives = read_collectives(
        top.section("collectives", "How collectives are carried out."), directory, mapping.nics_per_host or 0
    )
    transport, transports = _read_transports(top, file, directory, read_plugin, seed)
    defaults = Usual(iterations, mapping, collectives)
    several = read_jobs(top, directory, scales, seed, defaults, transports)
    jobs, notes = several.jobs, several.notes
    if not jobs:
        source_read = read_source(
            top.section("workload", "The trace of the job, or a load that replaces it."),
            directory,
            scales,
            seed,
        )
        source_read, notes = in_nccl_order(source_read, collectives.settings)
        mapping = with_processes(mapping, source_read.load, top)
        jobs = (JobEntry(JOB_NAME, source_read, iterations, 0, mapping, collectives),)
    background = read_background(top, jobs, seed, transports)
    scenario = Scenario(
        jobs=jobs,
        bytes_scale_text=top.section("scale").optional("bytes", words, "1"),
        time_scale_text=top.section("scale").optional("time", words, "1"),
        iterations=iterations,
        mapping=mapping,
        collectives=collectives,
        transport=transport,
        scale_up=general.scale_up,
        loss=read_settings(Loss, faults, Loss(seed=seed)),
        limits=general.limits,
        seed=seed,
        twin=directory / general.twin if general.twin else None,
        notes=notes,
        verdict=read_verdict(top.section("verdict", "Conditions for a passed run.")),
        rounds=several.rounds,
        background=background.loads,
        streams=background.streams,
        timeline=read_timeline(top),
        stall_open=not top.section("limits").has("stall_timeout"),
        allow_local=general.allow_local,
        other_transports=transports.others,
    )
    faults.close()
    top.close()
    file.refuse_mistakes()
    return scenario


def _read_transports(
    top: Section, file: ConfigFile, directory: Path, read_plugin: PluginReader, seed: int
) -> tuple[Transport, JobTransports]:
    """Read the transport at the top of the file; return it with the reader of the jobs' transports."""

    def read(section: Section) -> Transport:
        return read_transport(section, directory, read_plugin, seed)

    section, mistakes_before = (
        top.section("transport", "How the messages of every queue pair are carried."),
        len(file.problems),
    )
    transport = read(section)
    # After mistakes, jobs inherit an empty section, so that these are not reported again for each job.
    inherited_section = section if len(file.problems) == mistakes_before else Section(file, "transport", None)
    return transport, JobTransports(inherited_section, transport, read)
