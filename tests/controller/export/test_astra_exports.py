"""Exports for ASTRA-sim: chunks of messages, their order, and the network."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from etloop.controller.export.astra_trace import Chunks, rank_nodes
from etloop.controller.export.bundle import Simulator
from etloop.controller.export.graph import MessageGraph
from etloop.controller.export.message_graph import message_graph
from etloop.workload.chakra.encoder import EtNode
from etloop.workload.trace.trace import NodeKind
from tests.controller.export.test_exports import collective, exported, prepared

CHUNKS = Chunks(most_bytes=100_000, under_way=2)


def graph_of(workload: str) -> MessageGraph:
    return message_graph(prepared(workload).plan)


def value(node: EtNode, name: str) -> Any:
    return next(attribute.value for attribute in node.attributes if attribute.name == name)


@pytest.mark.parametrize("kind", ["all_reduce", "all_to_all", "broadcast"])
@pytest.mark.parametrize("chunks", [None, CHUNKS])
def test_every_chunk_is_sent_once_and_received_once(kind: str, chunks: Chunks | None) -> None:
    graph = graph_of(collective(kind))
    ends: dict[NodeKind, Counter[tuple[int, int, int, int]]] = {
        NodeKind.COMM_SEND: Counter(),
        NodeKind.COMM_RECV: Counter(),
    }
    for rank, nodes in enumerate(rank_nodes(graph, chunks)):
        for node in nodes:
            if node.kind in ends:
                is_send = node.kind is NodeKind.COMM_SEND
                pair = (rank, value(node, "comm_dst")) if is_send else (value(node, "comm_src"), rank)
                ends[node.kind][(*pair, value(node, "comm_tag"), value(node, "comm_size"))] += 1
    sent, received = ends.values()
    assert sent == received
    assert set(sent.values()) == {1}
    assert len({tag for _, _, tag, _ in sent}) == len(sent)
    assert sum(size for *_, size in sent) == sum(message.payload_bytes for message in graph.messages)
    if chunks is not None:
        assert max(size for *_, size in sent) == chunks.most_bytes


@pytest.mark.parametrize("chunks", [None, CHUNKS])
def test_nodes_wait_for_earlier_ones_and_are_numbered_from_0(chunks: Chunks | None) -> None:
    for nodes in rank_nodes(graph_of(collective("all_reduce")), chunks):
        listed = list(nodes)
        assert [node.node_id for node in listed] == list(range(len(listed)))
        assert all(awaited < node.node_id for node in listed for awaited in node.data_deps)


def test_chunks_of_messages_that_begin_together_take_turns_from_the_next_rank_on() -> None:
    graph = graph_of(collective("all_to_all"))
    for rank, nodes in enumerate(rank_nodes(graph, CHUNKS)):
        sends = [node for node in nodes if node.kind is NodeKind.COMM_SEND]
        targets = [value(node, "comm_dst") for node in sends]
        assert targets[:3] == [(rank + step) % 4 for step in (1, 2, 3)]
        assert targets[3:6] == targets[:3]
        first = sends[0].data_deps
        assert [node.data_deps for node in sends[:5]] == [first] * 5, "three messages and two chunks more"
        assert sends[5].data_deps == (sends[0].node_id,)


def test_the_analytical_network_has_the_rate_of_payload() -> None:
    about, files = exported(prepared("{incast: {senders: 3, size: 1MiB}}"), Simulator.ASTRA_SIM)
    network = dict(line.split(": ", 1) for line in files["network.yml"].decode().splitlines())
    assert network["npus_count"] == "[ 4 ]"
    assert network["latency"] == "[ 1300 ]"
    payload_gbps = float(network["bandwidth"].strip("[ ]")) * (1 << 30) * 8 / 1e9
    assert payload_gbps == pytest.approx(100 * 4096 / (4096 + 122), rel=1e-5)
    assert json.loads(files["system.json"])["all-reduce-implementation-custom"] == ["job"]
    assert {name for name in files if name.endswith(".et")} == {
        f"{prefix}.{rank}.et" for prefix in ("job", "start") for rank in range(4)
    }
    assert "AstraSim_Analytical_Congestion_Aware --workload-configuration=start" in about.command
