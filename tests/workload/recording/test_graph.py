"""A recorded rank becomes the graph that a GPU would run: overlap where the script has it, and no other edge."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from etloop.workload.recording.device import Device, MeasuredTimes, OperatorTimes
from etloop.workload.recording.events import (
    Communication,
    Compute,
    DeviceOnHost,
    Event,
    EventOnHost,
    EventRecord,
    EventWait,
    HostRead,
    RecordedRank,
    Storage,
    StreamWait,
    Wait,
)
from etloop.workload.recording.graph import GraphNode, build_graph
from etloop.workload.trace.trace import NodeKind

DEVICE = Device("d", "s", 8_000_000_000_000, Fraction(1, 2), Fraction(1, 2), {"float32": 2_000_000_000_000})
"""1 TFLOPS and 500 GB/s in effect: 1 us is 1 MFLOP, or 500 kB."""


def times(scale: int = 1, **operators: int) -> OperatorTimes:
    return OperatorTimes(DEVICE, MeasuredTimes(operators), Fraction(scale))


def compute(
    us: int, reads: Iterable[int] = (), writes: Iterable[int] = (), *, stream: int = 0, module: str = ""
) -> Compute:
    return Compute("aten.mm.default()", us * 10**6, 0, "float32", tuple(reads), tuple(writes), stream, module)


def reduce(number: int, storage: int, *, stream: int = 0) -> Communication:
    return Communication(
        number,
        "all_reduce",
        "0",
        4,
        1,
        "float32",
        None,
        None,
        None,
        0,
        (storage,),
        (storage,),
        stream,
        "",
        "",
        "",
    )


def graph(*events: Event) -> tuple[GraphNode, ...]:
    return build_graph(RecordedRank(0, 2, "", (), events), times()).nodes


def shape(nodes: Iterable[GraphNode]) -> list[tuple[str, tuple[int, ...], int]]:
    return [(node.kind.name, node.deps, node.duration_ns) for node in nodes]


def finish_ns(nodes: tuple[GraphNode, ...], operation_ns: int) -> int:
    """Return the length of the critical path, with a fixed time for every operation."""
    ends: list[int] = []
    for node in nodes:
        own_ns = node.duration_ns if node.operation is None else operation_ns
        ends.append(max((ends[dep] for dep in node.deps), default=0) + own_ns)
    return max(ends)


def test_an_operation_overlaps_what_follows_until_its_wait() -> None:
    nodes = graph(compute(3, writes=[1]), reduce(0, 1), compute(5), Wait((0,), 0, ""), compute(2))
    assert shape(nodes) == [
        ("COMP", (), 3000),
        ("COMM_COLL", (0,), 0),
        ("COMP", (0,), 5000),
        ("METADATA", (1, 2), 0),
        ("COMP", (3,), 2000),
    ]
    assert nodes[1].is_async
    assert finish_ns(nodes, 4_000) == 10_000  # hidden
    assert finish_ns(nodes, 7_000) == 12_000  # 2 us longer than the compute beside it


def test_three_layers_with_one_all_reduce_hidden_by_the_backward_pass() -> None:
    """Forward 1 + 2 + 3 us, backward 6 + 4 us, the last layer's gradient reduced beside the second's, then the update."""
    forward = [compute(us, [us], [us + 10], module=f"layers.{us - 1}") for us in (1, 2, 3)]
    nodes = graph(
        *forward,
        compute(6, [13], [20], module="layers.2 backward"),
        reduce(0, 20),
        compute(4, [12], [21], module="layers.1 backward"),
        Wait((0,), 0, ""),
        compute(5, [20, 21], [1, 2]),
    )
    assert [node.duration_ns for node in nodes if node.kind is NodeKind.COMP] == [12_000, 4_000, 5_000]
    assert finish_ns(nodes, 3_000) == 21_000
    assert finish_ns(nodes, 9_000) == 26_000


def test_a_synchronous_operation_blocks_its_stream() -> None:
    nodes = graph(compute(1, writes=[1]), reduce(0, 1), Wait((0,), 0, ""), compute(1))
    assert [node.deps for node in nodes] == [(), (0,), (0, 1), (2,)]
    assert not nodes[1].is_async


def test_a_use_without_a_wait_gets_an_edge_and_is_counted() -> None:
    graph = build_graph(
        RecordedRank(0, 2, "", (), (reduce(0, 1), compute(1), compute(1, reads=[1]))), times()
    )
    assert [node.deps for node in graph.nodes] == [(), (), (0, 1)]
    assert graph.late_uses == 1


def test_operations_on_one_buffer_follow_each_other_and_do_not_hold_the_stream() -> None:
    nodes = graph(reduce(0, 1), reduce(1, 1), compute(1))
    assert [node.deps for node in nodes] == [(), (0,), ()]


def test_a_wait_that_is_repeated_is_one_node() -> None:
    nodes = graph(reduce(0, 1), Wait((0,), 0, ""), Wait((0,), 0, ""), compute(1))
    assert [node.kind.name for node in nodes] == ["COMM_COLL", "METADATA", "COMP"]


def test_streams_join_by_waits_and_by_storages() -> None:
    joined = graph(compute(1, writes=[1]), StreamWait(7, 0), compute(2, reads=[1], stream=7))
    assert [node.deps for node in joined] == [(), (0,), (1,)]
    by_storage = graph(compute(1, writes=[1]), compute(2, reads=[1], stream=7), compute(3))
    assert [(node.stream, node.deps) for node in by_storage] == [(0, ()), (0, (0,)), (7, (0,))]


def test_a_read_on_the_host_holds_all_streams() -> None:
    nodes = graph(compute(1, stream=7), compute(1, writes=[1]), HostRead((1,), 0), compute(1, stream=7))
    assert [(node.stream, node.deps) for node in nodes] == [(0, ()), (7, ()), (7, (0, 1))]
    awaited = graph(reduce(0, 1), HostRead((1,), 0), reduce(1, 2))
    assert [node.deps for node in awaited] == [(), (0,), (1,)]


def test_an_event_stands_for_what_was_issued_before_it_was_recorded() -> None:
    nodes = graph(
        compute(1), EventRecord(5, 0), compute(2), EventWait(5, 7), compute(4, stream=7), EventWait(6, 7)
    )
    assert [(node.kind.name, node.stream, node.deps) for node in nodes] == [
        ("COMP", 0, ()),
        ("METADATA", 7, (0,)),
        ("COMP", 0, (0,)),
        ("COMP", 7, (1,)),
    ]
    assert finish_ns(nodes, 0) == 5_000


def test_a_prefetch_on_a_stream_of_its_own_runs_beside_the_layer_before() -> None:
    """Two layers of 10 us, each gathered in 8 us; the second's gather is issued on stream 7 before the first layer runs.

    Both gathers follow each other in one communicator, which the network decides; here each takes 8 us from when it may start.
    """
    nodes = graph(
        reduce(0, 1, stream=7),
        Wait((0,), 7, ""),
        EventRecord(1, 7),
        EventWait(1, 0),
        reduce(1, 2, stream=7),
        Wait((1,), 7, ""),
        EventRecord(2, 7),
        compute(10, reads=[1], module="layers.0"),
        EventWait(2, 0),
        compute(10, reads=[2], module="layers.1"),
    )
    assert finish_ns(nodes, 8_000) == 28_000  # the second gather is hidden
    assert finish_ns(nodes, 12_000) == 34_000
    assert build_graph(RecordedRank(0, 2, "", (), ()), times()).late_uses == 0


def test_the_host_waits_for_an_event_or_for_the_whole_device() -> None:
    by_event = graph(
        compute(1), EventRecord(1, 0), compute(2), EventOnHost(1, 1), compute(3, stream=7), compute(4)
    )
    assert [(node.stream, node.deps) for node in by_event] == [(0, ()), (0, (0,)), (7, (0,))]
    by_device = graph(compute(1, stream=7), reduce(0, 1), DeviceOnHost(1), compute(2), reduce(1, 2))
    assert [(node.kind.name, node.deps) for node in by_device] == [
        ("COMM_COLL", ()),
        ("COMP", ()),
        ("COMP", (0, 1)),
        ("COMM_COLL", (2,)),
    ]


def test_a_stream_that_is_first_used_late_follows_the_latest_wait_of_the_host_only() -> None:
    nodes = graph(
        *(event for _ in range(3) for event in (compute(1), compute(1, stream=7), HostRead((), 7))),
        compute(1, stream=9),
    )
    assert [(node.stream, node.deps) for node in nodes][-2:] == [(0, (2, 3)), (9, (4,))]


def test_operators_of_the_host_take_no_time_beside_a_device() -> None:
    mixed = graph(
        compute(5, stream=1),
        compute(1),
        reduce(0, 1, stream=1),
        Wait((0,), 1, ""),
        HostRead((), 1),
        compute(2),
    )
    assert [(node.kind.name, node.deps, node.duration_ns) for node in mixed] == [
        ("COMM_COLL", (), 0),
        ("METADATA", (0,), 0),
        ("COMP", (), 1000),
        ("COMP", (1, 2), 2000),
    ]
    assert [node.duration_ns for node in graph(compute(5, stream=1))] == [5000]


def test_a_file_is_written_before_what_follows() -> None:
    nodes = graph(compute(1), Storage(4096, "torch.save", 0), reduce(0, 1))
    assert [(node.kind.name, node.deps, node.moved_bytes) for node in nodes[1:]] == [
        ("STORAGE", (0,), 4096),
        ("COMM_COLL", (1,), 0),
    ]


def test_times_are_the_roofline_or_measured() -> None:
    roofline = times()
    assert roofline.of(Compute("a.b.c(f[1])", 3 * 10**6, 500_000, "float32", (), (), 0, "")) == 3000
    assert roofline.of(Compute("a.b.c(f[1])", 0, 500_000, "float32", (), (), 0, "")) == 1000
    assert roofline.of(Compute("a.b.c(f[1])", 10**6, 0, "bfloat16", (), (), 0, "")) == 1000
    assert roofline.unrated_types == {"bfloat16"}
    measured = OperatorTimes(DEVICE, MeasuredTimes({"a.b.c": 7, "a.b.c(f[2])": 9}), Fraction(2))
    assert measured.of(Compute("a.b.c(f[1])", 10**6, 0, "float32", (), (), 0, "")) == 14
    assert measured.of(Compute("a.b.c(f[2])", 10**6, 0, "float32", (), (), 0, "")) == 18
    assert measured.of(Compute("a.b.d(f[2])", 10**6, 0, "float32", (), (), 0, "")) == 2000


def test_a_folded_node_is_named_by_the_module_of_its_operators() -> None:
    names = [
        graph(*(compute(1, module=module) for module in modules))[0].name
        for modules in (
            ["layers.3.up"],
            ["layers.3.up", "layers.3.down"],
            ["layers.3.up backward", "layers.3.down backward"],
            ["embed", "layers.0"],
            [""],
        )
    ]
    assert names == ["layers.3.up", "layers.3", "layers.3 backward", "embed to layers.0", "compute"]
