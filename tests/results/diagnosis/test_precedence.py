"""Which findings are effects of others, their order and their number."""

from __future__ import annotations

from typing import Any

import pytest

from etloop.results.diagnosis.precedence import MOST_FINDINGS, SYMPTOMS, explains_there, mark_effects
from etloop.results.schema.findings import FindingKind as Kind
from etloop.results.schema.findings import Place, PlaceKind
from tests.results.diagnosis.given import evidence, finding, rate

WAYS = (
    ("a/p0", "c/p0", ("leaf0/0", "spine/1", "leaf1/1")),
    ("b/p0", "a/p0", ("leaf0/1",)),
)
LEAF0 = Place(PlaceKind.SWITCH, "leaf0")


@pytest.mark.parametrize(
    ("cause", "effect"),
    [
        pytest.param(
            finding(Kind.DAMAGED_LINK, "leaf0/1"), finding(Kind.LOSSY_LINK, "leaf0/1"), id="same port"
        ),
        pytest.param(
            finding(Kind.DAMAGED_LINK, "leaf0/0"), finding(Kind.SLOW_LINK, "spine/0"), id="same cable"
        ),
        pytest.param(
            finding(Kind.LINK_FLAP, "leaf0/1"),
            finding(Kind.SLOW_LINK, Place(PlaceKind.HOST, "a/p0")),
            id="host of the port",
        ),
        pytest.param(
            finding(Kind.DATA_CLASS, LEAF0),
            finding(Kind.ECN_OFF, Place(PlaceKind.QUEUE, "leaf0/2", number=3)),
            id="queue of the switch",
        ),
        pytest.param(
            finding(Kind.SLOW_LINK, "leaf1/1"), finding(Kind.VICTIM, "leaf0/0"), id="port on the way"
        ),
        pytest.param(
            finding(Kind.SLOW_LINK, "leaf0/1"),
            finding(Kind.BUFFER_DROPS, "leaf0/1"),
            id="symptom of a later kind",
        ),
        pytest.param(
            finding(Kind.PFC_STORM, "leaf1/1"),
            finding(Kind.STRAGGLER, Place(PlaceKind.RANK, "0")),
            id="rank of a flow",
        ),
        pytest.param(
            finding(Kind.PFC_DEADLOCK, "leaf0/0"),
            finding(Kind.LOSSY_LINK, Place(PlaceKind.HOST, "a/p0")),
            id="packets that a deadlock holds",
        ),
        pytest.param(
            finding(Kind.PLACEMENT, Place(PlaceKind.JOB, "mapping")),
            finding(Kind.JOB_INCAST, "spine/1", share=0.9),
            id="placement, between switches",
        ),
    ],
)
def test_effect_follows_its_cause(cause: Any, effect: Any) -> None:
    first, second = mark_effects((effect, cause), evidence(ways=WAYS))
    assert (first.kind, first.effect_of) == (cause.kind, None)
    assert (second.kind, second.effect_of) == (effect.kind, 0)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        pytest.param(
            finding(Kind.LOSSY_LINK, "leaf0/1"),
            finding(Kind.SLOW_LINK, "leaf0/2"),
            id="other port of a switch",
        ),
        pytest.param(
            finding(Kind.SLOW_LINK, "leaf0/1"), finding(Kind.ECN_OFF, "leaf0/1"), id="configuration"
        ),
        pytest.param(
            finding(Kind.SLOW_LINK, "leaf0/2"), finding(Kind.VICTIM, "leaf1/2"), id="no flow in common"
        ),
        pytest.param(
            finding(Kind.LOSSY_LINK, "leaf0/0"), finding(Kind.SLOW_LINK, "leaf1/1"), id="loss slows no port"
        ),
        pytest.param(
            finding(Kind.PLACEMENT, Place(PlaceKind.JOB, "mapping")),
            finding(Kind.JOB_INCAST, "leaf0/1"),
            id="placement, at a host",
        ),
    ],
)
def test_independent_findings_are_causes_by_precedence(earlier: Any, later: Any) -> None:
    result = mark_effects((later, earlier), evidence(ways=WAYS))
    assert [(row.kind, row.effect_of) for row in result] == [(earlier.kind, None), (later.kind, None)]


def test_late_emulator_is_listed_between_what_counters_prove_and_what_rests_on_times() -> None:
    late = finding(Kind.EMULATOR_LATE, Place(PlaceKind.HOST, "a/p0"))
    slow, damaged = finding(Kind.SLOW_LINK, "leaf1/1"), finding(Kind.DAMAGED_LINK, "leaf0/2")
    off = finding(Kind.ECN_OFF, "leaf0/1")
    drained = finding(Kind.SLOW_LINK, "leaf1/2", evidence=(rate(50e9, 100e9),))
    result = mark_effects((slow, late, off, drained, damaged), evidence(ways=WAYS))
    assert [(row.kind, row.places[0].name) for row in result] == [
        (Kind.DAMAGED_LINK, "leaf0/2"),
        (Kind.SLOW_LINK, "leaf1/2"),
        (Kind.ECN_OFF, "leaf0/1"),
        (Kind.EMULATOR_LATE, "a/p0"),
        (Kind.SLOW_LINK, "leaf1/1"),
    ]


def test_late_emulator_damages_no_packets_at_its_own_port() -> None:
    late = finding(Kind.EMULATOR_LATE, Place(PlaceKind.HOST, "c/p0"))
    result = mark_effects((late, finding(Kind.DAMAGED_LINK, "leaf1/1")), evidence(ways=WAYS))
    assert [(row.kind, row.effect_of) for row in result] == [
        (Kind.DAMAGED_LINK, None),
        (Kind.EMULATOR_LATE, None),
    ]


def test_effect_of_an_effect_names_the_first_cause() -> None:
    rows = (
        finding(Kind.VICTIM, "leaf0/0"),
        finding(Kind.SLOW_LINK, "leaf1/1"),
        finding(Kind.LINK_FLAP, Place(PlaceKind.HOST, "c/p0")),
    )
    result = mark_effects(rows, evidence(ways=WAYS))
    assert [(row.kind, row.effect_of) for row in result] == [
        (Kind.LINK_FLAP, None),
        (Kind.SLOW_LINK, 0),
        (Kind.VICTIM, 0),
    ]


def test_explanations_have_no_cycle() -> None:
    for kind in Kind:
        for other in Kind:
            assert not (explains_there(kind, other) and explains_there(other, kind)), (kind, other)
    assert not any(explains_there(kind, Kind.SLOW_LINK) for kind in SYMPTOMS)


def test_slower_port_that_was_busy_longer_comes_first() -> None:
    full, half = [(0, 9), (500_000, 9), (1_000_000, 9)], [(0, 9), (500_000, 9), (1_000_000, 0)]
    rows = (
        finding(Kind.SLOW_LINK, "leaf0/1", evidence=(rate(50e9, 100e9),)),
        finding(Kind.SLOW_LINK, "leaf0/2", evidence=(rate(60e9, 100e9),)),
    )
    result = mark_effects(rows, evidence(samples={"leaf0/1": half, "leaf0/2": full}))
    assert [row.places[0].name for row in result] == ["leaf0/2", "leaf0/1"]
    assert [row.share for row in result] == pytest.approx([0.4, 0.25])


def test_findings_of_the_job_are_ranked_by_share() -> None:
    rows = (
        finding(Kind.UNEVEN_LINKS, "leaf0/0", share=0.1),
        finding(Kind.STRAGGLER, Place(PlaceKind.RANK, "0"), share=0.4),
        finding(Kind.REORDERING, "leaf1/2"),
    )
    result = mark_effects(rows, evidence())
    assert [row.kind for row in result] == [Kind.REORDERING, Kind.STRAGGLER, Kind.UNEVEN_LINKS]


def test_storm_costs_the_time_of_its_pause() -> None:
    rows = (finding(Kind.PFC_STORM, Place(PlaceKind.HOST, "a/p0")),)
    paused = {"queue_paused_ns": {"leaf0/1": 900_000.0}}
    given = evidence(samples={"leaf0/1": [(0, 0), (1_000_000, 0)]}, queue_counters=paused)
    assert mark_effects(rows, given)[0].share == pytest.approx(0.9)


def test_rest_of_a_kind_becomes_one_finding_and_no_kind_is_lost() -> None:
    ports = [f"leaf0/{number}" for number in range(40)]
    rows = (
        *(finding(Kind.LOSSY_LINK, port) for port in ports),
        finding(Kind.ECN_OFF, Place(PlaceKind.SWITCH, "spine")),
        *(finding(Kind.SLOW_LINK, port) for port in ports[:2]),
    )
    result = mark_effects(rows, evidence())
    kinds = [row.kind for row in result]
    assert len(result) <= MOST_FINDINGS + 1
    assert kinds.count(Kind.ECN_OFF) == 1
    merged = next(row for row in result if len(row.places) > 1)
    assert len({place.name for row in result if row.kind is Kind.LOSSY_LINK for place in row.places}) == 40
    assert merged.sentence == (
        f"{len(merged.places)} more findings of lossy_link: "
        + ", ".join(str(place) for place in merged.places[:4])
        + f" and {len(merged.places) - 4} more"
    )
    assert all(
        result[row.effect_of or 0].kind is Kind.LOSSY_LINK for row in result if row.kind is Kind.SLOW_LINK
    )
