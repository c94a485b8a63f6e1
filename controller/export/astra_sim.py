"""Chakra traces with system and network for the analytical backend of ASTRA-sim 2, with every message as send and receive.

Its collectives are not used, so that both simulators run the same step tables. Format: astra-sim:examples and
astra-network-analytical:input.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from etloop.contract.model.topology import Topology
from etloop.controller.export.bundle import OUTPUT_FILE, ExportFiles
from etloop.controller.export.graph import MessageGraph, Node, NodeKind
from etloop.controller.export.lone_path import lone_path
from etloop.workload.chakra.encoder import EtNode, encode_trace
from etloop.workload.chakra.nodes import attributes_of
from etloop.workload.trace.trace import NodeKind as TraceKind

SYSTEM_FILE: Final = "system.json"
NETWORK_FILE: Final = "network.yml"
MEMORY_FILE: Final = "memory.json"
_PREFIX: Final = "job"
_GIB: Final = 1 << 30
"""ASTRA-sim's GB/s of a link are 2^30 bytes per second."""
_SYSTEM: Final = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 0,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 1,
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"],
    "all-to-all-implementation": ["ring"],
    "collective-optimization": "localBWAware",
    "local-mem-bw": 1600,
    "boost-mode": 0,
}


def export_astra_sim(graph: MessageGraph, host_of_rank: tuple[int, ...], topology: Topology) -> ExportFiles:
    """Return a trace for each rank, and the settings next to them. Raises as `lone_path`."""
    path = lone_path(topology, host_of_rank)
    files = {
        f"{_PREFIX}.{rank}.et": b"".join(encode_trace(_nodes(graph, nodes)))
        for rank, nodes in enumerate(graph.ranks)
    }
    network = (
        f"topology: [ Switch ]\nnpus_count: [ {len(graph.ranks)} ]\n"
        f"bandwidth: [ {path.rate_bps / 8 / _GIB:.6f} ]\nlatency: [ {path.latency_ns / 2:g} ]\n"
    )
    files[NETWORK_FILE] = network.encode()
    files[SYSTEM_FILE] = f"{json.dumps(_SYSTEM, indent=1)}\n".encode()
    files[MEMORY_FILE] = b'{"memory-type": "NO_MEMORY_EXPANSION"}\n'
    command = (
        f"AstraSim_Analytical_Congestion_Unaware --workload-configuration={_PREFIX} "
        f"--system-configuration={SYSTEM_FILE} --network-configuration={NETWORK_FILE} "
        f"--remote-memory-configuration={MEMORY_FILE} > {OUTPUT_FILE}"
    )
    approximated = (
        f"topology: one switch, {path.latency_ns} ns and {path.rate_bps} bit/s for every pair of ranks",
        "contention: none; the backend with congestion stores a whole message at every hop",
        "compute: whole microseconds",
        "headers: none; the bandwidth is that of payload",
    )
    left_out = ("transport: windows, marks, losses and queues in switches",)
    return ExportFiles(files, command, approximated, left_out)


def _nodes(graph: MessageGraph, nodes: tuple[Node, ...]) -> Iterator[EtNode]:
    for number, node in enumerate(nodes):
        if node.kind is NodeKind.WAIT:
            duration_us = round(node.duration_ns / 1000)
            attributes = attributes_of(is_cpu_op=False)
            yield EtNode(number, f"wait {number}", TraceKind.COMP, node.after, (), 0, duration_us, attributes)
            continue
        message = graph.messages[node.message]
        is_send = node.kind is NodeKind.SEND
        ends = {"comm_dst": message.target} if is_send else {"comm_src": message.source}
        attributes = attributes_of(
            is_cpu_op=False, comm_size=message.payload_bytes, comm_tag=node.message, **ends
        )
        kind = TraceKind.COMM_SEND if is_send else TraceKind.COMM_RECV
        yield EtNode(number, f"{kind.name} {node.message}", kind, node.after, attributes=attributes)
