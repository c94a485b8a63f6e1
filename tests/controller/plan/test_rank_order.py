"""Which ranks share a host: as the mapping lists them, by axes, or by their communicators; and the word that they might."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.cli.text.plan import render_plan
from etloop.contract.base.errors import ConfigError, PlanError
from etloop.controller.inputs.scenario.mapping import Mapping
from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.controller.plan.places.rank_order import communicator_bytes, hosts_by_communicators, with_hosts
from etloop.controller.plan.plan import Plan, make_plan
from etloop.controller.plan.report import report_plan
from etloop.workload.trace.program import Job
from etloop.workload.trace.trace import CollectiveKind
from tests.support.runs.plan_by_hand import Coll, job_of, rig_of, scenario_of

AR = CollectiveKind.ALL_REDUCE
MIB = 1 << 20
DP, TP = 4, 4
TENSOR = tuple(tuple(dp + DP * tp for tp in range(TP)) for dp in range(DP))
"""Data parallelism counts fastest: the ranks of a tensor-parallel group are 0, 4, 8, 12 and so on."""
DATA = tuple(tuple(dp + DP * tp for dp in range(DP)) for tp in range(TP))


def job() -> Job:
    """16 ranks that talk mostly within their tensor-parallel groups."""
    return job_of(
        DP * TP, *(Coll(AR, group, 8 * MIB) for group in TENSOR), *(Coll(AR, group, MIB) for group in DATA)
    )


def planned(mapping: str) -> Plan:
    return make_plan(scenario_of(f"mapping: {{{mapping}}}"), rig_of(dict.fromkeys("abcd", 1)), job())


def mapping_of(text: str) -> Mapping:
    scenario = f"workload: {{trace: t}}\nmapping: {{{text}}}\n"
    return parse_scenario(scenario.encode(), "s.yaml", Path()).mapping


@pytest.mark.parametrize(
    "mapping",
    [
        "ranks_per_host: 4, order: communicators",
        "ranks_per_host: 4, axes: {dp: 4, tp: 4}, order: [tp, dp]",
        "ranks_per_host: 4, order: [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15]",
        "hosts: [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]",
    ],
)
def test_each_way_to_say_it_keeps_tensor_parallelism_inside_hosts(mapping: str) -> None:
    plan = planned(mapping)
    host = plan.placement.host
    assert all(len({host[rank] for rank in group}) == 1 for group in TENSOR)
    report = report_plan(plan)
    assert report.fabric_bytes * 9 == report.payload_bytes, "1 MiB of 9 crosses"
    assert report.warnings == ()
    assert [(use.payload_bytes > 0, use.fabric_bytes) for use in report.communicators[:4]] == [(True, 0)] * 4


def test_ranks_by_their_numbers_are_warned_of_what_another_order_would_keep_inside() -> None:
    report = report_plan(planned("ranks_per_host: 4"))
    assert report.fabric_bytes * 9 == report.payload_bytes * 8
    (warning,) = report.warnings
    assert warning == (
        "the ranks with the most traffic are on different hosts: 89% of the payload goes from host to host, and 11% would with "
        "mapping: {order: communicators}, which puts ranks 0, 4, 8, 12 on one"
    )
    text = render_plan(report)
    assert text.startswith(f"warning: {warning}\n")
    assert f"note: {warning}" not in text


@pytest.mark.parametrize(
    ("mapping", "why"),
    [
        ("ranks_per_host: 1", "one rank a host"),
        ("ranks_per_host: 16", "all on one host would be no test"),
        ("ranks_per_host: 4, order: [tp, dp], axes: {tp: 4, dp: 4}", "an order is stated"),
        ("hosts: [[0-3], [4-7], [8-11], [12-15]]", "hosts are stated"),
    ],
)
def test_who_says_the_order_is_not_warned(mapping: str, why: str) -> None:
    text = f"mapping: {{{mapping}}}\nallow_local: true"
    plan = make_plan(scenario_of(text), rig_of(dict.fromkeys("abcd", 1)), job())
    assert report_plan(plan).warnings == (), why


def test_local_ranks_are_in_the_order_of_their_host() -> None:
    text = "mapping: {hosts: [[3, 1], [0, 2]], nics_per_host: 2}"
    plan = make_plan(scenario_of(text), rig_of({"a": 2, "b": 2}), job_of(4, Coll(AR, (0, 1, 2, 3), MIB)))
    assert plan.placement.host == (1, 0, 1, 0)
    assert plan.placement.nic == (0, 1, 1, 0)
    assert {port.label: port.ranks for port in plan.placement.ports} == {
        "a/p0": (3,),
        "a/p1": (1,),
        "b/p0": (0,),
        "b/p1": (2,),
    }


def test_hosts_may_differ_in_size_and_hold_what_fits() -> None:
    found = with_hosts(Mapping(3, mapping_of("").rule, (), by_communicators=True), job())
    assert sorted(rank for host in found.hosts for rank in host) == list(range(16))
    assert max(map(len, found.hosts)) == 3
    uneven = with_hosts(mapping_of("hosts: [[0-6], [7], [8-15]]"), job())
    assert (uneven.ranks_per_host, len(uneven.hosts)) == (8, 3)


@given(
    st.lists(st.lists(st.integers(0, 11), min_size=2, max_size=6, unique=True), max_size=8), st.integers(1, 6)
)
def test_whatever_the_communicators_every_rank_has_one_seat(groups: list[list[int]], per_host: int) -> None:
    made = job_of(12, *(Coll(AR, tuple(sorted(group)), MIB) for group in groups))
    hosts = hosts_by_communicators(made, per_host)
    assert sorted(rank for host in hosts for rank in host) == list(range(12))
    assert all(0 < len(host) <= per_host for host in hosts)
    if groups and len(groups[0]) <= per_host and len({tuple(sorted(group)) for group in groups}) == 1:
        assert any(set(groups[0]) <= set(host) for host in hosts), "the only communicator is kept together"


def test_bytes_of_communicators_are_what_their_members_put_in() -> None:
    assert communicator_bytes(job()) == [4 * 8 * MIB] * 4 + [4 * MIB] * 4


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        ("hosts: [[0, 1], [1, 2]]", "mapping.hosts: rank 1 is on two hosts, or twice on one"),
        ("hosts: [[0, x]]", "mapping.hosts: hosts[0] is not a list of ranks"),
        ("hosts: [[]]", "mapping.hosts: hosts[0] is not a list of ranks"),
        ("hosts: [[0, [1]]]", "mapping.hosts: hosts[0] is not a list of ranks"),
        ("hosts: [[0-2000]]", "mapping.hosts: a host has more than 1024 ranks"),
        ("hosts: [[0]], order: communicators", "mapping.order: hosts already lists the ranks of each host"),
        ("hosts: [[0]], ranks_per_host: 2", "mapping.ranks_per_host: hosts already sets the ranks per host"),
        ("order: [tp, dp]", 'mapping.order: "tp" is neither a rank nor an axis'),
        ("order: [0, 0]", "mapping.order: rank 0 is listed twice"),
        (
            "order: [tp], axes: {tp: 4, dp: 4}",
            "mapping.order: does not name the axes of axes:; write tp, dp",
        ),
        ("order: [tp, dp], axes: {tp: 4, dp: 0}", "mapping.axes.dp: 0 is out of range"),
        ("axes: {tp: 4}", "mapping.order: does not name the axes of axes:"),
    ],
)
def test_what_makes_no_sense_is_refused_as_the_file_is_read(mapping: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(expected)):
        mapping_of(mapping)


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        ("hosts: [[0-7], [8-14]]", "mapping.hosts: rank 15 is missing; list every rank of the job"),
        (
            "hosts: [[0-7], [8-16]]",
            "mapping.hosts: the job has ranks 0 to 15, got 16; remove it",
        ),
        ("order: [0-3]", "mapping.order: rank 4, 5, 6, 7, 8, 9, 10, 11 and 4 more is missing"),
        (
            "order: [tp, dp], axes: {dp: 4, tp: 8}",
            "mapping.axes: dp 4 x tp 8 are 32 ranks, but the job has 16",
        ),
    ],
)
def test_what_does_not_fit_the_job_is_refused(mapping: str, expected: str) -> None:
    with pytest.raises(PlanError, match=re.escape(expected)):
        planned(mapping)
