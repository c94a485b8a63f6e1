"""B against A, from samples written by hand: what is called a change, what carries it, what makes it doubtful."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from etloop.contract.base.errors import ConfigError
from etloop.results.compare.compare import compare_runs
from etloop.results.compare.contributions import share_moved
from etloop.results.compare.samples import Part, RunSamples, Side
from etloop.results.html.compare import comparison_html
from etloop.results.schema.comparison import ComparisonSettings, Outcome
from etloop.results.schema.kpis import BY_NAME
from etloop.results.schema.losses import BY_LOSS_NAME, LossRow
from etloop.results.schema.verdict import ConditionOutcome, Result
from etloop.results.text.compare import render_comparison
from tests.measure.compare import CASES, main, rates, too_often

MS = 1_000_000
SETTINGS = ComparisonSettings()
ALL_REDUCE = "all_reduce, 4 ranks"
SCENARIO = {"iterations": "5", "transport.cc.preset": "connectx"}


def run(jct_ms: float, *, spread: float = 0.0, iterations: int = 5, **changes: object) -> RunSamples:
    """A run whose iterations lie evenly around a mean, and whose all-reduces take a fifth of it."""
    offsets = np.linspace(-spread, spread, iterations)
    jct_ns = jct_ms * MS * (1 + offsets)
    made = RunSamples(
        path="a/r0",
        virtual=False,
        broken="",
        doubts=(),
        jct_ns=jct_ns,
        kinds={ALL_REDUCE: jct_ns / 5},
        kind_bytes_per_s={ALL_REDUCE: 1e9},
        parts={
            Part("all_reduce", "dp", -1, -1, 0, "layer0.gradients"): 2e5,
            Part("send_recv", "", 0, 1, 3): 1e5,
        },
        transfers={0: 5e4, 1: 6e4},
        troubles={},
        figures={"slip_share": 0.01, "own_lost_packets": 0.0, "lost_share": 0.0},
        jobs={},
        things={"scenario": SCENARIO, "rig": {}, "hosts": {"a": "h"}},
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def side(name: str, *runs: RunSamples, left_out: tuple[str, ...] = ()) -> Side:
    return Side(name, name, runs, left_out, tuple(f"r{number}" for number in range(len(runs))))


A = side("A", run(10.0), run(10.1), run(9.95), run(10.05))
SLOWER = side("B", run(10.6), run(10.5), run(10.55), run(10.65))


def scaled(old: Side, factor: float, **changes: object) -> Side:
    """The same runs, longer by a factor."""
    runs = tuple(
        replace(
            one,
            jct_ns=one.jct_ns * factor,
            kinds={name: times * factor for name, times in one.kinds.items()},
            **changes,  # type: ignore[arg-type]
        )
        for one in old.runs
    )
    return replace(old, name="B", runs=runs)


VERDICTS = (
    ("five percent longer", A, SLOWER, Outcome.REGRESSION),
    ("and the other way round", SLOWER, A, Outcome.IMPROVEMENT),
    ("the same runs again", A, A, Outcome.ALIKE),
    ("a tenth of a percent, of runs that differ by half", A, scaled(A, 1.001), Outcome.ALIKE),
    ("two runs that lie far apart", A, side("B", run(9.0), run(12.0)), Outcome.OPEN),
    (
        "one run each, five percent apart",
        side("A", run(10.0, spread=0.01)),
        side("B", run(10.6, spread=0.01)),
        Outcome.REGRESSION,
    ),
    (
        "one run each, alike: how runs differ is not known",
        side("A", run(10.0)),
        side("B", run(10.0)),
        Outcome.OPEN,
    ),
    (
        "one run each in virtual time, where the same is the same",
        side("A", run(10.0, virtual=True)),
        side("B", run(10.0, virtual=True)),
        Outcome.ALIKE,
    ),
    (
        "of four iterations nothing is known",
        side("A", run(10.0, iterations=4)),
        side("B", run(20.0, iterations=4)),
        Outcome.OPEN,
    ),
    ("a run that broke off is no small thing", A, replace(A, left_out=("r4: it ended early",)), Outcome.OPEN),
    (
        "but does not hide a regression",
        A,
        replace(SLOWER, left_out=("r4: it ended early",)),
        Outcome.REGRESSION,
    ),
)


@pytest.mark.parametrize(
    ("a", "b", "verdict"), [row[1:] for row in VERDICTS], ids=[row[0] for row in VERDICTS]
)
def test_verdicts(a: Side, b: Side, verdict: Outcome) -> None:
    assert compare_runs(a, b, SETTINGS).verdict is verdict


def test_a_kind_of_collectives_alone_is_a_regression_too() -> None:
    slow = tuple(replace(one, kinds={ALL_REDUCE: one.kinds[ALL_REDUCE] * 1.3}) for one in A.runs)
    found = compare_runs(A, replace(A, runs=slow), SETTINGS)
    assert found.verdict is Outcome.REGRESSION
    assert [line.outcome for line in found.metrics] == [Outcome.ALIKE, Outcome.REGRESSION]
    assert found.reasons[0].startswith("jct: +0.0%")
    assert found.reasons[1].startswith("all_reduce, 4 ranks: +30.0%")


def test_half_of_the_false_alarms_is_for_the_job_and_half_for_the_rest() -> None:
    more = {f"kind {number}": np.full(5, 1e6) for number in range(4)}
    many = replace(A, runs=tuple(replace(one, kinds=more) for one in A.runs))
    lines = compare_runs(many, many, SETTINGS).metrics
    assert lines[0].confidence == pytest.approx(0.975)
    assert [line.confidence for line in lines[1:]] == [pytest.approx(1 - 0.05 / 2 / 4)] * 4
    alone = replace(A, runs=tuple(replace(one, kinds={}) for one in A.runs))
    assert compare_runs(alone, alone, SETTINGS).metrics[0].confidence == pytest.approx(0.95)


def test_rounds_take_out_what_both_sides_share() -> None:
    drift = (1.0, 1.2, 1.5, 0.9)
    a = side("A", *(run(10 * factor) for factor in drift))
    b = side("B", *(run(10.5 * factor + 0.01 * number) for number, factor in enumerate(drift)))
    assert compare_runs(a, b, SETTINGS).verdict is Outcome.OPEN
    found = compare_runs(a, b, replace(SETTINGS, paired=True))
    assert found.verdict is Outcome.REGRESSION
    assert found.settings.paired
    assert "4 runs in pairs" in render_comparison(found)


def test_without_two_rounds_in_common_there_are_none() -> None:
    b = replace(SLOWER, repeats=("x0", "x1", "x2", "x3"))
    assert not compare_runs(A, b, replace(SETTINGS, paired=True)).settings.paired


def test_the_one_run_of_a_side_is_allowed_what_runs_of_the_other_differ_by() -> None:
    steady = side("B", run(10.9, virtual=True))
    wild = side("A", run(9.0), run(11.0), run(10.0))
    assert compare_runs(wild, steady, SETTINGS).verdict is Outcome.OPEN


def test_our_own_lateness_is_no_regression_of_the_device() -> None:
    late = scaled(A, 1.06, figures={"slip_share": 0.08, "own_lost_packets": 0.0})
    found = compare_runs(A, late, SETTINGS)
    assert found.verdict is Outcome.OPEN
    assert (
        "lateness of the emulator can explain it: it grew from 1.0% to 8.0% of an iteration (slip_share)"
        in found.reasons[0]
    )
    slightly = scaled(A, 1.06, figures={"slip_share": 0.02, "own_lost_packets": 0.0})
    assert compare_runs(A, slightly, SETTINGS).verdict is Outcome.REGRESSION


def test_nor_are_packets_that_we_lost() -> None:
    found = compare_runs(A, scaled(A, 1.06, figures={"slip_share": 0.01, "own_lost_packets": 7.0}), SETTINGS)
    assert "our own receive buffers lost 7 packets a run in B, 0 in A" in found.metrics[0].doubt


def test_what_carries_a_regression_is_named() -> None:
    pair, collective = Part("send_recv", "", 0, 1, 3), Part("all_reduce", "dp", -1, -1, 0, "layer0.gradients")
    slow = scaled(
        A,
        1.06,
        parts={pair: 4e5, collective: 2.1e5, Part("barrier", "x", -1, -1, 0): 1.0},
        transfers={0: 5e4, 1: 9e4},
        troubles={(0, 1, "retransmissions"): 12, (2, 3, "timeouts"): 1},
    )
    found = compare_runs(A, slow, SETTINGS)
    assert [(one.what, one.added_ns) for one in found.carriers] == [
        ("send_recv 0 -> 1 #3", 3e5),
        ("all_reduce dp #0, layer0.gradients", pytest.approx(1e4)),
    ]
    assert [one.what for one in found.ranks] == ["rank 1"]
    assert [(one.what, one.src_rank, one.b) for one in found.troubles] == [
        ("timeouts", 2, 1),
        ("retransmissions", 0, 12),
    ]
    assert (found.only_a, found.only_b) == (0, 1)
    text = render_comparison(found)
    assert "longer in B: collectives, per iteration" in text
    assert ["0", "1", "retransmissions", "0", "12"] in [line.split() for line in text.splitlines()]


def test_figures_are_tested_where_they_are_asked_for() -> None:
    lossy = replace(
        A,
        runs=tuple(
            replace(one, figures=one.figures | {"lost_share": 0.01 + 0.001 * number})
            for number, one in enumerate(A.runs)
        ),
    )
    found = compare_runs(A, lossy, replace(SETTINGS, figures=("lost_share", "jct_per_twin")))
    line = found.metrics[-1]
    assert (line.name, line.relative, line.outcome) == ("lost_share", False, Outcome.REGRESSION)
    assert "jct_per_twin was to be tested, and a run does not have it" in found.warnings


def judged(old: Side, **results: Result) -> Side:
    """The same runs, whose verdicts had these conditions."""
    checks = tuple(
        ConditionOutcome(f"{name} == 0", "", "", result, f"{name} = {number}", "", 1, 0, (), reason="")
        for number, (name, result) in enumerate(results.items())
    )
    return replace(old, runs=tuple(replace(one, conditions=checks) for one in old.runs))


def test_conditions_of_both_stand_next_to_each_other_those_that_differ_first() -> None:
    before = judged(A, lost=Result.PASS, pauses=Result.PASS)
    after = judged(A, lost=Result.PASS, pauses=Result.FAIL, marks=Result.PASS)
    found = compare_runs(before, after, SETTINGS)
    assert [(one.expression, one.a, one.b) for one in found.conditions] == [
        ("pauses == 0", "pass", "fail"),
        ("marks == 0", "", "pass"),
        ("lost == 0", "pass", "pass"),
    ]
    assert "pauses == 0  pass  pauses = 1  fail  pauses = 1" in render_comparison(found)


def test_figures_that_cannot_be_tested_are_refused_together() -> None:
    with pytest.raises(ConfigError) as refused:
        compare_runs(A, A, replace(SETTINGS, figures=("jct", "tx_packets")))
    assert [problem.what for problem in refused.value.problems] == [
        'there is no figure "jct"',
        "neither more nor less of tx_packets is better by itself",
    ]


def test_every_figure_has_a_direction_or_is_known_to_have_none() -> None:
    from etloop.results.compare.compare import UNDIRECTED
    from etloop.results.verdict.own_share import MORE_IS_BETTER

    assert BY_NAME.keys() >= MORE_IS_BETTER
    assert BY_NAME.keys() >= UNDIRECTED
    assert not MORE_IS_BETTER & UNDIRECTED


def with_things(**things: dict[str, str]) -> Side:
    return replace(A, runs=tuple(replace(one, things=one.things | things) for one in A.runs))


DIFFERENCES = (
    (
        "one section of the scenario",
        {"scenario": SCENARIO | {"transport.cc.preset": "paper", "transport.cc.g": "1"}},
        None,
    ),
    (
        "two things",
        {"scenario": SCENARIO | {"transport.cc.preset": "paper", "transport.qps_per_connection": "4"}},
        "A and B differ in more than one thing: scenario transport.cc, scenario transport.qps_per_connection",
    ),
    (
        "the scenario and the rig",
        {"scenario": SCENARIO | {"iterations": "6"}, "rig": {"agents.0.name": "b"}},
        "A and B differ in more than one thing: rig, scenario iterations",
    ),
    ("the seed is nothing", {"scenario": SCENARIO | {"seed": "4"}}, None),
    (
        "another scale",
        {"scenario": SCENARIO | {"scale.bytes": "1/2"}},
        "scenario scale.bytes: - in A, 1/2 in B; their times are of different things",
    ),
)


@pytest.mark.parametrize(
    ("things", "warning"), [row[1:] for row in DIFFERENCES], ids=[row[0] for row in DIFFERENCES]
)
def test_what_two_sides_differ_in_is_told(things: dict[str, dict[str, str]], warning: str | None) -> None:
    found = compare_runs(A, with_things(**things), SETTINGS)
    assert list(found.warnings) == ([] if warning is None else [warning])


def test_runs_of_a_side_that_are_not_repeats_are_told() -> None:
    odd = replace(
        A, runs=(*A.runs[:3], replace(A.runs[3], things={"scenario": SCENARIO | {"seed2": "1"}, "rig": {}}))
    )
    assert (
        "the runs of A are not repeats of one thing: they differ in hosts, scenario seed2"
        in compare_runs(odd, A, SETTINGS).warnings
    )


def test_a_job_beside_others_has_an_interference_factor() -> None:
    alone = replace(A, runs=tuple(replace(one, jobs={"x": one.jct_ns}) for one in A.runs))
    beside = replace(
        A, runs=tuple(replace(one, jobs={"x": one.jct_ns * 1.5, "y": one.jct_ns}) for one in A.runs)
    )
    found = compare_runs(alone, beside, SETTINGS)
    assert [(one.job, round(one.factor, 6)) for one in found.interference] == [("x", 1.5)]
    assert "interference factor" in render_comparison(found)
    assert compare_runs(beside, beside, SETTINGS).interference == ()


def test_a_page_and_a_terminal_obey_nothing_that_a_trace_named() -> None:
    name = "<script>\x1b[2J"
    odd = scaled(A, 1.06, parts={Part(name, "c", -1, -1, 0): 9e5})
    a = scaled(A, 1.0, parts={Part(name, "c", -1, -1, 0): 1e5})
    found = compare_runs(a, odd, SETTINGS)
    page = comparison_html(found, a, odd)
    assert "&lt;script&gt;" in page
    assert name not in page
    assert "\x1b" not in render_comparison(found)


@pytest.mark.parametrize("case", [one for one in CASES if one.promised], ids=lambda one: one.name)
def test_false_alarms_are_as_rare_as_promised(case: object) -> None:
    """A small part of what `python -m tests.measure.compare` measures."""
    assert isinstance(case, type(CASES[0]))
    found = rates(case, 40, np.random.default_rng(3))
    assert not too_often(found.wrong, 40, 0.05)
    assert found.found > 0.5, "five percent are found"


def test_the_bench_tells_a_promise_that_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.measure.compare.CASES", (replace(CASES[-1], promised=True),))
    assert main(["--comparisons", "40", "--check"]) == 30
    assert "MISSED" in capsys.readouterr().out


def losses(*rows: tuple[str, int | None, int | None, int | None]) -> tuple[LossRow, ...]:
    return tuple(LossRow(name, BY_LOSS_NAME[name].counted_by, *counts) for name, *counts in rows)


QUIET = losses(
    ("data", 100, 100, 0), ("data_again", 0, 0, 0), ("all", 110, 110, 0), ("unexplained", None, None, 0)
)
LOSSY = losses(
    ("data", 104, 100, 4),
    ("data_again", 9, 5, 0),
    ("all", 114, 109, 5),
    ("dropped_at_queue", None, None, 3),
    ("unexplained", None, None, 2),
)


def test_losses_of_both_sides_stand_next_to_each_other_where_they_differ() -> None:
    ours = side("A", run(10.0, losses=QUIET), run(10.1, losses=QUIET))
    theirs = side("B", run(10.0, losses=LOSSY), run(10.1, losses=QUIET))
    found = compare_runs(ours, theirs, SETTINGS)
    table = """\
losses, packets a run     A    B  counted by
data, not received        0    2  our queue pairs
data sent again           0  4.5  our queue pairs
all, not received         0  2.5  our ports
dropped: no room at a queue  not known    3  device
not explained             0    1  difference
"""
    shown = [" ".join(line.split()) for line in render_comparison(found).splitlines()]
    expected = [" ".join(line.split()) for line in table.splitlines()]
    begin = shown.index(expected[0])
    assert shown[begin : begin + len(expected)] == expected


@pytest.mark.parametrize(
    ("ours", "theirs", "why"),
    [
        (QUIET, QUIET, "both lost nothing"),
        (LOSSY, LOSSY, "both lost the same"),
        ((), (), "an earlier version wrote no losses"),
        ((), QUIET, "one side does not know, the other lost nothing"),
    ],
)
def test_losses_that_do_not_differ_are_no_table(
    ours: tuple[LossRow, ...], theirs: tuple[LossRow, ...], why: str
) -> None:
    found = compare_runs(side("A", run(10.0, losses=ours)), side("B", run(10.0, losses=theirs)), SETTINGS)
    assert found.losses == (), why
    assert "losses, packets a run" not in render_comparison(found)


@pytest.mark.parametrize(
    ("a", "b", "share"),
    [
        (2.0, 3.0, 0.5),
        (2.0, 0.0, -1.0),
        (0.0, 3.0, None),
        # An overlap that fell from -2 % to -4 % has not grown by 100 %.
        (-0.02, -0.04, None),
        (-0.02, 0.04, None),
        (0.02, -0.04, None),
    ],
)
def test_a_figure_below_zero_has_no_share_by_which_it_moved(a: float, b: float, share: float | None) -> None:
    assert share_moved(a, b) == share
