"""Cards that a seed draws are profiled, and every parameter lies within what is said of it."""

from __future__ import annotations

import functools
from dataclasses import replace
from random import Random
from typing import Final

import pytest

from etloop.experiments.nic.battery import BATTERY, BY_NAME
from etloop.experiments.nic.blind import BlindTrial, blind_trial, truths
from etloop.experiments.nic.cards.model import CnpScope, NicModel, Recovery, drawn_model, parameters
from etloop.experiments.nic.cards.simulated import SimulatedNic
from etloop.experiments.nic.link.figures import Figure
from etloop.experiments.nic.link.probe import NicError, Probe
from etloop.experiments.nic.link.wire import Arrival
from tests.support.first_light.commands import FULL

TRIALS: Final = 500 if FULL else 6
SPARED: Final = TRIALS // 20
"""Draws of 100 of which something may be said wrongly: 5."""
US: Final = 1_000


@functools.cache
def trial_of(seed: int) -> BlindTrial:
    """The trial of a seed, which several tests look at; it takes seconds."""
    return blind_trial(seed)


def probe_of(model: NicModel) -> Probe:
    card = SimulatedNic(model, Random(5))
    return Probe(card, card)


def figures(model: NicModel, name: str) -> dict[str, Figure]:
    found = BY_NAME[name].run(probe_of(model))
    return {one.name: one for one in found if isinstance(one, Figure)}


def test_every_parameter_of_a_drawn_card_is_found_within_its_interval() -> None:
    wrong = {trial.seed: trial.wrong for trial in map(trial_of, range(TRIALS)) if trial.wrong}
    assert len(wrong) <= SPARED, wrong


def test_every_figure_that_is_found_is_declared() -> None:
    """Conditions could name no other."""
    declared = {name: unit for experiment in BATTERY for name, unit in experiment.figures.items()}
    for seed in range(3):
        for figure in trial_of(seed).figures:
            assert declared[figure.name] == figure.unit or not figure.unit, figure


def test_a_trial_can_fail() -> None:
    """A card that is not the one that was profiled is called wrong in what differs."""
    trial = trial_of(3)
    other = replace(trial.model, resend_ns=trial.model.resend_ns * 2, keeps_early=not trial.model.keeps_early)
    by_name = {figure.name: figure for figure in trial.figures}
    said = {
        name for name, truth in truths(other).items() if truth is not None and not by_name[name].holds(truth)
    }
    assert said == {"nak_to_resend", "early_packets"}


def test_the_same_seed_is_the_same_card_and_the_same_answers() -> None:
    assert blind_trial(9) == trial_of(9)
    assert drawn_model(Random(1)) != drawn_model(Random(2))


def test_every_parameter_that_varies_is_one_that_is_looked_for() -> None:
    """A parameter of the model that no experiment asks for would be believed to be known."""
    not_asked = {"line_bps", "jitter", "turnaround_ns"}
    drawn = [drawn_model(Random(seed)) for seed in range(200)]
    for name in set(parameters()) - not_asked:
        changed = [truths(one) for one in drawn]
        assert len({getattr(one, name) for one in drawn}) > 1, name
        assert len({str(each) for each in changed}) > 1, name


@pytest.mark.parametrize(
    ("sentence", "model", "experiment", "name", "word"),
    [
        ("a requester that goes back", NicModel(), "retransmission", "recovery", "go_back_n"),
        (
            "one that sends one packet again",
            NicModel(recovery=Recovery.SELECTIVE),
            "retransmission",
            "recovery",
            "selective_repeat",
        ),
        (
            "NAKs of every early packet",
            NicModel(nak_repeats=True),
            "gap",
            "naks_per_gap",
            "for every early packet",
        ),
        ("early packets that are kept", NicModel(keeps_early=True), "gap", "early_packets", "kept"),
        ("notifications by queue pair", NicModel(), "notifications", "cnp_scope", "queue_pair"),
        ("by port", NicModel(cnp_scope=CnpScope.PORT), "notifications", "cnp_scope", "port"),
        ("by address", NicModel(cnp_scope=CnpScope.ADDRESS), "notifications", "cnp_scope", "address"),
        ("a card that sends none", NicModel(cnp_scope=CnpScope.NONE), "notifications", "cnp_scope", "none"),
        (
            "a message that is smaller than the window",
            NicModel(window_packets=4096),
            "window",
            "unacknowledged_window",
            "more than 2048 packets",
        ),
        (
            "a card that ignores notifications",
            NicModel(cnp_cut=0.0),
            "rate_cut",
            "cnp_recovery",
            "its rate did not change",
        ),
        (
            "one that does not climb while we look",
            NicModel(cnp_recovery_ns=9_000 * US),
            "rate_cut",
            "cnp_recovery",
            "it did not rise within 2 ms",
        ),
        (
            "an interval that is too short to be seen",
            NicModel(cnp_interval_ns=2 * US),
            "notifications",
            "cnp_interval",
            "one for every marked packet within the resolution",
        ),
        (
            "one that stays at the rate of before",
            NicModel(additive_bps=0),
            "increase",
            "additive_increase",
            "the rate does not exceed the rate before the CNPs, or not for long enough to be measured",
        ),
        (
            "one that notifications hardly slow",
            NicModel(cnp_cut=0.1, alpha_half_ns=20 * US),
            "increase",
            "hyper_increase",
            "64 notifications leave more than 1/4 of its rate",
        ),
        ("what is damaged", NicModel(), "refusals", "damaged_packet", "dropped in silence"),
        ("PSNs that wrap", NicModel(), "refusals", "psn_wrap", "passes"),
    ],
)
def test_what_a_card_does_in_words(
    sentence: str, model: NicModel, experiment: str, name: str, word: str
) -> None:
    assert figures(model, experiment)[name].word == word, sentence


def test_a_timer_is_told_from_its_growth() -> None:
    found = figures(NicModel(timeout_ns=20_000 * US, timeout_growth=2.0), "timeout")
    assert found["timeout"].holds(20_000 * US)
    assert found["timeout_growth"].holds(2.0)
    assert not found["timeout_growth"].holds(1.0)
    assert found["after_retries"].word == "error"


class StallingNic(SimulatedNic):
    """A card that stands still for 20 ms before one of its packets, as a virtual machine does on a busy host."""

    def __init__(self, model: NicModel, before: int) -> None:
        super().__init__(model, Random(5))
        self._until_stall = before

    def receive(self, until_ns: int) -> Arrival | None:
        if self._until_stall == 0:
            self._time.put_off(20_000 * US)
        self._until_stall -= 1
        return super().receive(until_ns)


def test_a_card_that_stands_still_has_not_come_to_the_end_of_its_window() -> None:
    card = StallingNic(NicModel(window_packets=128), before=78)
    found = {one.name: one for one in BY_NAME["window"].run(Probe(card, card)) if isinstance(one, Figure)}
    assert found["unacknowledged_window"].holds(128)


def test_a_latency_below_the_floor_reaches_down_to_nothing() -> None:
    """What the card does and what the way takes cannot be told from each other."""
    found = figures(NicModel(nak_ns=300, turnaround_ns=300), "gap")["gap_to_nak"]
    assert found.low == 0
    assert found.holds(300)


def test_a_card_that_answers_nothing_is_said_to() -> None:
    probe = probe_of(replace(NicModel(), requests_per_ack=1, turnaround_ns=10**11))
    with pytest.raises(NicError, match="the card does not answer: no ACK of 16 writes"):
        probe.floor_ns()


def test_every_experiment_says_what_it_does() -> None:
    assert [one.name for one in BATTERY] == list(BY_NAME)
    assert all(one.provokes and one.reads and one.clause for one in BATTERY)
