"""A report as a whole: all mistakes together, counted, bounded, under the policy asked for; and no trace breaks it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.errors import TraceError
from etloop.workload.job import build_job
from etloop.workload.lint.report import lint
from etloop.workload.trace.findings import EXAMPLES_KEPT, Check, Finding
from etloop.workload.trace.settings import DependencyPolicy, SizeUnit, WorkloadSettings
from etloop.workload.trace.trace import ABSENT, CollectiveKind, NodeKind
from tests.support.traces.traces_by_hand import HandNode, all_reduce, compute, recv, send, trace_of

if TYPE_CHECKING:
    from collections.abc import Iterable

SETTINGS = WorkloadSettings()
UNTYPED = all_reduce(1).without("comm_type")


def checks(findings: Iterable[Finding]) -> set[Check]:
    return {finding.check for finding in findings}


def test_all_mistakes_of_a_trace_are_told_together() -> None:
    trace = trace_of(
        [UNTYPED, send(2, 5), compute(3).after(4), compute(4).after(3)],
        [all_reduce(1, size=-1), recv(2, 0), all_reduce(3, group="nobody")],
    )
    assert checks(lint(trace, SETTINGS).errors) == {
        Check.COMM_TYPE_ABSENT,
        Check.COMM_SIZE_RANGE,
        Check.PEER_OUT_OF_RANGE,
        Check.DEPENDENCY_CYCLE,
        Check.COMMUNICATOR_UNKNOWN,
    }


def test_a_partner_of_a_broken_send_is_not_blamed_too() -> None:
    report = lint(trace_of([send(1, 1).without("comm_size")], [recv(1, 0)]), SETTINGS)
    assert checks(report.errors) == {Check.COMM_SIZE_ABSENT}


def test_a_repeated_mistake_is_counted_and_shown_a_few_times() -> None:
    trace = trace_of([all_reduce(node).without("comm_size") for node in range(1, 2001)])
    (finding,) = lint(trace, SETTINGS).errors
    assert finding.count == 2000
    assert len(finding.examples) == EXAMPLES_KEPT
    assert f"(and {2000 - EXAMPLES_KEPT} more comm-size-absent)" in str(finding.problems()[-1])


def test_a_hostile_file_with_a_name_for_every_node_still_makes_a_short_report() -> None:
    trace = trace_of([all_reduce(node, group=f"g{node}") for node in range(1, 1001)])
    (finding,) = lint(trace, SETTINGS).errors
    assert (finding.check, finding.count) == (Check.COMMUNICATOR_UNKNOWN, 1000)


def test_ctrl_deps_are_looked_at_only_when_they_are_honoured() -> None:
    trace = trace_of([compute(1).ctrl_after(1, 9), compute(2).ctrl_after(3), compute(3).ctrl_after(2)])
    assert not checks(lint(trace, SETTINGS).findings) & {Check.DEPENDENCY_SELF, Check.DEPENDENCY_CYCLE}
    report = lint(trace, WorkloadSettings(dependencies=DependencyPolicy.DATA_CTRL))
    assert checks(report.findings) >= {
        Check.DEPENDENCY_SELF,
        Check.DEPENDENCY_DANGLING,
        Check.CTRL_CYCLE,
    }
    assert report.replayable


def test_a_communicator_order_that_deadlocks_is_an_error_only_where_it_is_honoured() -> None:
    trace = trace_of(
        [all_reduce(1, group="b"), all_reduce(2, 8, group="a").after(1), all_reduce(3, 16, group="a")],
        [all_reduce(1, 8, group="a"), all_reduce(2, 16, group="a"), all_reduce(3, group="b").after(2)],
        groups={"a": (0, 1), "b": (0, 1)},
    )
    # Rank 1 reaches b only behind the second of a, rank 0 wants b before the first: with streams that is a cycle.
    (finding,) = lint(trace, SETTINGS).errors
    assert finding.check is Check.DEADLOCK
    assert lint(trace, WorkloadSettings(dependencies=DependencyPolicy.DATA)).replayable


def test_stage_sizes_are_elements_and_cannot_be_declared_bytes() -> None:
    trace = trace_of([compute(1)], schema="symbolic_tensor_network")
    report = lint(trace, WorkloadSettings(size_unit=SizeUnit.BYTES))
    assert "expected size_unit elements, found size_unit bytes; STAGE traces count elements" in str(
        report.problems()[0]
    )
    stated = lint(trace, WorkloadSettings(element_bytes=4))
    assert (stated.size_unit, stated.element_bytes) == ("elements", 4)
    assert Check.ELEMENT_BYTES not in checks(stated.findings)


def test_a_report_counts_what_the_trace_holds() -> None:
    trace = trace_of([all_reduce(1), send(2, 1)], [all_reduce(1), recv(2, 0)])
    report = lint(trace, SETTINGS)
    assert (report.ranks, report.nodes, report.communicators, report.collectives, report.sends) == (
        2,
        4,
        1,
        1,
        1,
    )
    assert (report.source, report.size_unit, report.policy) == ("hand", "bytes", "data+communicator")


def test_wrong_attributes_on_sends_of_custom_collectives_do_no_harm() -> None:
    typed = send(1, 1).having(comm_type=CollectiveKind.SCATTER)
    assert lint(trace_of([typed], [recv(1, 0).having(comm_type=77)]), SETTINGS).replayable


def test_a_send_of_an_unknown_kind_of_node_is_no_communication() -> None:
    odd = replace(compute(1), kind=NodeKind.INVALID)
    assert lint(trace_of([odd]), SETTINGS).collectives == 0


def test_names_from_outside_cannot_write_to_the_terminal_nor_flood_it() -> None:
    trace = trace_of([replace(UNTYPED, name="\x1b[2J" + "x" * 500)])
    (finding,) = lint(trace, SETTINGS).errors
    assert finding.examples[0].name == "\\x1b[2J" + "x" * 76 + "..."


ODD = st.sampled_from([ABSENT, -1, 0, 1, 2, 9, 10, 1 << 40, (1 << 63) - 1])
HOSTILE_NODES = st.lists(
    st.builds(
        HandNode,
        node_id=st.integers(0, 4) | st.just((1 << 64) - 1),
        kind=st.integers(0, 12),
        name=st.text(max_size=3),
        data_deps=st.lists(st.integers(0, 5), max_size=3).map(tuple),
        ctrl_deps=st.lists(st.integers(0, 5), max_size=2).map(tuple),
        duration_us=st.sampled_from([0, 1, 1 << 30, 1 << 45, (1 << 64) - 1]),
        attributes=st.dictionaries(
            st.sampled_from(
                [
                    "comm_type",
                    "comm_size",
                    "comm_src",
                    "comm_dst",
                    "comm_tag",
                    "is_cpu_op",
                    "num_ops",
                    "tensor_size",
                ]
            ),
            ODD,
        ),
        pg_name=st.sampled_from([None, "", "0", "a", "b", "nobody"]),
    ),
    max_size=6,
)


@given(
    st.lists(HOSTILE_NODES, max_size=3),
    st.sampled_from(DependencyPolicy.every()),
    st.sampled_from([None, {"a": (0, 1), "b": (1, 0, 2)}, {"a": (0, 9)}, {"b": ()}]),
)
def test_any_trace_gives_a_job_or_trace_errors(
    ranks: list[list[HandNode]], policy: DependencyPolicy, groups: dict[str, tuple[int, ...]] | None
) -> None:
    trace = trace_of(*ranks, groups=groups)
    settings = WorkloadSettings(dependencies=policy, flops=10**12, memory_bandwidth_bytes_per_s=10**12)
    report = lint(trace, settings)
    if report.replayable:
        assert len(build_job(trace, settings).ranks) == len(ranks)
    else:
        with pytest.raises(TraceError):
            build_job(trace, settings)
