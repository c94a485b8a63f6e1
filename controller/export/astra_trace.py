"""Chakra traces of a job for ASTRA-sim 2, whichever its network: every message as sends and receives of a custom collective.

A rank of a workload has one communication under way; a custom collective has any number. So `START_PREFIX` names a workload
of one collective, whose algorithm is the messages of the job. Format: astra-sim:astra-sim/system/astraccl/custom_collectives.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from etloop.controller.export.bundle import OUTPUT_FILE
from etloop.controller.export.graph import Message, MessageGraph, Node, NodeKind
from etloop.workload.chakra.encoder import EtNode, encode_trace
from etloop.workload.chakra.nodes import attributes_of
from etloop.workload.trace.trace import CollectiveKind
from etloop.workload.trace.trace import NodeKind as TraceKind

SYSTEM_FILE: Final = "system.json"
MEMORY_FILE: Final = "memory.json"
JOB_PREFIX: Final = "job"
START_PREFIX: Final = "start"
APPROXIMATED: Final = ("compute: whole microseconds, at least 1 ns",)
_SYSTEM: Final = {
    "scheduling-policy": "FIFO",
    "preferred-dataset-splits": 1,
    "all-reduce-implementation-custom": [JOB_PREFIX],
    "local-mem-bw": 50,
}


class Chunks(NamedTuple):
    """How messages are cut."""

    most_bytes: int
    """Largest chunk."""
    under_way: int
    """Chunks that a rank has under way for the messages that may begin together, next to one of each of them."""


def trace_files(graph: MessageGraph, chunks: Chunks | None) -> dict[str, bytes]:
    """Return the traces of all ranks, system and memory. `chunks` None: a message is sent as a whole."""
    files = {SYSTEM_FILE: f"{json.dumps(_SYSTEM, indent=1)}\n".encode()}
    files[MEMORY_FILE] = b'{"memory-type": "NO_MEMORY_EXPANSION"}\n'
    collective = attributes_of(is_cpu_op=False, comm_type=CollectiveKind.ALL_REDUCE, comm_size=1)
    start = b"".join(encode_trace((EtNode(0, "job", TraceKind.COMM_COLL, attributes=collective),)))
    for rank, nodes in enumerate(rank_nodes(graph, chunks)):
        files[f"{JOB_PREFIX}.{rank}.et"] = b"".join(encode_trace(nodes))
        files[f"{START_PREFIX}.{rank}.et"] = start
    return files


def rank_nodes(graph: MessageGraph, chunks: Chunks | None) -> Iterator[Iterator[EtNode]]:
    """Yield the nodes of each rank; a message has one for each chunk."""
    counts = [1 if chunks is None else _count(message, chunks) for message in graph.messages]
    first_tags = list(accumulate(counts, initial=0))
    for rank, nodes in enumerate(graph.ranks):
        yield _RankTrace(graph, rank, chunks, first_tags).nodes_of(nodes)


def command_of(binary: str, network: str) -> str:
    """Return the command that runs the traces; `network` are the options of the backend's network."""
    return (
        f"{binary} --workload-configuration={START_PREFIX} --system-configuration={SYSTEM_FILE} "
        f"--remote-memory-configuration={MEMORY_FILE} {network} > {OUTPUT_FILE}"
    )


def _count(message: Message, chunks: Chunks) -> int:
    return max(-(-message.payload_bytes // chunks.most_bytes), 1)


class _RankTrace:
    """The nodes of one rank."""

    def __init__(
        self, graph: MessageGraph, rank: int, chunks: Chunks | None, first_tags: Sequence[int]
    ) -> None:
        self._graph, self._rank, self._chunks, self._first_tags = graph, rank, chunks, first_tags
        self._number = 0
        self._last: dict[int, int] = {}

    def nodes_of(self, nodes: Sequence[Node]) -> Iterator[EtNode]:
        """Yield the nodes of the rank; a rank without any computes for 1 ns, because a trace is not empty."""
        together: dict[tuple[int, ...], list[int]] = {}
        for number, node in enumerate(nodes):
            if node.kind is NodeKind.SEND:
                together.setdefault(node.after, []).append(number)
        for number, node in enumerate(nodes):
            if node.kind is NodeKind.SEND:
                if node.after in together:
                    yield from self._sends(nodes, together.pop(node.after))
            elif node.kind is NodeKind.RECV:
                chunks = range(self._chunk_count(node.message))
                received = [
                    self._transfer(node.message, chunk, self._ends_of(node), is_send=False)
                    for chunk in chunks
                ]
                yield from received
                yield from self._end(number, [chunk.node_id for chunk in received])
            else:
                yield self._compute(round(node.duration_ns / 1000), self._ends_of(node))
                self._last[number] = self._number - 1
        if not nodes:
            yield self._compute(0, ())

    def _sends(self, nodes: Sequence[Node], numbers: Sequence[int]) -> Iterator[EtNode]:
        """Yield the chunks of messages that may begin together: in turns, from the next rank on, some under way at a time."""
        ranks, messages = len(self._graph.ranks), self._graph.messages
        ordered = sorted(
            numbers, key=lambda number: (messages[nodes[number].message].target - self._rank) % ranks
        )
        rounds = max(self._chunk_count(nodes[number].message) for number in ordered)
        under_way = len(ordered) + (0 if self._chunks is None else self._chunks.under_way)
        sent: list[int] = []
        chunks_of: dict[int, list[int]] = {number: [] for number in ordered}
        start = self._ends_of(nodes[ordered[0]])
        for chunk in range(rounds):
            for number in ordered:
                if chunk < self._chunk_count(nodes[number].message):
                    after = start if len(sent) < under_way else (sent[-under_way],)
                    sent.append(self._number)
                    chunks_of[number].append(self._number)
                    yield self._transfer(nodes[number].message, chunk, after, is_send=True)
        for number, chunks in chunks_of.items():
            yield from self._end(number, chunks)

    def _end(self, number: int, chunks: Sequence[int]) -> Iterator[EtNode]:
        """Yield a node that waits for all chunks of a message, unless there is one chunk."""
        if len(chunks) > 1:
            yield self._compute(0, tuple(chunks))
        self._last[number] = self._number - 1 if len(chunks) > 1 else chunks[0]

    def _ends_of(self, node: Node) -> tuple[int, ...]:
        return tuple(self._last[awaited] for awaited in node.after)

    def _chunk_count(self, message: int) -> int:
        return self._first_tags[message + 1] - self._first_tags[message]

    def _transfer(self, number: int, chunk: int, after: tuple[int, ...], *, is_send: bool) -> EtNode:
        message = self._graph.messages[number]
        size_bytes = message.payload_bytes
        if self._chunks is not None:
            size_bytes = min(size_bytes - chunk * self._chunks.most_bytes, self._chunks.most_bytes)
        ends = {"comm_dst": message.target} if is_send else {"comm_src": message.source}
        # A message of no bytes, such as a barrier's, has one: ASTRA-sim sends nothing without a byte.
        attributes = attributes_of(
            is_cpu_op=False, comm_size=max(size_bytes, 1), comm_tag=self._first_tags[number] + chunk, **ends
        )
        kind = TraceKind.COMM_SEND if is_send else TraceKind.COMM_RECV
        self._number += 1
        return EtNode(self._number - 1, f"{kind.name} {number}", kind, after, attributes=attributes)

    def _compute(self, duration_us: int, after: tuple[int, ...]) -> EtNode:
        attributes = attributes_of(is_cpu_op=False)
        self._number += 1
        return EtNode(
            self._number - 1, "wait", TraceKind.COMP, after, duration_us=duration_us, attributes=attributes
        )
