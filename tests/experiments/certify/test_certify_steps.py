"""The traffic of the steps, and how their findings become parts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from etloop.controller.inputs.rig import RigPort
from etloop.experiments.certify.conclude import (
    Named,
    hosts_behind,
    hosts_to_leave_out,
    parts_of,
    port_records,
)
from etloop.experiments.certify.rounds import Transfer, job_of_rounds, shift_round
from etloop.experiments.certify.steps import STEPS, Scale, Step
from etloop.results.schema.findings import Finding, FindingKind, Place, PlaceKind, Role
from etloop.results.schema.verdict import Result
from etloop.workload.trace.program import OpKind

LEAF = Place(PlaceKind.SWITCH, "leaf1")
CABLE = Place(PlaceKind.LINK, "leaf1/u0", "spine0/d1")
HOST = Place(PlaceKind.PORT, "leaf1/p0", "h8/p0")
DEVICE_PORTS = {"h0/p0": "leaf0/p0", "h8/p0": "leaf1/p0", "h9/p0": "leaf1/p1"}


def finding(kind: FindingKind, *places: Place, is_ambiguous: bool = False) -> Finding:
    """Return a finding without evidence."""
    return Finding(kind, places, str(kind), (), 1.0, "", is_ambiguous=is_ambiguous)


def kinds(*named: Named) -> list[FindingKind]:
    """Return the kinds of the parts."""
    return [part.finding.kind for part in parts_of(named)]


def test_rounds_are_separated_by_barriers() -> None:
    job = job_of_rounds("pairs", 3, (shift_round(3, 1, 4096), shift_round(3, 2, 8192)))
    for rank, program in zip(job.ranks, job.programs, strict=True):
        assert (
            sorted(program.kind[:2].tolist())
            == sorted(program.kind[3:5].tolist())
            == [OpKind.SEND, OpKind.RECV]
        )
        assert program.kind[[2, 5]].tolist() == [OpKind.COLLECTIVE, OpKind.COLLECTIVE]
        sends = program.slot[program.kind == OpKind.SEND]
        assert [rank.peers[slot] for slot in sends] == [(rank.rank + 1) % 3, (rank.rank + 2) % 3]
        first_of_second_round = program.deps[program.dep_offsets[3] : program.dep_offsets[4]]
        assert first_of_second_round.tolist() == [2]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
@pytest.mark.parametrize("ports", [2, 3, 13, 64])
@pytest.mark.parametrize("is_virtual", [False, True])
def test_every_port_sends_and_receives_in_every_step(step: Step, ports: int, is_virtual: bool) -> None:
    rounds = step.rounds(Scale(ports, 100_000_000_000, is_virtual, 48))
    transfers: list[Transfer] = [transfer for transfers in rounds for transfer in transfers]
    assert all(transfer.source != transfer.destination for transfer in transfers)
    assert {transfer.source for transfer in transfers} == set(range(ports))
    assert {transfer.destination for transfer in transfers} == set(range(ports))
    for transfers_of_round in rounds:
        sources = Counter(transfer.source for transfer in transfers_of_round)
        assert max(sources.values()) == 1


def test_finding_of_both_ends_of_a_cable_is_one_part() -> None:
    ends = (Place(PlaceKind.PORT, "leaf1/u0", "spine0/d1"), Place(PlaceKind.PORT, "spine0/d1", "leaf1/u0"))
    assert kinds(*(Named(0, finding(FindingKind.SLOW_LINK, place)) for place in (CABLE, *ends))) == [
        FindingKind.SLOW_LINK
    ]


def test_ambiguous_finding_yields_to_a_named_part_among_its_places() -> None:
    vague = Named(0, finding(FindingKind.LOSSY_LINK, CABLE, HOST, is_ambiguous=True))
    exact = Named(1, finding(FindingKind.LOSSY_LINK, HOST))
    assert [part.finding.places for part in parts_of((vague, exact))] == [(HOST,)]


def test_missing_marks_of_a_switch_with_another_class_are_an_effect() -> None:
    wrong = Named(0, finding(FindingKind.DATA_CLASS, LEAF))
    silent = Named(1, finding(FindingKind.ECN_OFF, HOST))
    assert kinds(silent, wrong) == [FindingKind.DATA_CLASS]


def test_slow_cable_of_a_switch_with_another_class_is_a_part() -> None:
    assert kinds(
        Named(0, finding(FindingKind.DATA_CLASS, LEAF)), Named(1, finding(FindingKind.SLOW_LINK, HOST))
    ) == [FindingKind.DATA_CLASS, FindingKind.SLOW_LINK]


def test_slow_cable_that_loses_packets_is_an_effect() -> None:
    assert kinds(
        Named(0, finding(FindingKind.SLOW_LINK, HOST)), Named(1, finding(FindingKind.LOSSY_LINK, HOST))
    ) == [FindingKind.LOSSY_LINK]


def test_finding_about_the_job_is_no_part() -> None:
    assert kinds(Named(0, replace(finding(FindingKind.JOB_INCAST, HOST), role=Role.JOB))) == []


def test_hosts_behind_a_switch_and_a_cable() -> None:
    assert hosts_behind((LEAF,), DEVICE_PORTS) == {"h8/p0", "h9/p0"}
    assert hosts_behind((HOST,), DEVICE_PORTS) == {"h8/p0"}
    assert hosts_behind((CABLE,), DEVICE_PORTS) == frozenset()


def test_small_parts_are_left_out_where_large_ones_would_leave_too_few_ports() -> None:
    assert hosts_to_leave_out((LEAF, HOST), DEVICE_PORTS, 5) == {"h8/p0", "h9/p0"}
    assert hosts_to_leave_out((LEAF, HOST), DEVICE_PORTS, 4) == {"h8/p0"}
    assert hosts_to_leave_out((LEAF, HOST), DEVICE_PORTS, 2) == frozenset()


def test_rows_of_ports_sum_losses_and_keep_the_last_of_other_figures() -> None:
    ports = {name: RigPort(name="p0", link_bps=10**11, addresses=()) for name in DEVICE_PORTS}
    figures = [{"h0/p0": {"lost_sent": 2.0, "queue": 3.0}}, {"h0/p0": {"lost_sent": 5.0, "queue": 4.0}}]
    rows = port_records(ports, DEVICE_PORTS, figures, [Named(0, finding(FindingKind.SLOW_LINK, HOST))])
    assert (rows[0].lost_sent, rows[0].queue, rows[0].sends_bps) == (7, 4, None)
    assert [row.result for row in rows] == [Result.PASS, Result.FAIL, Result.PASS]
