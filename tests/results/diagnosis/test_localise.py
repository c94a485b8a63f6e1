"""Where packets are lost and which ports are slow, by the records of agents alone."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from etloop.results.diagnosis.evidence import Evidence
from etloop.results.diagnosis.localise import lossy_links, slow_hosts
from etloop.results.diagnosis.rule import Found
from etloop.results.diagnosis.rules.from_agents import look
from tests.results.diagnosis.given_streams import all_pairs, random_links, streams_over, without_ways

ENDS = all_pairs(2)
LINKS = random_links(len(ENDS), 4, 11)
RATE = 0.004


def lossy(crosses: Any, seed: int = 1, rate: float = RATE) -> Evidence:
    """Return evidence in which streams for which `crosses(src, dst, link)` lose packets."""
    random = np.random.default_rng(seed)
    lost = [
        float(random.binomial(1000, rate)) if crosses(src, dst, link) else 0.0
        for (src, dst), link in zip(ENDS, LINKS, strict=True)
    ]
    return streams_over(4, LINKS, ENDS, lost=lost, has_counters=False)


@pytest.mark.parametrize(
    ("crosses", "place"),
    [
        (lambda src, dst, link: src == 2, "h2/p0"),
        (lambda src, dst, link: dst == 5, "leaf1/5"),
        (lambda src, dst, link: src < 4 <= dst and link == 1, "leaf0/1"),
    ],
)
def test_lossy_link_is_named(crosses: Any, place: str) -> None:
    (link,) = lossy_links(lossy(crosses))
    assert place in [candidate.name for candidate in link.places]
    assert link.lost_packets / link.crossed_packets == pytest.approx(RATE, rel=0.6)


def test_links_with_the_same_streams_are_one_answer() -> None:
    # Between two leaves, the uplink and the spine's link to the other leaf carry the same streams.
    (link,) = lossy_links(lossy(lambda src, dst, link: src < 4 <= dst and link == 1))
    assert {place.name for place in link.places} == {"leaf0/1", "spine1/1"}
    (single,) = lossy_links(lossy(lambda src, dst, link: dst == 5))
    assert len(single.places) == 1


def test_two_lossy_links_are_both_named() -> None:
    found = lossy_links(lossy(lambda src, dst, link: src == 1 or dst == 6, rate=0.02))
    assert {link.places[0].name for link in found} == {"h1/p0", "leaf1/6"}


def test_without_ways_leaves_are_named() -> None:
    evidence = without_ways(lossy(lambda src, dst, link: src < 4 <= dst and link == 1, rate=0.02))
    (link,) = lossy_links(evidence)
    assert link.places[0].name == "leaf0"


def test_single_losses_and_equal_rates_name_nothing() -> None:
    lone = [0.0] * len(ENDS)
    lone[5] = 1.0
    assert not lossy_links(streams_over(4, LINKS, ENDS, lost=lone, has_counters=False))
    for seed in range(20):
        assert not lossy_links(lossy(lambda src, dst, link: True, seed))


def test_losses_in_few_streams_are_clustered() -> None:
    lost = [40.0 if dst == 5 and number % 5 == 0 else 0.0 for number, (_, dst) in enumerate(ENDS)]
    evidence = streams_over(4, LINKS, ENDS, lost=lost, has_counters=False)
    (link,) = lossy_links(evidence)
    assert link.is_clustered


def test_device_counters_silence_the_agents() -> None:
    evidence = lossy(lambda src, dst, link: src == 2)
    counted = replace(evidence, ports=replace(evidence.ports, counters={"tx_bytes": np.zeros(1)}))
    assert look(counted) == Found()


def rates(bps_by_source: list[float]) -> Evidence:
    """Return evidence with a series of rates: each host h sends to host h + 1 at its rate, in 40 intervals of 50 us."""
    evidence = streams_over(4, LINKS, ENDS, has_counters=False)
    hosts, steps = len(bps_by_source), 41
    src = np.repeat(np.arange(hosts), steps)
    time_ns = np.tile(np.arange(steps) * 50_000, hosts)
    columns = {
        "src_rank": src,
        "dst_rank": (src + 1) % hosts,
        "local_qpn": src + 100,
        "time_ns": time_ns,
        "acked_bytes": (np.array(bps_by_source)[src] * time_ns / 8e9).astype(np.int64),
    }
    frame = SimpleNamespace(rows=len(src), columns=columns)
    plan = evidence.run.plan
    return replace(evidence, run=cast("Any", SimpleNamespace(frames={"cc": frame}, plan=plan)))


def test_port_below_its_peers_is_slow() -> None:
    found = slow_hosts(rates([95e9] * 3 + [76e9] + [95e9] * 4))
    assert [(host.place.name, host.sends) for host in found] == [("h3/p0", True), ("h4/p0", False)]
    assert found[0].rate_bps == pytest.approx(76e9, rel=0.1)


def test_equal_ports_are_not_slow() -> None:
    assert not slow_hosts(rates([95e9, 94.9e9, 95.1e9, 95e9, 94.8e9, 95e9, 95.2e9, 95e9]))
    assert not slow_hosts(streams_over(4, LINKS, ENDS))
