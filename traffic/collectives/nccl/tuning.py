"""NCCL's tuning model: the time of an op with each algorithm and protocol, and its number of channels.

This module only computes numbers; `choice` takes the minimum. All formulas are those of NCCL 2.30.7
(src/graph/tuning.cc, src/enqueue.cc) or 2.32.3 (src/tuning) over the graph that `hardware` models. 2.32 differs for
Blackwell (bandwidth between two hosts, the plateau of a ring inside a host), for slow rings inside a host (512 threads)
and for PAT over a network plugin (its latency counts once). Not modelled: CollNet, NVLS and PAT with several ranks a
host (`excluded` lists them), and the factor for 8-bit floats, because traces do not record types.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from etloop.traffic.collectives.core.table import Protocol
from etloop.traffic.collectives.nccl import constants as tables
from etloop.traffic.collectives.nccl.constants import NEWEST, NcclAlgorithm, NcclVersion
from etloop.traffic.collectives.nccl.hardware import Cpu, Gpu, Graph, Hardware, Layout, ScaleUp, graph_of

_PROTOCOLS: Final = (Protocol.LL, Protocol.LL128, Protocol.SIMPLE)
"""In NCCL's order: with equal times the first wins."""


class Function(Enum):
    """Collectives that NCCL tunes. A barrier is an all-reduce; grouped sends are not tuned."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    BROADCAST = "broadcast"
    REDUCE = "reduce"


MULTICAST_PAT: Final = "PAT with several ranks a host"
"""From 2.32 on, over NVLS inside hosts, and only with NCCL_ALGO=PAT."""
_ALGORITHMS: Final = {
    Function.ALL_REDUCE: (NcclAlgorithm.TREE, NcclAlgorithm.RING),
    Function.ALL_GATHER: (NcclAlgorithm.RING, NcclAlgorithm.PAT),
    Function.REDUCE_SCATTER: (NcclAlgorithm.RING, NcclAlgorithm.PAT),
    Function.BROADCAST: (NcclAlgorithm.RING,),
    Function.REDUCE: (NcclAlgorithm.RING,),
}


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated time of one way to carry out an op."""

    algorithm: NcclAlgorithm
    protocol: Protocol
    time_ns: int
    """Rounded to the nearest ns."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """Communicator and hosts as input of the tuning model."""

    layout: Layout
    hardware: Hardware
    version: NcclVersion = NEWEST

    @property
    def is_new_blackwell(self) -> bool:
        """Return whether the changes of 2.32 for Blackwell apply."""
        return self.version is not NcclVersion.V2_30 and self.hardware.gpu >= Gpu.BLACKWELL

    @property
    def graph(self) -> Graph:
        """Return the assumed result of NCCL's topology search."""
        return graph_of(self.hardware, self.layout)


def estimates(function: Function, nbytes: int, tuning: Tuning) -> tuple[Estimate, ...]:
    """Return an estimate for every enabled (algorithm, protocol) in NCCL's order.

    `nbytes` is NCCL's count of the op: the buffer of an all-reduce, broadcast or reduce, the blocks of all ranks
    together of an all-gather or reduce-scatter.
    """
    return tuple(
        Estimate(algorithm, protocol, round(1000 * time_us(function, algorithm, protocol, nbytes, tuning)))
        for algorithm in _ALGORITHMS[function]
        for protocol in _PROTOCOLS
        if not why_disabled(algorithm, protocol, tuning)
    )


def why_disabled(algorithm: NcclAlgorithm, protocol: Protocol, tuning: Tuning) -> str:
    """Return why NCCL does not offer a combination on a communicator; "" if it does."""
    one_rank_per_host = tuning.layout.ranks_per_host == 1
    if algorithm is NcclAlgorithm.PAT and protocol is not Protocol.SIMPLE:
        return "PAT has the Simple protocol only"
    if algorithm is NcclAlgorithm.PAT and not one_rank_per_host:
        is_old = tuning.version is NcclVersion.V2_30
        return (
            "PAT needs one rank a host in the communicator" if is_old else f"{MULTICAST_PAT} is not modelled"
        )
    if protocol is Protocol.LL128 and tuning.hardware.scale_up is ScaleUp.PCI and not one_rank_per_host:
        return "LL128 needs NVLink inside a host"
    return ""


def time_us(
    function: Function, algorithm: NcclAlgorithm, protocol: Protocol, nbytes: int, tuning: Tuning
) -> float:
    """Return the time of a single op in microseconds: latency + bytes / bandwidth (ncclTopoGetAlgoTime)."""
    bandwidth = algorithm_bandwidth(function, algorithm, protocol, tuning)
    latency = latency_us(function, algorithm, protocol, tuning)
    if algorithm is NcclAlgorithm.TREE:
        size = (nbytes >> 6).bit_length() - 1
        if 0 <= size < tables.CORRECTED_BELOW:
            bandwidth *= tables.TREE_CORRECTION[protocol][size]
    if algorithm is NcclAlgorithm.RING and protocol is Protocol.SIMPLE:
        latency *= _plateau(function, nbytes, tuning)
    return latency + nbytes / (1000 * bandwidth)


def _plateau(function: Function, nbytes: int, tuning: Tuning) -> float:
    """Return the factor on the latency of a ring with Simple."""
    layout = tuning.layout
    per_step = nbytes // (tuning.graph.channels * layout.ranks)
    if per_step < tables.PLATEAU_BYTES:
        return 1.0
    if layout.hosts > 1:
        if function is not Function.ALL_REDUCE:
            return 1.0
        is_volta = tuning.hardware.gpu is Gpu.VOLTA
        return tables.PLATEAU_FACTOR_VOLTA if is_volta else tables.PLATEAU_FACTOR
    rooted = function in (Function.BROADCAST, Function.REDUCE)
    if rooted or not tuning.is_new_blackwell or tuning.hardware.scale_up is not ScaleUp.NVLINK:
        return 1.0
    # NCCL 2.32 (ncclTuningRingModelSim): the share of a one-step ring is 0, and each step adds 3/4 of the rest to 1.
    steps = (2 if function is Function.ALL_REDUCE else 1) * (layout.ranks - 1)
    most = tables.PLATEAU_FACTOR - 1
    share = 1 - (tables.PLATEAU_DELTA / most) ** max(0, steps - 1)
    beyond = min(1.0, max(0, per_step - tables.PLATEAU_FULL_BYTES) / tables.PLATEAU_FULL_BYTES)
    return 1 + share * (most - tables.PLATEAU_DELTA * beyond)


def latency_us(function: Function, algorithm: NcclAlgorithm, protocol: Protocol, tuning: Tuning) -> float:
    """Return the latency of an op in microseconds, without its bytes (ncclTopoTuneModel)."""
    ranks, hosts = tuning.layout.ranks, tuning.layout.hosts
    nvlink = tuning.hardware.scale_up is ScaleUp.NVLINK
    inside = (tables.NVLINK_LATENCY if nvlink else tables.PCI_LATENCY)[algorithm][protocol]
    between = _inter_latency(algorithm, protocol, tuning)
    latency = tables.BASE_LATENCY[algorithm][protocol]
    log_hosts = hosts.bit_length() - 1
    match algorithm:
        case NcclAlgorithm.TREE:
            return latency + 2 * ((ranks // hosts - 1) * inside + log_hosts * between)
        case NcclAlgorithm.PAT:
            return latency + log_hosts * between / 3.5 + ranks * 2.8
        case NcclAlgorithm.RING if function in (Function.BROADCAST, Function.REDUCE):
            # All channels of the modelled graph visit the ranks in the same order (sameChannels).
            return latency + (tables.NET_LATENCY[algorithm][protocol] if hosts > 1 else inside)
        case NcclAlgorithm.RING:
            phases = 2 if function is Function.ALL_REDUCE else 1
            steps, inter_steps = phases * (ranks - 1), phases * (hosts - 1)
            inside = max(inside, _net_overhead(protocol, tuning))
            return latency + (steps - inter_steps) * inside + inter_steps * between


def algorithm_bandwidth(
    function: Function, algorithm: NcclAlgorithm, protocol: Protocol, tuning: Tuning
) -> float:
    """Return the bandwidth of the op's bytes in GB/s (ncclTopoTuneModel)."""
    graph, layout, gpu = tuning.graph, tuning.layout, tuning.hardware.gpu
    hosts = layout.hosts
    column = min(hosts, 3) - 1
    rings = graph.search_channels
    slower = hosts > 1 and tuning.is_new_blackwell
    bus = rings * (graph.inter if hosts > 2 or slower else graph.intra)
    match algorithm:
        case NcclAlgorithm.RING:
            if protocol is Protocol.LL:
                bus = min(_ll_most(tuning), 0.5 * bus)
            elif protocol is Protocol.LL128:
                bus = min(0.92 * bus, rings * tables.RING_LL128_MOST[gpu][column])
            rooted = function in (Function.BROADCAST, Function.REDUCE)
            phases = 2 if function is Function.ALL_REDUCE else 1
            return bus if rooted else bus * layout.ranks / (phases * (layout.ranks - 1))
        case NcclAlgorithm.TREE:
            bus = min(0.92 * bus, rings * tables.TREE_MOST[gpu][column])
            if protocol is Protocol.LL:
                bus = min(bus / 3.8, _ll_most(tuning))
            elif protocol is Protocol.LL128:
                lines = 7 / 9 if hosts == 1 else 120 / 128
                bus = min(bus * lines, rings * tables.TREE_LL128_MOST[gpu][column])
            return 0.5 * bus * (0.85 if graph.plain_tree else 1.0)
        case NcclAlgorithm.PAT:
            return 0.75 * bus


def channels_for(algorithm: NcclAlgorithm, protocol: Protocol, nbytes: int, tuning: Tuning) -> int:
    """Return the channels that an op may use: fewer than available while their threads would have too little work.

    Source: topoGetAlgoInfo. PAT has no thread count there and keeps all channels. How many of them get bytes is decided
    by cells (`cells.shares_of`).
    """
    if algorithm is NcclAlgorithm.PAT:
        return tuning.graph.channels
    ring_ll = algorithm is NcclAlgorithm.RING and protocol is Protocol.LL
    threshold = tables.THRESHOLD_BYTES[protocol] * (tuning.layout.ranks if ring_ll else 1)
    threads = tables.THREADS[protocol]
    is_slow = tuning.version is NcclVersion.V2_30 and _is_slow_inside(tuning.graph)
    if algorithm is NcclAlgorithm.RING and protocol is Protocol.SIMPLE and is_slow:
        threads = tables.THREADS_SLOW_RING
    return max(1, min(tuning.graph.channels, nbytes // (threads * threshold)))


def _is_slow_inside(graph: Graph) -> bool:
    """Return whether all channels together are slow inside a host."""
    return graph.intra * graph.search_channels <= tables.SLOW_RING_GBYTES


def _inter_latency(algorithm: NcclAlgorithm, protocol: Protocol, tuning: Tuning) -> float:
    """Return the latency between hosts in microseconds."""
    one_rank_per_host = tuning.layout.ranks_per_host == 1
    row = tables.NET_LATENCY[NcclAlgorithm.TREE if one_rank_per_host else algorithm]
    # Simple adds the network latency a second time for the flush of the receiver's NIC; 2.32 does not for PAT.
    is_flushed = tuning.version is NcclVersion.V2_30 or algorithm is not NcclAlgorithm.PAT
    times = 2 if protocol is Protocol.SIMPLE and is_flushed else 1
    return row[protocol] + times * tuning.hardware.network_latency_ns / 1000


def _net_overhead(protocol: Protocol, tuning: Tuning) -> float:
    """Return the overhead of posting to the NIC in microseconds; 0 inside a host."""
    if tuning.layout.hosts == 1:
        return 0.0
    overhead = 2.0 if tuning.hardware.cpu is Cpu.AMD else 1.0
    return 3 * overhead if protocol is Protocol.SIMPLE else overhead


def _ll_most(tuning: Tuning) -> float:
    """Return the maximum bandwidth of LL in GB/s (llMaxBw)."""
    if tuning.layout.hosts == 1:
        return tables.LL_MOST_ONE_HOST[tuning.hardware.gpu]
    row = tables.LL_MOST_AMD if tuning.hardware.cpu is Cpu.AMD else tables.LL_MOST_INTEL
    return row[0] if tuning.layout.hosts == 2 else row[1]
