"""What a twin says of links that were down: what became of them, what was lost, and what no way led to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etloop.contract.model.topology import FOREVER_NS, Outage, Routing, SwitchEnd, Topology
from etloop.controller.run.link_notes import link_notes
from etloop.traffic.twin import LinkNews, LinkStep, TwinOutcome, TwinSettings
from tests.support.traffic.twin_by_hand import pairs, star, through, two_tiers

UP0, UP1 = SwitchEnd(0, 2), SwitchEnd(0, 3)
LEAVES = replace(two_tiers(2, 2, 2), routing=Routing(1_000_000, 50_000_000))
NEVER = replace(LEAVES, routing=Routing(1_000_000, FOREVER_NS))
D, N, R, U, A = LinkNews


def run(topology: Topology) -> TwinOutcome:
    return through(pairs(((0, 1),), 4096), topology, TwinSettings(probe_first=False))


def steps(end: SwitchEnd, *news: tuple[LinkNews, int]) -> tuple[LinkStep, ...]:
    return tuple(LinkStep(end, one, at_ns) for one, at_ns in news)


HISTORIES = (
    ("no link was down", LEAVES, (), ()),
    (
        "down and up before anybody noticed",
        LEAVES,
        steps(UP0, (D, 1_000), (U, 2_000)),
        ("link leaf0/up0: down at 1us, up at 2us",),
    ),
    (
        "all of it",
        LEAVES,
        steps(UP0, (D, 0), (N, 1_000_000), (R, 50_000_000), (U, 60_000_000), (A, 110_000_000)),
        (
            "link leaf0/up0: down at 0ns, noticed at 1ms, routed around at 50ms, up at 60ms, used again at 110ms",
        ),
    ),
    (
        "the job was over before",
        LEAVES,
        steps(UP0, (D, 0), (N, 1_000_000)),
        (
            (
                "link leaf0/up0: down at 0ns, noticed at 1ms; the job ended before other switches routed around it "
                "(routing.convergence: 50ms)"
            ),
        ),
    ),
    (
        "up again for less than convergence: it is still routed around",
        LEAVES,
        steps(UP0, (D, 0), (R, 50_000_000), (U, 60_000_000), (D, 61_000_000)),
        ("link leaf0/up0: down at 0ns, routed around at 50ms, up at 60ms, down at 61ms",),
    ),
    (
        "up again, and the job over before all know",
        LEAVES,
        steps(UP0, (D, 0), (N, 1_000_000), (R, 50_000_000), (U, 60_000_000)),
        (
            (
                "link leaf0/up0: down at 0ns, noticed at 1ms, routed around at 50ms, up at 60ms; "
                "the job ended before it was used again"
            ),
        ),
    ),
    (
        "nobody hears of it",
        NEVER,
        steps(UP0, (D, 0), (N, 1_000_000)),
        (
            (
                "link leaf0/up0: down at 0ns, noticed at 1ms; only its own switches take other ways "
                "(routing.convergence: never)"
            ),
        ),
    ),
    (
        "a port of the rig",
        LEAVES,
        steps(SwitchEnd(1, 0), (D, 0), (N, 1_000_000)),
        ("link leaf1/0: down at 0ns, noticed at 1ms; a port of the rig has no other way",),
    ),
    (
        "nothing leads there any more",
        LEAVES,
        steps(UP0, (D, 0), (R, 50_000_000)) + steps(UP1, (D, 5), (R, 50_000_005)),
        (
            "link leaf0/up0: down at 0ns, routed around at 50ms",
            "link leaf0/up1: down at 5ns, routed around at 50000005ns",
            "no route: over the links that were up in the end nothing leads to r/p0, r/p1",
        ),
    ),
)


@pytest.mark.parametrize(
    ("topology", "taken", "notes"), [row[1:] for row in HISTORIES], ids=[row[0] for row in HISTORIES]
)
def test_what_became_of_links(
    topology: Topology, taken: tuple[LinkStep, ...], notes: tuple[str, ...]
) -> None:
    assert link_notes(topology, replace(run(topology), link_steps=taken)) == notes


def test_what_was_lost_is_told_where() -> None:
    outage = Outage(SwitchEnd(0, 0), 0, FOREVER_NS)
    topology = replace(star(2), outages=(outage,), routing=Routing(5_000_000, FOREVER_NS))
    outcome = run(topology)
    assert "no acknowledgement after the last retry" in outcome.failure
    lost = int(outcome.switch_ports[0]["link_dropped_packets"].sum())
    dropped = int(outcome.switch_ports[0]["no_route_packets"].sum())
    assert lost > 0
    assert dropped > 0
    told = f"no route: {dropped} packets were dropped by switches without a route ({dropped} at switch)"
    assert outcome.failure.endswith(f"; {told}")
    assert link_notes(topology, outcome)[1:] == (
        f"{lost} packets were lost at links that were down (link_dropped_packets)",
        told,
    )


def test_many_links_and_many_changes_are_bounded() -> None:
    topology = two_tiers(2, 2, 12)
    outcome = run(topology)
    many = tuple(LinkStep(SwitchEnd(0, 2 + spine), D, spine) for spine in range(11))
    assert link_notes(topology, replace(outcome, link_steps=many))[8:] == (
        "3 more links were down for a time",
    )
    (note,) = link_notes(topology, replace(outcome, link_steps=steps(UP0, *((D, 1), (U, 2)) * 20)))
    assert note.endswith("up at 2ns, and 28 more changes")
