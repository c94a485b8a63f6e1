"""Whatever JSON or half of it comes, a reader of JSON traces ends with a `Trace` or a `TraceError`, soon."""

from __future__ import annotations

import contextlib
import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etloop.contract.base.errors import TraceError
from etloop.workload.lint.report import lint
from etloop.workload.readers.files import read_trace
from etloop.workload.trace.settings import WorkloadSettings
from tests.support.traces.json_traces_by_hand import (
    call,
    comms,
    cpu_op,
    groups,
    host,
    kernel,
    kineto,
    tensor,
    wait,
)

SHARED_DIRECTORY = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None
)

GROUP = {"pg_name": "7", "ranks": [0, 1], "group_size": 2}
NODES = (
    groups(3, GROUP),
    call(9, "aten::mm", [tensor(5, 6, 100)], [tensor(7, 8, 4)]),
    comms(10, "all_to_allv", [tensor(5, 6, 12)], splits=(3, 9), group=("7", "x"), record=51),
    comms(11, "send", [tensor(5, 6, 12)], group=("7", "x"), peer=1, sequence=[2, True]),
    wait(12, 1),
    call(
        13, "c10d::alltoall_base_", [tensor(5, 6, 12), tensor(7, 8, 12), "<Object>", [6, 6], [3, 9], True, -1]
    ),
)
LINKED = {
    **call(14, "ncclKernel_SendRecv(x)", parent=10),
    "ts": 5.5,
    "inclusive_dur": 2,
    "stream": 7,
    "sync_dep": [9],
}
EVENTS = (
    cpu_op("record_param_comms", 1, 2, record=51, external=5),
    kernel("gemm", 2, 3),
    kernel(
        "ncclDevKernel_SendRecv(x)",
        3,
        1,
        40,
        **{
            "External id": 5,
            "Collective name": "all_to_allv",
            "In msg nelems": 12,
            "dtype": "Float",
            "In split size": "[3, 9]",
            "Process Group Name": "7",
            "Process Group Ranks": "[0, 1]",
        },
    ),
)
INFO = {"rank": 0, "world_size": 2, "pg_config": [GROUP]}
GRAPH_NODE = {
    "Id": 1,
    "Name": "a",
    "NodeType": 7,
    "data_deps": [2],
    "comm_type": 0,
    "comm_size": 8,
    "is_cpu_op": False,
}
PRINTED = {
    "id": "5",
    "name": "a",
    "type": "COMM_COLL_NODE",
    "dataDeps": ["1"],
    "durationMicros": "7",
    "attr": [{"name": "comm_type", "int64Val": "0"}, {"name": "comm_size", "int64Val": "64"}],
}
SEEDS: dict[str, list[bytes]] = {
    "a host trace": [host(*NODES)],
    "a flat host trace": [host(*NODES, schema="1.0.1")],
    "a linked trace": [host(*NODES, LINKED)],
    "a Kineto trace": [kineto(*EVENTS, distributedInfo=INFO)],
    "host and Kineto": [host(*NODES[:3]), kineto(*EVENTS, distributedInfo=INFO)],
    "host and CPU times": [host(*NODES), kineto(*EVENTS[:1], distributedInfo=INFO)],
    "a graph": [json.dumps({"workload_graph": [GRAPH_NODE, {"Id": 2, "NodeType": 4}]}).encode()],
    "printed nodes": [b"{}\n" + json.dumps(PRINTED).encode()],
}

ODD: st.SearchStrategy[object] = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        1 << 70,
        1e308,
        "",
        "x",
        "[" * 50,
        "[1,",
        [],
        {},
        [[]],
        [1, -1],
        [None] * 3,
        "\ud800",
        -(1 << 63),
    ]
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container inside a value with each of its keys."""
    found = []
    for key in (
        list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    ):
        found.append((value, key))
        found += places(value[key])
    return found


@st.composite
def mutants(draw: st.DrawFn, text: bytes) -> bytes:
    """A document with values replaced, taken out or doubled, and bytes changed or cut off."""
    try:
        document: Any = json.loads(text)
    except ValueError:
        document = None
    if document is not None and draw(st.booleans()):
        for _ in range(draw(st.integers(1, 3))):
            some = places(document)
            if not some:
                break
            at, key = some[draw(st.integers(0, len(some) - 1))]
            match draw(st.sampled_from(["replace", "delete", "double"])):
                case "replace":
                    at[key] = deepcopy(draw(ODD))
                case "delete":
                    del at[key]
                case "double":
                    at[key] = [at[key], deepcopy(at[key])]
        return json.dumps(document).encode(errors="surrogatepass")
    mutant = bytearray(text)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(mutant) - 1)))
        mutant[at : at + draw(st.integers(0, 20))] = draw(st.binary(max_size=4))
    return bytes(mutant[: draw(st.integers(0, len(mutant)))] if draw(st.booleans()) else mutant)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_seed_itself_is_read(tmp_path: Path, seed: str) -> None:
    for number, text in enumerate(SEEDS[seed]):
        (tmp_path / f"part{number}.0.json").write_bytes(text)
    assert len(read_trace(tmp_path).ranks) == 1


@pytest.mark.parametrize("seed", SEEDS)
@given(choice=st.data())
@SHARED_DIRECTORY
def test_any_text_is_read_or_refused(tmp_path: Path, seed: str, choice: st.DataObject) -> None:
    for number, text in enumerate(SEEDS[seed]):
        (tmp_path / f"part{number}.0.json").write_bytes(choice.draw(mutants(text)))
    with contextlib.suppress(TraceError):
        lint(read_trace(tmp_path), WorkloadSettings())
