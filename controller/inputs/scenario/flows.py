"""`flows` of a workload: single transfers that begin at times of their own, listed in a file or drawn.

Decides words and limits. Files are read by `flow_files`, the job is made by `flow_jobs`.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import required_setting, setting
from etloop.contract.base.settings_reader import read_settings
from etloop.contract.base.units import format_rate, parse_rate_bps
from etloop.contract.base.value_parsers import SEED, integer, with_bounds, word_of, words
from etloop.contract.base.yaml_reader import Section
from etloop.controller.inputs.scenario.mapping import Mapping, PlacementRule

MOST_FLOW_RANKS: Final = 1024
"""Hosts times processes."""
MOST_FLOWS: Final = 1 << 16
"""Most flows of all senders together: the plan lists every one."""
USUAL_PROCESSES: Final = 8
_HOSTS_MEANING: Final = "Hosts that send and receive; as many as the file names if left out."
SHIPPED_SIZES: Final = ("web_search", "hadoop")
"""Distributions of sizes that need no file."""


class FlowPattern(StrEnum):
    """Who sends to whom."""

    UNIFORM = "uniform"
    """Every flow from a host drawn to another one drawn."""
    PERMUTATION = "permutation"
    """Every host to one other for good; none receives from two."""
    INCAST = "incast"
    """Every host but the first to the first."""


@dataclass(frozen=True, slots=True)
class DrawnFlows:
    """Flows of drawn sizes that begin at drawn times (Poisson)."""

    sizes: Path | str = required_setting(
        "sizes",
        words,
        SHIPPED_SIZES[0],
        f"name a distribution ({', '.join(SHIPPED_SIZES)}) or the file of one; or list the flows in a file and name it under"
        " file",
    )
    """Distribution of sizes, web_search or hadoop, or the file of one."""
    rate_bps: int = required_setting(
        "rate",
        with_bounds(parse_rate_bps, 1000, 10**14, format_rate),
        10**9,
        "write the average rate of a sender, such as 30Gbps",
    )
    """Payload that one sender sends on average."""
    count: int = setting("count", integer(1, MOST_FLOWS), 1000)
    """Flows of all senders."""
    pattern: FlowPattern = setting("pattern", word_of(FlowPattern), FlowPattern.UNIFORM)
    """Who sends to whom."""
    seed: int = setting("seed", SEED, 1)
    """Draws times, sizes and ends; the scenario's seed if left out."""


@dataclass(frozen=True, slots=True)
class FlowsLoad:
    """Flows that begin at times of their own, whatever became of the ones before."""

    hosts: int
    """0: as many as the file names."""
    processes: int
    """Ranks of each host. Flows of a pair of hosts take them in turn, each with a queue pair of its own."""
    source: Path | DrawnFlows
    """A file that lists them, or how they are drawn."""


def read_flows(section: Section, directory: Path, seed: int) -> FlowsLoad:
    """Return what a `flows:` section says; paths are relative to `directory`, mistakes go to the section's file."""
    processes = section.optional(
        "processes",
        integer(1, MOST_FLOW_RANKS // 2),
        USUAL_PROCESSES,
        "Ranks of each host, which its flows to another host take in turn; each has a queue pair of its own.",
    )
    most = max(MOST_FLOW_RANKS // processes, 2)
    if section.has("file"):
        excess_keys = [key for key in ("sizes", "rate", "count", "pattern", "seed") if section.has(key)]
        if excess_keys:
            section.mistake(excess_keys[0], "the file already lists every flow", "remove it, or remove file")
        meaning = "File that lists every flow (CSV, or as ns-3's RDMA simulations have it), relative to the scenario."
        name = section.require("file", words, "", "name the file that lists the flows", meaning)
        return FlowsLoad(
            section.optional("hosts", integer(2, most), 0, _HOSTS_MEANING), processes, directory / name
        )
    drawn = read_settings(DrawnFlows, section, DrawnFlows(SHIPPED_SIZES[0], 10**9, seed=seed))
    if drawn.sizes not in SHIPPED_SIZES:
        drawn = replace(drawn, sizes=directory / drawn.sizes)
    remedy = f"write how many hosts send and receive, at most {most} of {processes} processes"
    return FlowsLoad(section.require("hosts", integer(2, most), 2, remedy, _HOSTS_MEANING), processes, drawn)


def with_processes(mapping: Mapping, load: object, section: Section) -> Mapping:
    """Return the mapping under which the processes of a host of flows share it; a mistake where it says another number."""
    if not isinstance(load, FlowsLoad) or mapping.rule is PlacementRule.EXPLICIT:
        return mapping
    own = section.section("mapping") if section.has("mapping") else None
    if own is not None and own.has("ranks_per_host") and mapping.ranks_per_host != load.processes:
        problem = f"is {mapping.ranks_per_host}, but flows have {load.processes} processes a host"
        own.mistake("ranks_per_host", problem, "remove it: workload.flows.processes sets the number")
    return replace(mapping, ranks_per_host=load.processes)
