"""What a judged run leaves beside its tables: a page without a network and a trace for a viewer; both survive any name."""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from hypothesis import given as with_given
from hypothesis import strategies as st

from etloop.cli.main import main
from etloop.contract.base.errors import ConfigError, ExitCode
from etloop.contract.model.run import RunOutcome
from etloop.controller.run.verdict import judge_again
from etloop.results.artifacts import add_verdict
from etloop.results.export.perfetto import lanes_of
from etloop.results.kpis.port_series import spread
from etloop.results.schema.kpis import KpiBasis
from etloop.results.schema.typed_json import RunDirError
from etloop.results.schema.verdict import RequestedCondition, Result
from etloop.results.store.run_dir import read_artifacts, read_kpis, read_run, write_run
from etloop.results.verdict.verdict import Conditions
from tests.support.runs.records_by_hand import (
    aborted_by_hand,
    outcome_by_hand,
    run_by_hand,
    tables_by_hand,
)

if TYPE_CHECKING:
    from etloop.contract.model.run import PlanTables

BASIS: Final = KpiBasis({"a/p0": 10**9, "b/p0": 10**9}, (1000, 2000, 0, 0), 4096)
CHECKS: Final = (
    RequestedCondition("jct_avg_ns <= 30us", "a job is slow", "scenario.yaml:3"),
    RequestedCondition("lost_share == 0", "lossless", "scenario.yaml:4"),
)
SCENARIO: Final = (
    "workload: {trace: x}\nverdict:\n  checks:\n  - {check: jct_avg_ns <= 30us, why: a job is slow}\n"
)
RIG: Final = (
    "agents:\n- name: a\n  ports: [{name: p0, addresses: 10.0.0.1, link: 1Gbps}]\n"
    "- name: b\n  ports: [{name: p0, addresses: 10.0.0.2, link: 1Gbps}]\nsecurity: {insecure: true}\n"
)


def with_verdict(
    run_dir: Path, outcome: RunOutcome | None = None, tables: PlanTables | None = None
) -> dict[str, str]:
    """The run by hand with its verdict, in `run_dir`."""
    run = run_by_hand(outcome, tables, (SCENARIO, RIG))
    write_run(run_dir, run)
    found = add_verdict(read_artifacts(run_dir), BASIS, Conditions(CHECKS, device="dut-1"))
    write_run(run_dir, found, run)
    return {name: str(text) for name, text in found.texts.items()}


def test_the_page_tells_the_run(tmp_path: Path) -> None:
    page = with_verdict(tmp_path)["report.html"]
    for reported in (
        "FAIL",
        "jct_avg_ns &lt;= 30us: jct_avg_ns = 70 us",
        "all_reduce",
        "rank 1",
        "receive buffer is 212992 bytes",
        "it keeps no case.zip, because no scenario describes its job or an earlier version made it",
        "link: 1Gbps",
        'id="completion"',
        'id="timeline-plot"',
        'id="matrix"',
    ):
        assert reported in page, reported


def test_the_page_needs_no_network_and_no_script(tmp_path: Path) -> None:
    text = with_verdict(tmp_path)["report.html"]
    assert "<script" not in text
    assert not re.search(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=", text)
    assert "@import" not in text


SHAPES: Final = {
    "path": ('fill="none"', 'stroke="#'),
    "line": ('stroke="#',),
    "rect": ('fill="#',),
}
"""What a shape of each kind needs to be seen as what it is."""


def test_pictures_are_whole_where_styles_of_the_page_are_forbidden(tmp_path: Path) -> None:
    """As Jenkins publishes it: a shape without a look of its own would be a black area, or nothing."""
    page = with_verdict(tmp_path / "r")["report.html"]
    drawn = re.findall(r"<(path|line|rect) ([^>]*)>", page)
    assert {kind for kind, _ in drawn} == set(SHAPES)
    for kind, attributes in drawn:
        for look in SHAPES[kind]:
            assert look in attributes, (kind, attributes)
    strokes = {
        match[1]: match[2] for match in re.finditer(r'class="line (c\d+)[^>]* stroke="(#[0-9a-f]+)"', page)
    }
    assert len(set(strokes.values())) == len(strokes) > 1, "a colour is one port's"
    keys = {
        match[1]: match[2] for match in re.finditer(r'class="swatch (c\d+)[^>]* fill="(#[0-9a-f]+)"', page)
    }
    assert {colour: keys[colour] for colour in strokes} == strokes, "a legend has the colours of its lines"
    pictures = re.findall(r"<svg ([^>]*)>", page)
    assert any("for-narrow" in one for one in pictures)
    for one in pictures:
        assert ("for-narrow" in one) == ('display="none"' in one), "each picture is shown once"


@pytest.mark.parametrize("outcome", [aborted_by_hand(), replace(aborted_by_hand(), agents=())])
def test_a_run_that_broke_off_has_its_page_and_its_reason(tmp_path: Path, outcome: RunOutcome) -> None:
    page = with_verdict(tmp_path, outcome)["report.html"]
    assert "no heartbeat for 3 s" in page
    assert "INCONCLUSIVE" in page or "FAIL" in page


def test_names_of_others_are_text_and_never_markup(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>"
    tables = tables_by_hand()
    tables = replace(
        tables, source=evil, communicators=((evil, (0, 1, 2, 3)), ("tp1", (1, 2))), notes=(evil,)
    )
    texts = with_verdict(tmp_path, replace(outcome_by_hand(), run_id=evil), tables)
    assert "<script>alert" not in texts["report.html"]
    assert json.loads(texts["trace.perfetto.json"])["otherData"]["workload"] == evil


def test_the_trace_has_a_track_for_every_rank_and_a_counter_for_every_port(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = json.loads(with_verdict(tmp_path)["trace.perfetto.json"])["traceEvents"]
    threads = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {f"rank {rank} ({agent})" for rank, agent in enumerate("aabb")} <= threads
    spans = [event for event in events if event["ph"] == "X" and event["cat"] == "op"]
    assert len(spans) == 16
    first = next(
        event for event in spans if event["args"].get("collective") == "all_reduce" and event["pid"] == 1
    )
    assert (first["ts"], first["dur"]) == (2.1, 17.9)
    assert first["args"]["communicator"] == "world"
    names = {event["name"] for event in events if event["ph"] == "C"}
    assert names == {f"{port} {way} Gbit/s" for port in ("a/p0", "b/p0") for way in ("tx", "rx")}
    by_thread = defaultdict(list)
    for event in spans:
        by_thread[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for times in by_thread.values():
        ordered = sorted(times)
        assert all(one[1] <= two[0] for one, two in itertools.pairwise(ordered))


def test_the_load_of_a_port_adds_up(tmp_path: Path) -> None:
    """Port a sends 7500 bytes in an iteration, twice: the counter's areas are those bytes."""
    events: list[dict[str, Any]] = json.loads(with_verdict(tmp_path)["trace.perfetto.json"])["traceEvents"]
    points = [(event["ts"], event["args"]["value"]) for event in events if event["name"] == "a/p0 tx Gbit/s"]
    bits = sum(rate * 1000 * (two[0] - at) for (at, rate), two in itertools.pairwise(points))
    assert bits / 8 == pytest.approx(15_000, rel=1e-4)


@with_given(st.lists(st.tuples(st.integers(0, 999), st.integers(0, 300), st.integers(0, 10**6)), max_size=20))
def test_bytes_spread_over_time_stay_the_same_bytes(flows: list[tuple[int, int, int]]) -> None:
    begin, length, carried = (
        (np.array(column, np.float64) for column in zip(*flows, strict=True)) if flows else (np.empty(0),) * 3
    )
    edges = np.linspace(0, 1400, 29)
    rates = spread(begin, begin + length, carried, edges)
    assert (rates * np.diff(edges) / 8e9).sum() == pytest.approx(carried.sum(), rel=1e-6, abs=1e-3)


@with_given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=40))
def test_spans_of_a_lane_do_not_overlap(spans: list[tuple[int, int]]) -> None:
    ordered = sorted((begin, begin + length) for begin, length in spans)
    lanes = lanes_of(
        np.array([one[0] for one in ordered], float), np.array([one[1] for one in ordered], float)
    )
    last: dict[int, int] = {}
    for (begin, end), lane in zip(ordered, lanes.tolist(), strict=True):
        assert last.get(lane, 0) <= begin
        last[lane] = end


def test_a_run_is_judged_again_from_its_directory_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_verdict(tmp_path)
    summary = judge_again(tmp_path, is_kept=True)
    assert summary.verdict is not None
    assert [one.expression for one in summary.verdict.checks] == ["jct_avg_ns <= 30us"]
    milder = tmp_path / "milder.yaml"
    milder.write_text("verdict:\n  checks:\n  - {check: jct_avg_ns <= 80us, why: mild}\n")
    assert main(["report", str(tmp_path), "--conditions", str(milder)]) == ExitCode.PASS
    assert "verdict         PASS: 1 pass" in capsys.readouterr().out
    assert main(["report", str(tmp_path), "--verdict"]) == ExitCode.VERDICT_FAILED
    assert read_run(tmp_path).summary.verdict == summary.verdict
    assert read_kpis(tmp_path).basis == BASIS


def files_of(run_dir: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}


def test_only_write_changes_the_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    with_verdict(run_dir)
    before = files_of(run_dir)
    milder = tmp_path / "milder.yaml"
    milder.write_text("verdict:\n  checks:\n  - {check: jct_avg_ns <= 80us, why: mild}\n")
    words = ["report", str(run_dir), "--conditions", str(milder)]
    forms: tuple[list[str], ...] = (["--markdown"], ["--json"], [], ["--dut", "soft-switch"])
    for form in forms:
        main([*words, *form])
        assert files_of(run_dir) == before, form
    main(["report", str(run_dir), "--verdict"])
    main(["report", str(run_dir), "--markdown"])
    assert files_of(run_dir) == before
    assert main([*words, "--open"]) == ExitCode.PREPARATION_FAILED, "the page has another verdict"
    assert "add --write to store the new verdict" in capsys.readouterr().err
    assert main([*words, "--write"]) == ExitCode.PASS
    changed = {Path(name).name for name, content in files_of(run_dir).items() if before.get(name) != content}
    assert {"summary.json", "junit.xml", "report.html"} <= changed
    verdict = read_run(run_dir).summary.verdict
    assert verdict is not None
    assert [one.expression for one in verdict.checks] == ["jct_avg_ns <= 80us"]


def test_conditions_that_cannot_be_read_are_refused_when_judging_again(tmp_path: Path) -> None:
    with_verdict(tmp_path)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("verdict:\n  checks:\n  - {check: jct <= 50us, why: a typo}\n")
    with pytest.raises(ConfigError, match="no figure is called jct; did you mean"):
        judge_again(tmp_path, wrong)
    with pytest.raises(ConfigError, match="is not a shipped profile"):
        judge_again(tmp_path, None, "tomahawk-99")


def test_a_condition_that_is_too_long_is_quoted_as_far_as_it_is_read(tmp_path: Path) -> None:
    with_verdict(tmp_path)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(f"verdict:\n  checks:\n  - {{check: {'1+' * 100_000}1 <= 2, why: long}}\n")
    with pytest.raises(ConfigError, match="and at most 1000 are read") as refused:
        judge_again(tmp_path, wrong)
    assert len(str(refused.value)) < 2000


def test_a_run_without_key_figures_says_so(tmp_path: Path) -> None:
    with_verdict(tmp_path)
    (tmp_path / "kpis.json").unlink()
    with pytest.raises(RunDirError, match=r"kpis\.json: cannot be read"):
        judge_again(tmp_path)


def test_the_verdict_is_in_the_summary_that_the_run_keeps(tmp_path: Path) -> None:
    with_verdict(tmp_path)
    verdict = read_run(tmp_path).summary.verdict
    assert verdict is not None
    assert (verdict.result, verdict.device) == (Result.FAIL, "dut-1")
    assert not list(tmp_path.glob("summary.json.*")), "the summary is replaced, not kept twice"


def test_what_made_it_slow_has_the_names_of_the_trace(tmp_path: Path) -> None:
    page = with_verdict(tmp_path)["report.html"]
    slow = page[page.index('id="slow"') : page.index('id="traffic"')]
    assert "<code>mb0.layer0.weights</code>" in slow
    assert "mb0.layer0.weights: all_gather #0 of communicator tp1, rank 1, iteration 0" in slow
    assert "send #0 to rank 3, rank 0, iteration 0" in slow
