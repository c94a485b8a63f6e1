"""Flows (`inputs.scenario.flows`) as a job: every flow is a send at its start time, and the receive for it.

Decides how flows are drawn: Poisson arrivals, sizes from a distribution, sources and destinations by a pattern; the same seed
gives the same flows. A flow waits only for its start time (open loop). The flows of a pair of hosts use the pair's processes
in turn; those of one process follow each other on one queue pair, as messages do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.units import NS_PER_S
from etloop.controller.inputs.flow_files import (
    LATEST_NS,
    Flow,
    SizeDistribution,
    distribution_of,
    read_distribution,
    read_flow_list,
)
from etloop.controller.inputs.scenario.flows import (
    MOST_FLOW_RANKS,
    MOST_FLOWS,
    DrawnFlows,
    FlowPattern,
    FlowsLoad,
)
from etloop.workload.program.writer import ProgramWriter
from etloop.workload.trace.program import Job, OpKind, RankProgram

AHEAD: Final = 8
"""Most receives of a pair of ranks that are granted at a time, ahead of their sends."""
_WEB_SEARCH: Final = (
    "0 0, 10000 15, 20000 20, 30000 30, 50000 40, 80000 53, 200000 60, 1000000 70, 2000000 80, 5000000 90,"
    " 10000000 97, 30000000 100"
)
_HADOOP: Final = (
    "0 0, 100 1, 200 2, 300 5, 350 15, 400 20, 500 30, 600 40, 700 50, 1000 60, 2000 67, 7000 70, 30000 72,"
    " 50000 82, 80000 87, 120000 90, 300000 95, 1000000 97.5, 2000000 99, 10000000 100"
)
SHIPPED: Final = {"web_search": _WEB_SEARCH, "hadoop": _HADOOP}
"""Size distributions common in congestion control studies, as "bytes percent": web search of the DCTCP paper, Facebook's Hadoop
(alibaba-edu/High-Precision-Congestion-Control:traffic_gen/{WebSearch,FbHdp}_distribution.txt)."""


def flow_job(load: FlowsLoad, where: str) -> Job:
    """Return the job of a load of flows; reads its files. Raises `ConfigError` for files and flows that cannot be planned."""
    if isinstance(load.source, DrawnFlows):
        flows = drawn_flows(load.source, load.hosts, _distribution(load.source, where), where)
        source = f"{len(flows)} flows drawn by {load.source.seed}"
    else:
        flows = read_flow_list(load.source, where)
        source = f"{len(flows)} flows of {load.source.name}"
    if len(flows) > MOST_FLOWS:
        raise ConfigError(Problem(where, f"{len(flows)} flows", f"keep them within {MOST_FLOWS}"))
    named_hosts = 1 + max(max(flow.source, flow.destination) for flow in flows)
    if load.hosts and named_hosts > load.hosts:
        problem = f"a flow uses host {named_hosts - 1}, but there are {load.hosts} hosts"
        raise ConfigError(Problem(where, problem, f"write hosts: {named_hosts}, or remove hosts"))
    hosts = load.hosts or named_hosts
    if hosts * load.processes > MOST_FLOW_RANKS:
        problem = f"{hosts} hosts of {load.processes} processes"
        raise ConfigError(
            Problem(where, problem, f"keep their product within {MOST_FLOW_RANKS}: lower processes")
        )
    return _job_of_flows(flows, hosts, load.processes, source)


def drawn_flows(drawn: DrawnFlows, hosts: int, sizes: SizeDistribution, where: str) -> tuple[Flow, ...]:
    """Return the flows drawn from the seed, by start time.

    Raises `ConfigError` if they last longer than `LATEST_NS` on average.
    """
    # PCG64's raw output: unlike numpy's distributions it is the same in every numpy version.
    stream = np.random.PCG64([drawn.seed, hosts])
    senders = hosts - 1 if drawn.pattern is FlowPattern.INCAST else hosts
    gap_ns = sizes.mean_bytes * 8 * NS_PER_S / (drawn.rate_bps * senders)
    if drawn.count * gap_ns > LATEST_NS:
        seconds = drawn.count * gap_ns / NS_PER_S
        problem = f"{drawn.count} flows of {sizes.mean_bytes:.0f} bytes on average take {seconds:.0f} s at this rate"
        raise ConfigError(
            Problem(where, problem, f"raise the rate or lower the count: at most {LATEST_NS // NS_PER_S} s")
        )
    shuffled_hosts = [int(host) for host in np.argsort(stream.random_raw(hosts), kind="stable")]
    successor = {host: shuffled_hosts[(place + 1) % hosts] for place, host in enumerate(shuffled_hosts)}
    now_ns = 0.0
    flows = []
    for gap, size, source, destination in stream.random_raw((drawn.count, 4)).tolist():
        now_ns += -math.log((gap + 1) / 2**64) * gap_ns
        ends = _draw_ends(drawn.pattern, hosts, source, destination, successor)
        flows.append(Flow(int(now_ns), *ends, sizes.size_at((size + 1) / 2**64)))
    return tuple(flows)


def _draw_ends(
    pattern: FlowPattern, hosts: int, source: int, destination: int, after: dict[int, int]
) -> tuple[int, int]:
    match pattern:
        case FlowPattern.UNIFORM:
            sender = source % hosts
            return sender, (sender + 1 + destination % (hosts - 1)) % hosts
        case FlowPattern.PERMUTATION:
            return source % hosts, after[source % hosts]
        case FlowPattern.INCAST:
            return 1 + source % (hosts - 1), 0


def _distribution(drawn: DrawnFlows, where: str) -> SizeDistribution:
    if isinstance(drawn.sizes, str):
        return distribution_of(SHIPPED[drawn.sizes].split(", "), drawn.sizes)
    return read_distribution(drawn.sizes, where)


def _job_of_flows(flows: Sequence[Flow], hosts: int, processes: int, source: str) -> Job:
    ranks = hosts * processes
    writers = [ProgramWriter() for _ in range(ranks)]
    slots: list[dict[int, int]] = [{} for _ in range(ranks)]
    pace_of_rank: list[tuple[int, tuple[int, ...]]] = [(0, ()) for _ in range(ranks)]
    receives_of_pair: dict[tuple[int, int], list[int]] = {}
    flows_of_pair: Counter[tuple[int, int]] = Counter()
    for flow in flows:
        pair = flow.source, flow.destination
        process = flows_of_pair[pair] % processes
        flows_of_pair[pair] += 1
        source_rank, destination_rank = (host * processes + process for host in pair)
        sender, receiver = writers[source_rank], writers[destination_rank]
        since_ns, pace = pace_of_rank[source_rank]
        if flow.start_ns > since_ns:
            pace = (sender.delay(flow.start_ns - since_ns, pace),)
            pace_of_rank[source_rank] = flow.start_ns, pace
        peer_slot = slots[source_rank].setdefault(destination_rank, len(slots[source_rank]))
        sender.add(OpKind.SEND, -1, peer_slot, flow.size_bytes, pace)
        receives = receives_of_pair.setdefault((source_rank, destination_rank), [])
        oldest = (receives[-AHEAD],) if len(receives) >= AHEAD else ()
        source_slot = slots[destination_rank].setdefault(source_rank, len(slots[destination_rank]))
        receives.append(receiver.add(OpKind.RECV, -1, source_slot, flow.size_bytes, oldest))
    programs = tuple(writer.program() for writer in writers)
    rank_programs = tuple(
        RankProgram(rank, rank, (), tuple(slots[rank]), np.arange(len(program), dtype=np.uint64))
        for rank, program in enumerate(programs)
    )
    edges = sum(len(program.deps) for program in programs)
    return Job(source, (), programs, rank_programs, "data", {"data": edges}, ())
