"""`workload` of a scenario or of one of its jobs: a trace and how it is read, or a generated load.

Decides the keys. The meaning of a trace is decided by the room `workload`, that of a load by `loads`.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import (
    format_duration,
    format_rate,
    parse_duration_ns,
    parse_flops,
    parse_rate_bps,
)
from etloop.contract.base.value_form import RATE, FormedParser, formed, limited, pattern_form
from etloop.contract.base.value_parsers import bounded, integer, one_of, words
from etloop.contract.base.yaml_reader import Section
from etloop.controller.inputs.scenario.loads import LOAD_KEYS, Load, has_load, read_load
from etloop.traffic.collectives.choice import Settings, Shaping
from etloop.workload.trace.excerpt import Excerpt, RankRange
from etloop.workload.trace.ideal_network import IdealNetwork
from etloop.workload.trace.rank_aliases import StandIn
from etloop.workload.trace.settings import (
    MAX_REPLICAS,
    MOST_DIMENSIONS,
    DependencyPolicy,
    SizeUnit,
    Uneven,
    WorkloadSettings,
)


@dataclass(frozen=True, slots=True)
class Scales:
    """Factors on the bytes and times of a job."""

    bytes: Fraction
    time: Fraction


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
    excerpt: Excerpt | None = None
    """The ranks that are replayed if the remaining ones are only modelled; None if all are replayed."""


_positive_flops: Final = bounded(parse_flops, 1, 10**18, lambda flops: f"{flops}FLOPS")
_POLICY: Final = "(data|ctrl|stream|communicator|recorded)"
_dependencies: Final = FormedParser(
    DependencyPolicy.parse, pattern_form("words joined by +", rf"{_POLICY}(\+{_POLICY})*")
)
_uneven: Final = FormedParser(
    Uneven.parse, pattern_form("refused, even or skew", r"refused|even|skew(=[0-9.]+(,seed=[0-9]+)?)?")
)
_stand_in: Final = FormedParser(
    StandIn.parse, pattern_form("ranks=recorded ranks", r"[0-9]+(-[0-9]+)?=[0-9]+(-[0-9]+)?")
)
_rank_range: Final = FormedParser(RankRange.parse, pattern_form("ranks", r"[0-9]+(-[0-9]+)?"))
_NOBODY: Final = StandIn(0, 0, 0, 0)
_TRACE_KEYS = (
    "trace",
    "groups",
    "kernels",
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
    trace = section.required(
        "trace", words, "", "name the directory, prefix or archive of the .et files, or write a load"
    )
    groups = section.optional("groups", words, "")
    kernels = section.optional("kernels", words, "")
    settings = _read_settings(section, scales)
    excerpt = _read_excerpt(section)
    where = section.where("trace")
    section.close()
    return Source(
        directory / trace,
        directory / groups if groups else None,
        settings,
        None,
        where,
        directory / kernels if kernels else None,
        excerpt,
    )


def _read_excerpt(section: Section) -> Excerpt | None:
    """Return the ranks that are replayed and the network that models the remaining ones; None if all ranks are replayed."""
    where = section.where("excerpt")
    excerpt = section.section("excerpt")
    ranges = excerpt.texts("ranks", _rank_range, RankRange(0, 0))
    default = IdealNetwork()
    network = IdealNetwork(
        excerpt.optional(
            "link", bounded(parse_rate_bps, 1_000_000, 100_000_000_000_000, format_rate), default.link_bps
        ),
        excerpt.optional(
            "latency", bounded(parse_duration_ns, 0, NS_PER_S, format_duration), default.latency_ns
        ),
    )
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
    compute = section.section("compute")
    settings = WorkloadSettings(
        size_unit=section.optional(
            "size_unit", one_of({unit.value: unit for unit in SizeUnit}), SizeUnit.AUTO
        ),
        element_bytes=section.optional("element_bytes", integer(1, 64), None),
        dependencies=section.optional("dependencies", _dependencies, DependencyPolicy.DATA_COMMUNICATOR),
        replicate_ranks=section.optional("replicate_ranks", integer(2, MAX_REPLICAS), None),
        stand_ins=section.texts("stand_ins", _stand_in, _NOBODY),
        uneven=section.optional("uneven", _uneven, Uneven()),
        logical_topology=_read_topology(section),
        flops=compute.optional("flops", _positive_flops, None),
        memory_bandwidth_bytes_per_s=compute.optional("memory_bandwidth", _bytes_per_second, None),
        storage_bandwidth_bytes_per_s=compute.optional("storage_bandwidth", _bytes_per_second, None),
        bytes_scale=scales.bytes,
        time_scale=scales.time,
    )
    compute.close()
    return settings


def _read_topology(section: Section) -> tuple[int, ...]:
    sizes = section.texts("logical_topology", integer(1, MAX_REPLICAS), 1)
    if len(sizes) > MOST_DIMENSIONS:
        problem = f"has {len(sizes)} dimensions"
        section.mistake("logical_topology", problem, f"write at most {MOST_DIMENSIONS}, such as [2, 4]")
        return ()
    return sizes


@formed(limited(RATE, "8bps to 1000000Tbps"))
def _bytes_per_second(text: str) -> int:
    return bounded(parse_rate_bps, 8, 10**18, format_rate)(text) // 8
