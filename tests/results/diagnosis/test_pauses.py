"""Causes of pauses: cycles, hosts, incasts, and the flows that they hold up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from etloop.results.diagnosis.pause_graph import ended_paused, pause_graph
from etloop.results.diagnosis.rules.pauses import look
from etloop.results.schema.findings import Examined, FindingKind
from tests.results.diagnosis.given_readings import Readings, at_rate, held, ports_with

STEPS = 200
PAUSES = [1.0] * STEPS
QUIET = [0.0] * STEPS
RING = {
    **{f"r{number}/0": f"r{(number + 1) % 4}/1" for number in range(4)},
    **{f"r{number}/1": f"r{(number - 1) % 4}/0" for number in range(4)},
    **{f"r{number}/2": f"h{number}/p0" for number in range(4)},
}
TWO_LEAVES = {
    "leaf0/0": "spine/0",
    "leaf0/1": "a/p0",
    "leaf0/2": "b/p0",
    "leaf1/0": "spine/1",
    "leaf1/1": "c/p0",
    "leaf1/2": "d/p0",
    "spine/0": "leaf0/0",
    "spine/1": "leaf1/0",
}


def pausing(steps: int = STEPS) -> Readings:
    """Return the readings of a port that sends nothing, and pauses its other end."""
    return Readings([0.0] * steps, [0.0] * (steps + 1), sent_pauses=[1.0] * steps)


def ring(stuck: int = 4, **changes: Any) -> dict[str, Readings]:
    """Return readings of a ring in which the first queues are held, each by the group of the next switch."""
    queues = {f"r{number}/0": held(STEPS, **changes) for number in range(stuck)}
    return queues | {f"r{(number + 1) % 4}/1": pausing() for number in range(stuck)}


def of_kind(found: Any, kind: FindingKind) -> Any:
    return [finding for finding in found.findings if finding.kind is kind]


def test_queues_that_wait_for_each_other_are_a_deadlock() -> None:
    (finding,) = of_kind(look(ports_with(RING, ring())), FindingKind.PFC_DEADLOCK)
    assert [place.name for place in finding.places] == ["r0/0", "r1/0", "r2/0", "r3/0"]
    assert "r0/0 > r1/0 > r2/0 > r3/0 > r0/0 wait for each other in priority 3" in finding.sentence
    assert finding.confidence == 1.0


def test_chain_of_held_queues_is_no_deadlock() -> None:
    assert pause_graph(ports_with(RING, ring(stuck=3))).cycles == ()


def test_deadlock_that_resolves_is_transient() -> None:
    moving = [0.0] * 150 + [20.0] * 50
    paused = [1.0] * 150 + [0.0] * 50
    (cycle,) = pause_graph(ports_with(RING, ring(frames=moving, paused=paused))).cycles
    assert cycle.is_resolved
    assert cycle.end_ns - cycle.start_ns == 150 * 10_000


def test_short_pause_around_a_ring_is_no_deadlock() -> None:
    # 400 kB need 32 us at 100 Gb/s; 20 us are less than it takes to send them twice.
    paused = [1.0] * 2 + [0.0] * 198
    frames = [0.0] * 2 + [20.0] * 198
    assert pause_graph(ports_with(RING, ring(frames=frames, paused=paused))).cycles == ()


def test_packets_that_came_down_do_not_go_up_again() -> None:
    # Every queue between the switches is held; without ways, up-down routing alone excludes a cycle.
    names = ("leaf0/0", "spine/1", "leaf1/0", "spine/0")
    queues = {name: held(STEPS, sent_pauses=PAUSES) for name in names}
    assert pause_graph(ports_with(TWO_LEAVES, queues)).cycles == ()


def incast(rate: float = 100.0, **changes: Any) -> dict[str, Readings]:
    """Return readings of an incast of b, c and d to a, which drains at a rate and pauses all the way back."""
    return {
        "leaf0/1": at_rate(rate, STEPS),
        "spine/0": held(STEPS, **changes),
        "leaf0/0": pausing(),
        "leaf0/2": pausing(),
        "spine/1": pausing(),
        "leaf1/0": held(STEPS),
        "leaf1/1": pausing(),
        "leaf1/2": pausing(),
    }


INTO_A = [
    ("b/p0", "a/p0", 8e6, ("leaf0/1",)),
    ("c/p0", "a/p0", 8e6, ("leaf1/0", "spine/0", "leaf0/1")),
    ("d/p0", "a/p0", 8e6, ("leaf1/0", "spine/0", "leaf0/1")),
]
PAST_A = ("c/p0", "b/p0", 1e6, ("leaf1/0", "spine/0", "leaf0/2"))
COUNTED = {
    "queue_watermark_bytes": dict[str, Any].fromkeys(("leaf0/1", "leaf0/0", "leaf1/0", "spine/0"), 1.0)
}


@pytest.mark.parametrize("knows_ways", [True, False])
def test_pauses_end_at_the_queue_that_causes_them(knows_ways: Any) -> None:
    flows = INTO_A if knows_ways else [(*flow[:3], ()) for flow in INTO_A]
    (sink,) = pause_graph(ports_with(TWO_LEAVES, incast(), flows=flows, counters=COUNTED)).sinks
    assert sink.lane == list(TWO_LEAVES).index("leaf0/1")
    assert sink.queues == {list(TWO_LEAVES).index(name) for name in ("leaf1/0", "spine/0")}
    assert sink.hosts == {1, 2, 3}


def test_sink_at_its_full_rate_is_the_jobs_own_incast() -> None:
    found = look(ports_with(TWO_LEAVES, incast(), flows=INTO_A, counters=COUNTED))
    (finding,) = of_kind(found, FindingKind.JOB_INCAST)
    assert (finding.places[0].name, finding.places[0].peer) == ("leaf0/1", "a/p0")
    assert {fact.name: fact.value for fact in finding.evidence} == {
        "senders": 3.0,
        "flows": 3.0,
        "planned_ns": 1_920_000.0,
        "paused_ns": 2_000_000.0,
    }
    assert found.findings == (finding,)


def test_sink_below_its_rate_is_no_incast() -> None:
    slow = ports_with(TWO_LEAVES, incast(60.0), flows=INTO_A, counters=COUNTED, gbps={"leaf0/1": 60.0})
    assert of_kind(look(slow), FindingKind.JOB_INCAST) == []


def test_flow_that_waits_for_the_destination_of_others_is_a_victim() -> None:
    found = look(ports_with(TWO_LEAVES, incast(), flows=[*INTO_A, PAST_A], counters=COUNTED))
    (finding,) = of_kind(found, FindingKind.VICTIM)
    assert [(place.name, place.peer) for place in finding.places] == [("2", "1")]


def test_queue_held_by_its_host_is_a_storm() -> None:
    storm = {"leaf0/1": held(STEPS), "leaf0/0": pausing(), "spine/0": held(STEPS)}
    found = look(ports_with(TWO_LEAVES, storm, flows=INTO_A))
    (finding,) = of_kind(found, FindingKind.PFC_STORM)
    assert "leaf0/1 (to a/p0) is held by its host for 100 % of the run" in finding.sentence
    assert of_kind(found, FindingKind.JOB_INCAST) == []


def test_host_that_pauses_with_breaks_is_a_slow_receiver() -> None:
    half = Readings([5.0] * STEPS, [400_000] * (STEPS + 1), [0.5] * STEPS)
    (finding,) = of_kind(look(ports_with(TWO_LEAVES, {"leaf0/1": half})), FindingKind.PFC_STORM)
    assert "slow receiver" in finding.sentence
    assert finding.confidence < 1


def test_storm_that_begins_late_has_no_break() -> None:
    late = Readings([5.0] * 100 + [0.0] * 100, [400_000] * (STEPS + 1), [0.0] * 100 + [1.0] * 100)
    (finding,) = of_kind(look(ports_with(TWO_LEAVES, {"leaf0/1": late})), FindingKind.PFC_STORM)
    assert "50 % of the run, without a break" in finding.sentence


def test_watchdogs_of_a_deadlock_are_one_finding_with_its_cycle() -> None:
    counters = {
        "queue_watchdog_dropped_packets": {"r0/0": 5.0, "r2/0": 7.0},
        "queue_watchdog_storms": {"r0/0": 1.0},
    }
    (finding,) = of_kind(look(ports_with(RING, ring(), counters=counters)), FindingKind.PFC_WATCHDOG)
    assert [place.name for place in finding.places] == ["r2/0", "r0/0"]
    assert "dropped 12 packets: r0/0 > r1/0 > r2/0 > r3/0 > r0/0 wait for each other" in finding.sentence


def test_device_without_counters_of_pauses_is_no_evidence() -> None:
    evidence = ports_with(TWO_LEAVES, {"leaf0/1": at_rate(100)})
    evidence = replace(evidence, lanes=replace(evidence.lanes, counters={}))
    assert {row.outcome for row in look(evidence).examinations} == {Examined.NO_EVIDENCE}


def test_network_without_pauses_is_clear() -> None:
    found = look(ports_with(TWO_LEAVES, {"leaf0/1": at_rate(50)}))
    assert found.findings == ()
    assert {row.outcome for row in found.examinations} == {Examined.CLEAR}


def test_run_that_ended_while_pauses_held_packets_is_known() -> None:
    stuck = ports_with(RING, ring())
    assert not ended_paused(stuck)
    assert ended_paused(replace(stuck, duration_ns=0))


def test_pauses_counted_in_frames_alone_hold_a_queue() -> None:
    evidence = ports_with(RING, ring())
    values = dict(evidence.samples.values)
    values["paused_ns"] = np.full(len(values["paused_ns"]), np.nan)
    unknown = replace(evidence, samples=replace(evidence.samples, values=values))
    assert len(pause_graph(unknown).cycles) == 1
