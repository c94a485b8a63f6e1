"""Conditions on a card: true and false only where its figures leave no doubt, and what cannot be read is refused at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from etloop.cli import main
from etloop.contract.base.errors import ConfigError
from etloop.experiments.nic.battery import BATTERY
from etloop.experiments.nic.conditions import evaluate_conditions, result_of
from etloop.experiments.nic.document import EXPERIMENT_SCHEMA, PROFILE_SCHEMA, ExperimentRecord, NicProfile
from etloop.experiments.nic.link.figures import Figure, count, unseen, word
from etloop.results.schema.verdict import RequestedCondition, Result

FIGURES = (
    Figure("nak_to_resend", "ns", 50e3, 40e3, 60e3, "", 15),
    Figure("gap_to_nak", "ns", 5e3, 0.0, 8e3, "", 15),
    Figure("rate_of_most_pairs", "bit/s", 90e9, 89e9, 91e9, "", 9),
    word("recovery", "selective_repeat"),
    word("ack_request_every", "none within 48 packets"),
    count("fast_recovery_raises", 7, "count"),
    unseen("cnp_interval", "ns", "no CNP for 600 marked packets"),
)


def profile() -> NicProfile:
    one = ExperimentRecord(EXPERIMENT_SCHEMA, "all", "a card", FIGURES, (), "", "2026-11-24", 1, 1, 1)
    return NicProfile(PROFILE_SCHEMA, "a card", 100, 2_000, (one,))


def asked(*expressions: str) -> tuple[RequestedCondition, ...]:
    return tuple(RequestedCondition(text, "", f"c.yaml:{number}") for number, text in enumerate(expressions))


@pytest.mark.parametrize(
    ("expression", "result", "sentence"),
    [
        ("nak_to_resend <= 60us", Result.PASS, "all of its interval holds"),
        ("nak_to_resend < 40us", Result.FAIL, "none of it does"),
        ("nak_to_resend <= 50us", Result.INCONCLUSIVE, "the limit is within the interval"),
        ("nak_to_resend > gap_to_nak", Result.PASS, "whatever both are"),
        ("nak_to_resend > 6 * gap_to_nak", Result.INCONCLUSIVE, "40 us against 48 us at the worst"),
        ('recovery == "selective_repeat"', Result.PASS, "a word"),
        ('recovery == "go_back_n"', Result.FAIL, "another"),
        ("cnp_interval <= 4us", Result.INCONCLUSIVE, "was not seen"),
        ("rnr_factor <= 2", Result.INCONCLUSIVE, "was not asked"),
        ("cnp_interval <= 4us and fast_recovery_raises == 5", Result.FAIL, "one part fails whatever the other is"),
        ("ack_request_every <= 64", Result.INCONCLUSIVE, "a word where a number is wanted says why there is none"),
        ("rate_of_most_pairs >= 80Gbps", Result.PASS, "a rate in the units of rates"),
    ],
)  # fmt: skip
def test_what_becomes_of_a_condition(expression: str, result: Result, sentence: str) -> None:
    assert evaluate_conditions(profile(), asked(expression))[0].result is result, sentence


def test_the_worst_decides() -> None:
    held, open_, broken = evaluate_conditions(
        profile(), asked("fast_recovery_raises == 7", "rnr_factor <= 2", "fast_recovery_raises == 6")
    )
    assert result_of((held,)) is Result.PASS
    assert result_of((held, open_)) is Result.INCONCLUSIVE
    assert result_of((held, open_, broken)) is Result.FAIL
    assert broken.found == "fast_recovery_raises: 7 count"


def test_all_that_cannot_be_read_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        evaluate_conditions(
            profile(), asked("nak_to_resent <= 1us", "timeout <= 5", "fast_recovery_raises == 7")
        )
    first, second = caught.value.problems
    assert first.where == "c.yaml:0"
    assert "nak_to_resent" in first.what
    assert "nak_to_resend" in first.remedy
    assert second.where == "c.yaml:1"


def test_too_many_figures_in_one_condition_are_refused() -> None:
    names = " + ".join(name for one in BATTERY for name, unit in one.figures.items() if unit == "ns")
    with pytest.raises(ConfigError, match="name at most 6"):
        evaluate_conditions(profile(), asked(f"{names} < 1s"))


@pytest.mark.parametrize(
    ("limit", "code", "said"),
    [("1s", 0, "PASS"), ("1us", 30, "FAIL"), ("10us", 20, "INCONCLUSIVE")],
)
def test_the_command_judges_shows_and_ends_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], limit: str, code: int, said: str
) -> None:
    asked_for = tmp_path / "conditions.yaml"
    asked_for.write_text(f"verdict: {{checks: [{{check: nak_to_resend <= {limit}, why: as bought}}]}}\n")
    card = tmp_path / "card.yaml"
    card.write_text("resend: 10us\n")
    out = tmp_path / "out"
    words = (
        "--simulated",
        str(card),
        "--out",
        str(out),
        "--only",
        "retransmission",
        "--conditions",
        str(asked_for),
    )
    assert main.main(("nic", "profile", *words)) == code
    printed = capsys.readouterr().out
    assert f"verdict      {said}" in " ".join(printed.split("\n")).replace(
        "verdict         ", "verdict      "
    )
    page = (out / "nic.html").read_text()
    assert "as bought" in page
    assert "Time from a NAK to the first retransmission" in page


def test_a_condition_that_cannot_be_read_ends_before_the_battery(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked_for = tmp_path / "conditions.yaml"
    asked_for.write_text("verdict: {checks: [{check: nak_to_resend <= 5}]}\n")
    words = ("--simulated", "7", "--out", str(tmp_path / "out"), "--conditions", str(asked_for))
    assert main.main(("nic", "profile", *words)) == 65
    assert "a time" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_two_measured_cards_stand_next_to_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, resend in (("a", "10us"), ("b", "10ms")):
        (tmp_path / f"{name}.yaml").write_text(f"resend: {resend}\n")
        words = ("--simulated", str(tmp_path / f"{name}.yaml"), "--only", "retransmission")
        assert main.main(("nic", "profile", "--out", str(tmp_path / name), *words)) == 0
    capsys.readouterr()
    shown = ("nic", "show", str(tmp_path / "a"), "--beside", str(tmp_path / "b"), "--beside", "connectx-7")
    assert main.main(shown) == 0
    printed = capsys.readouterr().out
    assert "modelled card of b.yaml" in printed
    assert "connectx-7, as stated" in printed
    assert "modelled card of b.yaml" in (tmp_path / "a" / "nic.html").read_text()
