"""`jobs`, `rounds` and `background` of a scenario: the jobs that run side by side, and the load in addition to them.

Decides the keys, their limits, and the settings that a job inherits from the top of the file. A scenario with a `workload:` and
no `jobs:` is one job; `workload.program.merge` and `job_set` make one plan of several.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import required_setting, setting
from etloop.contract.base.settings_reader import read_settings
from etloop.contract.base.units import (
    NS_PER_S,
    format_bytes,
    format_duration,
    format_rate,
    parse_bytes,
    parse_duration_ns,
    parse_name,
    parse_port_label,
    parse_rate_bps,
)
from etloop.contract.base.value_parsers import integer, one_of, with_bounds
from etloop.contract.base.yaml_reader import Section
from etloop.contract.model.records import UUD_HEADER_BYTES, StreamForm
from etloop.contract.model.transport import dscp_value
from etloop.controller.inputs.scenario.collectives import Collectives, read_collectives
from etloop.controller.inputs.scenario.flows import with_processes
from etloop.controller.inputs.scenario.job_transport import TOP, JobTransports
from etloop.controller.inputs.scenario.loads import (
    LOAD_MEANINGS,
    IncastLoad,
    StorageLoad,
    clip_load,
    lasting,
    read_incast,
    read_storage,
)
from etloop.controller.inputs.scenario.mapping import Mapping, PlacementRule, read_mapping
from etloop.controller.inputs.scenario.workload import Scales, Source, in_nccl_order, read_source
from etloop.workload.serving.spec import ServingLoad

MOST_JOBS: Final = 16
MOST_BACKGROUNDS: Final = 16
LEAST_DATAGRAM_BYTES: Final = 16
MOST_DATAGRAM_BYTES: Final = 8900
LEAST_UUD_BYTES: Final = UUD_HEADER_BYTES + LEAST_DATAGRAM_BYTES
_JOBS_REMEDY: Final = "write jobs such as - {name: a, workload: {trace: traces/}}"
_PORT_REMEDY: Final = 'write agent and port as the rig names them, such as "a/p0"'
_DSCP_MEANING: Final = "DSCP of its packets; of queue pairs as the jobs, of plain UDP 0, if left out."
MOST_STREAM_BPS: Final = 10_000_000_000
"""Limit of a stream: a Python thread cannot send more. A sender reports the datagrams that it skipped."""
MOST_ROUNDS: Final = 10_000
USUAL_BACKGROUND_NS: Final = 10 * NS_PER_S
"""Longest time that background without `stop` goes on; less if that would be too many transfers to plan."""
LONGEST_NS: Final = 24 * 3600 * NS_PER_S
_time: Final = with_bounds(parse_duration_ns, 0, LONGEST_NS, format_duration)
JOB_NAME: Final = "job"
"""Name of the job of a scenario without `jobs`."""


@dataclass(frozen=True, slots=True)
class JobEntry:
    """One entry of `jobs`."""

    name: str
    source: Source
    passes: int
    start_ns: int
    mapping: Mapping
    collectives: Collectives
    transport: int = TOP
    """Index of its transport in `Scenario.transports`."""


@dataclass(frozen=True, slots=True)
class Usual:
    """Defaults of a job that does not state them, from the top of the file."""

    iterations: int
    mapping: Mapping
    collectives: Collectives


@dataclass(frozen=True, slots=True)
class BackgroundEntry:
    """One entry of `background` that is carried by queue pairs."""

    name: str
    load: IncastLoad | StorageLoad
    start_ns: int
    stop_ns: int
    """0 if not stated."""
    mapping: Mapping
    dscp: int
    """-1 to use the jobs' DSCP."""
    where: str
    transport: int = TOP
    """Index of its transport in `Scenario.transports`."""


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """One entry of `background` of datagrams that no queue pair carries."""

    name: str
    from_port: str = required_setting("from", parse_port_label, "a/p", _PORT_REMEDY)
    """The port that sends."""
    to_port: str = required_setting("to", parse_port_label, "b/p", _PORT_REMEDY)
    """The port that receives."""
    rate_bps: int = required_setting(
        "rate",
        with_bounds(parse_rate_bps, 1000, MOST_STREAM_BPS, format_rate),
        1000,
        "write the rate of the payload, such as 100Mbps",
    )
    """Rate of the UDP payload."""
    datagram_bytes: int = setting(
        "size", with_bounds(parse_bytes, LEAST_DATAGRAM_BYTES, MOST_DATAGRAM_BYTES, format_bytes), 1400
    )
    """UDP payload of a datagram; with `uud` its headers of 48 bytes are part of it."""
    form: StreamForm = setting("as", one_of({form.name.lower(): form for form in StreamForm}), StreamForm.UDP)
    """Plain UDP, or UET's unreliable delivery, each datagram a message of one packet (docs/uet.md)."""
    dscp: int = 0
    start_ns: int = 0
    stop_ns: int = 0
    """0 to stop with the run."""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Background:
    """The contents of `background`: loads carried by queue pairs, and streams of datagrams."""

    loads: tuple[BackgroundEntry, ...] = ()
    streams: tuple[StreamEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class Several:
    """The contents of `jobs` and `rounds`."""

    jobs: tuple[JobEntry, ...] = ()
    rounds: int = 0
    notes: tuple[str, ...] = ()


def read_jobs(
    top: Section,
    directory: Path,
    scales: Scales,
    seed: int,
    usual: Usual,
    transports: JobTransports,
) -> Several:
    """Read `jobs` and `rounds`; no jobs if the scenario has a `workload`. Mistakes are added to the file of `top`.

    Entries take what they do not state from `usual`.
    """
    rounds = top.optional(
        "rounds",
        integer(1, MOST_ROUNDS),
        0,
        "Rounds, in each of which every job runs alone, and then all together. Left out, all run together, once.",
    )
    if not top.has("jobs"):
        if rounds:
            top.mistake("rounds", "rounds need several jobs", "write jobs, or iterations for one job")
        return Several()
    if top.has("workload"):
        top.mistake("workload", "each job has its own workload", "move it into one of the jobs")
    sections = top.up_to(
        MOST_JOBS, "jobs", "jobs", _JOBS_REMEDY, "Several jobs side by side, in place of `workload`."
    )
    entries: list[JobEntry] = []
    notes: list[str] = []
    for section in sections:
        job_mapping = read_mapping(section.section("mapping")) if section.has("mapping") else usual.mapping
        job_collectives = usual.collectives
        if section.has("collectives"):
            nics = job_mapping.nics_per_host or 0
            job_collectives = read_collectives(section.section("collectives"), directory, nics)
        name = section.require(
            "name", parse_name, JOB_NAME, "give the job a name", "Name of the job in results."
        )
        _refuse_twice(section, name, [entry.name for entry in entries])
        source = read_source(
            section.section("workload", "As `workload` at the top."), directory, scales, seed
        )
        source, order_notes = in_nccl_order(source, job_collectives.settings)
        job_mapping = with_processes(job_mapping, source.load, section)
        notes += [f"{name}: {note}" for note in order_notes]
        is_serving = isinstance(source.load, ServingLoad)
        entries.append(
            JobEntry(
                name=name,
                source=source,
                passes=section.optional(
                    "iterations",
                    integer(1, 1_000_000),
                    1 if is_serving else usual.iterations,
                    "Passes in a phase; those at the top if left out.",
                ),
                start_ns=section.optional("start", _time, 0, "Delay after the start of the run."),
                mapping=job_mapping,
                collectives=job_collectives,
                transport=transports.number_of(section),
            )
        )
        section.close()
    if len(entries) == 1 and entries[0].start_ns:
        sections[0].mistake("start", "a single job cannot start later", "remove it, or write another job")
    if rounds and len(entries) < 2:
        top.mistake("rounds", "a round needs 2 or more jobs, got 1", "write two jobs or more")
    if rounds and len({entry.transport for entry in entries}) > 1:
        problem = "phases end with a barrier of all ranks, which needs one transport for all jobs"
        top.mistake("rounds", problem, "leave it out, and run each job alone from its own scenario")
    return Several(tuple(entries), rounds, tuple(notes))


def read_background(
    top: Section, jobs: tuple[JobEntry, ...], seed: int, transports: JobTransports
) -> Background:
    """Read the entries of `background:`. Mistakes are added to the file of `top`."""
    remedy = "write loads such as - {name: b, incast: {...}}"
    names = [job.name for job in jobs]
    loads: list[BackgroundEntry] = []
    streams: list[StreamEntry] = []
    meaning = "Load in addition to the jobs, for which the run does not wait."
    for section in top.up_to(MOST_BACKGROUNDS, "background", "loads", remedy, meaning):
        name = section.require("name", parse_name, "", "give the load a name", "Name of the load in results.")
        _refuse_twice(section, name, names)
        names.append(name)
        if section.has("udp"):
            streams.append(_read_stream(section, name, transports.path_mtu_bytes))
        else:
            loads.append(replace(_read_entry(section, name, seed), transport=transports.number_of(section)))
        section.close()
    return Background(tuple(loads), tuple(streams))


def _read_span(section: Section) -> tuple[int, int]:
    start_ns = section.optional("start", _time, 0, "Begin, after the start of the run.")
    stop_ns = section.optional("stop", _time, 0, "End; that of the jobs if left out.")
    if section.has("stop") and stop_ns <= start_ns:
        section.mistake("stop", "stop is not after start", "raise stop, or leave it out")
    return start_ns, stop_ns


def _read_stream(section: Section, name: str, path_mtu_bytes: int) -> StreamEntry:
    start_ns, stop_ns = _read_span(section)
    for key in ("incast", "storage", "mapping", "transport"):
        if section.has(key):
            section.mistake(
                key, "cannot be combined with udp", "write an entry for each load; UDP names its ports"
            )
    udp = section.section("udp", "Datagrams from port to port, which no queue pair carries.")
    entry = read_settings(
        StreamEntry,
        udp,
        name=name,
        dscp=section.optional("dscp", dscp_value, 0, _DSCP_MEANING),
        start_ns=start_ns,
        stop_ns=stop_ns,
        where=section.where("udp"),
    )
    most_bytes = UUD_HEADER_BYTES + path_mtu_bytes
    if entry.form is StreamForm.UUD and not LEAST_UUD_BYTES <= entry.datagram_bytes <= most_bytes:
        udp.mistake(
            "size",
            f"a UUD message is one packet of {UUD_HEADER_BYTES} bytes of headers and at most path MTU ({path_mtu_bytes} bytes)",
            f"write a size from {LEAST_UUD_BYTES}B to {most_bytes}B",
        )
    if udp.has("to") and entry.from_port == entry.to_port:
        udp.mistake("to", "source and destination are the same port", "name two ports")
    udp.close()
    return entry


def _read_entry(section: Section, name: str, seed: int) -> BackgroundEntry:
    start_ns, stop_ns = _read_span(section)
    kinds = [key for key in ("incast", "storage") if section.has(key)]
    if len(kinds) != 1:
        problem = "no load is given" if not kinds else "two loads are given"
        section.mistake(kinds[-1] if kinds else "name", problem, "write one of incast, storage and udp")
    key = kinds[0] if kinds else "incast"
    load_section = section.section(key, LOAD_MEANINGS[key])
    load: IncastLoad | StorageLoad
    if not kinds:
        load = IncastLoad(1, 1, NS_PER_S, 1)
    elif key == "incast":
        load = read_incast(load_section)
    else:
        load = read_storage(load_section, seed, transfers=1)
    load_section.close()
    if stop_ns > start_ns:
        load = lasting(load, stop_ns - start_ns)
    else:
        load = clip_load(lasting(load, USUAL_BACKGROUND_NS))
    mapping = Mapping(1, PlacementRule.ROUND_ROBIN, ())
    return BackgroundEntry(
        name=name,
        load=load,
        start_ns=start_ns,
        stop_ns=stop_ns,
        mapping=read_mapping(section.section("mapping")) if section.has("mapping") else mapping,
        dscp=section.optional("dscp", dscp_value, -1, _DSCP_MEANING),
        where=section.where(key),
    )


def _refuse_twice(section: Section, name: str, used_names: list[str]) -> None:
    if name in used_names:
        section.mistake("name", f'the name "{name}" is used twice', "choose another name")
