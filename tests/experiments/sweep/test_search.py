"""Searches: which value is tried next, what was found, and a whole one in the twin from the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etloop.cli.main import main
from etloop.contract.base.errors import ConfigError, ExitCode
from etloop.contract.base.yaml_tree import changed_text
from etloop.experiments.sweep.bisection import Search, Trial, bounds, next_value
from etloop.experiments.sweep.file import parse_sweep

if TYPE_CHECKING:
    from pathlib import Path

SWEEP = "scenario: s.yaml\nsearch: {{path: workload.incast.rate, from: {0}, to: {1}{2}}}\n"


def search_of(begin: str, end: str, more: str = "") -> Search:
    from pathlib import Path

    found = parse_sweep(SWEEP.format(begin, end, more).encode(), "sweep.yaml", Path()).search
    assert found is not None
    return found


def searched(search: Search, limit: int) -> list[Trial]:
    """A search where everything up to `limit`, seen from the begin, passes."""
    ahead = search.hard > search.easy
    tried: list[Trial] = []
    while (value := next_value(search, tried)) is not None:
        tried.append(Trial(value, value <= limit if ahead else value >= limit))
    return tried


def test_halves_until_the_step_is_found() -> None:
    """Ten steps from 0 to 100 Mb/s: the whole, nothing, then 50, 20, 30, 40."""
    search = search_of("0Mbps", "100Mbps", ", resolution: 10%")
    tried = searched(search, 37_000_000)
    assert [search.words(one.value) for one in tried] == [
        "100Mbps",
        "0bps",
        "50Mbps",
        "20Mbps",
        "30Mbps",
        "40Mbps",
    ]
    assert bounds(search, tried) == (30_000_000, 40_000_000)


@pytest.mark.parametrize(
    ("sentence", "limit", "values", "found"),
    [
        ("all that is asked for passes: one trial", 100, [64], (64, None)),
        ("nothing passes: two trials", 0, [64, 1], (None, 1)),
        ("the last count that passes", 17, [64, 1, 32, 16, 24, 20, 18, 17], (17, 18)),
    ],
)
def test_counts(sentence: str, limit: int, values: list[int], found: tuple[int | None, int | None]) -> None:
    search = search_of("1", "64")
    tried = searched(search, limit)
    assert [one.value for one in tried] == values, sentence
    assert bounds(search, tried) == found, sentence


def test_less_may_be_harder() -> None:
    search = search_of("40ms", "1ms", ", resolution: 1%")
    good, bad = bounds(search, searched(search, 7_000_000))
    assert good is not None
    assert bad is not None
    assert bad < 7_000_000 <= good
    assert good - bad == 390_000


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(1, 999_999), st.integers(0, 10**12))
@example(12296, 233, 96, 241)
def test_a_search_ends_within_its_resolution_or_its_trials(
    easy: int, hard: int, resolution: int, limit: int
) -> None:
    if easy == hard:
        return
    unit = search_of("1B", "2B").unit
    search = Search(("x",), (easy, unit), (hard, unit), resolution, 32)
    tried = searched(search, limit)
    assert len(tried) <= 2 + (search.steps - 1).bit_length() + 1
    assert len({one.value for one in tried}) == len(tried), "nothing is tried twice"
    good, bad = bounds(search, tried)
    if good is not None and bad is not None:
        assert abs(search.step_of(bad) - search.step_of(good)) == 1


@pytest.mark.parametrize(
    ("value", "reported"),
    [("5Mbps", "workload.incast.rate: 5000000bps"), ("17", "workload.incast.rate: 17")],
)
def test_a_value_stands_in_the_file_as_it_may_be_read(value: str, reported: str) -> None:
    search = search_of(value, "1Gbps" if value.endswith("s") else "99")
    text = changed_text(b"seed: 1\n", "s", [search.change(search.easy)])
    assert reported.rpartition(".")[2] in text
    assert "'" not in text


@pytest.mark.parametrize(
    ("search", "reported"),
    [
        ("{path: a.b, from: 1Mbps, to: 5ms}", "search.to: has another unit than from"),
        ("{path: a.b, from: 5, to: 5}", "search.to: equals from"),
        ("{path: a b, from: 1, to: 5}", '"a b" is not a key path'),
        ("{path: a.b, from: fast, to: 5}", '"fast" is not a number'),
        (
            "{path: a.b, from: 1, to: 5, resolution: 100%}",
            'search.resolution: "100%" is out of range; write a value from 0.0001% to 99.9999%',
        ),
        ("{path: a.b, from: 1, to: 5, trials: 1}", "search.trials"),
        ("{path: a.b, from: 1}", "search.to: is missing"),
        ("{path: a.b, from: 1, to: 5, until: 6}", "search.until"),
    ],
)
def test_a_search_that_cannot_be_is_refused(search: str, reported: str) -> None:
    from pathlib import Path

    with pytest.raises(ConfigError) as error:
        parse_sweep(f"scenario: s.yaml\nsearch: {search}\n".encode(), "sweep.yaml", Path())
    assert reported in str(error.value)


SCENARIO = """\
workload: {incast: {senders: 1, size: 64KiB, bursts: 64, rate: 1Gbps}}
mapping: {placement: round_robin}
transport: {cc: {algorithm: none}}
verdict:
  checks:
    - {check: jct_avg_ns / compute_ns <= 1.03, why: the load is carried as fast as it is offered}
"""
STUDY = """\
scenario: s.yaml
topology: t.yaml
axes: {topology.single.rate: [10Gbps, 4Gbps]}
search: {path: workload.incast.rate, from: 1Gbps, to: 9Gbps, resolution: 5%}
"""


def test_the_throughput_of_two_links_in_the_twin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    (tmp_path / "t.yaml").write_text("single: {ports: [a/p0, b/p0], rate: 10Gbps}\n")
    (tmp_path / "sweep.yaml").write_text(STUDY)
    words = ["sweep", str(tmp_path / "sweep.yaml"), "--twin", "--no-ideal", "--out", str(tmp_path / "out")]
    assert main(words) == ExitCode.PASS
    table = capsys.readouterr().out
    reported = json.loads((tmp_path / "out" / "search.json").read_text())
    fast, slow = reported["points"]
    assert (fast["best"], fast["fails_at"]) == (9_000_000_000, None), "all of it: one trial"
    assert len(fast["trials"]) == 1
    # 4 Gb/s carry at most 4096 of 4178 bytes of payload: 3.92; steps are of 0.4 Gb/s from 1 on.
    assert 3.0e9 <= slow["best"] <= 3.92e9 < slow["fails_at"] + 0.4e9
    assert slow["fails_at"] - slow["best"] == 400_000_000
    assert "passes up to" in table
    assert "9Gbps" in table
    assert "jct_avg_ns / compute_ns <= 1.03 (fail" in table
    page = (tmp_path / "out" / "search.html").read_text()
    assert all(trial["words"] in page for point in reported["points"] for trial in point["trials"])
    assert "jct_avg_ns / compute_ns &lt;= 1.03 (fail" in page
    assert "workload.incast.rate (Gbit/s)" in page
    # Whole: nothing is run again, and the answer is the same.
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("summary.json")}
    assert main([*words, "--resume"]) == ExitCode.PASS
    assert capsys.readouterr().out == table
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("summary.json")} == before
    # Killed between two trials: the rest is the same.
    half = dict(reported, points=[fast, dict(slow, trials=slow["trials"][:2], done=False)])
    (tmp_path / "out" / "search.json").write_text(json.dumps(half))
    assert main([*words, "--resume"]) == ExitCode.PASS
    assert json.loads((tmp_path / "out" / "search.json").read_text()) == reported
    # Other files: another search.
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("1.03", "1.04"))
    assert main([*words, "--resume"]) == ExitCode.PREPARATION_FAILED
    assert "is of another search" in capsys.readouterr().err


def test_a_search_that_passes_nowhere_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("<= 1.03", "<= 0.5"))
    (tmp_path / "t.yaml").write_text("single: {ports: [a/p0, b/p0], rate: 10Gbps}\n")
    (tmp_path / "sweep.yaml").write_text(STUDY.replace("axes", "set").replace("[10Gbps, 4Gbps]", "10Gbps"))
    words = ["sweep", str(tmp_path / "sweep.yaml"), "--twin", "--no-ideal", "--out", str(tmp_path / "out")]
    assert main(words) == ExitCode.VERDICT_FAILED
    assert "nowhere" in capsys.readouterr().out


def test_without_a_verdict_nothing_says_what_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO.partition("verdict:")[0])
    (tmp_path / "t.yaml").write_text("single: {ports: [a/p0, b/p0], rate: 10Gbps}\n")
    (tmp_path / "sweep.yaml").write_text(STUDY)
    words = ["sweep", str(tmp_path / "sweep.yaml"), "--twin", "--no-ideal", "--out", str(tmp_path / "out")]
    assert main(words) == ExitCode.PREPARATION_FAILED
    assert "a search needs a verdict, but the scenario has no checks" in capsys.readouterr().err
