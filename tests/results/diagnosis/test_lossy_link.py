"""Where packets are lost although there is buffer: at ports, on cables, and on ways that only agents recorded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from etloop.results.diagnosis.rules.lossy_link import look
from etloop.results.schema.device import Direction
from etloop.results.schema.findings import FindingKind
from tests.results.diagnosis.given_losses import LEAVES, all_pairs, evidence_of, outcome, places

KIND = FindingKind.LOSSY_LINK
HOSTS = ("a/p0", "b/p0", "c/p0", "d/p0")
LEAF0 = ("leaf0/0", "leaf0/1", "leaf0/2", "leaf0/3")


def ways() -> dict[tuple[str, str], tuple[str, ...]]:
    """Return egress ports of all pairs: those from a and c take spine0, those from b and d spine1."""
    ports = {"a/p0": "leaf0/0", "b/p0": "leaf0/1", "c/p0": "leaf1/0", "d/p0": "leaf1/1"}
    found = {}
    for src, dst in all_pairs(HOSTS):
        leaf, far = ports[src][:5], ports[dst][:5]
        spine = 0 if src[0] in "ac" else 1
        over = () if leaf == far else (f"{leaf}/{2 + spine}", f"spine{spine}/{far[4]}")
        found[src, dst] = (*over, ports[dst])
    return found


def lossy(port: str, lost: float = 20.0) -> dict[tuple[str, str], tuple[float, float]]:
    """Return flows of all pairs; those that cross an egress port lost packets."""
    return {
        pair: (sent, lost if port in ways()[pair] else 0.0) for pair, (sent, _) in all_pairs(HOSTS).items()
    }


@pytest.mark.parametrize("port", ["leaf0/2", "leaf0/3"])
def test_uplink_is_told_from_the_port_of_its_sender_by_local_flows(port: str) -> None:
    sender = {"leaf0/2": "leaf0/0", "leaf0/3": "leaf0/1"}[port]
    ports = {"fault_dropped_packets": {sender: 40.0}, "rx_packets": dict.fromkeys(LEAF0, 30_000.0)}
    result = look(evidence_of(LEAVES, lossy(port), ports=ports, spread=ways()))
    assert places(result) == [[port]]


def test_uplink_among_several_without_ways_is_a_set() -> None:
    flows = lossy("leaf0/2")
    ports = {"fault_dropped_packets": {"leaf0/0": 40.0}, "rx_packets": dict.fromkeys(LEAF0, 30_000.0)}
    (finding,) = look(evidence_of(LEAVES, flows, ports=ports)).findings
    assert finding.is_ambiguous
    assert {place.name for place in finding.places} >= {"leaf0/2", "leaf0/3"}


def test_port_of_a_spine_is_named_by_its_own_counter() -> None:
    ports = {
        "fault_dropped_packets": {"spine0/1": 30.0},
        "rx_packets": {"spine0/0": 20_000.0, "spine0/1": 20_000.0},
    }
    flows = {
        pair: (sent, 15.0 if pair[0] == "c/p0" and pair[1] in ("a/p0", "b/p0") else 0.0)
        for pair, (sent, _) in all_pairs(HOSTS).items()
    }
    result = look(evidence_of(LEAVES, flows, ports=ports, spread=ways()))
    assert places(result)[0][0] == "spine0/1"


def test_congestion_of_other_queues_does_not_hide_the_port() -> None:
    flows = {
        pair: (sent, 200.0 if pair[1] == "d/p0" else 0.0) for pair, (sent, _) in all_pairs(HOSTS).items()
    }
    names = tuple(f"switch/{number}" for number in range(4))
    result = look(
        evidence_of(
            flows=flows,
            ports={"fault_dropped_packets": {"switch/1": 25.0}, "rx_packets": dict.fromkeys(names, 30_000.0)},
            lanes={"queue_dropped_packets": {("switch/3", 3): 575.0}},
        )
    )
    assert places(result) == [["switch/1"]]


def row(port: str, direction: Direction, agent: int, difference: int) -> Any:
    """Return a reconciled direction of a cable."""
    return SimpleNamespace(port=port, direction=direction, agent_frames=agent, difference_frames=difference)


@pytest.mark.parametrize(
    ("direction", "difference", "words"),
    [
        (Direction.TO_DEVICE, -40, "arrive at switch/2 from c/p0"),
        (Direction.FROM_DEVICE, 40, "leave by switch/2 to c/p0"),
    ],
)
def test_cable_whose_ends_differ_is_named(direction: Direction, difference: int, words: str) -> None:
    flows = all_pairs(HOSTS) | {("c/p0", "a/p0"): (10_000.0, 40.0)}
    evidence = evidence_of(
        flows=flows,
        ports={"fault_dropped_packets": {}, "tx_packets": {}, "rx_packets": {}},
        reconciliation=[
            row("a/p0", Direction.TO_DEVICE, 30_000, 0),
            row("c/p0", direction, 30_000, difference),
        ],
    )
    (finding,) = look(evidence).findings
    assert words in finding.sentence
    assert "lost on the cable" in finding.sentence


def test_frames_of_other_protocols_are_no_losses() -> None:
    evidence = evidence_of(
        ports={"fault_dropped_packets": {}},
        reconciliation=[row("a/p0", Direction.FROM_DEVICE, 30_000, 25)],
    )
    assert outcome(look(evidence), KIND) == "clear"


def test_losses_without_any_counter_of_the_device_name_the_sender() -> None:
    flows = {pair: (sent, 12.0 if pair[0] == "b/p0" else 0.0) for pair, (sent, _) in all_pairs(HOSTS).items()}
    result = look(evidence_of(flows=flows))
    assert places(result) == [["b/p0"]]


def test_losses_that_buffers_explain_are_clear() -> None:
    flows = all_pairs(HOSTS) | {("a/p0", "d/p0"): (10_000.0, 500.0)}
    evidence = evidence_of(
        flows=flows,
        ports={"fault_dropped_packets": {}},
        lanes={"queue_dropped_packets": {("switch/3", 3): 500.0}},
    )
    assert outcome(look(evidence), KIND) == "clear"


def test_losses_in_a_host_that_could_not_keep_up_are_clear() -> None:
    flows = all_pairs(HOSTS) | {("a/p0", "d/p0"): (10_000.0, 500.0)}
    evidence = evidence_of(flows=flows, hosts={"receive_overflows": {"d/p0": 400.0}})
    assert outcome(look(evidence), KIND) == "clear"


def test_nothing_sent_is_not_exercised() -> None:
    assert outcome(look(evidence_of(flows=all_pairs(HOSTS, 0.0))), KIND) == "not_exercised"
