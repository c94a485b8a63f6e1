"""Which edges each dependency policy adds, and that a replay under them starts every operation where it should.

The reference is an executor of the whole trace that knows streams as queues and communicators as queues, and knows
nothing of graphs that were built, ordered or contracted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.errors import Severity
from etloop.contract.base.units import QuantityError
from etloop.workload.graph.dependencies import rank_graph
from etloop.workload.job import build_job
from etloop.workload.lint.report import lint
from etloop.workload.trace.findings import Check
from etloop.workload.trace.program import Job, OpKind
from etloop.workload.trace.settings import DependencyPolicy, WorkloadSettings
from etloop.workload.trace.trace import NodeKind, Trace
from tests.support.traces.traces_by_hand import HandNode, all_reduce, compute, trace_of

STREAM = DependencyPolicy.parse("stream")
RECORDED = DependencyPolicy.parse("recorded")


def added(policy: DependencyPolicy, *nodes: HandNode) -> list[tuple[int, int]]:
    """Edges (waiting id, awaited id) under a policy."""
    rank = trace_of(list(nodes)).ranks[0]
    graph = rank_graph(rank, policy)
    return [
        (int(rank.node_id[waiting]), int(rank.node_id[awaited]))
        for waiting, awaited in zip(graph.waiting.tolist(), graph.awaited.tolist(), strict=True)
    ]


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("data", "data"),
        ("communicator", "data+communicator"),
        ("communicator+data", "data+communicator"),
        ("data+communicator+stream+ctrl", "data+ctrl+stream+communicator"),
        ("recorded", "data+stream+recorded"),
    ],
)
def test_a_policy_is_a_set_of_names_in_any_order(text: str, canonical: str) -> None:
    policy = DependencyPolicy.parse(text)
    assert str(policy) == canonical
    assert DependencyPolicy.parse(canonical) == policy


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("date", '"date" is not a kind of dependency'),
        ("data+", '"" is not a kind of dependency'),
        ("data+stream+stream", '"data+stream+stream" repeats a name'),
    ],
)
def test_a_wrong_policy_says_what_to_write(text: str, what: str) -> None:
    with pytest.raises(QuantityError) as raised:
        DependencyPolicy.parse(text)
    assert str(raised.value) == (
        f"{what}; write data, ctrl, stream, communicator, recorded, joined by +, such as data+stream+communicator"
    )


def test_there_are_twelve_policies_as_recorded_brings_streams() -> None:
    assert len(DependencyPolicy.every()) == 12


def test_nodes_of_one_stream_run_in_file_order_where_nothing_was_recorded() -> None:
    nodes = (compute(9).on_stream(7), compute(2).on_stream(20), compute(1).on_stream(7), compute(3))
    assert added(DependencyPolicy.DATA, *nodes) == []
    assert added(STREAM, *nodes) == [(1, 9)]


def test_nodes_of_one_stream_run_as_recorded() -> None:
    nodes = (compute(1).on_stream(7).seen(50, 60), compute(2).on_stream(7).seen(10, 20))
    assert added(STREAM, *nodes) == [(1, 2)]


def test_a_dependency_goes_before_the_order_of_a_stream() -> None:
    """A clock that stepped back must not make a cycle."""
    nodes = (compute(1).on_stream(7).seen(50, 60), compute(2).after(1).on_stream(7).seen(10, 20))
    assert added(STREAM, *nodes) == [(2, 1)]


def test_stream_order_without_streams_is_told() -> None:
    report = lint(trace_of([compute(1), all_reduce(2)]), WorkloadSettings(dependencies=STREAM))
    (finding,) = (one for one in report.findings if one.check is Check.NO_STREAMS)
    assert finding.severity is Severity.WARNING
    assert finding.sentence().endswith(
        "found none on this rank; stream order adds no dependency on this rank"
    )


def test_ctrl_edges_on_a_cycle_go_and_the_others_stay() -> None:
    nodes = (
        compute(1).ctrl_after(3),
        compute(2).after(1),
        compute(3).after(2),
        compute(4).ctrl_after(3),
    )
    assert added(DependencyPolicy.DATA_CTRL, *nodes) == [(2, 1), (3, 2), (4, 3)]
    report = lint(trace_of(list(nodes)), WorkloadSettings(dependencies=DependencyPolicy.DATA_CTRL))
    (finding,) = (one for one in report.findings if one.check is Check.CTRL_CYCLE)
    assert (finding.severity, finding.count) == (Severity.WARNING, 1)
    assert "found a cycle of 3 nodes" in finding.sentence()


def test_a_ctrl_edge_that_a_data_edge_repeats_is_not_dropped() -> None:
    nodes = (compute(1).ctrl_after(2), compute(2).after(1).ctrl_after(1))
    assert added(DependencyPolicy.DATA_CTRL, *nodes) == [(2, 1)]


def test_recorded_gaps_need_times_and_believable_ones() -> None:
    settings = WorkloadSettings(dependencies=RECORDED)
    (finding,) = lint(trace_of([compute(1)]), settings).errors
    assert str(finding.problems()[0]) == (
        'hand/w.0.et: rank 0 node 1 "comp1": expected recorded start times, found none on this rank; remove "recorded" '
        "from the dependencies, or give the Kineto trace of the same run"
    )
    odd = trace_of([compute(1).seen(5, 9), compute(2).seen(10**15, 10**15 + 1)])
    (finding,) = lint(odd, settings).errors
    assert finding.check is Check.RECORDED_RANGE
    assert "found start 1000000000000000 ns, duration 1 ns, first of the rank 5 ns" in str(
        finding.problems()[0]
    )


def starts_ns(job: Job, took_ns: dict[int, int]) -> tuple[dict[int, int], int]:
    """(start of each operation by node id, end of all) on rank 0 when the operation of a node takes `took_ns`."""
    rank = job.ranks[0]
    program = job.programs[rank.program]
    ends: list[int] = []
    starts = {}
    for op in range(len(program)):
        deps = program.deps[program.dep_offsets[op] : program.dep_offsets[op + 1]]
        start = max((ends[one] for one in deps), default=0)
        node = int(rank.node_id[op])
        if program.kind[op] == OpKind.DELAY:
            ends.append(start + int(program.delay_ns[op]))
        else:
            starts[node] = start
            ends.append(start + took_ns[node])
    return starts, max(ends, default=0)


@dataclass(frozen=True, slots=True)
class Case:
    """Nodes in file order, each waiting only for nodes before it, and how long the operations take."""

    nodes: list[HandNode]
    took_ns: dict[int, int]

    @property
    def trace(self) -> Trace:
        return trace_of(self.nodes, self.nodes, groups={"a": (0, 1), "b": (0, 1)})


@st.composite
def cases(draw: st.DrawFn) -> Case:
    nodes: list[HandNode] = []
    took_ns = {}
    for node_id in range(1, draw(st.integers(1, 14)) + 1):
        if draw(st.booleans()):
            node = all_reduce(node_id, group=draw(st.sampled_from("ab")))
            took_ns[node_id] = draw(st.integers(0, 9000))
        else:
            node = compute(node_id, draw(st.integers(0, 5)))
        earlier = st.sets(st.integers(1, node_id - 1), max_size=3) if node_id > 1 else st.just(set())
        stream = draw(st.sampled_from([None, 7, 20]))
        node = node.after(*draw(earlier)).ctrl_after(*draw(earlier))
        nodes.append(node if stream is None else node.on_stream(stream))
    return Case(nodes, took_ns)


def run_uncontracted(case: Case, policy: DependencyPolicy) -> tuple[dict[int, int], int]:
    """Node by node in file order: streams and communicators are queues that take the next when the last is done."""
    ends: dict[int, int] = {}
    queue_end: dict[tuple[str, object], int] = {}
    starts = {}
    for node in case.nodes:
        is_op = node.kind == NodeKind.COMM_COLL
        queues: list[tuple[str, object]] = []
        if policy.stream and node.stream is not None:
            queues.append(("stream", node.stream))
        if policy.communicator and is_op:
            queues.append(("communicator", node.pg_name))
        awaited = [*node.data_deps, *(node.ctrl_deps if policy.ctrl else ())]
        start = max([0, *(ends[one] for one in awaited), *(queue_end.get(one, 0) for one in queues)])
        ends[node.node_id] = start + (case.took_ns[node.node_id] if is_op else node.duration_us * 1000)
        queue_end |= dict.fromkeys(queues, ends[node.node_id])
        if is_op:
            starts[node.node_id] = start
    return starts, max(ends.values(), default=0)


@given(cases(), st.sampled_from([one for one in DependencyPolicy.every() if not one.recorded]))
def test_under_every_policy_operations_start_as_in_the_whole_trace(
    case: Case, policy: DependencyPolicy
) -> None:
    job = build_job(case.trace, WorkloadSettings(dependencies=policy))
    # Without streams the order of issue is by id, with streams by place in the file: the same here.
    assert starts_ns(job, case.took_ns) == run_uncontracted(case, policy)


@given(cases(), st.data())
def test_with_recorded_gaps_everything_starts_as_recorded_if_operations_take_as_long_as_recorded(
    case: Case, data: st.DataObject
) -> None:
    """Whatever was recorded, as long as nothing began before what it waited for had ended."""
    begun, ends = 0, {0: 0}
    stream_end: dict[int | None, int] = {}
    nodes, wanted = [], {}
    for node in case.nodes:
        ready = max([begun, *(ends[one] for one in node.data_deps)])
        if node.stream is not None:
            ready = max(ready, stream_end.get(node.stream, 0))
        start = ready + data.draw(st.integers(0, 5000))
        is_op = node.kind == NodeKind.COMM_COLL
        end = start + (case.took_ns[node.node_id] if is_op else node.duration_us * 1000)
        nodes.append(node.seen(start, end))
        begun, ends[node.node_id], stream_end[node.stream] = start, end, end
        if is_op:
            wanted[node.node_id] = start
    origin = nodes[0].recorded[0] if nodes[0].recorded else 0
    recorded = Case(nodes, case.took_ns)
    job = build_job(recorded.trace, WorkloadSettings(dependencies=RECORDED))
    found, end = starts_ns(job, case.took_ns)
    assert found == {node: start - origin for node, start in wanted.items()}
    assert end == max(ends.values()) - origin


GPU = (
    compute(1, 10).on_stream(7).seen(0, 10_000),
    all_reduce(2).on_stream(20).seen(11_000, 40_000),
    compute(3, 5).on_stream(7).seen(42_000, 47_000),
    all_reduce(4).on_stream(20).seen(49_000, 60_000),
)
"""Two streams that wait for each other by events, which no trace records."""


def test_the_recording_shows_waits_between_streams_and_only_gaps_are_kept_of_it() -> None:
    job = build_job(trace_of(list(GPU), list(GPU)), WorkloadSettings(dependencies=RECORDED))
    assert job.edges["recorded"] == 2 * 3
    # The network is faster than the recording, in which the other rank came late: the rest follows at its old distance.
    starts, end = starts_ns(job, {2: 3_000, 4: 1_000})
    assert starts == {2: 11_000, 4: 11_000 + 3_000 + 2_000 + 5_000 + 2_000}
    assert end == starts[4] + 1_000


def test_without_the_recording_network_times_delay_no_compute() -> None:
    job = build_job(trace_of(list(GPU), list(GPU)), WorkloadSettings(dependencies=STREAM))
    assert starts_ns(job, {2: 3_000, 4: 1_000})[0] == {2: 0, 4: 3_000}


def test_a_callee_waits_for_the_begin_of_its_caller_not_for_its_end() -> None:
    nodes = (
        compute(1, 100).seen(0, 100_000),
        compute(2, 10).ctrl_after(1).seen(30_000, 40_000),
        all_reduce(3).after(2).seen(45_000, 60_000),
    )
    settings = WorkloadSettings(dependencies=DependencyPolicy.parse("ctrl+recorded"))
    job = build_job(trace_of(list(nodes), list(nodes)), settings)
    assert job.edges["begin"] == 2
    assert starts_ns(job, {3: 1}) == ({3: 45_000}, 100_000)


def test_recorded_gaps_shrink_with_the_time_scale() -> None:
    settings = WorkloadSettings(dependencies=RECORDED, time_scale=Fraction(1, 2))
    job = build_job(trace_of(list(GPU), list(GPU)), settings)
    assert starts_ns(job, {2: 3_000, 4: 1_000})[0] == {2: 5_500, 4: 5_500 + 3_000 + 1_000 + 2_500 + 1_000}


def test_start_times_of_et_files_count_too() -> None:
    trace = trace_of([compute(1, 10), all_reduce(2).after(1)], [compute(1, 10), all_reduce(2).after(1)])
    for rank in trace.ranks:
        rank.start_us[:] = [100, 115]
    job = build_job(trace, WorkloadSettings(dependencies=RECORDED))
    assert starts_ns(job, {2: 0})[0] == {2: 15_000}


def test_communicator_order_is_of_ends_even_where_the_recording_overlaps() -> None:
    nodes = [
        all_reduce(1).on_stream(7).seen(0, 50_000),
        all_reduce(2).after(1).on_stream(20).seen(10_000, 60_000),
    ]
    strict = WorkloadSettings(dependencies=DependencyPolicy.parse("recorded+communicator"))
    assert starts_ns(build_job(trace_of(nodes, nodes), strict), {1: 9_000, 2: 1})[0] == {1: 0, 2: 9_000}
    loose = WorkloadSettings(dependencies=RECORDED)
    assert starts_ns(build_job(trace_of(nodes, nodes), loose), {1: 90_000, 2: 1})[0] == {1: 0, 2: 10_000}


ODD_NS = st.sampled_from([-(1 << 62), -1, 0, 1, 999, 10**9, 1694128201428006000, 1 << 62, (1 << 63) - 1])


@given(cases(), st.data(), st.sampled_from([one for one in DependencyPolicy.every() if one.recorded]))
def test_whatever_was_recorded_is_replayed_or_refused(
    case: Case, data: st.DataObject, policy: DependencyPolicy
) -> None:
    nodes = [
        replace(node, recorded=data.draw(st.one_of(st.none(), st.tuples(ODD_NS, ODD_NS))))
        for node in case.nodes
    ]
    report = lint(Case(nodes, case.took_ns).trace, WorkloadSettings(dependencies=policy))
    refusals = {
        Check.NO_TIMES,
        Check.RECORDED_RANGE,
        Check.COMPUTE_RANGE,
        Check.DEADLOCK,
        Check.COLLECTIVE_DIFFERS,
    }
    assert {finding.check for finding in report.errors} <= refusals
    if report.replayable:
        job = build_job(Case(nodes, case.took_ns).trace, WorkloadSettings(dependencies=policy))
        assert all((program.delay_ns >= 0).all() for program in job.programs)
