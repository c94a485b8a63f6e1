"""AMD's workload_graph JSON: every key that its readers know, in any case, and what is none of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from etloop.workload.readers.amd_workload_graph import read_workload_graph
from etloop.workload.readers.json_stream import JsonFault
from etloop.workload.readers.node_rows import rank_trace
from etloop.workload.trace.trace import ABSENT, CollectiveKind, NodeKind

COMPUTE = {
    "Id": 1,
    "Name": "voId at::gemm",
    "NodeType": 4,
    "data_deps": [],
    "runtime": 30,
    "is_cpu_op": False,
}
SUM = {
    "Id": 2,
    "Name": "sum",
    "NodeType": 7,
    "data_deps": [1],
    "ctrlDeps": [1, 9],
    "is_cpu_op": False,
    "comm_type": 0,
    "comm_size": 4096,
    "comm_tag": 3,
    "pg_name": "5",
}


def document(*nodes: Any, **top: Any) -> bytes:
    return json.dumps({"workload_graph": nodes, **top}).encode()


def test_every_key_becomes_its_column() -> None:
    send = {
        "id": 3,
        "name": "s",
        "nodetype": 5,
        "comm_src": 0,
        "comm_dst": 1,
        "comm_size": 8,
        "tensor_size": 2,
    }
    trace = rank_trace(read_workload_graph([document(COMPUTE, SUM, send, ngpus=8)]), 0, "w", "", None)
    assert trace.node_id.tolist() == [1, 2, 3]
    assert trace.kind.tolist() == [NodeKind.COMP, NodeKind.COMM_COLL, NodeKind.COMM_SEND]
    assert trace.duration_us.tolist() == [30, 0, 0]
    assert trace.data_deps.values.tolist() == [1]
    assert trace.ctrl_deps.values.tolist() == [1, 9]
    assert trace.comm.type.tolist() == [ABSENT, CollectiveKind.ALL_REDUCE, ABSENT]
    assert trace.comm.size.tolist() == [ABSENT, 4096, 8]
    assert (trace.comm.tag[1], trace.comm.src[2], trace.comm.dst[2], trace.tensor_size[2]) == (3, 0, 1, 2)
    assert trace.is_cpu_op.tolist() == [0, 0, ABSENT]
    assert (trace.pg_names, trace.pg_name.tolist()) == (("5",), [-1, 0, -1])
    assert trace.name(0) == "voId at::gemm"


def test_a_collective_may_go_by_its_name() -> None:
    (row,) = read_workload_graph([document({**SUM, "comm_type": "all_gather"})])
    assert row.comm_type == CollectiveKind.ALL_GATHER


BAD = [
    ("no graph", b'{"ngpus": 8}', "workload_graph: is missing"),
    ("a graph that is an object", b'{"workload_graph": {}}', "workload_graph: expected a list, found 'dict'"),
    ("a node that is a list", document([]), "workload_graph[0]: expected an object, found 'list'"),
    ("a node without a type", document({"Id": 1}), "workload_graph[0]: needs Id and NodeType"),
    (
        "a type that is none",
        document({**COMPUTE, "NodeType": 70}),
        "workload_graph[0].NodeType: expected an integer of 0 to 9",
    ),
    ("an id below 0", document({**COMPUTE, "Id": -1}), "workload_graph[0].Id: expected an integer of 0 to"),
    (
        "a dependency on a word",
        document({**COMPUTE, "data_deps": [1, "x"]}),
        "workload_graph[0].data_deps[1]: expected an integer",
    ),
    (
        "a runtime that is a fraction",
        document({**COMPUTE, "runtime": 1.5}),
        "workload_graph[0].runtime: expected an integer",
    ),
    (
        "a size beyond 64 bits",
        document({**SUM, "comm_size": 1 << 80}),
        "workload_graph[0].comm_size: expected an integer of",
    ),
]


@pytest.mark.parametrize(("sentence", "text", "message"), BAD, ids=[one for one, *_ in BAD])
def test_what_is_no_graph_is_refused_with_its_place(sentence: str, text: bytes, message: str) -> None:
    del sentence
    with pytest.raises(JsonFault) as raised:
        read_workload_graph([text])
    assert str(raised.value).startswith(message)
