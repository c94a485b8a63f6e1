"""Faults on purpose under MRC and UET, in virtual time: what a rule provokes is found, repaired and counted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from etloop.contract.model.fault_rules import FaultAction, FaultDirection, FaultPackets, FaultRule
from etloop.contract.model.transport import TrimAnswer, TrimSettings
from etloop.contract.model.transport_kinds import TransportKind
from etloop.traffic.simulation import SimulationOutcome, SimulationSettings, simulate
from tests.support.traffic.assignments_by_hand import HandOp, assignment
from tests.support.traffic.sprayed_by_hand import of_each_kind, sprayed

MESSAGE_BYTES = 4 << 20
A, D, P = FaultAction, FaultDirection, FaultPackets


@dataclass(frozen=True, slots=True)
class Provoked:
    """A rule, how often it acts, and counters that must not be 0 then: at the sender of data, at the receiver."""

    why: str
    rule: FaultRule
    times: int
    sender: tuple[str, ...] = ()
    receiver: tuple[str, ...] = ()


def rule(action: FaultAction, direction: FaultDirection, packets: FaultPackets, **more: int) -> FaultRule:
    return FaultRule(action, direction, packets, src_rank=0, dst_rank=1, **more)


ROWS = (
    Provoked(
        "a lost packet is sent again",
        rule(A.DROP, D.SENT, P.DATA, first=100, last=100),
        1,
        ("retransmitted_packets",),
    ),
    Provoked(
        "lost before the receiver looks at it",
        rule(A.DROP, D.RECEIVED, P.DATA, first=100, last=100),
        1,
        ("retransmitted_packets",),
    ),
    Provoked(
        "a repeated packet is known to be there",
        rule(A.DUPLICATE, D.SENT, P.DATA, first=5, last=9),
        5,
        (),
        ("duplicate_request",),
    ),
    Provoked(
        "repeated on receipt, too",
        rule(A.DUPLICATE, D.RECEIVED, P.DATA, first=5, last=9),
        5,
        (),
        ("duplicate_request",),
    ),
    Provoked(
        "one behind the next three is placed all the same",
        rule(A.REORDER, D.SENT, P.DATA, first=50, last=50, behind_packets=3, delay_ns=1_000_000),
        1,
        (),
        ("out_of_sequence",),
    ),
    Provoked(
        "held back by its receiver, too",
        rule(A.REORDER, D.RECEIVED, P.DATA, first=50, last=50, behind_packets=3, delay_ns=1_000_000),
        1,
        (),
        ("out_of_sequence",),
    ),
    Provoked(
        "a mark is echoed",
        rule(A.MARK_CE, D.SENT, P.DATA, first=1, last=4),
        4,
        (),
        ("np_ecn_marked_roce_packets",),
    ),
    Provoked(
        "a packet that is cut is asked for",
        rule(A.TRIM, D.RECEIVED, P.DATA, first=10, last=12),
        3,
        ("trimmed_resent", "retransmitted_packets"),
        ("trimmed_received", "trimmed_answered"),
    ),
    Provoked(
        "a grant that is lost is sent again",
        rule(A.DROP, D.SENT, P.CLEAR_TO_SEND, first=1, last=1),
        1,
        (),
        ("retransmitted_packets",),
    ),
)


def run(kind: TransportKind, *rules: FaultRule) -> SimulationOutcome:
    transport = replace(sprayed(kind, "none", trimming=TrimSettings((50,), TrimAnswer.NAK)), faults=rules)
    programs = ((HandOp("send", MESSAGE_BYTES, peer=1),), (HandOp("recv", MESSAGE_BYTES, peer=0),))
    return simulate(assignment(programs, transport=transport), SimulationSettings(probe_first=True))


@of_each_kind
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.why)
def test_each_fault_provokes_what_it_is_for(kind: TransportKind, row: Provoked) -> None:
    clean, outcome = run(kind), run(kind, row.rule)
    assert outcome.failure == ""
    assert outcome.ops["wire_rx_bytes"].sum() == MESSAGE_BYTES
    flows = outcome.flows
    assert flows["injected_faults"].sum() == row.times
    for sends, names in ((1, row.sender), (0, row.receiver)):
        for name in names:
            assert clean.flows[name][clean.flows["sends_data"] == sends].sum() == 0, name
            assert flows[name][flows["sends_data"] == sends].sum() > 0, name


def test_a_wrong_icrc_is_as_good_as_lost() -> None:
    outcome = run(TransportKind.MRC, rule(A.CORRUPT_ICRC, D.SENT, P.DATA, first=20, every=500))
    assert outcome.failure == ""
    assert outcome.bad_icrc == 3
    assert outcome.flows["retransmitted_packets"].sum() == 3


@of_each_kind
def test_a_path_that_loses_all_is_left_and_costs_a_few_packets(kind: TransportKind) -> None:
    """One of 128 values: once two packets of it were lost in a row, or a probe was not answered, it takes no more data."""
    outcome = run(kind, rule(A.DROP, D.SENT, P.ANY, entropy_value=3))
    assert outcome.failure == ""
    assert outcome.ops["wire_rx_bytes"].sum() == MESSAGE_BYTES
    assert 1 <= outcome.flows["retransmitted_packets"].sum() <= 4


@of_each_kind
def test_the_same_rules_provoke_the_same(kind: TransportKind) -> None:
    chance = rule(A.DROP, D.SENT, P.DATA, chance_per_million=20_000, seed=9)
    first, second = run(kind, chance), run(kind, chance)
    assert first.flows.tobytes() == second.flows.tobytes()
    assert run(kind, replace(chance, seed=10)).flows.tobytes() != first.flows.tobytes()


@of_each_kind
def test_lost_answers_cost_no_byte(kind: TransportKind) -> None:
    outcome = run(kind, rule(A.DROP, D.SENT, P.ACK, chance_per_million=300_000, seed=4))
    assert outcome.failure == ""
    assert outcome.ops["wire_rx_bytes"].sum() == MESSAGE_BYTES
    assert outcome.flows["injected_faults"].sum() > 20
