"""Intervals of a comparison: shown only where they say something, and what of a regression our own doing can explain."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Final

import pytest

from etloop.results.compare.change import change_text
from etloop.results.compare.compare import compare_runs
from etloop.results.compare.samples import Side
from etloop.results.html.compare import comparison_html
from etloop.results.schema.comparison import Outcome
from etloop.results.schema.typed_json import to_json
from etloop.results.text.compare import render_comparison
from tests.results.compare.test_compare_runs import SETTINGS, run, side


def paired(*jct_ms: tuple[float, float]) -> tuple[Side, Side]:
    repeats = tuple(f"r{number:03d}" for number in range(len(jct_ms)))
    ours = replace(side("A", *(run(one, spread=0.01) for one, _ in jct_ms)), repeats=repeats)
    theirs = replace(side("B", *(run(other, spread=0.01) for _, other in jct_ms)), repeats=repeats)
    return ours, theirs


@pytest.mark.parametrize(
    ("jct_ms", "many"),
    [
        (((10.0, 10.4), (10.0, 400.0)), "2 pairs"),
        (((10.0, 10.4), (10.0, 400.0), (10.0, 0.3)), "3 pairs"),
    ],
)
def test_no_form_of_a_comparison_shows_an_interval_that_says_nothing(
    jct_ms: tuple[tuple[float, float], ...], many: str
) -> None:
    ours, theirs = paired(*jct_ms)
    found = compare_runs(ours, theirs, replace(SETTINGS, paired=True))
    first = found.metrics[0]
    assert (first.low, first.high) == (None, None)
    assert first.open_words.startswith(f"inconclusive: {many}, ")
    text, page, data = render_comparison(found), comparison_html(found, ours, theirs), to_json(found)
    assert first.open_words in text
    assert first.open_words in page
    assert '"low": null' in data
    assert " .. " not in next(line for line in text.splitlines() if line.startswith("jct"))
    assert max(map(len, text.splitlines())) <= 200
    # Colours have an e and digits, too.
    for form in (text, re.sub(r"<style.*?</style>", "", page, flags=re.DOTALL), data):
        assert not re.search(r"[0-9]e[+-]?[0-9]{3}", form)
        assert not re.search(r"[0-9]{12}", re.sub(r"[0-9]+\.[0-9]+", "", form))
    assert any(reason.startswith("jct: ") for reason in found.reasons)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (0.5, "+50.0%"),
        (-0.25, "-25.0%"),
        (99.0, "+9900.0%"),
        (255.0, "x 256"),
        (8.8e90, "x 8.8e+90"),
        (math.inf, "x more than 1e+99"),
        (1e120, "x more than 1e+99"),
    ],
)
def test_a_change_is_short_however_large(change: float, words: str) -> None:
    assert change_text(change, 1) == words


DROPS: Final = {"needless_share": 0.02, "timeouts": 3.0}


@pytest.mark.parametrize(
    ("sentence", "figures", "again_ns", "outcome"),
    [
        ("what our timer sent again explains its own time", DROPS, 0.1e6, Outcome.REGRESSION),
        ("which may be all of it", DROPS, 9e6, Outcome.OPEN),
        ("or has no bound", DROPS, None, Outcome.OPEN),
        ("but not where the device dropped packets", DROPS | {"dut_dropped_packets": 4.0}, None, Outcome.REGRESSION),
        ("lateness that grew by less", {"slip_share": 0.1}, 0.0, Outcome.REGRESSION),
        ("lateness that grew by as much", {"slip_share": 0.6}, 0.0, Outcome.OPEN),
        ("our own losses have no bound", {"own_lost_packets": 1.0}, 0.0, Outcome.OPEN),
    ],
)  # fmt: skip
def test_a_regression_is_doubted_only_by_what_can_explain_it(
    sentence: str, figures: dict[str, float], again_ns: float | None, outcome: Outcome
) -> None:
    ours = side("A", *(run(ms) for ms in (10.0, 10.05, 9.95)))
    theirs = side("B", *(run(ms, figures=figures, again_ns=again_ns) for ms in (18.0, 18.1, 17.9)))
    first = compare_runs(ours, theirs, SETTINGS).metrics[0]
    assert first.outcome is outcome, (sentence, first)
    assert bool(first.doubt) is (outcome is Outcome.OPEN)
