"""Figures of a bench: medians with their range, ratios, bars, and their output as text and JSON.

Decides the arithmetic and the wording. `bench.engine` decides how a figure is measured; docs/benchmarks.md derives
each.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from statistics import median
from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import approximate_bytes, approximate_duration

_LABEL_COLUMNS: Final = 44
_FIGURE_COLUMNS: Final = 11


class Unit(StrEnum):
    """Unit of the samples of a series."""

    BYTES_PER_S = "bytes_per_s"
    NANOSECONDS = "ns"
    PER_S = "per_s"


@dataclass(frozen=True, slots=True)
class Series:
    """One quantity, measured once in every repetition."""

    name: str
    unit: Unit
    samples: tuple[int, ...]


class Bound(StrEnum):
    """Side of its bar on which a ratio should be."""

    AT_LEAST = "at least"
    AT_MOST = "at most"


@dataclass(frozen=True, slots=True)
class Bar:
    """Limit of a ratio."""

    bound: Bound
    value: float

    def __str__(self) -> str:
        return f"{self.bound} {self.value:.2f}"

    def met_by(self, ratio: float) -> bool:
        """Return whether a ratio is on the right side."""
        return ratio >= self.value if self.bound is Bound.AT_LEAST else ratio <= self.value


@dataclass(frozen=True, slots=True)
class Ratio:
    """Quotient of two series, repetition by repetition, so that a slowdown of the whole machine affects both."""

    name: str
    samples: tuple[float, ...]
    bar: Bar | None = None
    """None: reported for information."""

    @property
    def met(self) -> bool:
        """Return whether the median is on the right side of the bar; True without a bar."""
        return self.bar is None or self.bar.met_by(median(self.samples))


@dataclass(frozen=True, slots=True)
class Section:
    """One benchmark: its series, its ratios, and notes for their reader."""

    name: str
    title: str
    series: tuple[Series, ...]
    ratios: tuple[Ratio, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BenchReport:
    """All results of one bench."""

    path: str
    """Network that the packets crossed."""
    cores: int
    load_average: float
    """Load average of the last minute before the bench: above 0 other programs were running."""
    repetitions: int
    sections: tuple[Section, ...]
    notes: tuple[str, ...] = ()

    @property
    def met(self) -> bool:
        """Return whether every bar is met."""
        return all(ratio.met for section in self.sections for ratio in section.ratios)


def ratio_of(name: str, numerators: Sequence[int], denominators: Sequence[int], bar: Bar) -> Ratio:
    """Return the ratio of every repetition. Denominators must be above 0: a rate or time of 0 is a failed measurement."""
    assert len(numerators) == len(denominators) > 0
    assert all(sample > 0 for sample in denominators)
    samples = tuple(above / below for above, below in zip(numerators, denominators, strict=True))
    return Ratio(name, samples, bar)


def bytes_per_s(moved_bytes: int, duration_ns: int) -> int:
    """Return the rate in bytes per second, rounded down. `duration_ns` is positive."""
    assert duration_ns > 0
    return moved_bytes * NS_PER_S // duration_ns


def percentile_of(histogram: Sequence[tuple[int, int]], percent: int) -> int:
    """Return the nearest-rank percentile of (least value of a bucket, count) pairs: the least value of its bucket.

    The histogram must not be empty.
    """
    total = sum(count for _, count in histogram)
    assert total > 0
    rank = -(-total * percent // 100)
    cumulated = 0
    for least, count in sorted(histogram):
        cumulated += count
        if cumulated >= rank:
            return least
    raise AssertionError("a rank beyond the total")


def render(report: BenchReport) -> str:
    """Return the report as text; ends with a newline."""
    cores = f"{report.cores} core{'' if report.cores == 1 else 's'}"
    lines = [f"over {report.path}; {cores}, load average {report.load_average:.2f} at the start"]
    lines += [f"note: {note}" for note in report.notes]
    for section in report.sections:
        lines += ["", *_section_lines(section)]
    return "\n".join(lines) + "\n"


def _section_lines(section: Section) -> list[str]:
    lines = [f"{section.name}: {section.title}", _row("", ("median", "min", "max"))]
    for series in section.series:
        texts = [_figure(value, series.unit) for value in _spread(series.samples)]
        lines.append(_row(series.name, texts))
    for ratio in section.ratios:
        texts = [f"{value:.2f}" for value in _spread(ratio.samples)]
        verdict = "met" if ratio.met else "NOT MET"
        lines.append(_row(ratio.name, texts) + (f"   bar {ratio.bar}: {verdict}" if ratio.bar else ""))
    lines += [f"  note: {note}" for note in section.notes]
    return lines


def _row(label: str, texts: Sequence[str]) -> str:
    return f"  {label:<{_LABEL_COLUMNS}}" + "".join(f"{text:>{_FIGURE_COLUMNS}}" for text in texts)


def _spread(samples: Sequence[float]) -> tuple[float, float, float]:
    return median(samples), min(samples), max(samples)


def _figure(value: float, unit: Unit) -> str:
    rounded = round(value)
    if unit is Unit.PER_S:
        return f"{value / 1e6:.3f} M/s"
    return f"{approximate_bytes(rounded)}/s" if unit is Unit.BYTES_PER_S else approximate_duration(rounded)


def as_json_value(report: BenchReport) -> dict[str, object]:
    """Return the report as a value for JSON: `etloop-bench/1`."""
    return {
        "schema": "etloop-bench/1",
        "path": report.path,
        "cores": report.cores,
        "load_average": report.load_average,
        "repetitions": report.repetitions,
        "met": report.met,
        "notes": list(report.notes),
        "sections": [_section_value(section) for section in report.sections],
    }


def _section_value(section: Section) -> dict[str, object]:
    return {
        "name": section.name,
        "title": section.title,
        "series": [
            {"name": series.name, "unit": series.unit.value, **_samples_value(series.samples)}
            for series in section.series
        ],
        "ratios": [
            {
                "name": ratio.name,
                **_samples_value(ratio.samples),
                "bar": {"bound": ratio.bar.bound.value, "value": ratio.bar.value} if ratio.bar else None,
                "met": ratio.met,
            }
            for ratio in section.ratios
        ],
        "notes": list(section.notes),
    }


def _samples_value(samples: Sequence[float]) -> dict[str, object]:
    middle, least, most = _spread(samples)
    return {"median": middle, "min": least, "max": most, "samples": list(samples)}
