"""`workload` of a scenario or of one of its jobs: a trace and how it is read, or a generated load.

Decides the keys. The meaning of a trace is decided by the room `workload`, that of a load by `loads`.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import required_setting, setting
from etloop.contract.base.settings_reader import read_settings
from etloop.contract.base.units import (
    format_rate,
    parse_factor,
    parse_flops,
    parse_rate_bps,
)
from etloop.contract.base.value_form import RATE, FormedParser, pattern_form, with_form, with_limits
from etloop.contract.base.value_parsers import integer, with_bounds, words
from etloop.contract.base.yaml_reader import Section
from etloop.controller.inputs.scenario.loads import LOAD_KEYS, Load, has_load, read_load
from etloop.traffic.collectives.choice import Settings, Shaping
from etloop.workload.readers.production.facts import FileFacts
from etloop.workload.trace.excerpt import Excerpt, RankRange
from etloop.workload.trace.ideal_network import IdealNetwork
from etloop.workload.trace.settings import (
    MAX_REPLICAS,
    MOST_DIMENSIONS,
    WorkloadSettings,
)


@dataclass(frozen=True, slots=True)
class Scales:
    """Factors on the bytes and times of a job."""

    bytes: Fraction = setting("bytes", parse_factor, Fraction(1))
    """Factor of all sizes."""
    time: Fraction = setting("time", parse_factor, Fraction(1))
    """Factor of all compute times."""


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a job: a trace, or a generated load instead of one."""

    trace: Path | None
    groups: Path | None
    settings: WorkloadSettings
    load: Load | None
    where: str
    """File, line and key, for errors that are found later."""
    kernels: Path | None = None
    """File that names kernels which communicate, in addition to the built-in table."""
    facts: FileFacts = FileFacts()
    """Facts that the trace's files do not state."""
    excerpt: Excerpt | None = None
    """The ranks that are replayed if the remaining ones are only modelled; None if all are replayed."""


@with_form(with_limits(RATE, "8bps to 1000000Tbps"))
def _bytes_per_second(text: str) -> int:
    return with_bounds(parse_rate_bps, 8, 10**18, format_rate)(text) // 8


@dataclass(frozen=True, slots=True)
class TraceFiles:
    """File names of a job that replays a trace, relative to the scenario."""

    trace: str = required_setting(
        "trace", words, "", "name the directory, prefix or archive of the .et files, or write a load"
    )
    """Directory, prefix or archive of the traces, relative to the scenario."""
    groups: str = setting("groups", words, "")
    """File of the communicators, if it is not in the directory of the traces."""
    kernels: str = setting("kernels", words, "")
    """Table of communicating kernels other than NCCL's, searched before the built-in one."""


@dataclass(frozen=True, slots=True)
class ComputeRates:
    """Rates of one rank, for nodes without a duration in the trace; None where the file states none."""

    flops: int | None = setting(
        "flops", with_bounds(parse_flops, 1, 10**18, lambda flops: f"{flops}FLOPS"), None
    )
    """Compute rate of one rank."""
    memory_bandwidth_bytes_per_s: int | None = setting("memory_bandwidth", _bytes_per_second, None)
    """Memory bandwidth of one rank, the other limit of its roofline."""
    storage_bandwidth_bytes_per_s: int | None = setting("storage_bandwidth", _bytes_per_second, None)
    """Storage bandwidth of one rank, for reads and writes."""


_rank_range: Final = FormedParser(RankRange.parse, pattern_form("ranks", r"[0-9]+(-[0-9]+)?"))
_TRACE_KEYS = (
    "trace",
    "groups",
    "kernels",
    "ranks",
    "servers",
    "remote_tiers",
    "size_unit",
    "element_bytes",
    "dependencies",
    "replicate_ranks",
    "stand_ins",
    "excerpt",
    "uneven",
    "logical_topology",
    "compute",
)


def read_source(section: Section, directory: Path, scales: Scales, seed: int) -> Source:
    """Read the source of a `workload:` section. Its paths are relative to `directory`; mistakes are added to its file."""
    if has_load(section):
        trace_keys = [key for key in _TRACE_KEYS if section.has(key)]
        if trace_keys:
            section.mistake(
                trace_keys[0], "a load replaces the trace, and this key describes a trace", "remove it"
            )
        load = read_load(section, directory, seed)
        where = section.where(next(key for key in LOAD_KEYS if section.has(key)))
        section.close()
        return Source(None, None, WorkloadSettings(), load, where)
    files = read_settings(TraceFiles, section)
    facts = read_settings(FileFacts, section)
    settings = _read_settings(section, scales)
    excerpt = _read_excerpt(section)
    where = section.where("trace")
    section.close()
    return Source(
        directory / files.trace,
        directory / files.groups if files.groups else None,
        settings,
        None,
        where,
        directory / files.kernels if files.kernels else None,
        facts,
        excerpt,
    )


def _read_excerpt(section: Section) -> Excerpt | None:
    """Return the ranks that are replayed and the network that models the remaining ones; None if all ranks are replayed."""
    where = section.where("excerpt")
    excerpt = section.section(
        "excerpt", "The ranks that are replayed; what they do with the remaining ranks takes its time alone."
    )
    ranges = excerpt.texts("ranks", _rank_range, RankRange(0, 0), "Ranges of ranks.")
    network = read_settings(IdealNetwork, excerpt)
    if section.has("excerpt") and not ranges:
        excerpt.mistake("ranks", "no rank is real", "list the real ranks, such as [0-15]")
    excerpt.close()
    return Excerpt(ranges, network, where) if ranges else None


def in_nccl_order(source: Source, shaping: Settings) -> tuple[Source, tuple[str, ...]]:
    """Return the source with operations of a communicator in sequence if it imitates NCCL, and a note if this was added.

    NCCL runs the operations of a communicator in one stream, whatever dependencies the trace has.
    """
    policy = source.settings.dependencies
    if policy.communicator or source.load is not None or shaping.shaping is not Shaping.NCCL:
        return source, ()
    note = (
        f"dependencies {policy} do not order the operations of a communicator, but NCCL runs them one after another, "
        "as this plan does; use collectives.shaping plain, gloo or mpi to keep the trace's order"
    )
    settings = replace(source.settings, dependencies=replace(policy, communicator=True))
    return replace(source, settings=settings), (note,)


def _read_settings(section: Section, scales: Scales) -> WorkloadSettings:
    below = section.section("compute", "Rates of compute that has no duration in the trace.")
    rates = read_settings(ComputeRates, below)
    below.close()
    return read_settings(
        WorkloadSettings,
        section,
        logical_topology=_read_topology(section),
        flops=rates.flops,
        memory_bandwidth_bytes_per_s=rates.memory_bandwidth_bytes_per_s,
        storage_bandwidth_bytes_per_s=rates.storage_bandwidth_bytes_per_s,
        bytes_scale=scales.bytes,
        time_scale=scales.time,
    )


def _read_topology(section: Section) -> tuple[int, ...]:
    meaning = "Sizes of the dimensions that a trace names by number, the fastest first."
    sizes = section.texts("logical_topology", integer(1, MAX_REPLICAS), 1, meaning)
    if len(sizes) > MOST_DIMENSIONS:
        problem = f"has {len(sizes)} dimensions"
        section.mistake("logical_topology", problem, f"write at most {MOST_DIMENSIONS}, such as [2, 4]")
        return ()
    return sizes
