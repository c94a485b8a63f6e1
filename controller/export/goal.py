"""Text of GOAL for LogGOPSim and ATLAHS, whose network has one latency and one rate for all pairs.

Every message has a tag of its own, so that receives match as planned. Times are picoseconds, because LogGOPSim reads
whole numbers: at 100 Gbit/s a byte takes 80 ps. Format: spcl/atlahs:sim/LogGOPSim/txt2bin.re.
"""

from __future__ import annotations

from typing import Final

from etloop.contract.base.units import NS_PER_S
from etloop.contract.model.topology import Topology
from etloop.controller.export.bundle import OUTPUT_FILE, ExportFiles
from etloop.controller.export.graph import MessageGraph, Node, NodeKind
from etloop.controller.export.lone_path import lone_path

GOAL_FILE: Final = "job.goal"
_EAGER_BYTES: Final = 2_000_000_000
"""Threshold of LogGOPSim's rendezvous: messages wait for no receiver."""


def export_goal(graph: MessageGraph, host_of_rank: tuple[int, ...], topology: Topology) -> ExportFiles:
    """Return the schedule, and the command with latency and rate of the topology. Raises as `lone_path`."""
    path = lone_path(topology, host_of_rank)
    lines = [f"num_ranks {len(graph.ranks)}"]
    for rank, nodes in enumerate(graph.ranks):
        lines += ["", f"rank {rank} {{"]
        lines += [f"n{number}: {_statement(graph, node)}" for number, node in enumerate(nodes)]
        lines += [
            f"n{number} requires n{awaited}" for number, node in enumerate(nodes) for awaited in node.after
        ]
        lines.append("}")
    per_byte_ps = round(8 * 1000 * NS_PER_S / path.rate_bps)
    command = (
        f"txt2bin -i {GOAL_FILE} -o job.bin && LogGOPSim -f job.bin -L {path.latency_ns * 1000} -o 0 -g 0 "
        f"-G {per_byte_ps} -O 0 -S {_EAGER_BYTES} > {OUTPUT_FILE}"
    )
    approximated = (
        f"topology: latency {path.latency_ns} ns and {path.rate_bps} bit/s for every pair of ranks",
        "completion of a send: the departure of its last byte, not its acknowledgement",
        "compute: waits of a rank run one after another on its CPU",
        "headers: none; -G is the rate of payload",
    )
    left_out = (
        "transport: windows, marks, losses and queues in switches; a network without contention inside",
    )
    return ExportFiles({GOAL_FILE: ("\n".join(lines) + "\n").encode()}, command, approximated, left_out)


def _statement(graph: MessageGraph, node: Node) -> str:
    if node.kind is NodeKind.WAIT:
        return f"calc {node.duration_ns * 1000}"
    message = graph.messages[node.message]
    if node.kind is NodeKind.SEND:
        return f"send {message.payload_bytes}b to {message.target} tag {node.message}"
    return f"recv {message.payload_bytes}b from {message.source} tag {node.message}"
