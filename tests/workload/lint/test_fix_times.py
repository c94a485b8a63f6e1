"""A repaired trace takes exactly as long as the one that it was made from, also where that one counts nanoseconds."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.workload.chakra.encoder import EtAttribute, ValueCase
from etloop.workload.chakra.nodes import et_nodes
from etloop.workload.graph.compute import delays_ns
from etloop.workload.graph.recorded import recorded_duration_ns, recorded_start_ns
from etloop.workload.job import build_job
from etloop.workload.lint.fix import fix
from etloop.workload.readers.et_writer import write_trace
from etloop.workload.readers.files import read_trace
from etloop.workload.trace.settings import DependencyPolicy, WorkloadSettings
from etloop.workload.trace.trace import ABSENT, Trace
from tests.support.traces.json_traces_by_hand import Json, kernel, kineto
from tests.support.traces.traces_by_hand import compute, trace_of

RECORDED = WorkloadSettings(dependencies=DependencyPolicy.parse("recorded+communicator"))
COLLECTIVE = {"Collective_name": "allreduce", "In_msg_nelems": 8, "Out_msg_nelems": 8, "dtype": "Float"}
COLLECTIVE |= {"Group_size": 2, "Process_Group_Name": "0", "Process_Group_Ranks": "[0, 1]"}


def recording(rank: int) -> bytes:
    """One rank whose kernels begin and end between microseconds."""
    events: list[Json] = [
        kernel("gemm", 1000.0, 2.345),
        kernel("gemm", 1003.001, 0.999),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 1005.5, 7.25, 8, **COLLECTIVE),
        kernel("gemm", 1014.007, 3.0),
    ]
    return kineto(*events, distributedInfo={"rank": rank, "world_size": 2})


def written(directory: Path, trace: Trace) -> Trace:
    write_trace(directory, [et_nodes(rank) for rank in trace.ranks], trace.groups)
    return read_trace(directory)


def test_a_recording_of_nanoseconds_keeps_every_one_of_them(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for rank in range(2):
        (tmp_path / "in" / f"w.{rank}.json").write_bytes(recording(rank))
    before = read_trace(tmp_path / "in")
    after = written(tmp_path / "out", fix(before, RECORDED).trace)
    assert delays_ns(before.ranks[0], RECORDED, 1).tolist() == [2345, 999, 0, 3000]
    for old, new in zip(before.ranks, after.ranks, strict=True):
        assert delays_ns(new, RECORDED, 1).tolist() == delays_ns(old, RECORDED, 1).tolist()
        starts = [recorded_start_ns(one) for one in (old, new)]
        assert starts[0] is not None
        assert starts[1] is not None
        assert starts[0].tolist() == starts[1].tolist()
    programs = [build_job(one, RECORDED).programs for one in (before, after)]
    assert [one.delay_ns.tolist() for one in programs[0]] == [one.delay_ns.tolist() for one in programs[1]]


NANOS = st.none() | st.integers(-(1 << 63) + 1, (1 << 63) - 1)
"""As another program may have written them."""


@given(st.lists(st.tuples(NANOS, NANOS, st.integers(0, 1 << 40)), min_size=1, max_size=5))
def test_any_times_come_back_as_they_were(times: list[tuple[int | None, int | None, int]]) -> None:
    (rank,) = trace_of([compute(index, duration_us=us) for index, (_, _, us) in enumerate(times)]).ranks
    starts = [ABSENT if start is None else start for start, _, _ in times]
    durations = [ABSENT if duration is None else duration for _, duration, _ in times]
    rank = replace(rank, start_ns=np.array(starts), duration_ns=np.array(durations))
    again = []
    for node in et_nodes(rank):
        found = {one.name: one.value for one in node.attributes}
        start = found.get("start_nanos", node.start_us * 1000 if node.start_us else ABSENT)
        again.append((start, found.get("duration_nanos", node.duration_us * 1000)))
    assert [start for start, _ in again] == starts
    exact = [us * 1000 if ns == ABSENT else ns for ns, (_, _, us) in zip(durations, times, strict=True)]
    assert [duration for _, duration in again] == exact


def test_hostile_times_are_bounded() -> None:
    (rank,) = trace_of([compute(1), compute(2)]).ranks
    rank = replace(
        rank, start_ns=np.array([(1 << 63) - 1, 0]), duration_ns=np.array([(1 << 63) - 1, -(1 << 63) + 1])
    )
    starts = recorded_start_ns(rank)
    assert starts is not None
    assert starts.tolist() == [1 << 62, 0]
    assert recorded_duration_ns(rank).tolist() == [1 << 62, -(1 << 62)]


def test_microseconds_stand_where_a_node_tells_nothing_finer() -> None:
    (rank,) = trace_of([compute(1, duration_us=5), compute(2, duration_us=5)]).ranks
    rank = replace(rank, duration_ns=np.array([ABSENT, 4_321]))
    assert delays_ns(rank, WorkloadSettings(), 1).tolist() == [5_000, 4_321]


def test_a_derived_duration_is_written_to_the_nanosecond(tmp_path: Path) -> None:
    settings = WorkloadSettings(flops=10**9)
    trace = trace_of([compute(1, duration_us=0, num_ops=1_234)])
    (rank,) = written(tmp_path, fix(trace, settings).trace).ranks
    assert (rank.duration_us.tolist(), delays_ns(rank, WorkloadSettings(), 1).tolist()) == ([2], [1_234])
    slow = WorkloadSettings(flops=10**9, time_scale=Fraction(3))
    (rank,) = fix(trace, slow).trace.ranks
    assert delays_ns(rank, WorkloadSettings(), 1).tolist() == [1_234], "a scale belongs to one run"


@pytest.mark.parametrize("name", ["start_nanos", "duration_nanos"])
def test_what_chakra_jsonizer_prints_of_it_is_read(name: str, tmp_path: Path) -> None:
    node = {"id": "1", "name": "c", "type": "COMP_NODE", "attr": [{"name": name, "int64Val": "1234"}]}
    (tmp_path / "w.0.json").write_text(json.dumps({"version": "1.0.0"}) + json.dumps(node))
    (rank,) = read_trace(tmp_path).ranks
    column = rank.start_ns if name == "start_nanos" else rank.duration_ns
    assert column is not None
    assert column.tolist() == [1234]


def test_the_attributes_are_plain_integers() -> None:
    (rank,) = trace_of([compute(1).seen(1_001, 2_003)]).ranks
    (node,) = et_nodes(rank)
    for name, value in (("start_nanos", 1_001), ("duration_nanos", 1_002)):
        assert EtAttribute(name, ValueCase.INT64, value) in node.attributes
