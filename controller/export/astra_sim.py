"""A job for the analytical backend of ASTRA-sim 2 that models contention: hosts at one switch.

Every link of that backend stores what it is sent and forwards it when the last byte has arrived, one after another. So
messages are cut into chunks of about a microsecond, a bounded number of which a rank has under way. Format:
astra-sim:examples and astra-network-analytical:input.
"""

from __future__ import annotations

from typing import Final

from etloop.contract.base.units import NS_PER_S
from etloop.contract.model.topology import Topology
from etloop.contract.model.transport import TransportSettings
from etloop.controller.export.astra_trace import APPROXIMATED, Chunks, command_of, trace_files
from etloop.controller.export.bundle import ExportFiles
from etloop.controller.export.graph import MOST_NODES, MessageGraph
from etloop.controller.export.lone_path import LonePath, lone_path
from etloop.traffic.lone_ways import framing_of

NETWORK_FILE: Final = "network.yml"
_BINARY: Final = "AstraSim_Analytical_Congestion_Aware"
_GIB: Final = 1 << 30
"""ASTRA-sim's GB/s of a link are 2^30 bytes per second."""
_CHUNK_NS: Final = 1000
"""Least time of a chunk on a link: links of ASTRA-sim count whole nanoseconds."""
_MOST_CHUNKS: Final = MOST_NODES // 2


def export_astra_sim(
    graph: MessageGraph, host_of_rank: tuple[int, ...], topology: Topology, transport: TransportSettings
) -> ExportFiles:
    """Return a trace for each rank, and the settings next to them. Raises as `lone_path`."""
    path = lone_path(topology, host_of_rank)
    framing = framing_of(transport, ipv6=False, encapsulated=False)
    payload_bps = path.rate_bps * framing.packet_bytes / (framing.packet_bytes + framing.around_bytes)
    chunks = _chunks(graph, path, transport.path_mtu_bytes, payload_bps)
    files = trace_files(graph, chunks)
    network = (
        f"topology: [ Switch ]\nnpus_count: [ {len(graph.ranks)} ]\n"
        f"bandwidth: [ {payload_bps / 8 / _GIB:.6f} ]\nlatency: [ {path.latency_ns / 2:g} ]\n"
    )
    files[NETWORK_FILE] = network.encode()
    approximated = (
        f"topology: one switch, {path.latency_ns} ns and {path.rate_bps} bit/s for every pair of ranks",
        "contention: at the links of hosts, with queues of any length",
        f"transport: chunks of {chunks.most_bytes} bytes, {chunks.under_way} of a rank under way, and one of each message",
        f"headers: the bandwidth is that of payload, {round(payload_bps)} bit/s",
        *APPROXIMATED,
    )
    left_out = ("transport: congestion control, marks, losses and pauses", "topology: links between switches")
    return ExportFiles(
        files, command_of(_BINARY, f"--network-configuration={NETWORK_FILE}"), approximated, left_out
    )


def _chunks(graph: MessageGraph, path: LonePath, path_mtu_bytes: int, payload_bps: float) -> Chunks:
    """Return chunks that fill the path, larger ones where a job would have too many."""
    total_bytes = sum(message.payload_bytes for message in graph.messages)
    most_bytes = path_mtu_bytes
    while (
        most_bytes * 8 * NS_PER_S < _CHUNK_NS * payload_bps
        or total_bytes // most_bytes + len(graph.messages) > _MOST_CHUNKS
    ) and most_bytes < total_bytes:
        most_bytes *= 2
    chunk_ns = most_bytes * 8 * NS_PER_S / payload_bps
    return Chunks(most_bytes, int(path.latency_ns / chunk_ns) + 4)
