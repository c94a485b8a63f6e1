"""The rules of `etloop certify` on evidence by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from etloop.experiments.certify.rules import classes, held, loss, marks, pauses, rates
from etloop.experiments.certify.rules.hold_times import hold_times
from etloop.experiments.certify.rules.marks import PortMarks, fit_curve
from etloop.experiments.certify.rules.parts import with_peer_rates
from etloop.results.diagnosis.marking import MarkingCurve
from etloop.results.schema.findings import FindingKind, Place, PlaceKind
from tests.experiments.certify.given import GBPS, HOSTS, NAMES, evidence_by_hand


def test_switch_with_another_queue_is_named() -> None:
    queues = {(name, 1 if name.startswith("leaf1") else 3): {"queue_packets": 50.0} for name in NAMES}
    answer = classes.look_at_data(evidence_by_hand(queues=queues))
    (finding,) = answer.findings
    assert (finding.kind, finding.places) == (FindingKind.DATA_CLASS, (Place(PlaceKind.SWITCH, "leaf1"),))
    assert finding.sentence == "leaf1 sends DSCP 26 by queue 1; 3 of 4 switches use queue 3"
    assert {name: answer.figures[name]["queue"] for name in HOSTS} == {
        "h0/p0": 3,
        "h1/p0": 3,
        "h2/p0": 1,
        "h3/p0": 1,
    }


def test_single_port_with_another_queue_is_named_by_its_cable() -> None:
    queues = {(name, 1 if name == "leaf0/2" else 3): {"queue_packets": 50.0} for name in NAMES}
    (finding,) = classes.look_at_data(evidence_by_hand(queues=queues)).findings
    assert finding.places == (Place(PlaceKind.LINK, "leaf0/2", "spine0/0"),)


TIMES = hold_times(frame_ns=333.0, rate_bps=100_000_000_000, priority=3)


def _held(phases: dict[int, float], link_gbps: tuple[float, ...] = (100.0,) * 4) -> Any:
    """Return the answer for messages that arrive at each rank in this share of every period of pauses."""
    rows = [
        (rank, int((turn + phase) * TIMES.period_ns)) for rank, phase in phases.items() for turn in range(5)
    ]
    ranks, completed_ns = zip(*rows, strict=True)
    ops = {"kind": ["receive"] * len(rows), "rank": ranks, "completed_ns": completed_ns}
    evidence = evidence_by_hand(ops=ops)
    hosts = replace(evidence.hosts, link_bps=np.array(link_gbps) * 1e9)
    return held.look(replace(evidence, hosts=hosts), TIMES)


def test_port_whose_messages_arrive_during_pauses_ignores_them() -> None:
    answer = _held({0: 0.3, 1: 0.8, 2: 0.8, 3: 0.8})
    (finding,) = answer.findings
    assert (finding.kind, finding.places) == (
        FindingKind.PFC_IGNORED,
        (Place(PlaceKind.PORT, "leaf0/0", "h0/p0"),),
    )
    assert "5 of 5 messages arrived during pauses" in finding.sentence
    assert "those of incasts" in answer.limits


@pytest.mark.parametrize("phase", [0.01, 0.54, 0.8])
def test_arrivals_about_the_ends_of_pauses_show_nothing(phase: float) -> None:
    assert not _held(dict.fromkeys(range(4), phase)).findings


def test_a_pause_frame_holds_faster_ports_for_less_time() -> None:
    faster = (100.0, 185.0, 185.0, 185.0)
    assert not _held({0: 0.8, 1: 0.4, 2: 0.4, 3: 0.4}, faster).findings
    (finding,) = _held({0: 0.8, 1: 0.4, 2: 0.4, 3: 0.2}, faster).findings
    assert finding.places == (Place(PlaceKind.PORT, "leaf1/1", "h3/p0"),)


def test_ports_whose_hold_ends_before_the_sends_are_not_judged() -> None:
    answer = _held({0: 0.8, 1: 0.8, 2: 0.05, 3: 0.1}, (100.0, 100.0, 400.0, 400.0))
    assert not answer.findings
    assert "2 ports are too fast" in answer.limits


def test_class_without_pfc_is_untested_and_no_part() -> None:
    answer = _held(dict.fromkeys(range(4), 0.3))
    assert not answer.findings
    assert answer.untested.startswith("no port stopped while its host paused priority 3")


def test_no_counters_of_queues_is_untested() -> None:
    assert classes.look_at_data(evidence_by_hand()).untested
    assert pauses.look(evidence_by_hand()).untested
    assert marks.look(evidence_by_hand()).untested


def test_losses_of_one_host_name_its_cable() -> None:
    (finding,) = loss.look(evidence_by_hand(lost={(0, 2): 5, (1, 2): 4, (3, 2): 6})).findings
    assert (finding.kind, finding.places) == (
        FindingKind.LOSSY_LINK,
        (Place(PlaceKind.PORT, "leaf1/0", "h2/p0"),),
    )


def test_losses_of_two_hosts_name_both_cables() -> None:
    lost = {(0, 2): 90.0, (1, 2): 100.0, (3, 2): 95.0, (1, 0): 40.0, (1, 3): 45.0}
    names = {finding.places[0].peer for finding in loss.look(evidence_by_hand(lost=lost)).findings}
    assert names == {"h2/p0", "h1/p0"}


def test_losses_between_leaves_name_the_port_that_counted_them() -> None:
    lost = {(source, to): 8.0 for source in (0, 1) for to in (2, 3)}
    counted = [32.0 if name == "spine1/0" else 0.0 for name in NAMES]
    evidence = evidence_by_hand(lost=lost, port_counters={"fault_dropped_packets": counted})
    (finding,) = loss.look(evidence).findings
    assert finding.places == (Place(PlaceKind.LINK, "leaf0/3", "spine1/0"),)


def test_two_lost_packets_name_no_cable() -> None:
    assert loss.look(evidence_by_hand(lost={(0, 2): 2})).findings == ()


def test_drops_for_want_of_buffer_are_no_losses_of_a_cable() -> None:
    queues = {("leaf1/0", 3): {"queue_packets": 1e4, "queue_dropped_packets": 14.0}}
    answer = loss.look(evidence_by_hand(lost={(0, 2): 7, (1, 2): 9}, queues=queues))
    assert answer.findings == ()


@pytest.mark.parametrize(("share", "is_slow"), [(0.8, True), (0.96, True), (0.985, False), (1.0, False)])
def test_drain_rate_below_the_stated_one_is_slow(share: float, is_slow: bool) -> None:
    step_bytes = share * 100 * GBPS / 8e9 * 1_000
    readings = [(1_000.0 * step, 500_000.0, step_bytes * step, 3.0 * step, 0.0) for step in range(100)]
    answer = rates.look_at_drains(evidence_by_hand(samples={("leaf0/1", 3): readings}))
    assert [str(finding.places[0]) for finding in answer.findings] == ["leaf0/1 (to h1/p0)"] * is_slow


def test_queue_that_may_have_been_empty_gives_no_drain_rate() -> None:
    readings = [
        (1_000.0 * step, 4_000.0 * (step % 2), 9_000.0 * step, 3.0 * step, 0.0) for step in range(100)
    ]
    assert rates.look_at_drains(evidence_by_hand(samples={("leaf0/1", 3): readings})).findings == ()


def test_host_whose_best_round_is_slow_is_named() -> None:
    ranks = [rank for rank in range(4) for _ in range(3)]
    times_ns = [100_000 if rank != 3 else 140_000 for rank in ranks]
    times_ns[4] = 200_000  # a collision in a single round
    ops: dict[str, list[Any]] = {
        "kind": ["send"] * 12,
        "rank": ranks,
        "peer": [(rank + 1 + turn) % 4 for turn, rank in enumerate(ranks)],
        "message_bytes": [1_000_000] * 12,
        "issued_ns": [0] * 12,
        "completed_ns": [10_000] * 12,  # the messages left their hosts' ports
        "acknowledged_ns": times_ns,
    }
    findings = rates.look_at_hosts(evidence_by_hand(ops=ops)).findings
    assert [str(finding.places[0]) for finding in findings] == ["leaf1/1 (to h3/p0)"]
    late = rates.look_at_hosts(evidence_by_hand(ops=ops, lost_by_soft_switch=5))
    assert not late.findings
    assert "soft switch lost 5 frames" in late.untested


def test_rounds_of_a_busy_machine_name_no_host_and_hide_no_slow_one() -> None:
    # Twelve rounds of each host at 80 to 100 % of the rate; the best of host 1 is 5 % below that of the others.
    shares = [0.8 + 0.2 * (7 * turn % 12) / 11 for turn in range(12)]

    def named(slow_share: float) -> list[str]:
        rows = [(rank, share * (slow_share if rank == 1 else 1.0)) for rank in range(4) for share in shares]
        ops: dict[str, list[Any]] = {
            "kind": ["send"] * len(rows),
            "rank": [rank for rank, _ in rows],
            "peer": [(rank + 1 + turn % 3) % 4 for turn, (rank, _) in enumerate(rows)],
            "message_bytes": [1_000_000] * len(rows),
            "issued_ns": [0] * len(rows),
            "completed_ns": [1] * len(rows),
            "acknowledged_ns": [int(100_000 / share) for _, share in rows],
        }
        findings = rates.look_at_hosts(evidence_by_hand(ops=ops)).findings
        return [str(finding.places[0]) for finding in findings]

    assert named(0.95) == []
    assert named(0.8) == ["leaf0/1 (to h1/p0)"]


def test_rates_of_a_derived_rig_are_those_of_most_ports() -> None:
    evidence = evidence_by_hand()
    evidence.hosts.link_bps[2] = 70 * GBPS
    assert with_peer_rates(evidence).hosts.link_bps.tolist() == [100 * GBPS] * 4
    evidence.hosts.link_bps[3] = 70 * GBPS
    assert with_peer_rates(evidence) is evidence


def test_marking_curve_is_estimated() -> None:
    draw = np.random.default_rng(3)
    length = draw.uniform(0, 1_900_000, 3_000)
    packets = np.full(len(length), 6.0)
    truth = MarkingCurve(400_000, 1_600_000, 0.2)
    marked = draw.binomial(6, truth.share(length)).astype(float)
    curve = fit_curve(PortMarks(length, length, packets, marked, marked.sum()))
    assert curve.kmin_bytes == pytest.approx(truth.kmin_bytes, rel=0.2)
    assert curve.kmax_bytes == pytest.approx(truth.kmax_bytes, rel=0.02)
    assert curve.pmax == pytest.approx(truth.pmax, rel=0.2)


def test_port_that_marks_nothing_next_to_peers_that_mark_is_named() -> None:
    queues = {
        (f"leaf{leaf}/{port}", 3): {
            "queue_packets": 1_000.0,
            "queue_ecn_marked_packets": 0.0 if (leaf, port) == (1, 0) else 200.0,
        }
        for leaf in range(2)
        for port in range(2)
    }
    (finding,) = marks.look(evidence_by_hand(queues=queues)).findings
    assert (finding.kind, str(finding.places[0])) == (FindingKind.ECN_OFF, "leaf1/0 (to h2/p0)")


def test_drops_of_a_lossless_class_are_named() -> None:
    queues = {
        (name, 3): {"queue_packets": 100.0, "queue_dropped_packets": 4.0 * (name == "leaf0/1"), "pfc_tx": 1.0}
        for name in NAMES
    }
    (finding,) = pauses.look(evidence_by_hand(queues=queues)).findings
    assert (finding.kind, str(finding.places[0])) == (FindingKind.BUFFER_DROPS, "leaf0/1 (to h1/p0)")


def test_switch_that_pauses_another_priority_is_named() -> None:
    queues = {
        (name, 4 if name.startswith("spine1") else 3): {"queue_packets": 100.0, "pfc_tx": 2.0}
        for name in NAMES
    }
    (finding,) = pauses.look(evidence_by_hand(queues=queues)).findings
    assert finding.sentence == "spine1 pauses priority 4; the other switches pause 3"
