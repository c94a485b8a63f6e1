"""What chakra_jsonizer prints is the trace it printed: compared with our reader of the same nodes as `.et`."""

from __future__ import annotations

import json
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import json_format

from etloop.workload.chakra.encoder import EtAttribute, EtNode, ValueCase
from etloop.workload.readers.chakra_jsonizer import read_jsonizer
from etloop.workload.readers.et_writer import write_trace
from etloop.workload.readers.files import read_trace
from etloop.workload.readers.json_stream import JsonFault
from etloop.workload.readers.node_rows import rank_trace
from etloop.workload.synthetic.spec import SyntheticSpec
from etloop.workload.synthetic.training_step import synthesize
from etloop.workload.trace.trace import ABSENT, NodeKind
from tests.support.traces.chakra_schema import OfficialMetadata, official

NAMES = {int(kind): f"{kind.name}_NODE" for kind in NodeKind}
ODD = (
    EtNode(0, "first", NodeKind.COMP, duration_us=7, start_us=1 << 40),
    EtNode(
        1 << 63,
        "sum é",
        NodeKind.COMM_COLL,
        data_deps=(0, 0, 5),
        ctrl_deps=(3,),
        attributes=(
            EtAttribute("comm_type", ValueCase.INT64, 0),
            EtAttribute("comm_size", ValueCase.UINT64, 1 << 40),
            EtAttribute("is_cpu_op", ValueCase.INT32, 0),
            EtAttribute("pg_name", ValueCase.STRING, "5"),
            EtAttribute("stream", ValueCase.INT64, 20),
            EtAttribute("shape", ValueCase.INT64, (1, 2)),
        ),
    ),
)


def printed(nodes: tuple[EtNode, ...]) -> bytes:
    """What the tool prints: protocol buffers' own JSON, enums by name (which the test's schema has as numbers)."""
    messages = [json.loads(json_format.MessageToJson(official(node))) for node in nodes]
    for message in messages:
        if "type" in message:
            message["type"] = NAMES[message["type"]]
    metadata = json_format.MessageToJson(OfficialMetadata(version="1.0.0"))
    return "\n".join([metadata, *(json.dumps(message, indent=2) for message in messages)]).encode()


@pytest.mark.parametrize(
    "nodes", [ODD, tuple(synthesize(SyntheticSpec(layers_per_stage=1)).ranks[0])], ids=["odd", "a job"]
)
def test_printed_nodes_are_the_nodes(tmp_path: Path, nodes: tuple[EtNode, ...]) -> None:
    write_trace(tmp_path / "et", [nodes])
    (tmp_path / "w.0.json").write_bytes(printed(nodes))
    (expected,) = read_trace(tmp_path / "et").ranks
    (found,) = read_trace(tmp_path / "w").ranks
    for name in (
        *(
            "node_id",
            "kind",
            "data_deps.offsets",
            "data_deps.values",
            "ctrl_deps.offsets",
            "ctrl_deps.values",
            "start_us",
            "duration_us",
        ),
        *(
            "comm.type",
            "comm.size",
            "comm.src",
            "comm.dst",
            "comm.tag",
            "is_cpu_op",
            "num_ops",
            "tensor_size",
            "pg_name",
        ),
        *("stream", "name_offsets"),
    ):
        assert np.array_equal(attrgetter(name)(found), attrgetter(name)(expected)), name
    assert (found.name_bytes, found.pg_names, found.schema) == (
        expected.name_bytes,
        expected.pg_names,
        expected.schema,
    )


def test_the_metadata_may_be_empty() -> None:
    rows, schema = read_jsonizer([b'{}\n{"name": "a", "type": "COMP_NODE"}'])
    assert (schema, [row.node_id for row in rows]) == ("", [0])
    rows, schema = read_jsonizer([b'{"attr": [{"name": "schema", "stringVal": "1.1.0"}]}'])
    assert (schema, rows) == ("1.1.0", [])


def test_an_absent_attribute_is_no_zero() -> None:
    (trace,) = [rank_trace(read_jsonizer([b'{} {"type": "COMM_COLL_NODE"}'])[0], 0, "w", "", None)]
    assert trace.comm.type.tolist() == [ABSENT]
    assert trace.stream is None


BAD = [
    (
        "a node type of no schema",
        {"type": "COMM_PIGEON_NODE"},
        "node 1.type: expected a node type of the schema, found 'COMM_PIGEON_NODE'",
    ),
    ("an id that is a word", {"id": "one"}, "node 1.id: expected an integer, found 'one'"),
    ("a dependency below 0", {"dataDeps": ["-1"]}, "node 1.dataDeps[0]: expected an integer of 0 to"),
    (
        "an attribute of two values",
        {"attr": [{"int64Val": "1", "boolVal": True}]},
        "node 1.attr[0]: has 2 values",
    ),
    (
        "a size that is a word",
        {"attr": [{"name": "comm_size", "stringVal": "big"}]},
        "node 1.comm_size: expected an integer, found 'big'",
    ),
    ("attributes that are none", {"attr": {}}, "node 1.attr: expected a list, found 'dict'"),
]


@pytest.mark.parametrize(("sentence", "node", "message"), BAD, ids=[one for one, *_ in BAD])
def test_what_is_no_node_is_refused_with_its_place(sentence: str, node: object, message: str) -> None:
    del sentence
    with pytest.raises(JsonFault) as raised:
        read_jsonizer([b"{}" + json.dumps(node).encode()])
    assert str(raised.value).startswith(message)
