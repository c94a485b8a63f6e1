"""Profiler events that are only glanced at come to the same as events that are read whole, and faults have the same words."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etloop.workload import _et
from etloop.workload.readers.json_stream import JsonFault
from etloop.workload.readers.pytorch.kineto import KinetoTrace, read_kineto
from tests.support.traces.shared_traces import SHARED_TRACES, require_shared_traces

KERNEL = {
    "ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 4458676983543.183, "dur": 41.407,
    "args": {"External id": 12, "stream": 7, "correlation": 57, "grid": [512, 1, 1]},
}  # fmt: skip
NCCL = {
    "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ts": 10, "dur": 5,
    "args": {"stream": 20, "correlation": 58, "Collective name": "allreduce", "In msg nelems": 9, "Group size": 2},
}  # fmt: skip
LAUNCH = {
    "ph": "X",
    "cat": "cuda_runtime",
    "name": "cudaLaunchKernel",
    "ts": 1,
    "dur": 1,
    "args": {"correlation": 57},
}
CALL = {
    "ph": "X",
    "cat": "cpu_op",
    "name": "aten::mm",
    "ts": 1.5,
    "dur": 2,
    "args": {"External id": 12, "Record function id": 3},
}
COMMS = {
    "ph": "X", "cat": "cpu_op", "name": "c10d::allreduce_", "ts": 1, "dur": 2,
    "args": {"External id": 13, "Record function id": 4, "Input Dims": [[2, 3]], "Input type": ["float"]},
}  # fmt: skip
META = {"ph": "M", "name": "process_name", "args": {"name": "python"}}
EVENTS = (KERNEL, NCCL, LAUNCH, CALL, COMMS, META)


def pieces(text: bytes, step: int) -> Iterator[bytes]:
    return (text[begin : begin + step] for begin in range(0, len(text), step))


def facts(trace: KinetoTrace) -> tuple[Any, ...]:
    return (
        trace.rank, trace.world_size, trace.groups, trace.device, trace.calls, trace.record_of, trace.counts,
        trace.host_names, list(trace.launches), trace.launchers, trace.begun_before,
    )  # fmt: skip


def outcome(text: bytes, step: int, *, glances: bool = True) -> tuple[Any, ...] | str:
    try:
        return facts(read_kineto(pieces(text, step), glances=glances))
    except JsonFault as fault:
        return str(fault)


def whole(text: bytes, step: int = 1 << 20) -> tuple[Any, ...] | str:
    """What comes of a text of which every event is read whole."""
    return outcome(text, step, glances=False)


def document(*events: object, **more: object) -> bytes:
    return json.dumps({"schemaVersion": 1, **more, "traceEvents": list(events)}).encode()


@pytest.mark.parametrize("step", [1, 7, 300, 1 << 20])
def test_events_come_to_the_same_whatever_pieces_the_text_comes_in(step: int) -> None:
    text = document(*EVENTS * 5, distributedInfo={"rank": 1, "world_size": 2})
    assert outcome(text, step) == whole(text)


def test_what_is_plain_is_not_read_whole() -> None:
    scanner = _et.KinetoScanner(lambda name: name.startswith("c10d::"))
    text = json.dumps([*EVENTS])
    at, index, ended = scanner.scan(text, 1, 0)
    assert (at, index, ended) == (len(text), len(EVENTS), True)
    events, launches, counts = scanner.take()
    kinds = [(event[0], event[1], event[4]) for event in events]
    assert kinds == [
        (_et.EVENT_DEVICE, 0, "gemm"),
        (_et.EVENT_RAW, 1, NCCL["name"]),
        (_et.EVENT_CALL, 3, "aten::mm"),
        (_et.EVENT_RAW, 4, "c10d::allreduce_"),
    ]
    assert launches == (57).to_bytes(8, "little")
    assert counts == {"kernel": 1, "cuda_runtime": 1, "cpu_op": 1, "None": 1}, "what is raw counts itself"
    assert scanner.take() == ([], b"", {})


def changed(event: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    made = copy.deepcopy(event)
    where = made["args"] if key in made["args"] else made
    where[key] = value
    return made


ODD: list[object] = [None, True, -1, 0, 1 << 62, 1 << 70, 1e300, -0.5, "7", "x", "", [], {}, "é", 'a"b', 3.0]


@pytest.mark.parametrize("value", ODD, ids=ascii)
@pytest.mark.parametrize("event", EVENTS[:5], ids=lambda event: event["name"][:12])
def test_odd_values_come_to_the_same(event: dict[str, Any], value: object) -> None:
    for key in (*event, *event["args"]):
        text = document(KERNEL, changed(event, key, value), CALL)
        assert outcome(text, 1 << 20) == whole(text), key


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"{}",
        b"[",
        b"[]",
        b"[1]",
        b"[null, {}]",
        b'{"traceEvents": 5}',
        b'{"traceEvents": [}',
        b'{"traceEvents": [{]}',
        b'{"traceEvents": [{"a": tru}]}',
        b'{"traceEvents": [{"a": 01}]}',
        b'{"traceEvents": [{"a": 1.}]}',
        b'{"traceEvents": [{"a": NaN}]}',
        b'{"traceEvents": [{"a": "\\x"}]}',
        b'{"traceEvents": [{"a": "\\ud800"}]}',
        b'{"traceEvents": [{"ph": "X", "cat": "cpu_op"}]}',
        b'{"traceEvents": [{"ph": "X", "cat": "KERNEL", "name": "n"}]}',
        b'{"traceEvents": [{"a": 1} {"b": 2}]}',
        b'{"traceEvents": [{"a": 1},]}',
        b'{"traceEvents": [{}], "traceEvents": []}',
        b'{"traceEvents": [{"args": {"a": 1}, "args": {"correlation": 5}, "ph": "X", "cat": "cuda_runtime"}]}',
        b'{"traceEvents": [{"cat": "a", "cat": "kernel"}]}',
        b'{"traceEvents": [' + b"[" * 5000 + b"]" * 5000 + b"]}",
        b'{"traceEvents": [ {"ph":"X","cat":"kernel","name":"k","ts":1,"dur":2,"tid":3} ,\n {"ph":"B"}\n]} x',
    ],
)
def test_faults_and_oddities_of_the_text_come_to_the_same(text: bytes) -> None:
    for step in (3, 1 << 20):
        assert outcome(text, step) == whole(text, step)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_damage_comes_to_the_same(data: st.DataObject) -> None:
    text = bytearray(document(*EVENTS))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    step = data.draw(st.sampled_from([5, 64, 1 << 20]))
    assert outcome(bytes(text), step) == whole(bytes(text), step)


def test_a_real_recording_comes_to_the_same() -> None:
    require_shared_traces()
    text = gzip.decompress((SHARED_TRACES / "hta-kineto" / "nccl_data.json.gz").read_bytes())
    assert outcome(text, 1 << 18) == whole(text, 1 << 18)
