"""Requirements of a scenario on a rack: ports, their number, speed and backend, each with its key. Pure.

Only what the file itself contains is required. The caller provides the number of ranks of a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from etloop.controller.inputs.scenario.flows import DrawnFlows, FlowsLoad
from etloop.controller.inputs.scenario.jobs import JobEntry
from etloop.controller.inputs.scenario.loads import IncastLoad, Load, StorageLoad
from etloop.controller.inputs.scenario.mapping import Mapping
from etloop.controller.inputs.scenario.scenario import Scenario
from etloop.controller.racks.needs import Needs

_FRAMING: Final = ("packet", "xdp")
"""Backends that write whole frames, and so choose the source port of every packet."""
_PER_MILLION: Final = 1_000_000
_BITS_NS: Final = 8 * 1_000_000_000


def needs_of(scenario: Scenario, ranks_of_trace: Callable[[Path], int]) -> Needs:
    """Return the requirements of a scenario. `ranks_of_trace` returns the ranks of a trace, 0 if unknown."""
    ports, among, ports_key = _named_ports(scenario)
    hosts = [_hosts(job, ranks_of_trace) for job in scenario.jobs]
    most_hosts = 0 if 0 in hosts or ports else max(hosts)
    link_bps, link_key = max(_rates(scenario), default=(0, ""))
    backends, backend_key = _backends(scenario)
    crosses_device = not scenario.allow_local and (most_hosts > 1 or 0 in hosts)
    return Needs(
        ports=ports,
        among=among,
        ports_key=ports_key,
        least_ports=2 if crosses_device and not ports else 1,
        port_count=most_hosts,
        count_key=f"a port for each of {most_hosts} hosts" if most_hosts else "",
        least_link_bps=link_bps,
        link_key=link_key,
        backends=backends,
        backend_key=backend_key,
    )


def _named_ports(scenario: Scenario) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Return (ports of the whole job, or else ports that some of it names, keys that name them)."""
    labels_found: dict[str, None] = {}
    keys: dict[str, None] = {}
    all_named = True
    for mapping in (job.mapping for job in scenario.jobs):
        labels = _ports_of(mapping)
        all_named = all_named and bool(labels)
        labels_found.update(dict.fromkeys(labels))
        if labels:
            keys["mapping.explicit" if mapping.explicit else "mapping.ports"] = None
    background_labels = [label for load in scenario.background for label in _ports_of(load.mapping)]
    background_labels += [
        label for stream in scenario.streams for label in (stream.from_port, stream.to_port)
    ]
    if any(not _ports_of(load.mapping) for load in scenario.background):
        all_named = False
    if background_labels:
        keys["background"] = None
        labels_found.update(dict.fromkeys(background_labels))
    return (
        (tuple(labels_found), (), ", ".join(keys))
        if all_named
        else ((), tuple(labels_found), ", ".join(keys))
    )


def _ports_of(mapping: Mapping) -> tuple[str, ...]:
    return mapping.ports or tuple(dict.fromkeys(label for _, label in mapping.explicit))


def _hosts(job: JobEntry, ranks_of_trace: Callable[[Path], int]) -> int:
    """Return the number of hosts of a job; 0 if unknown, or if a host takes several ports, which must be of one agent."""
    mapping = job.mapping
    if mapping.rails or (mapping.nics_per_host or 1) > 1:
        return 0
    if mapping.hosts:
        return len(mapping.hosts)
    source = job.source
    if source.load is not None:
        ranks = (
            source.load.hosts * source.load.processes
            if isinstance(source.load, FlowsLoad)
            else source.load.ranks
        )
    else:
        has_stand_ins = any(source.settings.stand_ins)
        ranks = source.settings.replicate_ranks or (
            0 if has_stand_ins or source.trace is None else ranks_of_trace(source.trace)
        )
    return -(-ranks // mapping.ranks_per_host)


def _rates(scenario: Scenario) -> Iterator[tuple[int, str]]:
    """Yield the average rate in bit/s of single senders, each with its key: no port carries more than its link."""
    for job in scenario.jobs:
        if job.source.load is not None:
            yield from _rates_of(job.source.load, "workload")
    for background in scenario.background:
        yield from _rates_of(background.load, f"background {background.name}")
    for stream in scenario.streams:
        yield stream.rate_bps, f"background {stream.name}: udp.rate"


def _rates_of(load: Load, where: str) -> Iterable[tuple[int, str]]:
    match load:
        case FlowsLoad(source=DrawnFlows() as drawn):
            yield drawn.rate_bps, f"{where}: flows.rate"
        case IncastLoad() if load.period_ns:
            yield load.burst_bytes * _BITS_NS // load.period_ns, f"{where}: incast.rate"
        case StorageLoad():
            share = max(load.read_per_million, _PER_MILLION - load.read_per_million)
            yield load.rate_bps * share // _PER_MILLION, f"{where}: storage.rate"
        case _:
            pass


def _backends(scenario: Scenario) -> tuple[tuple[str, ...], str]:
    spraying_kinds = dict.fromkeys(
        transport.kind_name for transport in scenario.used_transports if transport.sprays
    )
    # Required of all ports, also those of RoCEv2 jobs: which ports a job gets is unknown here.
    return (_FRAMING, f"transport.kind {' and '.join(spraying_kinds)}") if spraying_kinds else ((), "")
