"""Links that went down, packets of full size, trimmed packets, and packets out of order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from etloop.results.diagnosis.rules import link_flap, mtu, reordering, trim_unanswered
from etloop.results.schema.findings import FindingKind
from tests.results.diagnosis.given_losses import (
    LEAVES,
    SPRAYED,
    STAR,
    all_pairs,
    evidence_of,
    outcome,
    places,
)

HOSTS = ("a/p0", "b/p0", "c/p0", "d/p0")


def test_outage_names_link_and_recovery_time() -> None:
    text = STAR + "\noutages: [{port: switch/2, from: 2ms, until: 3ms}]"
    samples = {("switch/2", 3): [(t * 100_000, t if t < 20 else max(t - 12, 19)) for t in range(60)]}
    dropped = {"link_dropped_packets": {"switch/2": 12.0}}
    (finding,) = link_flap.look(evidence_of(text, ports=dropped, samples=samples)).findings
    assert finding.sentence == (
        "the link of switch/2 (to c/p0) went down at 2 ms for 1 ms; it carried its next packet 1.3 ms after the last; "
        "12 packets were lost there"
    )


def test_events_of_the_timeline_pair_up() -> None:
    events = [
        SimpleNamespace(at_ns=at, link="leaf0/2", up=up, done_ns=at)
        for at, up in ((1_000_000, False), (2_000_000, True), (4_000_000, False))
    ]
    dropped: dict[str, Any] = {"link_dropped_packets": {}}
    (finding,) = link_flap.look(evidence_of(LEAVES, ports=dropped, timeline=events)).findings
    assert "1 ms for 1 ms, 2 times in all" in finding.sentence


def test_packets_dropped_at_a_down_link_name_it_without_a_schedule() -> None:
    result = link_flap.look(evidence_of(ports={"link_dropped_packets": {"switch/1": 5.0}}))
    assert places(result) == [["switch/1"]]


def test_outage_after_the_end_of_the_job_is_none() -> None:
    text = STAR + "\noutages: [{port: switch/2, from: 1s, until: 2s}]"
    result = link_flap.look(evidence_of(text, ports={"link_dropped_packets": {}}))
    assert outcome(result, FindingKind.LINK_FLAP) == "clear"


@pytest.mark.parametrize(
    ("short_arrived", "expected"), [(20.0, [["c/p0"]]), (0.0, [])], ids=["short arrive", "none arrive"]
)
def test_full_size_packets_of_one_host_are_lost(short_arrived: float, expected: list[Any]) -> None:
    flows = {pair: (50.0, 50.0 if pair[0] == "c/p0" else 0.0) for pair in all_pairs(HOSTS)}
    from_c = {pair: short_arrived if pair[0] == "c/p0" else 20.0 for pair in flows}
    evidence = evidence_of(flows=flows, received={"acks_rx": from_c})
    evidence.flows.sent["acks_tx"] = evidence.flows.sent["tx_packets"] * 0 + 20  # type: ignore[index]
    assert places(mtu.look(evidence)) == expected


def trims(sent: float, received: float, answered: float, icrcs: float = 0.0) -> dict[str, Any]:
    """Return counters of packets that the queue to d/p0 trimmed."""
    pair = ("a/p0", "d/p0")
    return {
        "lanes": {
            "queue_trimmed_packets": {("switch/3", 3): sent},
            "queue_trim_sent_packets": {("switch/3", 6): sent},
            "queue_trim_dropped_packets": {},
        },
        "hosts": {"trimmed_datagrams": {"d/p0": received}, "rx_icrc_encapsulated": {"d/p0": icrcs}},
        "received": {"trimmed_received": {pair: received}, "trimmed_answered": {pair: answered}},
        "flows": all_pairs(HOSTS) | {pair: (10_000.0, sent)},
        "needs": SPRAYED,
    }


@pytest.mark.parametrize(
    ("counts", "count", "words"),
    [
        (trims(500, 500, 500), 0, ""),
        (trims(500, 500, 480), 0, ""),
        (trims(500, 500, 180), 1, "320 of 500 trimmed packets were not answered"),
        (trims(500, 300, 300), 1, "200 of 500 packets"),
        (trims(500, 0, 0, icrcs=500), 1, "hosts took them for damaged"),
    ],
    ids=["answered", "duplicates unanswered", "unanswered", "lost", "of an unknown DSCP"],
)
def test_trimmed_packets_are_followed_to_their_answers(
    counts: dict[str, Any], count: int, words: str
) -> None:
    findings = trim_unanswered.look(evidence_of(**counts)).findings
    assert len(findings) == count
    assert all(words in finding.sentence for finding in findings)


def test_short_packets_that_were_only_marked_are_not_lost() -> None:
    counts = trims(500, 300, 300) | {"flows": all_pairs(HOSTS) | {("a/p0", "d/p0"): (10_000.0, 300.0)}}
    assert not trim_unanswered.look(evidence_of(**counts)).findings


def test_full_queue_of_trimmed_packets_is_named() -> None:
    counts = trims(500, 400, 400)
    counts["lanes"]["queue_trim_dropped_packets"] = {("switch/3", 3): 100.0}
    (finding,) = trim_unanswered.look(evidence_of(**counts)).findings
    assert str(finding.places[0]) == "switch/3 queue 3 (to d/p0)"


AHEAD = {"out_of_sequence": {("a/p0", "c/p0"): 90.0}, "naks_tx": {("a/p0", "c/p0"): 9.0}}


def test_switch_that_sprays_is_the_place_of_reordering() -> None:
    text = LEAVES[:-1] + ", leaf: {balancing: spray}}"
    assert places(reordering.look(evidence_of(text, received=AHEAD))) == [["leaf0", "leaf1"]]


def test_reordering_without_a_known_cause_names_the_flows() -> None:
    result = reordering.look(evidence_of(LEAVES, received=AHEAD))
    assert places(result) == [["a/p0"]]
    assert result.findings[0].places[0].peer == "c/p0"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"needs": SPRAYED}, "not_exercised"),
        ({"flows": {("a/p0", "c/p0"): (10_000.0, 5.0)}}, "clear"),
        ({"ports": {"link_dropped_packets": {"leaf0/2": 3.0}}}, "not_exercised"),
    ],
    ids=["any order", "lost packets", "changed routes"],
)
def test_reordering_that_another_cause_explains_is_none(changes: dict[str, Any], expected: str) -> None:
    result = reordering.look(evidence_of(LEAVES, received=AHEAD, **changes))
    assert outcome(result, FindingKind.REORDERING) == expected
