"""`ideal`, `twin` and `measured` beside each other as lines of the printed table.

Decides wording and rounding only; every figure comes from `summary.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.results.text.layout import aligned, us, wrapped

if TYPE_CHECKING:
    from etloop.results.expected.expected_figures import ExpectedFigures, ExpectedKind
    from etloop.results.schema.summary import ComparisonSummary, ExpectedSummary, KindComparison

_HEADINGS: Final = (
    ("", "", "", "all joined, avg (us)", "", "", "measured", "measured"),
    ("collective", "algorithm", "n", "ideal", "twin", "measured", "/ideal", "/twin"),
)
_EXPECTED_HEADINGS: Final = (
    ("", "", "", "all joined, avg (us)", "", "twin"),
    ("collective", "algorithm", "n", "ideal", "twin", "/ideal"),
)
_JOB: Final = "job, an iteration"
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
    """The rows of every kind and of the job, then what each side is and what makes comparing them doubtful."""
    rows = [*_HEADINGS, *(_kind_row(kind) for kind in comparison.kinds), _job_row(comparison)]
    lines = aligned(rows)
    for one in comparison.expected:
        lines += wrapped(one.network, _expected_text(one))
    for text in comparison.absent:
        lines += wrapped("not compared", text)
    for text in comparison.job.degraded:
        lines += wrapped("~ degraded", text)
    by_reason: dict[str, list[str]] = {}
    for kind in comparison.kinds:
        for reason in kind.degraded:
            by_reason.setdefault(reason, []).append(f"{kind.kind} {kind.algorithm} of {kind.ranks}")
    for reason, names in by_reason.items():
        lines += wrapped("~", f"{reason}: {', '.join(names)}")
    return lines


def expected_lines(figures: ExpectedFigures) -> list[str]:
    """The same of what is only expected."""
    job = (
        _JOB,
        "",
        "",
        *(us(side.iteration_jct_avg_ns) if side else "-" for side in (figures.ideal, figures.twin)),
        _ratio(figures.twin_per_ideal, False),
    )
    rows = [*_EXPECTED_HEADINGS, *(_expected_row(kind) for kind in figures.kinds), job]
    lines = aligned(rows)
    for one in figures.expected:
        lines += wrapped(one.network, _expected_text(one))
    for text in figures.absent:
        lines += wrapped("not there", text)
    for text in figures.notes:
        lines += wrapped("note", text)
    return lines


def _expected_row(kind: ExpectedKind) -> tuple[str, ...]:
    return (
        kind.kind[:_KIND_LIMIT],
        kind.algorithm[:_ALGORITHM_LIMIT],
        str(kind.ranks),
        *(us(side.joined_avg_ns) if side else "-" for side in (kind.ideal, kind.twin)),
        _ratio(kind.twin_per_ideal, False),
    )


def _kind_row(kind: KindComparison) -> tuple[str, ...]:
    times = (kind.ideal, kind.twin, kind.measured)
    return (
        kind.kind[:_KIND_LIMIT],
        kind.algorithm[:_ALGORITHM_LIMIT],
        str(kind.ranks),
        *(us(side.joined_avg_ns) if side else "-" for side in times),
        _ratio(kind.measured_per_ideal, bool(kind.degraded)),
        _ratio(kind.measured_per_twin, bool(kind.degraded)),
    )


def _job_row(comparison: ComparisonSummary) -> tuple[str, ...]:
    job = comparison.job
    return (
        _JOB,
        "",
        "",
        *(us(side.iteration_jct_avg_ns) if side else "-" for side in (job.ideal, job.twin, job.measured)),
        _ratio(job.measured_per_ideal, bool(job.degraded)),
        _ratio(job.measured_per_twin, bool(job.degraded)),
    )


def _ratio(ratio: float | None, is_degraded: bool) -> str:
    """With a mark where it compares what is not alike."""
    if ratio is None:
        return "-"
    shown = f"{ratio:.2f}" if ratio < _MOST_RATIO else f">{_MOST_RATIO}"
    return f"~{shown}" if is_degraded else shown


def _expected_text(one: ExpectedSummary) -> str:
    text = _LEVELS.get(one.level, one.level)
    if one.described_by:
        text = f"{one.described_by}, {text}"
    counted = [f"{one.counters[key]} {word}" for key, word in _COUNTERS if key in one.counters]
    if counted:
        text += f"; {', '.join(counted)}"
    return text + ("" if one.complete else f"; did not finish: {one.failure}")
