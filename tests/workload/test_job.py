"""Jobs built from traces written by hand: columns, times, scaling, edges, and programs shared between ranks."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.errors import ConfigError
from etloop.workload.graph.compute import MAX_DELAY_NS
from etloop.workload.job import build_job
from etloop.workload.program.builder import scaled_bytes
from etloop.workload.trace.program import Job, OpKind
from etloop.workload.trace.settings import DependencyPolicy, SizeUnit, WorkloadSettings
from etloop.workload.trace.trace import CollectiveKind, NodeKind
from tests.support.traces.traces_by_hand import (
    HandNode,
    all_reduce,
    collective,
    compute,
    recv,
    send,
    trace_of,
)


def both(*nodes: HandNode, settings: WorkloadSettings | None = None, schema: str = "0.0.4") -> Job:
    return build_job(trace_of(list(nodes), list(nodes), schema=schema), settings or WorkloadSettings())


def delays(*nodes: HandNode, settings: WorkloadSettings | None = None, schema: str = "0.0.4") -> list[int]:
    """Delay in front of an operation that waits for all the nodes."""
    after = all_reduce(1000).after(*(node.node_id for node in nodes))
    program = both(*nodes, after, settings=settings, schema=schema).programs[0]
    return [int(one) for one in program.delay_ns[program.kind == OpKind.DELAY]]


def test_a_program_holds_operations_delays_and_what_each_waits_for() -> None:
    job = build_job(
        trace_of(
            [compute(1, 5), all_reduce(2, 64).after(1), compute(3, 2).after(2), send(4, 1, 32).after(3)],
            [all_reduce(7, 64), recv(8, 0, 32).after(7)],
        ),
        WorkloadSettings(),
    )
    first, second = (job.programs[rank.program] for rank in job.ranks)
    assert first.kind.tolist() == [OpKind.DELAY, OpKind.COLLECTIVE, OpKind.DELAY, OpKind.SEND]
    assert first.collective.tolist() == [-1, CollectiveKind.ALL_REDUCE, -1, -1]
    assert first.slot.tolist() == [-1, 0, -1, 0]
    assert first.sequence.tolist() == [-1, 0, -1, 0]
    assert first.message_bytes.tolist() == [0, 64, 0, 32]
    assert first.delay_ns.tolist() == [5000, 0, 2000, 0]
    assert first.dep_offsets.tolist() == [0, 0, 1, 2, 3]
    assert first.deps.tolist() == [0, 1, 2]
    assert job.ranks[0].node_id.tolist() == [1, 2, 3, 4]
    assert (job.ranks[0].communicators, job.ranks[0].peers) == ((0,), (1,))
    assert second.kind.tolist() == [OpKind.COLLECTIVE, OpKind.RECV]
    assert job.ranks[1].peers == (0,)


def test_columns_have_the_agreed_types() -> None:
    program = both(all_reduce(1)).programs[0]
    types = {name: getattr(program, name).dtype.name for name in type(program).__slots__}
    assert types == {
        "kind": "uint8",
        "collective": "int8",
        "slot": "int32",
        "sequence": "int32",
        "message_bytes": "int64",
        "delay_ns": "int64",
        "dep_offsets": "int64",
        "deps": "int32",
    }


def test_operations_of_one_communicator_follow_each_other_under_the_default_policy_only() -> None:
    nodes = (all_reduce(1), all_reduce(2))
    ordered = both(*nodes)
    assert ordered.programs[0].deps.tolist() == [0]
    assert ordered.edges["communicator"] == 2
    free = both(*nodes, settings=WorkloadSettings(dependencies=DependencyPolicy.DATA))
    assert free.programs[0].deps.tolist() == []
    assert (free.edges["communicator"], free.policy) == (0, "data")


def test_edges_are_accounted_for_by_sort() -> None:
    nodes = (
        compute(1),
        compute(2).after(1, 1, 2, 9).ctrl_after(1, 2),
        all_reduce(3).after(2).ctrl_after(1, 8),
    )
    nothing = dict.fromkeys(("stream", "communicator", "recorded", "begin", "cycle"), 0)
    data = {"data": 4, "ctrl": 0, "self": 2, "dangling": 2, "duplicate": 2}
    assert both(*nodes).edges == nothing | data
    ctrl = {"data": 4, "ctrl": 2, "self": 4, "dangling": 4, "duplicate": 2}
    settings = WorkloadSettings(dependencies=DependencyPolicy.DATA_CTRL)
    assert both(*nodes, settings=settings).edges == nothing | ctrl


def test_honoured_ctrl_deps_hold_operations_back() -> None:
    nodes = (compute(1, 5), all_reduce(2).ctrl_after(1))
    assert both(*nodes).programs[0].deps.tolist() == []
    settings = WorkloadSettings(dependencies=DependencyPolicy.DATA_CTRL)
    assert both(*nodes, settings=settings).programs[0].deps.tolist() == [0]


ROOFLINE = WorkloadSettings(flops=1_000_000, memory_bandwidth_bytes_per_s=1_000)


@pytest.mark.parametrize(
    ("sentence", "node", "settings", "delay_ns"),
    [
        ("a recorded duration counts", compute(1, 7), ROOFLINE, 7_000),
        ("a recorded duration beats the roofline", compute(1, 7, num_ops=10**9), ROOFLINE, 7_000),
        ("work at the stated speed", compute(1, 0, num_ops=3), ROOFLINE, 3_000),
        ("memory at the stated bandwidth", compute(1, 0, tensor_size=2), ROOFLINE, 2_000_000),
        ("the longer of both", compute(1, 0, num_ops=3, tensor_size=2), ROOFLINE, 2_000_000),
        ("halves round up", compute(1, 0, num_ops=1), WorkloadSettings(flops=2 * 10**9), 1),
        ("time is scaled exactly", compute(1, 1), WorkloadSettings(time_scale=Fraction(1, 3)), 333),
        ("negative work is no work, then nothing stands", compute(1, 0, num_ops=-3), ROOFLINE, None),
        ("nothing said is no time", compute(1, 0), WorkloadSettings(), None),
        (
            "memory nodes take their recorded time",
            HandNode(1, NodeKind.MEM_LOAD, duration_us=2),
            ROOFLINE,
            2000,
        ),
        ("metadata takes no time", HandNode(1, NodeKind.METADATA, duration_us=2), ROOFLINE, None),
        ("a day is believed", compute(1, MAX_DELAY_NS // 1000), ROOFLINE, MAX_DELAY_NS),
    ],
)
def test_compute_takes_its_time(
    sentence: str, node: HandNode, settings: WorkloadSettings, delay_ns: int | None
) -> None:
    assert delays(node, settings=settings) == ([] if delay_ns is None else [delay_ns]), sentence


def test_tensor_sizes_of_stage_are_elements_too() -> None:
    node = compute(1, 0, tensor_size=2)
    assert delays(node, settings=ROOFLINE, schema="symbolic_tensor_network") == [4_000_000]


def test_durations_of_communication_never_count() -> None:
    slow = HandNode(1, NodeKind.COMM_COLL, "x", duration_us=99, attributes={"comm_type": 0, "comm_size": 8})
    assert both(slow).programs[0].delay_ns.tolist() == [0]


def sizes(job: Job) -> list[int]:
    return [int(one) for one in job.programs[0].message_bytes]


def test_sizes_in_elements_become_bytes() -> None:
    assert sizes(both(all_reduce(1, 100), schema="symbolic_tensor_network")) == [200]
    stated = WorkloadSettings(size_unit=SizeUnit.ELEMENTS, element_bytes=4)
    assert sizes(both(all_reduce(1, 100), settings=stated)) == [400]


def test_a_barrier_has_a_payload_of_its_own_whatever_the_trace_says() -> None:
    job = both(
        collective(1, CollectiveKind.BARRIER, 12345),
        collective(2, CollectiveKind.BARRIER, 0).without("comm_size"),
        collective(3, CollectiveKind.BARRIER, -1),
        settings=WorkloadSettings(bytes_scale=Fraction(1, 100)),
    )
    assert sizes(job) == [4, 4, 4]


def test_scaled_bytes_stay_whole_words_a_member_and_the_trace_bytes_are_kept() -> None:
    nodes = (
        all_reduce(1, 1000),
        collective(2, CollectiveKind.ALL_TO_ALL, 1000),
        collective(3, CollectiveKind.REDUCE_SCATTER, 8),
        collective(4, CollectiveKind.ALL_GATHER, 0),
        collective(5, CollectiveKind.BROADCAST, 1),
    )
    job = both(*nodes, settings=WorkloadSettings(bytes_scale=Fraction(1, 10)))
    assert sizes(job) == [100, 96, 8, 0, 4]
    trace_bytes = job.ranks[0].trace_bytes
    assert trace_bytes is not None
    assert trace_bytes.tolist() == [1000, 1000, 8, 0, 1]


def test_without_scaling_bytes_are_untouched() -> None:
    job = both(all_reduce(1, 1001), collective(2, CollectiveKind.ALL_TO_ALL, 13))
    assert sizes(job) == [1001, 13]
    assert job.ranks[0].trace_bytes is None


@given(
    st.integers(0, 1 << 44),
    st.fractions(Fraction(1, 10**6), 4),
    st.sampled_from([4, 8, 32, 256]),
)
def test_scaling_never_makes_something_of_nothing_nor_nothing_of_something(
    size_bytes: int, scale: Fraction, unit_bytes: int
) -> None:
    scaled = scaled_bytes(size_bytes, scale, unit_bytes)
    assert (scaled == 0) == (size_bytes == 0)
    if scale != 1:
        assert scaled % unit_bytes == 0
        assert scaled <= max(Fraction(unit_bytes), size_bytes * scale)


def test_equal_ranks_share_a_program_and_keep_their_own_node_ids() -> None:
    job = build_job(trace_of([all_reduce(1)], [all_reduce(50)], [all_reduce(7)]), WorkloadSettings())
    assert len(job.programs) == 1
    assert [rank.node_id.tolist() for rank in job.ranks] == [[1], [50], [7]]
    assert [rank.rank for rank in job.ranks] == [0, 1, 2]


def test_a_rank_that_does_nothing_has_an_empty_program() -> None:
    job = build_job(
        trace_of([all_reduce(1, group="a")], [], [all_reduce(1, group="a")], groups={"a": (0, 2)}),
        WorkloadSettings(),
    )
    empty = job.programs[job.ranks[1].program]
    assert len(empty) == 0
    assert empty.dep_offsets.tolist() == [0]


def test_dependencies_point_backwards() -> None:
    job = both(all_reduce(5), all_reduce(4).after(5), all_reduce(3).after(4), all_reduce(2).after(5, 3))
    for program in job.programs:
        rows = np.repeat(np.arange(len(program)), np.diff(program.dep_offsets))
        assert (program.deps < rows).all()


def test_settings_refuse_what_makes_no_sense_all_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        WorkloadSettings(
            size_unit="kilobytes",  # type: ignore[arg-type]
            element_bytes=0,
            flops=-1,
            bytes_scale=Fraction(0),
        )
    assert [str(problem) for problem in raised.value.problems] == [
        'workload.size_unit: \'kilobytes\' is unknown; write one of "auto", "bytes", "elements"',
        "workload.element_bytes: 0 is not positive; write a positive number or remove the key",
        "workload.compute.flops: -1 is not positive; write a positive number or remove the key",
        "scale.bytes: 0 is not positive; write a positive number or remove the key",
    ]
    with pytest.raises(ConfigError, match="65 is not a data type's size; write 1 to 64"):
        WorkloadSettings(element_bytes=65)
