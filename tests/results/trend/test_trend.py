"""From runs of several versions to dated changes, their direction, and what a CI job reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import xmlschema

from etloop.contract.base.errors import ConfigError
from etloop.results.html.trend import trend_html
from etloop.results.schema.trend import ChangeKind, RecordedRun, Trend
from etloop.results.schema.typed_json import to_json
from etloop.results.store.history import HistoryRow
from etloop.results.text.trend import render_trend
from etloop.results.trend.trend import TrendSettings, build_trend
from etloop.results.verdict.junit import trend_junit
from tests.support.places import ROOT

VERSIONS = ("4.4", "4.5", "4.6")


def rows(
    by_version: Mapping[str, tuple[float, ...]], series: str = "job.1", count: int = 8
) -> list[HistoryRow]:
    """`count` runs of each version; figures by name: a level for each version, with a small variation."""
    return [
        HistoryRow(
            RecordedRun(f"r{number:03}", f"2026-11-{number + 1:02}T08:00:00Z", version, "Acme S1"),
            "job",
            series,
            "",
            {name: levels[at] * (1 + 0.001 * (number * 7 % 5)) for name, levels in by_version.items()},
        )
        for at, version in enumerate(VERSIONS)
        for number in range(at * count, (at + 1) * count)
    ]


@cache
def release(since: str = "") -> Trend:
    """4.5 is slower and drops, 4.6 repairs the drops and loses bandwidth by less than the least effect."""
    made = rows(
        {
            "jct_avg_ns": (1e7, 1.1e7, 1.1e7),
            "lost_packets": (0.0, 500.0, 0.0),
            "goodput_bps": (4e10, 3.6e10, 3.57e10),
            "tx_packets": (1e5, 2e5, 2e5),
            "busbw all_reduce, 4 ranks": (5e9, 4.5e9, 4.5e9),
        }
    )
    return build_trend("runs", made, TrendSettings(since=since), ("r099: damaged",))


def test_changes_are_dated_and_have_a_direction() -> None:
    (history,) = release().histories
    assert [(change.run, change.before.version, change.after.version) for change in history.changes] == [
        (8, "4.4", "4.5"),
        (16, "4.5", "4.6"),
    ]
    assert {line.name: line.change_kind for line in history.figures} == {
        "busbw all_reduce, 4 ranks": ChangeKind.WORSE,
        "goodput_bps": ChangeKind.SMALL,
        "jct_avg_ns": ChangeKind.WORSE,
        "lost_packets": ChangeKind.BETTER,
        "tx_packets": ChangeKind.DIFFERENT,
    }
    assert release().worse == (
        "job: busbw all_reduce, 4 ranks -10.0% since 2026-11-09T08:00:00Z (r008), with 4.5 after 4.4",
        "job: jct_avg_ns +10.0% since 2026-11-09T08:00:00Z (r008), with 4.5 after 4.4",
    )


@pytest.mark.parametrize("since", ["4.6", "2026-11-10"])
def test_accepted_changes_decide_nothing(since: str) -> None:
    assert not release(since).worse
    assert [change.run for change in release(since).histories[0].changes] == [8, 16], "they are still shown"


def test_wrong_settings_are_refused() -> None:
    made = rows({"jct_avg_ns": (1.0, 1.0, 1.0)})
    with pytest.raises(ConfigError, match="neither a time nor the version"):
        build_trend("runs", made, TrendSettings(since="5.0"), ())
    with pytest.raises(ConfigError, match="no run has a figure"):
        build_trend("runs", made, TrendSettings(figures=("jct",)), ())


def test_jobs_are_apart_and_short_ones_are_named() -> None:
    made = [*rows({"jct_avg_ns": (1.0, 1.0, 1.0)}), *rows({"jct_avg_ns": (1.0, 2.0, 2.0)}, "other.2", 3)]
    trend = build_trend("runs", made, TrendSettings(), ())
    assert [history.series for history in trend.histories] == ["job.1"]
    assert trend.too_short == ("job (other.2): 9 runs, expected 12",)


def test_every_output_has_the_change() -> None:
    trend = release()
    page, text = trend_html(trend), render_trend(trend)
    for output in (page, text, to_json(trend)):
        assert "2026-11-09T08:00:00Z" in output
        assert "r099: damaged" in output
    assert page.count("<figure") == 5
    assert "at most 0.50% of histories" in text
    assert json.loads(to_json(trend))["histories"][0]["changes"][0]["run"] == 8


def test_junit_has_a_case_per_figure() -> None:
    text = trend_junit(release())
    xmlschema.XMLSchema(str(Path(ROOT) / "tests" / "data" / "junit.xsd")).validate(text)
    cases = ET.fromstring(text).findall("testsuite/testcase")
    assert {case.attrib["name"] for case in cases if case.find("failure") is not None} == {
        "busbw all_reduce, 4 ranks",
        "jct_avg_ns",
    }
    assert len(cases) == 5
