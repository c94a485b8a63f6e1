"""Drops and pauses for want of buffer: whose fault they are, by the configuration of the class."""

from __future__ import annotations

from typing import Any

import pytest

from etloop.results.diagnosis.rules import buffer_drops, buffer_share_small, lossless_drops
from etloop.results.schema.findings import FindingKind, Role
from tests.results.diagnosis.given_losses import LEAVES, STAR, evidence_of, outcome, places

LOSSY = "single: {rate: 100Gbps, ports: [a/p0, b/p0, c/p0, d/p0], switch: {preset: lossy}}"
NO_PFC = "single: {rate: 100Gbps, ports: [a/p0, b/p0], switch: {pfc: {enabled: false}}}"
ONE_LOSSY = """
switches: [{name: leaf0, preset: lossy}, {name: leaf1}]
links: [{from: leaf0, to: leaf1, rate: 100Gbps}]
attach: [{port: a/p0, to: leaf0, rate: 100Gbps}, {port: b/p0, to: leaf1, rate: 100Gbps}]
"""
DROPPED = {"queue_dropped_packets": {("switch/3", 3): 700.0}, "group_dropped_packets": {}}


@pytest.mark.parametrize(
    ("text", "lanes", "role", "words"),
    [
        (LOSSY, DROPPED, Role.JOB, "it has no PFC"),
        (NO_PFC, {"group_dropped_packets": {("switch/0", 3): 9.0}}, Role.FAULT, "PFC is off"),
        (ONE_LOSSY, {"queue_dropped_packets": {("leaf0/1", 3): 9.0}}, Role.FAULT, "PFC on 1 of 2 switches"),
    ],
)
def test_drops_are_judged_by_the_configuration(
    text: str, lanes: dict[str, Any], role: Role, words: str
) -> None:
    (finding,) = buffer_drops.look(evidence_of(text, lanes=lanes)).findings
    assert finding.role is role
    assert words in finding.sentence


def test_drops_on_an_unknown_switch_are_a_fault_of_a_lossless_job() -> None:
    (finding,) = buffer_drops.look(evidence_of(LOSSY, lanes=DROPPED, is_described=False)).findings
    assert finding.role is Role.FAULT
    assert (finding.places[0].name, finding.places[0].number) == ("switch/3", 3)
    assert "3 hosts send to it" in finding.sentence


def test_drops_of_a_lossless_group_are_left_to_other_rules() -> None:
    lanes = {"group_dropped_packets": {("switch/0", 3): 9.0}, "pfc_tx": {("switch/0", 3): 9.0}}
    assert not buffer_drops.look(evidence_of(lanes=lanes)).findings


def overrun(dropped_bytes: float, pauses: float = 10.0) -> dict[str, Any]:
    """Return counters of a port that dropped packets of a lossless group."""
    lane = ("switch/0", 3)
    return {
        "group_dropped_packets": {lane: dropped_bytes / 4_000},
        "group_dropped_bytes": {lane: dropped_bytes},
        "group_headroom_watermark_bytes": {lane: 54_000.0},
        "pfc_tx": {lane: pauses},
    }


@pytest.mark.parametrize(
    ("text", "dropped_bytes", "kind"),
    [
        (STAR, 10_000_000.0, FindingKind.PFC_IGNORED),
        (STAR[:-1] + ", switch: {groups: {3: {headroom: 0B}}}}", 40_000.0, FindingKind.HEADROOM_SMALL),
    ],
)
def test_bytes_after_a_pause_separate_ignored_pauses_from_small_headroom(
    text: str, dropped_bytes: float, kind: FindingKind
) -> None:
    result = lossless_drops.look(evidence_of(text, lanes=overrun(dropped_bytes)))
    assert [finding.kind for finding in result.findings] == [kind]
    assert "a/p0" in str(result.findings[0].places[0])


def test_needed_headroom_follows_rate_and_delay_of_the_cable() -> None:
    text = "single: {rate: 100Gbps, delay: 500ns, ports: [a/p0, b/p0], switch: {groups: {3: {headroom: 0B}}}}"
    (finding,) = lossless_drops.look(evidence_of(text, lanes=overrun(40_000.0))).findings
    assert "64,850 B are needed" in finding.sentence


def test_switch_that_no_pause_stops_is_named_without_drops() -> None:
    lanes = {
        "pfc_tx": {("spine0/0", 3): 20.0},
        "queue_paused_ns": {},
        "queue_packets": {("leaf0/2", 3): 5_000.0},
        "group_dropped_packets": {},
    }
    result = lossless_drops.look(evidence_of(LEAVES, lanes=lanes))
    assert places(result) == [["leaf0/2"]]
    paused = lanes | {"queue_paused_ns": {("leaf0/2", 3): 1_000.0}}
    assert not lossless_drops.look(evidence_of(LEAVES, lanes=paused)).findings


def test_pauses_are_not_exercised_without_any() -> None:
    lanes: dict[str, Any] = {"pfc_tx": {}, "group_dropped_packets": {}}
    result = lossless_drops.look(evidence_of(lanes=lanes))
    assert outcome(result, FindingKind.PFC_IGNORED) == "not_exercised"


def test_headroom_pool_that_ends_before_a_group_is_full_is_small() -> None:
    lanes = overrun(40_000.0) | {"group_headroom_watermark_bytes": {("switch/0", 3): 9_000.0}}
    result = lossless_drops.look(evidence_of(lanes=lanes))
    assert [finding.kind for finding in result.findings] == [FindingKind.HEADROOM_SMALL]


@pytest.mark.parametrize(("alpha", "used_bytes", "count"), [("1/16", 200_000.0, 1), ("1", 2_090_000.0, 0)])
def test_pauses_with_a_free_buffer_are_of_the_threshold(alpha: str, used_bytes: float, count: int) -> None:
    text = STAR[:-1] + f", switch: {{groups: {{3: {{alpha: {alpha}}}}}}}}}"
    lanes = {"pfc_tx": {("switch/0", 3): 90.0}, "group_shared_watermark_bytes": {("switch/0", 3): used_bytes}}
    findings = buffer_share_small.look(evidence_of(text, lanes=lanes)).findings
    assert len(findings) == count
    assert all("alpha of group 3 is 0.0625" in finding.sentence for finding in findings)
