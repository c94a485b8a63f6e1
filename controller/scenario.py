"""`scenario.yaml`: the workload, how it is mapped and scaled, and how its traffic is carried.

Decides what a scenario may say and its defaults, each with its reason. What a trace means is decided by `workload`,
where ranks go by `placement`; which machines there are is said in `rig.yaml`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from contract.units import (
    NS_PER_S,
    format_duration,
    format_rate,
    parse_duration_ns,
    parse_factor,
    parse_flops,
    parse_rate_bps,
    parse_share_per_million,
)
from contract.yaml_reader import (
    ConfigFile,
    Section,
    bounded,
    integer,
    one_of,
    read_document,
    words,
    yes_or_no,
)
from controller.rig import MOST_RAILS
from controller.scenario_capture import port_name
from controller.scenario_collectives import Collectives, read_collectives
from controller.scenario_congestion import PluginReader, refuse_plugins
from controller.scenario_transport import Transport, read_transport
from controller.scenario_verdict import AskedVerdict, read_verdict
from traffic.collectives.choice import Shaping
from workload.settings import MAX_REPLICAS, DependencyPolicy, SizeUnit, WorkloadSettings

if TYPE_CHECKING:
    from pathlib import Path

MOST_RANKS: Final = 65536
DEFAULT_SEED: Final = 1


class PlacementRule(StrEnum):
    """How hosts are put on ports; `placement` defines them."""

    BLOCKED = "blocked"
    ROUND_ROBIN = "round_robin"
    EXPLICIT = "explicit"


@dataclass(frozen=True, slots=True)
class Mapping:
    """Ranks -> hosts -> NICs -> ports. Consecutive ranks share a host, `ranks_per_host` at a time."""

    ranks_per_host: int
    rule: PlacementRule
    explicit: tuple[tuple[int, str], ...]
    """(rank, "agent/port") in the order of the file; empty unless the rule is EXPLICIT."""
    explicit_where: tuple[str, ...] = ()
    """File and line of each of `explicit`, for messages; empty if they come from no file."""
    rails: bool = False
    """Local rank i of a host uses the host's NIC i * nics_per_host // ranks_per_host, on a port of that rail."""
    nics_per_host: int | None = None
    """None: as many as the rig has rails."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that `scenario.yaml` says."""

    trace: Path
    groups: Path | None
    workload: WorkloadSettings
    bytes_scale_text: str
    time_scale_text: str
    iterations: int
    mapping: Mapping
    collectives: Collectives
    transport: Transport
    scale_up_bps: int
    scale_up_latency_ns: int
    drop_per_million: int
    drop_seed: int
    stall_timeout_ns: int
    gather_timeout_ns: int
    seed: int
    twin: Path | None = None
    """Topology of the device under test, to hold the run against."""
    notes: tuple[str, ...] = ()
    """What is done although the file does not say so."""
    verdict: AskedVerdict = AskedVerdict()


def parse_scenario(
    text: bytes, source: str, directory: Path, read_plugin: PluginReader = refuse_plugins
) -> Scenario:
    """The scenario of a YAML text. `source` names the file in messages; its paths are relative to `directory`.

    Raises `ConfigError` with all mistakes of the file.
    """
    file = ConfigFile(source)
    top = read_document(text, file)
    seed = top.optional("seed", integer(0, 2**63 - 1), DEFAULT_SEED)
    workload = top.section("workload")
    scale = top.section("scale")
    scale_up = top.section("scale_up")
    faults = top.section("faults")
    limits = top.section("limits")
    waiting = bounded(parse_duration_ns, NS_PER_S // 10, 3600 * NS_PER_S, format_duration)
    # An absent scale-up section stands for NVLink-class links: 450 GB/s a direction and about a microsecond.
    rate = bounded(parse_rate_bps, 1_000_000, 100_000_000_000_000, format_rate)
    latency = bounded(parse_duration_ns, 0, NS_PER_S, format_duration)
    trace = workload.required("trace", words, "", "name the directory, prefix or archive of the .et files")
    groups = workload.optional("groups", words, "")
    topology = top.optional("twin", words, "")
    mapping = _read_mapping(top.section("mapping"))
    scenario = Scenario(
        trace=directory / trace,
        groups=directory / groups if groups else None,
        workload=_read_workload(workload, scale),
        bytes_scale_text=scale.optional("bytes", words, "1"),
        time_scale_text=scale.optional("time", words, "1"),
        iterations=top.optional("iterations", integer(1, 1_000_000), 1),
        mapping=mapping,
        collectives=read_collectives(top.section("collectives"), directory, mapping.nics_per_host or 0),
        transport=read_transport(top.section("transport"), directory, read_plugin, seed),
        scale_up_bps=scale_up.optional("bandwidth", rate, 3_600_000_000_000),
        scale_up_latency_ns=scale_up.optional("latency", latency, 1000),
        drop_per_million=faults.optional("drop", parse_share_per_million, 0),
        drop_seed=faults.optional("seed", integer(0, 2**63 - 1), seed),
        stall_timeout_ns=limits.optional("stall_timeout", waiting, 5 * NS_PER_S),
        gather_timeout_ns=limits.optional("gather_timeout", waiting, 60 * NS_PER_S),
        seed=seed,
        twin=directory / topology if topology else None,
        verdict=read_verdict(top.section("verdict")),
    )
    for section in (workload, scale, scale_up, faults, limits, top):
        section.close()
    file.refuse_mistakes()
    return _in_nccl_order(scenario)


def _in_nccl_order(scenario: Scenario) -> Scenario:
    """As shaped: NCCL runs the operations of a communicator in one stream, whatever the trace says of their order."""
    policy = scenario.workload.dependencies
    if policy.communicator or scenario.collectives.settings.shaping is not Shaping.NCCL:
        return scenario
    note = (
        f"dependencies {policy} do not order the operations of a communicator, but NCCL runs them one after another, "
        "and so does this plan; collectives.shaping plain, gloo or mpi leaves them as the trace has them"
    )
    ordered = replace(scenario.workload, dependencies=replace(policy, communicator=True))
    return replace(scenario, workload=ordered, notes=(*scenario.notes, note))


def _read_workload(section: Section, scale: Section) -> WorkloadSettings:
    compute = section.section("compute")
    settings = WorkloadSettings(
        size_unit=section.optional(
            "size_unit", one_of({unit.value: unit for unit in SizeUnit}), SizeUnit.AUTO
        ),
        element_bytes=section.optional("element_bytes", integer(1, 64), None),
        dependencies=section.optional(
            "dependencies", DependencyPolicy.parse, DependencyPolicy.DATA_COMMUNICATOR
        ),
        replicate_ranks=section.optional("replicate_ranks", integer(2, MAX_REPLICAS), None),
        flops=compute.optional("flops", _positive_flops, None),
        memory_bandwidth_bytes_per_s=compute.optional("memory_bandwidth", _bytes_per_second, None),
        bytes_scale=scale.optional("bytes", parse_factor, Fraction(1)),
        time_scale=scale.optional("time", parse_factor, Fraction(1)),
    )
    compute.close()
    return settings


def _read_mapping(section: Section) -> Mapping:
    rules = {rule.value: rule for rule in PlacementRule}
    rule = section.optional("placement", one_of(rules), PlacementRule.BLOCKED)
    explicit_section = section.section("explicit")
    explicit, explicit_where = _read_explicit(explicit_section)
    ranks_per_host = section.optional("ranks_per_host", integer(1, 1024), 1)
    nics_per_host = section.optional("nics_per_host", integer(1, MOST_RAILS), None)
    rails = section.optional("rails", yes_or_no, nics_per_host is not None)
    if nics_per_host is not None and not rails:
        section.mistake("rails", "nics_per_host is given although rails is false", "remove one of the two")
    if rails and rule is PlacementRule.EXPLICIT:
        what = "rails choose the port of every rank, and so does placement: explicit"
        section.mistake("rails", what, "remove rails and nics_per_host, or let the placement be blocked")
    if rule is PlacementRule.EXPLICIT and not explicit:
        section.mistake(
            "explicit", "placement is explicit but no rank is placed", 'write lines such as 0-3: "a/p0"'
        )
    if rule is not PlacementRule.EXPLICIT and section.has("explicit"):
        section.mistake(
            "explicit", f"ranks are placed although placement is {rule}", "write placement: explicit"
        )
    mapping = Mapping(ranks_per_host, rule, explicit, explicit_where, rails, nics_per_host)
    section.close()
    return mapping


def _read_explicit(section: Section) -> tuple[tuple[tuple[int, str], ...], tuple[str, ...]]:
    """Ranks with their ports, and where the file says so."""
    placed: dict[int, str] = {}
    where: dict[int, str] = {}
    for key in section.entry_names():
        port = section.optional(key, port_name, "")
        match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", key)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if not first <= last < MOST_RANKS:
            section.mistake(
                key, f'"{key[:64]}" is not a rank', "write a rank such as 3, or a range such as 0-7"
            )
            continue
        twice = [rank for rank in range(first, last + 1) if rank in placed]
        if twice:
            section.mistake(key, f"rank {twice[0]} is placed twice", "place every rank once")
        placed.update((rank, port) for rank in range(first, last + 1))
        where.update((rank, section.where(key)) for rank in range(first, last + 1))
    return tuple(placed.items()), tuple(where.values())


def _positive_flops(text: str) -> int:
    return bounded(parse_flops, 1, 10**18, lambda flops: f"{flops}FLOPS")(text)


def _bytes_per_second(text: str) -> int:
    return bounded(parse_rate_bps, 8, 10**18, format_rate)(text) // 8
