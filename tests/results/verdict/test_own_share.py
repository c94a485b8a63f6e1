"""What our own lateness, timers and buffers can explain, and what a condition comes to whatever they did."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from etloop.results.kpis.own_delay import longest_chain_ns
from etloop.results.kpis.run_kpis import vocabulary
from etloop.results.measure.summary import measure
from etloop.results.schema.kpis import BY_NAME, FIGURES
from etloop.results.schema.verdict import ConditionOutcome, RequestedCondition, Result
from etloop.results.tables.frames import frame_by_hand
from etloop.results.verdict.aggregate_bounds import aggregate_bounds
from etloop.results.verdict.certainty import certain_result
from etloop.results.verdict.evaluation import Results, aggregate, evaluate
from etloop.results.verdict.own_share import TABLE_NATURES, figure_bounds
from etloop.results.verdict.parser import parse
from etloop.results.verdict.terms import FUNCTIONS, OF_TRUTH
from etloop.results.verdict.verdict import Conditions, decide_verdict
from etloop.results.verdict.weakness import OwnShare, Weakness
from tests.support.runs.records_by_hand import connection_rows_by_hand, outcome_by_hand, tables_by_hand

WORDS: Final = vocabulary()
LATE: Final = Weakness(late=True)
MS: Final = 1e6
Lengths = NDArray[np.float64]


def results_of(jct_ns: Lengths, whole_ns: float | None = None, **others: float) -> Results:
    """Results of iterations that lasted `jct_ns`."""
    functions = {"min": "min", "avg": "mean", "p50": "p50", "p99": "p99", "max": "max"}
    figures: dict[str, float | None] = {
        f"jct_{name}_ns": aggregate(function, jct_ns) for name, function in functions.items()
    }
    figures |= {"jct_cv": aggregate("cv", jct_ns), "goodput_bps": 8e18 / (whole_ns or jct_ns.sum())} | others
    units = {name: BY_NAME[name].unit for name in figures}
    rows = {"iteration": np.arange(len(jct_ns), dtype=np.float64), "jct_ns": jct_ns}
    frames = {"iterations": frame_by_hand("iterations", rows, WORDS.tables["iterations"])}
    return Results(figures, units, frames)


def own_share(jct_ns: Lengths, late_ns: Lengths) -> OwnShare:
    return OwnShare(tuple(range(len(jct_ns))), jct_ns, late_ns, float(late_ns.sum()), float(jct_ns.sum()))


CONDITIONS: Final = (
    *("jct_avg_ns <= {}", "jct_max_ns < {}", "jct_p50_ns >= {}", "jct_min_ns <= {}", "jct_p99_ns != {}"),
    *("iterations.jct_ns <= {}", "max(iterations.jct_ns) - min(iterations.jct_ns) <= {}", "jct_cv <= 20%"),
    *("mean(iterations.jct_ns) > {}", "any(iterations.jct_ns > {})", "all(iterations.jct_ns > {})"),
    *("count(iterations.jct_ns > {}) <= 1", "not jct_avg_ns > {}", "max_to_mean(iterations.jct_ns) <= 1.2"),
    *("jct_avg_ns <= {} and jct_max_ns <= {}", "jct_avg_ns <= {} or jct_min_ns >= {}", "goodput_bps >= 50Gbps"),
    *("jct_max_ns / jct_avg_ns <= 1.5", "-jct_avg_ns <= -{}", "jct_avg_ns * 2 - jct_min_ns <= {}"),
    *("sum(iterations[jct_ns > {}].jct_ns) <= {}", "iterations[jct_ns > {}].jct_ns <= {}", "jain(iterations.jct_ns) >= 0.9"),
    *("count(iterations[jct_ns > {}].jct_ns) == 0", "cv(iterations.jct_ns) <= 30%", "p90(iterations.jct_ns) <= {}"),
)  # fmt: skip


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40), st.floats(0, 1)), min_size=2, max_size=6),
    st.sampled_from(CONDITIONS),
    st.integers(1, 80),
)
def test_what_is_certain_is_so_whatever_lateness_did(
    iterations: list[tuple[int, int, float]], text: str, limit: int
) -> None:
    """The undisturbed run is any that lateness can have made the measured one of."""
    undisturbed = np.array([true * MS for true, _, _ in iterations])
    late = np.array([late * MS for _, late, _ in iterations])
    measured = undisturbed + late * np.array([share for _, _, share in iterations])
    tree = parse(text.replace("{}", f"{limit}ms"), WORDS).tree
    certain = certain_result(tree, results_of(measured), own_share(measured, late), LATE)
    truths = np.atleast_1d(evaluate(tree, results_of(undisturbed)).values)
    if certain is True:
        assert not (truths == 0).any()
    if certain is False:
        assert (truths == 0).any()


@given(
    st.sampled_from([one for one in FUNCTIONS if one not in OF_TRUTH]),
    st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9), st.floats(0, 1)), min_size=2, max_size=8),
)
def test_a_function_of_rows_lies_within_its_bounds(
    function: str, rows: list[tuple[float, float, float]]
) -> None:
    low, size, share = (np.array(column) for column in zip(*rows, strict=True))
    least, most = aggregate_bounds(function, low, low + size)
    found = aggregate(function, low + size * share)
    slack = 1e-6 * max(1.0, abs(found)) if math.isfinite(found) else 0
    assert math.isnan(found) or math.isnan(least) or least - slack <= found <= most + slack


JCT: Final = np.array([113.0, 113.0]) * MS
THIRD: Final = own_share(JCT, JCT * 0.365)
LOOSE: Final = {"slip_share": 0.365}


def outcome_of(text: str, own: OwnShare, **figures: float) -> ConditionOutcome:
    asked = Conditions((RequestedCondition(text, "it matters", "scenario.yaml:7"),))
    results = replace(results_of(JCT, **(LOOSE | figures)), own=lambda: own)
    run = measure(outcome_by_hand(), tables_by_hand(), connection_rows_by_hand()).summary
    run = replace(run, transport=run.transport | {"local_ack_timeout_err": 1})
    (found,) = decide_verdict(asked, results, WORDS, run).checks
    return found


@pytest.mark.parametrize(
    ("sentence", "text", "result"),
    [
        ("113 ms are not 1 us, however late we were", "jct_avg_ns <= 1us", Result.FAIL),
        ("nor below what lateness leaves", "jct_avg_ns <= 71ms", Result.FAIL),
        ("what lateness explains is open", "jct_avg_ns <= 72ms", Result.INCONCLUSIVE),
        ("what holds in spite of it holds", "jct_avg_ns <= 114ms", Result.PASS),
        ("what holds as measured holds, even if lateness made it long", "jct_avg_ns >= 100ms", Result.PASS),
        ("what is long without it, too, is long", "jct_avg_ns >= 70ms", Result.PASS),
        ("a rate that is too low with all the time back", "goodput_bps >= 100Gbps", Result.FAIL),
        ("or would be high enough", "goodput_bps >= 50Gbps", Result.INCONCLUSIVE),
        ("one alternative that is open keeps it open", "jct_avg_ns <= 1us or jct_max_ns <= 90ms", Result.INCONCLUSIVE),
        ("two that are not fail", "jct_avg_ns <= 1us or jct_max_ns <= 50ms", Result.FAIL),
        ("in every row", "iterations.jct_ns <= 10ms", Result.FAIL),
        ("without a bound it is open", "rtt_p99_ns <= 1us", Result.INCONCLUSIVE),
        ("marks are not of our making", "dut_ecn_marked_packets == 0", Result.FAIL),
        ("nor drops", "dut_dropped_packets == 0", Result.FAIL),
        ("nor lost packets, where our buffers lost none", "lost_packets == 0", Result.FAIL),
        ("our lateness itself is as measured", "slip_share <= 10%", Result.FAIL),
    ],
)  # fmt: skip
def test_what_lateness_cannot_explain_fails(sentence: str, text: str, result: Result) -> None:
    counted = {"dut_ecn_marked_packets": 8.0, "dut_dropped_packets": 2.0, "lost_packets": 2.0}
    found = outcome_of(text, THIRD, rtt_p99_ns=9 * MS, **counted)
    assert found.result is result, (sentence, found)
    if result is Result.INCONCLUSIVE:
        assert "without our own share" in found.reason


NEEDLESS: Final = {"slip_share": 0.0, "needless_share": 0.0051, "tx_packets": 10_000.0}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("jct_avg_ns <= 100ms", Result.FAIL),
        ("jct_avg_ns <= 112ms", Result.INCONCLUSIVE),
        ("retransmitted_packets <= 49", Result.INCONCLUSIVE),
        ("retransmitted_packets <= 48", Result.FAIL),
        ("timeouts == 0", Result.INCONCLUSIVE),
    ],
)
def test_packets_sent_again_without_need_explain_their_own_time(text: str, result: Result) -> None:
    own = replace(own_share(JCT, JCT * 0), again_ns=4 * MS, again_packets=51.0)
    found = outcome_of(text, own, retransmitted_packets=100.0, timeouts=3.0, **NEEDLESS)
    assert found.result is result, found


def test_without_the_speed_of_a_link_their_time_has_no_bound() -> None:
    own = replace(own_share(JCT, JCT * 0), again_ns=None, again_packets=51.0)
    assert outcome_of("jct_avg_ns <= 1us", own, **NEEDLESS).result is Result.INCONCLUSIVE


def test_packets_that_we_lost_explain_as_many() -> None:
    own = replace(own_share(JCT, JCT * 0), lost_packets=3.0)
    weak = {"slip_share": 0.0, "own_lost_packets": 3.0, "not_received_packets": 10.0}
    assert outcome_of("not_received_packets <= 6", own, **weak).result is Result.FAIL
    assert outcome_of("not_received_packets <= 7", own, **weak).result is Result.INCONCLUSIVE
    assert outcome_of("jct_avg_ns <= 1us", own, **weak).result is Result.INCONCLUSIVE, "no bound is known"


@pytest.mark.parametrize("figure", [one.name for one in FIGURES])
@pytest.mark.parametrize("own", [None, OwnShare(), THIRD], ids=["not known", "of nothing", "late"])
def test_every_figure_lies_within_its_bounds_as_measured(figure: str, own: OwnShare | None) -> None:
    for weak in (LATE, Weakness(lossy=True), Weakness(late=True, unbounded=("busy",))):
        low, high = figure_bounds(figure, 0.5, own, weak)
        if figure != "jct_cv" and not figure.startswith("jct_"):
            assert low <= 0.5 <= high


def test_every_table_of_the_language_has_a_nature() -> None:
    assert WORDS.tables.keys() == TABLE_NATURES.keys()


@pytest.mark.parametrize(
    ("sentence", "ops", "chain_ns"),
    [
        ("one op", [(0, 0, 0, 9, 5)], 5),
        ("two of a rank in a row add up", [(0, 0, 0, 9, 5), (0, 1, 9, 20, 7)], 12),
        ("two of a rank at once do not", [(0, 0, 0, 9, 5), (0, 1, 1, 20, 7)], 7),
        ("two ranks at once do not", [(0, 0, 0, 9, 5), (1, 0, 0, 9, 7)], 7),
        # Rank 1 waits for rank 0 in the first collective, and rank 0 for rank 1 in the second.
        (
            "lateness of ranks that wait for each other adds up",
            [(0, 0, 3, 9, 5), (1, 0, 0, 9, 0), (0, 1, 9, 30, 0), (1, 1, 20, 30, 8)],
            13,
        ),
        ("that of ranks with nothing to do with each other does not", [(0, 0, 0, 9, 5), (1, 1, 9, 20, 7)], 7),
        ("an op without a length hands on, too", [(0, 0, 4, 4, 5), (0, 1, 4, 20, 7)], 12),
    ],
)
def test_the_longest_chain_of_late_ops(
    sentence: str, ops: list[tuple[int, int, int, int, int]], chain_ns: int
) -> None:
    """Of each op: rank, collective, issued, completed, late."""
    rank, collective, issued, completed, late = (np.array(column) for column in zip(*ops, strict=True))
    spans = issued.astype(np.float64), completed.astype(np.float64)
    assert longest_chain_ns(rank, collective, spans, late.astype(np.float64)) == chain_ns, sentence
