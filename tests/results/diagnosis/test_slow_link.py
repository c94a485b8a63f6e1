"""Ports that drain below their rate, and all that looks alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from etloop.results.diagnosis.drain import drain_of, port_steps
from etloop.results.diagnosis.rules.slow_link import look, slow_ports
from etloop.results.schema.findings import Examined, PlaceKind
from tests.results.diagnosis.given_readings import FRAME_BYTES, Readings, at_rate, ports_with

STAR = {f"sw/{number}": f"h{number}/p0" for number in range(6)}
LEAVES = {
    **{f"leaf{leaf}/{spine}": f"spine{spine}/{leaf}" for leaf in range(4) for spine in range(2)},
    **{f"spine{spine}/{leaf}": f"leaf{leaf}/{spine}" for leaf in range(4) for spine in range(2)},
    **{f"leaf{leaf}/9": f"h{leaf}/p0" for leaf in range(4)},
}


def names_of(found: Any) -> list[str]:
    return [str(finding.places[0]) for finding in found.findings]


@pytest.mark.parametrize("gbps", [95.0, 80.0, 40.0, 7.0])
def test_port_that_drains_below_the_rate_of_the_rig_is_slow(gbps: Any) -> None:
    evidence = ports_with(STAR, {"sw/2": at_rate(gbps), "sw/1": at_rate(100)}, gbps={"sw/2": gbps})
    found = look(evidence)
    assert names_of(found) == ["sw/2 (to h2/p0)"]
    (drained,) = found.findings[0].evidence
    assert drained.value == pytest.approx(gbps * 1e9, rel=0.01)
    assert drained.expected == 100e9


def test_preambles_and_gaps_count_for_the_rate() -> None:
    evidence = ports_with(STAR, {"sw/1": at_rate(100)})
    drain = drain_of(evidence, port_steps(evidence))
    assert drain.bps[1] == pytest.approx(100e9, rel=1e-6)


def test_port_that_may_have_been_idle_shows_no_rate() -> None:
    # The queue empties between readings: all that it held, and more, was sent.
    evidence = ports_with(STAR, {"sw/2": at_rate(60, queued=8_000)})
    assert look(evidence).examinations[0].outcome is Examined.NOT_EXERCISED


def test_paused_port_is_not_slow() -> None:
    evidence = ports_with(STAR, {"sw/2": at_rate(50, paused=0.5), "sw/1": at_rate(100)})
    assert look(evidence).findings == ()


def test_time_without_a_link_is_left_out() -> None:
    busy = at_rate(100)
    frames = [0.0 if 10 <= step < 18 else count for step, count in enumerate(busy.frames)]
    assert look(ports_with(STAR, {"sw/2": Readings(frames, busy.queued)})).findings == ()


def test_readings_at_uncertain_times_widen_the_error() -> None:
    full = at_rate(1).frames[0]
    frames = [full * share for share in (92, 93, 112)]
    evidence = ports_with(STAR, {"sw/2": Readings(frames, [400_000] * 4)})
    assert look(evidence).findings == ()


def test_two_readings_are_too_few() -> None:
    found = look(ports_with(STAR, {"sw/2": at_rate(50, steps=2)}))
    assert found.examinations[0].outcome is Examined.NOT_EXERCISED


def test_short_queue_at_one_rate_for_long_is_slow() -> None:
    # Never more than a step's worth of bytes, so idleness is not excluded by any single reading.
    evidence = ports_with(STAR, {"sw/2": at_rate(80, queued=60_000, steps=60)}, gbps={"sw/2": 80})
    assert names_of(look(evidence)) == ["sw/2 (to h2/p0)"]


def test_greatest_rate_far_below_peers_of_equal_load_is_slow() -> None:
    busy = at_rate(60, queued=60_000, steps=10)
    short = {f"sw/{number}": at_rate(99 + number / 10, queued=0, steps=5) for number in (0, 1, 3, 4, 5)}
    assert slow_ports(ports_with(STAR, {**short, "sw/2": busy})) == {2}
    # Without peers, so short a time is no evidence.
    assert slow_ports(ports_with(STAR, {"sw/2": busy})) == frozenset()


def test_cable_between_switches_is_one_finding_by_its_peers() -> None:
    slow = dict.fromkeys(("leaf1/0", "spine0/1"), 70.0)
    readings = {name: at_rate(70 if name in slow else 100) for name in LEAVES if "/9" not in name}
    found = look(ports_with(LEAVES, readings, gbps=slow))
    assert [finding.places[0].kind for finding in found.findings] == [PlaceKind.LINK]
    assert {found.findings[0].places[0].name, found.findings[0].places[0].peer} == set(slow)


def test_rate_of_all_links_of_a_switch_is_how_the_network_is_built() -> None:
    older = {name: 40.0 for name in LEAVES if "leaf1/" in name + LEAVES[name] and "/9" not in name}
    readings = {name: at_rate(older.get(name, 100.0)) for name in LEAVES}
    assert look(ports_with(LEAVES, readings, gbps=older)).findings == ()


def test_host_below_its_peers_is_slow_even_if_the_rig_has_its_rate() -> None:
    evidence = ports_with(STAR, {"sw/2": at_rate(83)}, gbps={"sw/2": 83}, stated={"h2/p0": 83})
    assert names_of(look(evidence)) == ["sw/2 (to h2/p0)"]


def test_hosts_of_two_stated_speeds_are_not_slow() -> None:
    half = {f"sw/{number}": 50.0 for number in (0, 1)}
    stated = {f"h{number}/p0": 50.0 for number in (0, 1)}
    evidence = ports_with(
        STAR, {name: at_rate(half.get(name, 100.0)) for name in STAR}, gbps=half, stated=stated
    )
    assert look(evidence).findings == ()


def test_clear_states_how_many_ports_showed_their_rate() -> None:
    (examination,) = look(
        ports_with(STAR, {"sw/1": at_rate(100), "sw/2": at_rate(50, queued=0)})
    ).examinations
    assert (examination.outcome, examination.why) == (
        Examined.CLEAR,
        "1 of the 2 ports with traffic showed their rate",
    )


def test_totals_alone_are_no_evidence() -> None:
    evidence = ports_with(STAR, {})
    assert look(evidence).examinations[0].outcome is Examined.NO_EVIDENCE


def test_lanes_of_a_port_share_its_rate() -> None:
    # Two readings of one port at different times are one series of the port.
    evidence = ports_with(STAR, {"sw/1": at_rate(100)})
    steps = port_steps(evidence)
    assert np.all(steps.is_backlogged)
    assert steps.sent_bytes.sum() == pytest.approx(evidence.samples.value("tx_bytes")[-1])
    assert steps.sent_bytes.sum() % FRAME_BYTES == pytest.approx(0, abs=FRAME_BYTES)
