"""Faults at an endpoint, in virtual time: what a rule provokes is found, recovered from, and counted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from etloop.contract.model.fault_rules import FaultAction, FaultDirection, FaultPackets, FaultRule
from etloop.contract.model.transport import RecoverySettings
from etloop.traffic.simulation import SimulationOutcome, SimulationSettings, simulate
from tests.support.traffic.assignments_by_hand import TRANSPORT, HandOp, assignment

MESSAGE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Provoked:
    """A rule, and the counters that must not be 0 when it has acted: at the sender of data, at the receiver."""

    why: str
    rule: FaultRule
    times: int
    sender: tuple[str, ...] = ()
    receiver: tuple[str, ...] = ()
    bad_icrcs: int = 0
    """That the simulated network's check finds."""


def rule(action: FaultAction, direction: FaultDirection, packets: FaultPackets, **more: int) -> FaultRule:
    return FaultRule(action, direction, packets, src_rank=0, dst_rank=1, **more)


A, D, P = FaultAction, FaultDirection, FaultPackets
ROWS = (
    Provoked(
        "a lost packet is one NAK",
        rule(A.DROP, D.SENT, P.DATA, first=100, last=100),
        1,
        ("packet_seq_err", "retransmitted_packets"),
        ("out_of_sequence", "naks_tx"),
    ),
    Provoked(
        "lost before the receiver looks at it",
        rule(A.DROP, D.RECEIVED, P.DATA, first=100, last=100),
        1,
        ("packet_seq_err",),
        ("naks_tx",),
    ),
    Provoked(
        "a repeated packet is counted as such",
        rule(A.DUPLICATE, D.SENT, P.DATA, first=5, last=9),
        5,
        (),
        ("duplicate_request",),
    ),
    Provoked(
        "one behind the next three is a gap, and then old",
        rule(A.REORDER, D.SENT, P.DATA, first=50, last=50, behind_packets=3, delay_ns=1_000_000),
        1,
        ("packet_seq_err",),
        ("out_of_sequence", "duplicate_request"),
    ),
    Provoked(
        "a wrong ICRC is as good as lost",
        rule(A.CORRUPT_ICRC, D.SENT, P.DATA, first=20, every=500),
        3,
        ("packet_seq_err",),
        ("naks_tx",),
        bad_icrcs=3,
    ),
    Provoked(
        "a mark is answered by a CNP",
        rule(A.MARK_CE, D.SENT, P.DATA, first=1, last=4),
        4,
        ("rp_cnp_ignored",),
        ("np_ecn_marked_roce_packets", "np_cnp_sent"),
    ),
    Provoked(
        "marks made up on receipt, too",
        rule(A.MARK_CE, D.RECEIVED, P.DATA, first=1, last=4),
        4,
        ("rp_cnp_ignored",),
        ("np_ecn_marked_roce_packets",),
    ),
    Provoked(
        "late acknowledgements hold the window up, and no more",
        rule(A.DELAY, D.SENT, P.ACK, every=2, delay_ns=100_000),
        4,
    ),
    Provoked(
        "without acknowledgements the timer asks again",
        rule(A.DROP, D.SENT, P.ACK, first=1, last=8),
        16,  # eight at each end
        ("local_ack_timeout_err", "retransmitted_packets"),
        ("duplicate_request",),
    ),
    Provoked(
        "a NAK for no reason is obeyed",
        rule(A.SEND_NAK, D.RECEIVED, P.DATA, first=10, last=10),
        1,
        ("packet_seq_err", "retransmitted_packets"),
        ("duplicate_request",),
    ),
    Provoked(
        "so is a receiver that says it was not ready",
        rule(A.SEND_RNR, D.RECEIVED, P.DATA, first=10, last=10),
        1,
        ("rnr_nak_retry_err", "retransmitted_packets"),
        ("duplicate_request",),
    ),
    Provoked(
        "a CNP without a mark", rule(A.SEND_CNP, D.RECEIVED, P.DATA, first=3, last=5), 3, ("rp_cnp_ignored",)
    ),
    Provoked(
        "a lost clear-to-send is asked for again",
        rule(A.DROP, D.SENT, P.CLEAR_TO_SEND, first=1, last=1),
        1,
        (),
        ("retransmitted_packets",),
    ),
)


def run(*rules: FaultRule, recovery: RecoverySettings | None = None) -> SimulationOutcome:
    transport = replace(
        TRANSPORT,
        timeout_ns=1_000_000,
        window_packets=64,
        ack_every_packets=32,
        faults=rules,
        recovery=recovery or RecoverySettings(timeout_floor_ns=200_000),
    )
    programs = ((HandOp("send", MESSAGE_BYTES, peer=1),), (HandOp("recv", MESSAGE_BYTES, peer=0),))
    return simulate(assignment(programs, transport=transport), SimulationSettings())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.why)
def test_each_fault_provokes_what_it_is_for(row: Provoked) -> None:
    clean, outcome = run(), run(row.rule)
    assert outcome.failure == ""
    assert outcome.ops["wire_rx_bytes"].sum() == MESSAGE_BYTES
    assert outcome.bad_icrc == row.bad_icrcs
    flows = outcome.flows
    if row.rule.last or row.rule.action is FaultAction.CORRUPT_ICRC:
        assert flows["injected_faults"].sum() == row.times
    else:
        assert flows["injected_faults"].sum() >= row.times
    for sends, names in ((1, row.sender), (0, row.receiver)):
        for name in names:
            assert clean.flows[name][clean.flows["sends_data"] == sends].sum() == 0, name
            assert flows[name][flows["sends_data"] == sends].sum() > 0, name


def test_the_same_rules_provoke_the_same() -> None:
    chance = rule(A.DROP, D.SENT, P.DATA, chance_per_million=20_000, seed=9)
    first, second = run(chance), run(chance)
    assert first.flows.tobytes() == second.flows.tobytes()
    assert run(replace(chance, seed=10)).flows.tobytes() != first.flows.tobytes()


def test_rules_of_other_connections_change_nothing() -> None:
    foreign = replace(rule(A.DROP, D.SENT, P.ANY), src_rank=1, dst_rank=0)
    assert run(foreign).flows.tobytes() == run().flows.tobytes()


@pytest.mark.parametrize("selective", [False, True])
def test_one_loss_costs_a_window_or_a_packet(selective: bool) -> None:
    """Go-back-N sends again what followed; selective repeat only what is missing."""
    recovery = RecoverySettings(timeout_floor_ns=200_000, selective_repeat=selective)
    outcome = run(rule(A.DROP, D.SENT, P.DATA, first=100, last=100), recovery=recovery)
    again = int(outcome.flows["retransmitted_packets"].sum())
    assert again == 1 if selective else again > 5


def test_overtaking_is_no_loss_where_it_is_accepted() -> None:
    overtaken = rule(A.REORDER, D.SENT, P.DATA, first=10, every=40, behind_packets=5, delay_ns=1_000_000)
    refused = run(overtaken).flows
    accepted = run(
        overtaken, recovery=RecoverySettings(timeout_floor_ns=200_000, accept_out_of_order=True)
    ).flows
    assert refused["packet_seq_err"].sum() > 10
    assert accepted["packet_seq_err"].sum() == 0
    assert accepted["retransmitted_packets"].sum() == 0
    assert accepted["out_of_sequence"].sum() > 50
