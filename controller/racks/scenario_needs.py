"""What a scenario asks of a rack: ports, their number, speed and backend, each with the key that asks for it. Pure.

Only what the file itself says is asked for. How many ranks a trace has is the caller's to know.
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
    """Return what a scenario asks of a rack. `ranks_of_trace`: ranks that a trace has; 0 where nobody knows."""
    ports, among, ports_key = _named(scenario)
    hosts = [_hosts(job, ranks_of_trace) for job in scenario.jobs]
    most = 0 if 0 in hosts or ports else max(hosts)
    link_bps, link_key = max(_rates(scenario), default=(0, ""))
    backends, backend_key = _backends(scenario)
    crosses = not scenario.allow_local and (most > 1 or 0 in hosts)
    return Needs(
        ports=ports,
        among=among,
        ports_key=ports_key,
        least_ports=2 if crosses and not ports else 1,
        port_count=most,
        count_key=f"a port for each of {most} hosts" if most else "",
        least_link_bps=link_bps,
        link_key=link_key,
        backends=backends,
        backend_key=backend_key,
    )


def _named(scenario: Scenario) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """The ports that are named: all that there are, or some among others; and where."""
    found: dict[str, None] = {}
    keys: dict[str, None] = {}
    everywhere = True
    for mapping in (job.mapping for job in scenario.jobs):
        labels = _ports_of(mapping)
        everywhere = everywhere and bool(labels)
        found.update(dict.fromkeys(labels))
        if labels:
            keys["mapping.explicit" if mapping.explicit else "mapping.ports"] = None
    beside = [label for each in scenario.background for label in _ports_of(each.mapping)]
    beside += [label for each in scenario.streams for label in (each.from_port, each.to_port)]
    if any(not _ports_of(each.mapping) for each in scenario.background):
        everywhere = False
    if beside:
        keys["background"] = None
        found.update(dict.fromkeys(beside))
    return (tuple(found), (), ", ".join(keys)) if everywhere else ((), tuple(found), ", ".join(keys))


def _ports_of(mapping: Mapping) -> tuple[str, ...]:
    return mapping.ports or tuple(dict.fromkeys(label for _, label in mapping.explicit))


def _hosts(job: JobEntry, ranks_of_trace: Callable[[Path], int]) -> int:
    """How many hosts a job has; 0 where nobody knows, or where a host takes several ports, which have to be of one agent."""
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
        stood_in = any(source.settings.stand_ins)
        ranks = source.settings.replicate_ranks or (
            0 if stood_in or source.trace is None else ranks_of_trace(source.trace)
        )
    return -(-ranks // mapping.ranks_per_host)


def _rates(scenario: Scenario) -> Iterator[tuple[int, str]]:
    """What single senders send on average, each with its key: no port carries more than its link."""
    for job in scenario.jobs:
        if job.source.load is not None:
            yield from _rates_of(job.source.load, "workload")
    for each in scenario.background:
        yield from _rates_of(each.load, f"background {each.name}")
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
    spraying = dict.fromkeys(each.kind_name for each in scenario.used_transports if each.sprays)
    # Of the ports of jobs that go by RoCEv2 it is asked as well: which ports a job gets is not known here.
    return (_FRAMING, f"transport.kind {' and '.join(spraying)}") if spraying else ((), "")
