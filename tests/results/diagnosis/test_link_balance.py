"""Collapsed hashes, polarised tiers and uneven links, by hand and in twins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import etloop
from etloop.results.diagnosis.evidence import Evidence
from etloop.results.diagnosis.rules.link_balance import look
from etloop.results.schema.findings import Examined, Finding, FindingKind
from tests.results.diagnosis.given_streams import all_pairs, random_links, streams_over, without_ways

COLLAPSE = FindingKind.HASH_COLLAPSE
PAIRS = all_pairs(2)


def faults_of(evidence: Evidence) -> list[Finding]:
    return [finding for finding in look(evidence).findings if finding.kind is not FindingKind.UNEVEN_LINKS]


def by_key(links: int, key: Any, seed: int = 3) -> list[int]:
    """Return the link of each of `PAIRS` by a random function of `key(source, destination)`."""
    draws = np.random.default_rng(seed).integers(0, links, 1 << 12)
    return [int(draws[hash(key(pair)) % len(draws)]) for pair in PAIRS]


@pytest.mark.parametrize("links", [2, 4, 8])
@pytest.mark.parametrize("times", [1, 4])
def test_fair_hash_is_no_fault(links: int, times: int) -> None:
    ends = all_pairs(times)
    for seed in range(8):
        assert not faults_of(streams_over(links, random_links(len(ends), links, seed), ends))


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (lambda pair: 0, "no header field changes its link"),
        (lambda pair: pair[0], "depends on the source address alone"),
        (lambda pair: pair[1], "depends on the destination address alone"),
        (lambda pair: pair, "depends on the source address and destination address alone"),
    ],
)
def test_ignored_fields_are_named_and_switches_listed(key: Any, words: str) -> None:
    (finding,) = faults_of(streams_over(4, by_key(4, key), PAIRS))
    assert finding.kind is COLLAPSE
    assert words in finding.sentence
    assert [place.name for place in finding.places] == ["leaf0", "leaf1"]


def test_one_collapsed_leaf_is_named_alone() -> None:
    links = random_links(len(PAIRS), 4, 5)
    links = [1 if src < 4 else link for link, (src, _) in zip(links, PAIRS, strict=True)]
    (finding,) = faults_of(streams_over(4, links, PAIRS))
    assert [place.name for place in finding.places] == ["leaf0"]
    assert finding.evidence[0].value == pytest.approx(1.0)  # effective links


def test_streams_of_one_pair_on_two_links_hide_no_byte_fault() -> None:
    # Three of four links are never used, and no field explains which.
    links = [link % 2 for link in random_links(len(PAIRS), 4, 7)]
    finding = faults_of(streams_over(4, links, PAIRS))[0]
    assert finding.kind is COLLAPSE
    assert "no single field explains it" in finding.sentence


def test_weights_are_the_expectation() -> None:
    weights = [1, 1, 1, 5]
    ends = all_pairs(12)
    links = random_links(len(ends), 4, 1, weights)
    assert not faults_of(streams_over(4, links, ends, weights=weights))
    assert faults_of(streams_over(4, links, ends))


def test_few_streams_are_chance_with_their_probability() -> None:
    ends = [(n, 4 + n) for n in range(4)]
    result = look(streams_over(4, [0, 0, 0, 1], ends, stream_bytes=4e6))
    (finding,) = result.findings
    assert finding.kind is FindingKind.UNEVEN_LINKS
    assert finding.places[0].peer == "spine0/0"
    chance = next(fact.value for fact in finding.evidence if fact.name == "chance_of_fair_hash")
    assert 0.05 < chance < 0.5  # three or four of four streams on one of four links: 13/64


def test_uneven_links_that_cost_no_time_are_no_finding() -> None:
    ends = [(n, 4 + n) for n in range(4)]
    assert not look(streams_over(4, [0, 0, 0, 1], ends, stream_bytes=1e4)).findings


def test_unknown_hash_is_judged_by_counted_bytes() -> None:
    ends = all_pairs(4)
    collapsed = streams_over(4, [2] * len(ends), ends)
    (finding,) = faults_of(without_ways(collapsed))
    assert [place.name for place in finding.places] == ["leaf0", "leaf1"]
    for seed in range(5):
        assert not faults_of(without_ways(streams_over(4, random_links(len(ends), 4, seed), ends)))


def test_link_that_is_down_is_not_expected_to_carry_bytes() -> None:
    ends = all_pairs(8)
    three = [(0, 1, 3)[link] for link in random_links(len(ends), 3, 4)]
    assert not faults_of(without_ways(streams_over(4, three, ends)))


def test_single_streams_exercise_nothing_and_no_counters_are_no_evidence() -> None:
    lone = look(streams_over(4, [0], [(0, 4)]))
    assert {examination.outcome for examination in lone.examinations} == {Examined.NOT_EXERCISED}
    evidence = streams_over(4, [0, 1], [(0, 4), (1, 5)])
    none = look(replace(evidence, ports=replace(evidence.ports, names=())))
    assert {examination.outcome for examination in none.examinations} == {Examined.NO_EVIDENCE}


def three_tiers(seed: int | None) -> dict[str, Any]:
    """Return two pods of two leaves and two aggregation switches, each with two cores; `seed`: of the two lower tiers."""
    same = {} if seed is None else {"seed": seed}
    switches: list[dict[str, Any]] = []
    links, attach = [], []
    for pod in "ab":
        for number in range(2):
            switches += [{"name": f"leaf{pod}{number}", **same}, {"name": f"agg{pod}{number}", **same}]
            links += [
                {"from": f"leaf{pod}{number}", "to": f"agg{pod}{up}", "rate": "100Gbps"} for up in range(2)
            ]
            links += [
                {"from": f"agg{pod}{number}", "to": f"core{number}{up}", "rate": "100Gbps"} for up in range(2)
            ]
            attach += [
                {"port": f"h{pod}{number}{host}/p0", "to": f"leaf{pod}{number}", "rate": "100Gbps"}
                for host in range(2)
            ]
    switches += [{"name": f"core{number}{up}"} for number in range(2) for up in range(2)]
    return {"switches": switches, "links": links, "attach": attach}


def findings_in_twin(topology: dict[str, Any], directory: Path) -> tuple[Finding, ...]:
    scenario = {
        "workload": {"collective": {"kind": "all_to_all", "ranks": 8, "size": "64KiB"}},
        "mapping": {"placement": "round_robin"},
        "transport": {"qps_per_connection": 4},
    }
    run = etloop.run_twin(scenario, None, directory / "run", topology=topology)
    diagnosis = run.summary.diagnosis
    assert diagnosis is not None
    return tuple(finding for finding in diagnosis.findings if str(finding.kind).startswith("hash"))


@pytest.mark.parametrize("seed", [5, None])
def test_equal_seeds_of_two_tiers_are_polarised(tmp_path: Path, seed: int | None) -> None:
    findings = findings_in_twin(three_tiers(seed), tmp_path)
    if seed is None:
        assert not findings
        return
    (finding,) = findings
    assert finding.kind is FindingKind.HASH_POLARISED
    assert [place.name for place in finding.places] == ["agga0", "agga1", "aggb0", "aggb1"]


def test_hash_without_entropy_collapses_in_twin(tmp_path: Path) -> None:
    topology = three_tiers(None)
    topology["switches"][0]["hash"] = ["dst_port"]
    (finding,) = findings_in_twin(topology, tmp_path)
    assert finding.kind is COLLAPSE
    assert [place.name for place in finding.places] == ["leafa0"]
