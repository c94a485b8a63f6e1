"""Compares B with A: tests the job's time and its collectives, finds what contributes to a change, and how the two differ
otherwise.

Decides what is tested and how the probability of a false alarm is divided among the tests: half of it for the job's time,
the other half equally among the rest (Bonferroni). The tests are in `statistics`. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.results.compare.answer import OWN_ROWS, Mechanism, answer
from etloop.results.compare.contributions import (
    condition_pairs,
    find_differences,
    loss_pairs,
    mean_figures,
    plain_figures,
    shifts,
    troubles,
)
from etloop.results.compare.mechanism import count_rows, finding_moves, object_moves
from etloop.results.compare.samples import RunSamples, Side, pair_by_draws, pair_runs
from etloop.results.compare.statistics import (
    Difference,
    Mean,
    difference,
    difference_of_pairs,
    is_shown,
    mean_of_iterations,
    mean_of_runs,
    open_words,
    outcome,
    surely_no_regression,
)
from etloop.results.schema.comparison import (
    COMPARISON_SCHEMA,
    Basis,
    Comparison,
    ComparisonSettings,
    Interference,
    MetricResult,
    Move,
    Outcome,
    Shift,
    SideRecord,
)
from etloop.results.schema.kpis import BY_NAME
from etloop.results.verdict.own_share import MORE_IS_BETTER

JCT: Final = "jct"
JOB: Final = "job "
UNDIRECTED: Final = frozenset(
    "compute_ns network_ns roofline_ns tx_packets one_way_error_ns busy_share comm_overhead_ns".split()
)
"""Figures for which neither more nor less is better."""
MOST_LISTED: Final = 10
LEAST_RUNS: Final = 3
"""Runs from which on their variation is also assumed for the other side if that has a single run."""
LEAST_COLLECTIVES: Final = 8
"""Collectives of a run from which on the pairs of a job with congestion control agree: with one, the tail of a single
collective decides its time (correlation of pairs 0.7; with eight 0.997)."""
LEAST_NEEDLESS_GROWTH: Final = 0.001
"""Least growth of the share of needless retransmissions that counts."""
Times = Callable[["RunSamples"], "NDArray[np.float64]"]
"""Returns the times of one thing in a run, by iteration."""


def compare_runs(a: Side, b: Side, settings: ComparisonSettings) -> Comparison:
    """Compare two sides. Raises `ConfigError` for a figure that does not exist, or that has no better and worse."""
    refuse_figures(settings.figures)
    pairs = pair_by_draws(a, b) or (pair_runs(a, b) if settings.paired else None)
    a, b = pairs or (a, b)
    settings = replace(settings, paired=pairs is not None)
    lines = _lines(a, b, settings)
    mechanism = _mechanism(a, b, settings)
    parts, only_a, only_b = shifts(a, b, lambda run: run.parts)
    ranks, _, _ = shifts(a, b, lambda run: run.transfers, lambda rank: f"rank {rank}")
    # The collectives that explain the change of the completion time, in its direction.
    better = lines[0].change < 0
    carriers = _most(parts, better=better)
    ignored = settings.counts_ignored
    verdict, reasons = answer((a, b), lines, mechanism, carriers, counts_ignored=ignored)
    differing, warnings = find_differences(a, b)
    return Comparison(
        schema=COMPARISON_SCHEMA,
        verdict=verdict,
        reasons=reasons,
        a=_side_record(a, settings),
        b=_side_record(b, settings),
        settings=settings,
        metrics=lines,
        carriers=carriers,
        ranks=_most(ranks, better=better),
        troubles=troubles(a, b)[:MOST_LISTED],
        block=mechanism.block,
        moved=mechanism.moved,
        findings=mechanism.findings,
        losses=loss_pairs(a, b),
        conditions=condition_pairs(a, b),
        interference=_interference(a, b, lines),
        only_a=only_a,
        only_b=only_b,
        plain=plain_figures(a, b),
        differing=differing[:100],
        differing_total=len(differing),
        warnings=(
            *_absent(lines, settings),
            *_single_run_warnings(a, b, settings),
            *_short_run_warnings(a, b, lines[0]),
            *warnings,
        ),
    )


def _mechanism(a: Side, b: Side, settings: ComparisonSettings) -> Mechanism:
    """Return what changed in the network."""
    block = count_rows(a, b, settings)
    doubt = _timer_doubt(a, b)
    if doubt:
        # No packet was lost, so retransmissions by our timer are not the network's.
        block = tuple(
            replace(row, move=Move.DIFFERENT) if row.move is Move.WORSE and row.name in OWN_ROWS else row
            for row in block
        )
    moved = object_moves(a, b, settings)
    return Mechanism(block, moved, finding_moves(a, b, settings.confidence), doubt)


def _interference(a: Side, b: Side, lines: tuple[MetricResult, ...]) -> tuple[Interference, ...]:
    """Return the interference factor of each common job if the sides have different sets of jobs."""
    jobs = [set(side.runs[0].jobs) for side in (a, b)]
    if jobs[0] == jobs[1]:
        return ()
    return tuple(
        Interference(
            line.name.removeprefix(JOB),
            1 + line.change,
            None if line.low is None else 1 + line.low,
            None if line.high is None else 1 + line.high,
        )
        for line in lines
        if line.name.startswith(JOB)
    )


def refuse_figures(figures: tuple[str, ...]) -> None:
    """Raise `ConfigError` with every name that cannot be tested."""
    problems = []
    for name in figures:
        if name not in BY_NAME:
            problems.append(
                Problem("--figures", f'there is no figure "{name[:64]}"', "see docs/metrics.md, section 9")
            )
        elif name in UNDIRECTED:
            problem = f"neither more nor less of {name} is better by itself"
            problems.append(Problem("--figures", problem, "name one that has a better and a worse"))
    if problems:
        raise ConfigError(*problems)


def _side_record(side: Side, settings: ComparisonSettings) -> SideRecord:
    doubts = tuple(dict.fromkeys(doubt for run in side.runs for doubt in run.doubts))
    return SideRecord(
        name=side.name,
        path=side.path,
        runs=len(side.runs),
        iterations=sum(len(run.jct_ns) for run in side.runs),
        basis=_basis(side, settings),
        left_out=side.left_out,
        doubts=doubts[:MOST_LISTED],
    )


def _basis(side: Side, settings: ComparisonSettings) -> Basis:
    if settings.paired:
        return Basis.PAIRS
    return Basis.RUNS if len(side.runs) > 1 else Basis.ITERATIONS


def _absent(lines: tuple[MetricResult, ...], settings: ComparisonSettings) -> list[str]:
    """Return warnings on figures that were to be tested and that a run does not have."""
    tested = {line.name for line in lines}
    return [
        f"{name} was to be tested, and a run does not have it"
        for name in settings.figures
        if name not in tested
    ]


def _single_run_warnings(a: Side, b: Side, settings: ComparisonSettings) -> list[str]:
    """Return a warning if a side is a single run, whose variation between runs is not known."""
    single = [name for name, side in (("A", a), ("B", b)) if len(side.runs) == 1]
    if not single:
        return []
    subject = f"{' and '.join(single)} {'are one run each' if len(single) > 1 else 'is one run'}"
    if all(run.virtual for side in (a, b) for run in side.runs):
        return [
            f"{subject}: what another seed would change is not in the intervals; repeat them with other seeds"
        ]
    allowed = f"{settings.between_runs:.1%}"
    return [
        f"{subject}: how much runs of the same thing differ is not known, and taken to be {allowed}; repeat them"
    ]


def _short_run_warnings(a: Side, b: Side, first: MetricResult) -> list[str]:
    """Return a warning if a comparison is inconclusive and its runs have few collectives."""
    fewest = min(len(run.jct_ns) * max(len(run.parts), 1) for side in (a, b) for run in side.runs)
    if first.outcome is not Outcome.OPEN or fewest >= LEAST_COLLECTIVES:
        return []
    collectives = f"{fewest} collective{'s' if fewest > 1 else ''}"
    advice = f"raise `iterations` so that it has {LEAST_COLLECTIVES} or more"
    return [f"a run has {collectives} without the warm-up: chance in one of them decides its time; {advice}"]


@dataclass(frozen=True, slots=True)
class _Tested:
    """A tested figure: name, unit, description and direction."""

    name: str
    unit: str
    words: str
    less_is_better: bool


def _lines(a: Side, b: Side, settings: ComparisonSettings) -> tuple[MetricResult, ...]:
    """Return the results of all tests, the job's time first."""
    kinds = sorted(_common_names(a, b, lambda run: run.kinds))
    jobs = sorted(_common_names(a, b, lambda run: run.jobs))
    other_tests = len(kinds) + len(jobs) + len(settings.figures)
    allowed = 1 - settings.confidence
    first_confidence = 1 - (allowed / 2 if other_tests else allowed)
    other_confidence = 1 - allowed / 2 / max(other_tests, 1)
    times: list[tuple[str, str, Times]] = [(JCT, "the job, per iteration", lambda run: run.jct_ns)]
    times += [
        (f"{JOB}{job}", "iteration of this job", lambda run, job=job: run.jobs[job])  # type: ignore[misc]
        for job in jobs
    ]
    times += [
        (kind, "all members present", lambda run, kind=kind: run.kinds[kind])  # type: ignore[misc]
        for kind in kinds
    ]
    lines = [
        _time_line(name, words, a, b, times_of, settings, other_confidence if index else first_confidence)
        for index, (name, words, times_of) in enumerate(times)
    ]
    figure_lines = (_figure_line(name, a, b, settings, other_confidence) for name in settings.figures)
    return (*lines, *(line for line in figure_lines if line is not None))


def _common_names(a: Side, b: Side, of: Callable[[RunSamples], dict[str, NDArray[np.float64]]]) -> set[str]:
    """Return the names that every run of both sides has, with a mean time above 0."""
    runs = (*a.runs, *b.runs)
    names = set.intersection(*(set(of(run)) for run in runs))
    return {name for name in names if all(of(run)[name].mean() > 0 for run in runs)}


def _time_line(
    name: str, words: str, a: Side, b: Side, of: Times, settings: ComparisonSettings, confidence: float
) -> MetricResult:
    """Return the test result of times."""
    values = [np.array([of(run).mean() for run in side.runs]) for side in (a, b)]
    run_means = [
        mean_of_runs(side_values, relative=True) if len(side_values) > 1 else None for side_values in values
    ]
    means = (
        run_means[0] or _single_mean(a.runs[0], of, run_means[1], settings),
        run_means[1] or _single_mean(b.runs[0], of, run_means[0], settings),
    )
    if _is_identical(a, b, of):
        tested_difference = Difference(0.0, 0.0, 0.0, confidence, 1.0, relative=True)
    elif settings.paired:
        tested_difference = difference_of_pairs(values[0], values[1], confidence, relative=True)
    else:
        tested_difference = difference(*means, confidence, relative=True)
    figure = _Tested(name, "ns", words, less_is_better=True)
    return _metric_result(figure, means, tested_difference, settings, _own_increase(a, b))


def _is_identical(a: Side, b: Side, of: Times) -> bool:
    """Return whether both sides have equal times in virtual time, without any randomness."""
    return len(a.runs) == len(b.runs) and all(
        run_a.virtual and run_b.virtual and np.array_equal(of(run_a), of(run_b))
        for run_a, run_b in zip(a.runs, b.runs, strict=True)
    )


def _single_mean(run: RunSamples, of: Times, other: Mean | None, settings: ComparisonSettings) -> Mean:
    """Return the mean of a side of one run. If the other side shows how much runs differ, at least that variation is
    assumed."""
    shown_cv = other.cv if other is not None and other.count >= LEAST_RUNS and other.cv is not None else 0.0
    return mean_of_iterations(of(run), max(shown_cv, 0.0 if run.virtual else settings.between_runs))


def _figure_line(
    name: str, a: Side, b: Side, settings: ComparisonSettings, confidence: float
) -> MetricResult | None:
    """Return the test result of a key figure; None if a run does not have it."""
    values = [np.array([run.figures.get(name, math.nan) for run in side.runs], np.float64) for side in (a, b)]
    if any(np.isnan(side_values).any() for side_values in values):
        return None
    relative = all(bool((side_values > 0).all()) for side_values in values)
    means = mean_of_runs(values[0], relative=relative), mean_of_runs(values[1], relative=relative)
    if settings.paired:
        tested_difference = difference_of_pairs(values[0], values[1], confidence, relative=relative)
    else:
        tested_difference = difference(*means, confidence, relative=relative)
    figure = BY_NAME[name]
    tested = _Tested(name, figure.unit, figure.words, less_is_better=name not in MORE_IS_BETTER)
    return _metric_result(tested, means, tested_difference, settings)


def _metric_result(
    thing: _Tested,
    means: tuple[Mean, Mean],
    difference: Difference,
    settings: ComparisonSettings,
    explained: tuple[float, str] = (0.0, ""),
) -> MetricResult:
    """Return the test result. `explained`: upper bound of the increase of B that the emulator itself explains, in the
    figure's unit, and its cause."""
    a, b = means
    least = settings.least_effect if difference.relative else settings.least_effect * abs(a.value)
    result = outcome(difference, least, less_is_better=thing.less_is_better)
    share, doubt = explained[0] / a.value if explained[1] else 0.0, explained[1]
    without = replace(
        difference, low=difference.low - share, high=difference.high - share, change=difference.change - share
    )
    worse = outcome(without, least, less_is_better=thing.less_is_better) is Outcome.REGRESSION
    doubted = result is Outcome.REGRESSION and bool(doubt) and not worse
    is_interval_shown = is_shown(difference, max(abs(a.value), abs(b.value)))
    return MetricResult(
        name=thing.name,
        unit=thing.unit,
        words=thing.words,
        a=a.value,
        b=b.value,
        a_cv=a.cv,
        b_cv=b.cv,
        a_basis=a.basis,
        b_basis=b.basis,
        change=difference.change,
        low=difference.low if is_interval_shown else None,
        high=difference.high if is_interval_shown else None,
        relative=difference.relative,
        confidence=difference.confidence,
        p_value=difference.p_value,
        outcome=Outcome.OPEN if doubted else result,
        doubt=doubt if doubted else "",
        surely_no_regression=surely_no_regression(difference, least, less_is_better=thing.less_is_better),
        open_words="" if doubted or result is not Outcome.OPEN else open_words(difference, least),
        smallest_found=difference.smallest_found if math.isfinite(difference.smallest_found) else None,
    )


def _own_increase(a: Side, b: Side) -> tuple[float, str]:
    """Return how much longer an iteration of B is at most because of the emulator, in ns, and the cause; "" if there is
    none.

    Causes are lateness that grew, needless retransmissions by our timer without a loss, and packets that we lost
    ourselves, whose cost has no bound.
    """
    figures = mean_figures(a), mean_figures(b)
    jct = [float(np.mean([run.jct_ns.mean() for run in side.runs])) for side in (a, b)]
    shares = [side_figures.get("slip_share", 0.0) for side_figures in figures]
    explained_ns, words = 0.0, []
    grown_ns = shares[1] * jct[1] - shares[0] * jct[0]
    if grown_ns > 0:
        explained_ns += grown_ns
        words.append(
            f"lateness of the emulator can explain it: it grew from {shares[0]:.1%} to {shares[1]:.1%} of an iteration "
            "(slip_share)"
        )
    lost = [side_figures.get("own_lost_packets", 0.0) for side_figures in figures]
    if lost[1] > lost[0]:
        explained_ns = math.inf
        words.append(
            f"our own receive buffers lost {lost[1]:.6g} packets a run in B, {lost[0]:.6g} in A (own_lost_packets)"
        )
    timer_doubt = _timer_doubt(a, b)
    if timer_doubt:
        explained_ns += _again_ns(b)
        words.append(timer_doubt)
    return explained_ns, "; ".join(words)


def _timer_doubt(a: Side, b: Side) -> str:
    """Return that our own timer sent packets again although none was lost; "" if it did not, or not more than in A."""
    if all(run.virtual for side in (a, b) for run in side.runs):
        return ""
    figures = mean_figures(a), mean_figures(b)
    needless = [side_figures.get("needless_share", 0.0) for side_figures in figures]
    if needless[1] <= needless[0] + LEAST_NEEDLESS_GROWTH or figures[1].get("timeouts") == 0:
        return ""
    if figures[1].get("lost_packets", 0.0) or figures[1].get("dut_dropped_packets", 0.0):
        return ""
    return (
        f"our own timer sent {needless[1]:.2%} of the packets again in B, {needless[0]:.2%} in A, although the receiver had "
        "them (needless_share)"
    )


def _again_ns(side: Side) -> float:
    """Return an upper bound of the time of an iteration that needless retransmissions took, in ns."""
    return float(np.mean([math.inf if run.again_ns is None else run.again_ns for run in side.runs]))


def _most(shifts: list[Shift], *, better: bool) -> tuple[Shift, ...]:
    """Return the largest shifts: longer times, or shorter ones if `better`."""
    sign = -1 if better else 1
    directed_shifts = [shift for shift in shifts if sign * shift.added_ns > 0]
    return tuple(sorted(directed_shifts, key=lambda shift: -sign * shift.added_ns)[:MOST_LISTED])
