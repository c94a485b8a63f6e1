"""Tables of collectives: measured by kind, next to recorded times, next to expected times, and the slowest by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from etloop.results.report.table import Column, Table, Unit, Value, table_of
from etloop.results.report.values import us

if TYPE_CHECKING:
    from etloop.results.expected.expected_vs_measured import ExpectedFigures
    from etloop.results.schema.kpis import KpiSet
    from etloop.results.schema.slow_ops import SlowNames
    from etloop.results.schema.summary import (
        ComparisonSummary,
        ExpectedSummary,
        JobFigures,
        KindFigures,
        KindSummary,
        Summary,
    )

_KIND: Final = Column("kind", "collective", most_characters=20)
_COUNT: Final = Column("count", "count", Unit.NUMBER)
_KIND_COLUMNS: Final = (
    _KIND,
    Column("algorithm", "algorithm", most_characters=10),
    Column("ranks", "n", Unit.NUMBER),
    _COUNT,
    Column("size_bytes", "S", Unit.BYTES, "total"),
    Column("fabric_share", "/sent", Unit.PERCENT, "S_fab"),
    Column("time_min_ns", "min", Unit.TIME, "time"),
    Column("time_avg_ns", "avg", Unit.TIME, "time"),
    Column("time_p50_ns", "p50", Unit.TIME, "time"),
    Column("time_p99_ns", "p99", Unit.TIME, "time"),
    Column("time_max_ns", "max", Unit.TIME, "time", is_detail=True),
    Column("algbw_bytes_per_s", "algbw", Unit.RATE),
    Column("busbw_bytes_per_s", "busbw", Unit.RATE),
)


def kinds_table(summary: Summary, kpis: KpiSet | None = None) -> Table:
    """Return a row for each kind of collective; `kpis` adds figures that the summary does not have."""
    by_kind = (
        {(kind.kind, kind.algorithm, kind.ranks): kind for kind in kpis.kinds} if kpis is not None else {}
    )

    def detail(name: str, title: str, unit: Unit) -> Column:
        def value(kind: KindSummary) -> Value:
            return getattr(by_kind.get((kind.kind, kind.algorithm, kind.ranks)), name, None)

        return Column(name, title, unit, is_detail=True, value=value)

    details = (
        detail("skew_p99_ns", "skew p99", Unit.TIME),
        detail("share_of_ideal", "of line rate", Unit.SHARE),
    )
    incomplete = sum(kind.incomplete for kind in summary.kinds)
    notes = (
        (f"Not in these figures: {incomplete} of which only some members completed.",) if incomplete else ()
    )
    title = "By kind, algorithm and size of group (n)"
    return table_of("kinds", title, (*_KIND_COLUMNS, *details), summary.kinds, notes, 0, "summary.json")


_BASELINE_COLUMNS: Final = (
    _KIND,
    Column("communicator", "communicator", most_characters=20),
    Column("sequence", "k", Unit.NUMBER),
    _COUNT,
    Column("size_bytes", "S", Unit.BYTES),
    Column("joined_min_ns", "min", Unit.TIME, "all joined"),
    Column("joined_p50_ns", "p50", Unit.TIME, "all joined"),
    Column(
        "recorded_ns",
        "recorded",
        Unit.TIME,
        value=lambda baseline: (
            baseline.recorded_ns
            if baseline.recorded_ranks == baseline.ranks
            else f"<= {us(baseline.recorded_ns)}"
        ),
    ),
)


def baselines_table(summary: Summary) -> Table:
    """Return replayed times next to recorded times, one row a collective; no rows if the trace recorded no times."""
    title = "Next to the times that the trace recorded"
    baselines, place = summary.baselines, "collectives.parquet, column recorded_ns"
    return table_of(
        "baselines", title, _BASELINE_COLUMNS, baselines.first, total=baselines.total, all_rows_in=place
    )


_MOST_RATIO: Final = 999
_LEVELS: Final = {"packet": "packet by packet", "flow": "rates only, no packets"}
_COUNTERS: Final = (
    ("ecn_marked_packets", "packets marked"),
    ("pfc_tx_frames", "PFC frames"),
    ("dropped_packets", "packets dropped"),
    ("trimmed_packets", "trimmed"),
)
_JOB: Final = ("job, an iteration", "", "")
_EXPECTED_COLUMNS: Final = (
    _KIND,
    Column("algorithm", "algorithm", most_characters=18),
    Column("ranks", "n", Unit.NUMBER),
    *(Column(side, side, Unit.TIME, "all joined, avg") for side in ("ideal", "twin", "measured")),
    *(Column(f"per_{side}", f"/{side}", Unit.NUMBER, "measured") for side in ("ideal", "twin")),
)


def comparison_table(comparison: ComparisonSummary) -> Table:
    """Return the times of every kind and of the job: ideal network, twin and measured; ratios of degraded comparisons
    begin with "~"."""
    rows: list[tuple[Value, ...]] = [
        (
            *(kind.kind, kind.algorithm, kind.ranks),
            *_joined_ns(kind.ideal, kind.twin, kind.measured),
            _ratio(kind.measured_per_ideal, is_degraded=bool(kind.degraded)),
            _ratio(kind.measured_per_twin, is_degraded=bool(kind.degraded)),
        )
        for kind in comparison.kinds
    ]
    job = comparison.job
    ratios = (
        _ratio(ratio, is_degraded=bool(job.degraded))
        for ratio in (job.measured_per_ideal, job.measured_per_twin)
    )
    rows.append((*_JOB, *_iteration_ns(job.ideal, job.twin, job.measured), *ratios))
    return Table("comparison", "Measured next to expected times", _EXPECTED_COLUMNS, tuple(rows))


def degraded_words(comparison: ComparisonSummary) -> Iterator[str]:
    """Yield why single kinds are not fully comparable, each reason once with its kinds."""
    by_reason: dict[str, list[str]] = {}
    for kind in comparison.kinds:
        for reason in kind.degraded:
            by_reason.setdefault(reason, []).append(f"{kind.kind} {kind.algorithm} of {kind.ranks}")
    for reason, names in by_reason.items():
        yield f"{reason}: {', '.join(names)}"


def expected_table(figures: ExpectedFigures) -> Table:
    """Return the times of every kind and of the job in expected runs without a measured one."""
    rows: list[tuple[Value, ...]] = [
        (
            *(kind.kind, kind.algorithm, kind.ranks),
            *_joined_ns(kind.ideal, kind.twin),
            _ratio(kind.twin_per_ideal),
        )
        for kind in figures.kinds
    ]
    rows.append((*_JOB, *_iteration_ns(figures.ideal, figures.twin), _ratio(figures.twin_per_ideal)))
    columns = (*_EXPECTED_COLUMNS[:5], Column("per_ideal", "/ideal", Unit.NUMBER, "twin"))
    return Table("expected", "Expected times", columns, tuple(rows))


def _joined_ns(*sides: KindFigures | None) -> Iterator[int | None]:
    return (None if side is None else side.joined_avg_ns for side in sides)


def _iteration_ns(*sides: JobFigures | None) -> Iterator[int | None]:
    return (None if side is None else side.iteration_jct_avg_ns for side in sides)


def _ratio(ratio: float | None, *, is_degraded: bool = False) -> str:
    """Return a ratio as text, with a leading "~" if the comparison is degraded."""
    if ratio is None:
        return "-"
    ratio_text = f"{ratio:.2f}" if ratio < _MOST_RATIO else f">{_MOST_RATIO}"
    return f"~{ratio_text}" if is_degraded else ratio_text


def expected_words(expected: ExpectedSummary) -> str:
    """Describe an expected run: topology, level, counters and, if it did not finish, the reason."""
    text = _LEVELS.get(expected.level, expected.level)
    if expected.described_by:
        text = f"{expected.described_by}, {text}"
    counter_words = [
        f"{expected.counters[key]} {word}" for key, word in _COUNTERS if key in expected.counters
    ]
    if counter_words:
        text += f"; {', '.join(counter_words)}"
    return text + ("" if expected.complete else f"; did not finish: {expected.failure}")


_SLOW_COLUMNS: Final = (
    Column("name", "slowest by name", Unit.CODE, most_characters=-44),
    _KIND,
    _COUNT,
    Column("joined_avg_ns", "avg", Unit.TIME, "joined"),
    Column("least_avg_ns", "avg", Unit.TIME, "line rate"),
    Column("beyond_ns", "in all", Unit.TIME, "lost"),
    Column("worst_beyond_ns", "worst", Unit.TIME, "lost", is_detail=True),
    Column(
        "worst_iteration",
        "worst in",
        Unit.NUMBER,
        value=lambda slow_name: f"iteration {slow_name.worst_iteration}",
    ),
)


def slow_names_table(slow: SlowNames) -> Table:
    """Return the operations of the trace that lost most time, by name."""
    title = "By the names of the trace, over all iterations"
    place = "collectives.parquet, column name"
    return table_of("slow-names", title, _SLOW_COLUMNS, slow.first, total=slow.total, all_rows_in=place)
