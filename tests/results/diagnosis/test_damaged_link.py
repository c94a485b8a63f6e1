"""Where packets are damaged: by the counters of ports, and by the flows where ports count nothing."""

from __future__ import annotations

import numpy as np
import pytest

from etloop.results.diagnosis.rules.damaged_link import look
from etloop.results.schema.findings import FindingKind
from tests.results.diagnosis.given_losses import STAR, all_pairs, evidence_of, outcome, places

HOSTS = ("a/p0", "b/p0", "c/p0", "d/p0")
KIND = FindingKind.DAMAGED_LINK


def lossy(src: str = "", dst: str = "", lost: float = 20.0) -> dict[tuple[str, str], tuple[float, float]]:
    """Return flows of all pairs; those from `src` or to `dst` lost packets."""
    return {
        pair: (sent, lost if src == pair[0] or dst == pair[1] else 0.0)
        for pair, (sent, _) in all_pairs(HOSTS).items()
    }


def test_sentence_names_port_host_and_rate() -> None:
    ports = {
        "fault_corrupted_packets": {"switch/2": 60.0},
        "rx_packets": dict.fromkeys(("switch/0", "switch/1", "switch/2", "switch/3"), 30_000.0),
    }
    (finding,) = look(evidence_of(flows=lossy(src="c/p0"), ports=ports)).findings
    assert finding.sentence == (
        "60 of 30,000 packets that arrive at switch/2 from c/p0 are damaged (0.002 a packet)"
    )
    assert finding.confidence > 0.999
    assert not finding.is_ambiguous


def test_arrivals_of_several_ports_that_leave_by_one_name_that_one() -> None:
    ports = {
        "fault_corrupted_packets": dict.fromkeys(("switch/0", "switch/1", "switch/3"), 20.0),
        "rx_packets": dict.fromkeys(("switch/0", "switch/1", "switch/2", "switch/3"), 30_000.0),
    }
    result = look(evidence_of(flows=lossy(dst="c/p0"), ports=ports))
    assert places(result) == [["switch/2"]]
    assert "leave by switch/2 to c/p0" in result.findings[0].sentence


def test_damage_at_all_ports_alike_is_the_switch() -> None:
    names = ("switch/0", "switch/1", "switch/2", "switch/3")
    ports = {
        "fault_corrupted_packets": dict.fromkeys(names, 30.0),
        "rx_packets": dict.fromkeys(names, 30_000.0),
    }
    flows = {pair: (sent, 10.0) for pair, (sent, _) in all_pairs(HOSTS).items()}
    assert places(look(evidence_of(flows=flows, ports=ports))) == [["switch"]]


def test_two_bad_cables_are_two_findings() -> None:
    names = ("switch/0", "switch/1", "switch/2", "switch/3")
    ports = {
        "fault_corrupted_packets": {"switch/0": 60.0, "switch/2": 300.0},
        "rx_packets": dict.fromkeys(names, 30_000.0),
    }
    flows = {
        pair: (sent, {"a/p0": 20.0, "c/p0": 100.0}.get(pair[0], 0.0))
        for pair, (sent, _) in all_pairs(HOSTS).items()
    }
    assert places(look(evidence_of(flows=flows, ports=ports))) == [["switch/2"], ["switch/0"]]


def test_one_flow_cannot_tell_its_two_cables_apart() -> None:
    ports = {"fault_corrupted_packets": {"switch/0": 9.0}, "rx_packets": {"switch/0": 10_000.0}}
    result = look(evidence_of(flows={("a/p0", "b/p0"): (10_000.0, 9.0)}, ports=ports))
    assert result.findings[0].is_ambiguous
    assert places(result)[0][:2] == ["switch/0", "switch/1"]


@pytest.mark.parametrize(("src", "dst", "place"), [("c/p0", "", "c/p0"), ("", "d/p0", "d/p0")])
def test_wrong_icrcs_without_counters_of_ports_name_the_host_of_the_flows(
    src: str, dst: str, place: str
) -> None:
    icrcs = dict.fromkeys(HOSTS, 20.0) if src else {dst: 60.0}
    result = look(evidence_of(flows=lossy(src, dst), hosts={"rx_icrc_encapsulated": icrcs}))
    assert places(result) == [[place]]


def test_cut_through_neighbour_passes_frame_errors_on() -> None:
    text = "leaf_spine: {rate: 100Gbps, leaves: [{ports: [a/p0, b/p0]}, {ports: [c/p0, d/p0]}]}"
    ports = {
        "rx_error_packets": {"leaf0/1": 50.0, "spine0/0": 40.0, "leaf1/2": 40.0},
        "rx_packets": dict.fromkeys(("leaf0/1", "spine0/0", "leaf1/2"), 30_000.0),
    }
    result = look(evidence_of(text, ports=ports))
    assert [finding.places[0].peer for finding in result.findings] == ["b/p0"]


def test_trimmed_packets_that_hosts_take_for_damaged_are_no_damage() -> None:
    hosts = {"rx_icrc_encapsulated": {"b/p0": 12.0}, "trimmed_datagrams": {}}
    lanes = {"queue_trim_sent_packets": {("switch/1", 6): 12.0}}
    assert outcome(look(evidence_of(hosts=hosts, lanes=lanes)), KIND) == "clear"


def test_fault_rule_of_the_scenario_names_its_host() -> None:
    hosts = {"injected_bad_icrcs": {"b/p0": 7.0}, "rx_icrc_encapsulated": {"a/p0": 7.0}}
    result = look(evidence_of(hosts=hosts))
    assert places(result) == [["b/p0"]]
    assert "transport.faults" in result.findings[0].remedy


def test_without_any_counter_there_is_no_evidence() -> None:
    assert outcome(look(evidence_of()), KIND) == "no_evidence"


def test_no_damage_is_clear() -> None:
    counted: dict[str, dict[str, float]] = {"fault_corrupted_packets": {}, "rx_packets": {}}
    result = look(evidence_of(STAR, ports=counted, hosts={"rx_icrc_encapsulated": {}}))
    assert outcome(result, KIND) == "clear"
    assert not np.any([finding.confidence for finding in result.findings])
