"""`ideal`, `twin` and `measured` next to each other, as lines of the printed table.

Decides wording and rounding only; every figure comes from `expected_vs_measured.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from etloop.results.text.layout import aligned, each_wrapped, us, wrapped

if TYPE_CHECKING:
    from etloop.results.expected.expected_vs_measured import ExpectedFigures
    from etloop.results.schema.summary import ComparisonSummary, ExpectedSummary

_HEADINGS: Final = (
    ("", "", "", "all joined, avg (us)", "", "", "measured", "measured"),
    ("collective", "algorithm", "n", "ideal", "twin", "measured", "/ideal", "/twin"),
)
_EXPECTED_HEADINGS: Final = (
    ("", "", "", "all joined, avg (us)", "", "twin"),
    ("collective", "algorithm", "n", "ideal", "twin", "/ideal"),
)
_JOB: Final = ("job, an iteration", "", "")
_MOST_RATIO: Final = 999
_KIND_LIMIT: Final = 20
_ALGORITHM_LIMIT: Final = 18
_LEVELS: Final = {"packet": "packet by packet", "flow": "rates only, no packets"}
_COUNTERS: Final = (
    ("ecn_marked_packets", "packets marked"),
    ("pfc_tx_frames", "PFC frames"),
    ("dropped_packets", "packets dropped"),
    ("trimmed_packets", "trimmed"),
)


def comparison_lines(comparison: ComparisonSummary) -> list[str]:
    """Return the rows of every kind and of the job, then the description of each side and why the comparison is degraded."""
    job = comparison.job
    rows = [
        _row(
            (kind.kind, kind.algorithm, str(kind.ranks)),
            (side.joined_avg_ns if side else None for side in (kind.ideal, kind.twin, kind.measured)),
            (
                _ratio(ratio, bool(kind.degraded))
                for ratio in (kind.measured_per_ideal, kind.measured_per_twin)
            ),
        )
        for kind in comparison.kinds
    ]
    times = (side.iteration_jct_avg_ns if side else None for side in (job.ideal, job.twin, job.measured))
    ratios = (_ratio(ratio, bool(job.degraded)) for ratio in (job.measured_per_ideal, job.measured_per_twin))
    lines = aligned([*_HEADINGS, *rows, _row(_JOB, times, ratios)])
    for expected_run in comparison.expected:
        lines += wrapped(expected_run.network, _expected_text(expected_run))
    lines += each_wrapped("not compared", comparison.absent)
    lines += each_wrapped("~ degraded", job.degraded)
    by_reason: dict[str, list[str]] = {}
    for kind in comparison.kinds:
        for reason in kind.degraded:
            by_reason.setdefault(reason, []).append(f"{kind.kind} {kind.algorithm} of {kind.ranks}")
    return lines + each_wrapped("~", (f"{reason}: {', '.join(names)}" for reason, names in by_reason.items()))


def expected_lines(figures: ExpectedFigures) -> list[str]:
    """Return the rows of every kind and of the job for expected runs without a measured one."""
    rows = [
        _row(
            (kind.kind, kind.algorithm, str(kind.ranks)),
            (side.joined_avg_ns if side else None for side in (kind.ideal, kind.twin)),
            [_ratio(kind.twin_per_ideal, False)],
        )
        for kind in figures.kinds
    ]
    times = (side.iteration_jct_avg_ns if side else None for side in (figures.ideal, figures.twin))
    lines = aligned([*_EXPECTED_HEADINGS, *rows, _row(_JOB, times, [_ratio(figures.twin_per_ideal, False)])])
    for expected_run in figures.expected:
        lines += wrapped(expected_run.network, _expected_text(expected_run))
    return [*lines, *each_wrapped("not there", figures.absent), *each_wrapped("note", figures.notes)]


def _row(
    what: tuple[str, str, str], times_ns: Iterable[int | None], ratios: Iterable[str]
) -> tuple[str, ...]:
    kind, algorithm, ranks = what
    return (kind[:_KIND_LIMIT], algorithm[:_ALGORITHM_LIMIT], ranks, *map(us, times_ns), *ratios)


def _ratio(ratio: float | None, is_degraded: bool) -> str:
    """Return a ratio as text, with a leading "~" if the comparison is degraded."""
    if ratio is None:
        return "-"
    ratio_text = f"{ratio:.2f}" if ratio < _MOST_RATIO else f">{_MOST_RATIO}"
    return f"~{ratio_text}" if is_degraded else ratio_text


def _expected_text(one: ExpectedSummary) -> str:
    text = _LEVELS.get(one.level, one.level)
    if one.described_by:
        text = f"{one.described_by}, {text}"
    counter_words = [f"{one.counters[key]} {word}" for key, word in _COUNTERS if key in one.counters]
    if counter_words:
        text += f"; {', '.join(counter_words)}"
    return text + ("" if one.complete else f"; did not finish: {one.failure}")
