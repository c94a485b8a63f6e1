"""What a card was asked for is not taken for a property of the card."""

from dataclasses import replace
from random import Random

import pytest
import yaml

from etloop.dut_profiles.model.profile import CongestionParameter, DutProfile
from etloop.dut_profiles.model.stated import Claim, Stated
from etloop.dut_profiles.reading.catalogue import find_profile
from etloop.experiments.nic.battery import BY_NAME
from etloop.experiments.nic.cards.model import NicModel
from etloop.experiments.nic.cards.simulated import SimulatedNic
from etloop.experiments.nic.comparison import Agreement, compare_with_stated
from etloop.experiments.nic.document import EXPERIMENT_SCHEMA, PROFILE_SCHEMA, ExperimentRecord, NicProfile
from etloop.experiments.nic.dut_profile import dut_profile_text
from etloop.experiments.nic.link.asked import compare_with_requests, own_value
from etloop.experiments.nic.link.figures import Figure, word
from etloop.experiments.nic.link.probe import Probe

EXACT = NicModel(jitter=0.0)


def profile(model: NicModel, *names: str) -> NicProfile:
    card = SimulatedNic(model, Random(1))
    probe = Probe(card, card)
    records = []
    for name in names:
        figures = tuple(one for one in BY_NAME[name].run(probe) if isinstance(one, Figure))
        records.append(
            ExperimentRecord(EXPERIMENT_SCHEMA, name, "a card", figures, (), "", "2026-01-01", 0, 0, 0)
        )
    return NicProfile(PROFILE_SCHEMA, "a card", 100, None, tuple(records))


@pytest.mark.parametrize(
    ("tried", "expected"),
    [
        ([(26, [26, 26]), (10, [10])], "as asked"),
        ([(26, [0, 0]), (10, [0])], "changed by the card: always 0"),
        # What is right once may be so by chance.
        ([(26, [26]), (10, [26])], "changed by the card: always 26"),
        ([(26, [24]), (10, [8])], "changed by the card: 26 as 24, 10 as 8"),
        ([(26, [26, 0]), (10, [10])], "changed by the card: 26 as 0 and 26, 10 as 10"),
    ],
)
def test_two_values_tell_a_setting_from_a_property(tried: list[tuple[int, list[int]]], expected: str) -> None:
    assert compare_with_requests("dscp", tried).word == expected


def test_a_value_that_was_not_tried_is_not_known() -> None:
    figure = compare_with_requests("dscp", [(26, [26]), (10, [])])
    assert (figure.samples, figure.word) == (0, "not observed for all of 10 and 26")


def test_own_values_are_those_that_never_change() -> None:
    assert own_value(word("dscp", "changed by the card: always 48")) == 48
    assert own_value(word("dscp", "changed by the card: 26 as 24, 10 as 8")) is None
    assert own_value(word("dscp", "as asked")) is None
    assert own_value(None) is None


def test_a_card_that_does_as_asked_has_no_marks_of_its_own() -> None:
    figures = profile(EXACT, "fingerprint", "timeout", "notifications").figures()
    names = ("dscp", "ecn", "ttl", "timeout_retries", "timeout_code")
    assert [figures[name].word for name in names] == ["as asked"] * 5
    assert figures["cnp_dscp"].value == 48, "which nobody asked for"


def test_a_card_with_a_mind_of_its_own_is_seen_through() -> None:
    model = replace(EXACT, own_dscp=46, own_retries=7, cnp_dscp_follows=True, timeout_ns=5_000_000)
    figures = profile(model, "fingerprint", "timeout").figures()
    assert figures["dscp"].word == "changed by the card: always 46"
    assert figures["ecn"].word == "as asked"
    assert figures["timeout_retries"].word == "changed by the card: always 7"
    assert figures["timeout_code"].word == "changed by the card: shorter than codes 14 and 15 specify"


def test_notifications_that_are_marked_as_their_queue_pair_have_no_dscp_of_their_own() -> None:
    figure = profile(replace(EXACT, cnp_dscp_follows=True), "notifications").figures()["cnp_dscp"]
    assert (figure.value, figure.word) == (None, "that of the queue pair, as asked")


def test_a_profile_for_rigs_has_no_setting_of_ours() -> None:
    names = ("fingerprint", "timeout", "notifications")
    as_asked = yaml.safe_load(dut_profile_text(profile(EXACT, *names)))
    assert as_asked.get("transport", {}).keys() == set()
    own = replace(EXACT, own_dscp=46, timeout_ns=5_000_000)
    transport = yaml.safe_load(dut_profile_text(profile(own, *names)))["transport"]
    assert transport == {"timeout": "5000000ns", "dscp": 46}


def stated() -> DutProfile:
    found = find_profile("connectx-7")
    claim = found.cnp.dscp.best
    assert claim is not None
    transport = replace(
        found.transport,
        dscp=Stated(declared=replace(claim, value=26)),
        timeout_ns=Stated(declared=replace(claim, value=67_108_864)),
    )
    return replace(found, transport=transport)


def test_what_is_as_asked_is_not_compared_with_what_a_maker_states() -> None:
    names = ("fingerprint", "timeout")
    pairs = {one.name: one for one in compare_with_stated(profile(EXACT, *names), stated())}
    assert (pairs["dscp"].agreement, pairs["dscp"].a) == (Agreement.UNKNOWN, "as asked")
    assert pairs["timeout"].agreement is Agreement.UNKNOWN
    own = replace(EXACT, own_dscp=46, timeout_ns=5_000_000)
    pairs = {one.name: one for one in compare_with_stated(profile(own, *names), stated())}
    assert pairs["dscp"].agreement is pairs["timeout"].agreement is Agreement.DIFFERENT


def test_a_stated_parameter_that_cannot_be_parsed_is_shown_and_not_judged() -> None:
    found = find_profile("connectx-7")
    claim = found.cnp.dscp.best
    assert claim is not None
    settings = {"rpg_time_reset": "300us", "rpg_ai_rate": "five a second"}
    parameters = tuple(
        CongestionParameter(name, Stated(declared=Claim(text, claim.source)))
        for name, text in settings.items()
    )
    given = replace(found, congestion=replace(found.congestion, parameters=parameters))
    figures = (
        Figure("cnp_recovery", "ns", 300_000.0, 300_000.0, 300_000.0, "", 1),
        Figure("additive_increase", "bit/s", 5e6, 5e6, 5e6, "", 1),
    )
    record = ExperimentRecord(EXPERIMENT_SCHEMA, "increase", "a card", figures, (), "", "2026-01-01", 0, 0, 0)
    measured = NicProfile(PROFILE_SCHEMA, "a card", 100, None, (record,))
    pairs = {one.name: one for one in compare_with_stated(measured, given)}
    assert pairs["cnp_recovery"].agreement is Agreement.SAME
    assert (pairs["additive_increase"].b, pairs["additive_increase"].agreement) == (
        "five a second", Agreement.UNKNOWN,
    )  # fmt: skip


def test_few_queue_pairs_that_do_not_fill_the_link_are_not_the_limit() -> None:
    figures = profile(replace(EXACT, full_rate_pairs=64, window_packets=2), "queue_pairs").figures()
    at = figures["pairs_at_full_rate"]
    assert (at.value, at.unit, at.word) == (64, "queue pairs", "256 were tried")
    every = profile(EXACT, "queue_pairs").figures()["pairs_at_full_rate"]
    assert (every.value, every.word) == (256, "the most that were tried")
