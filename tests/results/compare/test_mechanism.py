"""The network's part of a comparison: counters, ports and findings of hand-written runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from etloop.results.compare.compare import compare_runs
from etloop.results.compare.counts import compare_counts, false_discovery, holm
from etloop.results.compare.mechanism import BLOCK_FIGURES
from etloop.results.compare.objects import DRAIN, Counted, DeviceFigures
from etloop.results.compare.samples import RunSamples, Side, pair_by_draws
from etloop.results.html.compare import comparison_html
from etloop.results.schema.comparison import Comparison, CountRow, Move, Outcome
from etloop.results.schema.findings import Finding, FindingKind, Place, PlaceKind, Role
from etloop.results.text.compare import render_comparison
from tests.results.compare.test_compare_runs import SETTINGS, run, side

DROPS, MARKS = "dut_dropped_packets", "dut_ecn_marked_packets"


def counted(name: str, figure: str, *counts: float) -> Side:
    """Return runs of equal times with these counts of a figure, and none of the others of the block."""
    none = dict.fromkeys(BLOCK_FIGURES, 0.0)
    return side(name, *(run(10.0, figures=none | {figure: count}) for count in counts))


def row(comparison: Comparison, name: str) -> CountRow:
    return next(row for row in comparison.block if row.name == name)


@pytest.mark.parametrize(
    ("before", "after", "move"),
    [
        pytest.param((0,) * 5, (1452, 900, 1100, 40, 700), Move.WORSE, id="drops in every run where there were none"),
        pytest.param((0,) * 5, (3, 2, 4, 1, 2), Move.SAME, id="few in all may be one burst"),
        pytest.param((0,) * 5, (400, 0, 0, 0, 0), Move.SAME, id="one burst"),
        pytest.param((0, 0, 24, 0, 0), (414, 456, 512, 492, 480), Move.WORSE, id="far more than before"),
        pytest.param((300, 310, 320, 280, 290), (414, 456, 512, 492, 480), Move.SAME, id="less than twice as many"),
        pytest.param((414, 456, 512, 492, 480), (0,) * 5, Move.BETTER, id="none any more"),
        pytest.param((0,), (1117,), Move.WORSE, id="one run a side"),
        pytest.param((100,), (300,), Move.SAME, id="one run a side, three times as many"),
    ],
)  # fmt: skip
def test_drops_are_a_finding_where_chance_is_unlikely(
    before: tuple[float, ...], after: tuple[float, ...], move: Move
) -> None:
    comparison = compare_runs(counted("A", DROPS, *before), counted("B", DROPS, *after), SETTINGS)
    assert row(comparison, "drops").move is move
    assert (comparison.verdict is Outcome.REGRESSION) is (move is Move.WORSE)


def test_dead_ecn_is_named_and_is_no_pass() -> None:
    a, b = counted("A", MARKS, 4274), counted("B", MARKS, 2)
    comparison = compare_runs(a, b, SETTINGS)
    assert comparison.verdict is Outcome.DIFFERENT
    assert "marks: 4274 in A, 2 packets a run in B (x 0.000468)" in comparison.reasons
    assert "marks" in comparison_html(comparison, a, b)
    ignored = compare_runs(a, b, replace(SETTINGS, counts_ignored=True))
    assert ignored.verdict is not Outcome.DIFFERENT
    assert ignored.block == comparison.block


def test_one_drop_in_a_lossless_network_is_a_finding() -> None:
    a, b = counted("A", DROPS, 0, 0, 0), counted("B", DROPS, 0, 1, 0)
    lossless_a, lossless_b = (
        replace(lossy, runs=tuple(replace(run, needs_lossless=True) for run in lossy.runs))
        for lossy in (a, b)
    )
    assert row(compare_runs(a, b, SETTINGS), "drops").move is Move.SAME
    assert row(compare_runs(lossless_a, lossless_b, SETTINGS), "drops").move is Move.WORSE


def test_every_row_of_the_block_is_printed() -> None:
    text = render_comparison(compare_runs(counted("A", MARKS, 10), counted("B", MARKS, 10), SETTINGS))
    names = (
        "completion",
        "drops",
        "lost",
        "wrong ICRC",
        "marks",
        "CNPs",
        "NAKs",
        "timeouts",
        "retransmissions",
    )
    for name in (*names, "pauses sent", "pauses received", "longest queue"):
        assert f"\n{name} " in text


def draining(*rates_gbps: float) -> RunSamples:
    values = {Counted(DRAIN, f"leaf0/{port}"): 1e9 * rate for port, rate in enumerate(rates_gbps)}
    return run(10.0, device=DeviceFigures(values, frozenset({DRAIN})))


def test_slow_port_is_named_in_the_first_line() -> None:
    a, b = side("A", draining(99.6, 99.4)), side("B", draining(99.5, 79.7))
    comparison = compare_runs(a, b, SETTINGS)
    assert comparison.verdict is Outcome.REGRESSION
    assert "at leaf0/1" in comparison.reasons[0]
    assert comparison.reasons[1] == "leaf0/1: drain rate 99.4 Gbit/s in A, 79.7 Gbit/s in B (x 0.802)"
    assert compare_runs(a, side("B", draining(99.0, 98.9)), SETTINGS).moved == ()


FINDING = Finding(
    kind=FindingKind.PFC_STORM,
    places=(Place(PlaceKind.HOST, "h1/p0"),),
    sentence="h1/p0 pauses its port for 99 % of the run",
    evidence=(),
    confidence=0.999,
    remedy="isolate the host",
)


@pytest.mark.parametrize(
    ("runs_a", "runs_b", "finding", "is_new"),
    [
        (0, 5, FINDING, True),
        (0, 1, FINDING, False),
        (5, 5, FINDING, None),
        (1, 5, FINDING, False),
        (0, 5, replace(FINDING, role=Role.JOB), False),
    ],
)
def test_finding_that_only_b_has_comes_first(
    runs_a: int, runs_b: int, finding: Finding, is_new: bool | None
) -> None:
    a, b = (
        side(name, *(run(10.0, causes=(finding,) if number < count else ()) for number in range(5)))
        for name, count in (("A", runs_a), ("B", runs_b))
    )
    comparison = compare_runs(a, b, SETTINGS)
    assert [move.is_new for move in comparison.findings] == ([] if is_new is None else [is_new])
    if is_new:
        assert comparison.verdict is Outcome.REGRESSION
        assert comparison.reasons[1] == f"only in B: {FINDING.sentence}; {FINDING.remedy}"


def test_runs_with_equal_draws_are_pairs_whatever_their_names() -> None:
    a = side("A", *(run(10.0, draws=f"run {number}") for number in range(3)))
    b = side("B", *(run(11.0, draws=f"run {number}") for number in (2, 0, 1)))
    pairs = pair_by_draws(a, b)
    assert pairs is not None
    assert pairs[1].repeats == ("r1", "r2", "r0")
    assert compare_runs(a, b, SETTINGS).settings.paired
    other = side("B", *(run(11.0, draws=f"run {number}") for number in (7, 8, 9)))
    assert pair_by_draws(a, other) is None
    assert pair_by_draws(side("A", run(10.0), run(10.0)), side("B", run(10.0), run(10.0))) is None


def test_ratio_of_single_runs_allows_for_their_usual_variation() -> None:
    dead = compare_counts(np.array([4274.0]), np.array([2.0]), 0.95, paired=False, usual_cv=0.35)
    assert 1e-4 < dead.low < dead.ratio < 0.003
    half = compare_counts(np.array([4274.0]), np.array([2000.0]), 0.95, paired=False, usual_cv=0.35)
    assert half.low < 0.2 < 1 < half.high < 1.3


def test_equal_counts_that_vary_are_seldom_a_change() -> None:
    """Overdispersed counts with a variation of 35 %, five runs a side."""
    rng = np.random.default_rng(3)
    sides = rng.poisson(rng.gamma(1 / 0.35**2, 1000 * 0.35**2, (400, 2, 5))).astype(float)
    wrong = sum(compare_counts(a, b, 0.95, paired=False, usual_cv=0.35).p_value < 0.05 for a, b in sides)
    assert 4 <= wrong <= 36


def test_corrections_for_many_tests() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert false_discovery([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.04, 0.04])
    assert holm([]) == false_discovery([]) == []
