"""`etloop sweep`, from command line to exit code, over small jobs in virtual time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from etloop.cli.demo.loopback import choose_rig, rig_text, run_agents
from etloop.cli.main import STOPPED_BY_SIGINT, main
from etloop.contract.base.errors import ExitCode
from etloop.controller.run.pipeline import FinishedRun, RunOptions, Step, run_plan
from etloop.experiments.sweep import run as sweep_run
from etloop.experiments.sweep.directory import SweepDirectory
from etloop.experiments.sweep.points import PointFiles
from etloop.results.compare.samples import read_side
from etloop.results.compare.sweep_results import JCT, Group
from etloop.results.report.sweep import group_table
from etloop.results.schema.summary import Summary
from etloop.results.schema.sweep import PointRecord, PointResult, Spread
from etloop.results.store.run_dir import read_run
from tests.lab.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed
from tests.support.places import ROOT
from tests.support.runs.sweep_by_hand import TOPOLOGY, answered, copy_study, make_study


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_study(tmp_path_factory.mktemp("study"))


@pytest.fixture
def files(study: Path, tmp_path: Path) -> Path:
    return copy_study(study, tmp_path)


def test_the_table_the_index_and_the_page_of_a_sweep(study: Path) -> None:
    reported = json.loads((study / "out" / "sweep.json").read_text())
    assert [one["labels"] for one in reported["points"]] == [
        {"topology.single.rate": "10Gbps"},
        {"topology.single.rate": "9.5Gbps"},
    ]
    assert len(reported["runs"]) == 6
    slower = reported["results"][1]
    assert (slower["against"], slower["outcome"]) == ("p000", "regression")
    assert 0.04 < slower["change"] < 0.06
    names = {one["name"] for one in slower["figures"]}
    assert {"jct_ns", "jct_per_ideal", "share_of_ideal", "busbw of all_reduce, 4 ranks"} <= names
    page = (study / "out" / "compare.html").read_text()
    assert "9.5Gbps" in page
    assert "REGRESSION" in page
    assert {one.name for one in (study / "out" / "points" / "p000").iterdir()} == {
        "r000", "r001", "r002", "scenario.yaml", "rig.yaml", "topology.yaml",
    }  # fmt: skip


def test_the_same_sweep_again_has_the_same_results(study: Path, tmp_path: Path) -> None:
    assert (
        main(["sweep", str(study / "sweep.yaml"), "--twin", "--out", str(tmp_path / "again")])
        == ExitCode.PASS
    )
    for name in ("summary.json", "kpis.json", "collectives.parquet"):
        run = Path("points") / "p001" / "r000" / name
        assert (tmp_path / "again" / run).read_bytes() == (study / "out" / run).read_bytes()


def test_test_systems_get_one_file_for_all_runs(study: Path) -> None:
    suites = ET.fromstring((study / "out" / "junit.xml").read_bytes())
    names = [suite.get("name", "") for suite in suites]
    assert names[0].startswith("p000 r000 (10Gbps): etloop"), names
    assert [name[:9] for name in names] == [f"p00{p} r00{r}" for p in range(2) for r in range(3)]
    assert all(suite.find("testcase") is not None for suite in suites)


def sweep(files: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    return answered(capsys, "sweep", str(files / "sweep.yaml"), "--twin", "--out", str(files / "out"), *words)


def test_a_dry_run_lists_the_points_and_leaves_nothing(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = answered(capsys, "sweep", str(files / "sweep.yaml"), "--twin", "--dry-run")
    assert code == ExitCode.PASS
    assert "2 points, 3 runs each: 6 runs, twin" in out
    assert "  p001  topology.single.rate=9.5Gbps" in out
    code, out, _ = answered(capsys, "sweep", str(files / "sweep.yaml"), "--twin", "--dry-run", "--json")
    assert json.loads(out)["runs"] == 6


def test_a_directory_in_use_is_not_begun_in(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = sweep(files, capsys)
    assert code == ExitCode.PREPARATION_FAILED
    assert "is not an empty directory; name a new one with --out, or continue in it with --resume" in err


def test_two_sweeps_keep_out_of_each_others_directory(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with SweepDirectory(files / "out").lock():
        code, _, err = sweep(files, capsys, "--resume")
    assert code == ExitCode.PREPARATION_FAILED
    assert "another sweep is running in it; wait until it ends, or name another with --out" in err
    code, _, _ = sweep(files, capsys, "--resume")
    assert code == ExitCode.PASS, "the lock ends with its holder"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The runs that take place, as (point, round)."""
    done: list[tuple[str, int]] = []
    run = sweep_run.Runs.run

    def noted(self: Any, of: Any, texts: PointFiles, number: int) -> Summary:
        done.append((of.name, number))
        return run(self, of, texts, number)

    monkeypatch.setattr(sweep_run.Runs, "run", noted)
    return done


def test_a_finished_sweep_goes_on_with_nothing_or_with_more_repeats(
    files: Path, capsys: pytest.CaptureFixture[str], counted: list[tuple[str, int]]
) -> None:
    assert sweep(files, capsys, "--resume")[0] == ExitCode.PASS
    assert counted == []
    assert sweep(files, capsys, "--resume", "--repeats", "4")[0] == ExitCode.PASS
    assert sorted(counted) == [("p000", 3), ("p001", 3)]
    assert json.loads((files / "out" / "sweep.json").read_text())["repeats"] == 4


@pytest.mark.parametrize("inside", [True, False], ids=["in the twin", "while it is held against ideal"])
def test_ctrl_c_ends_it_cleanly_and_it_goes_on_where_it_was(
    files: Path,
    capsys: pytest.CaptureFixture[str],
    counted: list[tuple[str, int]],
    monkeypatch: pytest.MonkeyPatch,
    inside: bool,
) -> None:
    shutil.rmtree(files / "out")

    def interrupted(prepared: Any, execution: Any, options: RunOptions, watcher: Any) -> FinishedRun:
        if len(counted) == 3 and inside:
            assert options.out_dir is not None
            options.out_dir.mkdir()
            (options.out_dir / "ops.parquet").write_text("half of it")
            raise KeyboardInterrupt
        finished = run_plan(prepared, execution, options, watcher)
        return replace(finished, stopped_in=Step.EXPECT) if len(counted) == 3 else finished

    monkeypatch.setattr(sweep_run, "run_plan", interrupted)
    code, _, err = sweep(files, capsys)
    assert code == STOPPED_BY_SIGINT
    assert "2 of 6 runs are in" in err
    assert [path.name for path in sorted((files / "out").rglob("*.partial"))] == []
    before = list(counted)
    monkeypatch.setattr(sweep_run, "run_plan", run_plan)
    assert sweep(files, capsys, "--resume")[0] == ExitCode.PASS
    assert sorted({*before[:2], *counted[3:]}) == sorted((f"p00{a}", b) for a in range(2) for b in range(3))
    assert len(counted) == 7


def test_a_sweep_killed_between_a_run_and_its_index_knows_the_run(
    files: Path, capsys: pytest.CaptureFixture[str], counted: list[tuple[str, int]]
) -> None:
    index = files / "out" / "sweep.json"
    reported = json.loads(index.read_text())
    reported["runs"] = reported["runs"][:-1]
    index.write_text(json.dumps(reported))
    assert sweep(files, capsys, "--resume")[0] == ExitCode.PASS
    assert counted == []
    assert len(json.loads(index.read_text())["runs"]) == 6


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


CHANGES = (
    (
        "a value of the scenario",
        "s.yaml",
        "iterations: 8",
        "iterations: 9",
        "scenario iterations was 8, is 9",
    ),
    (
        "a value of the topology",
        "t.yaml",
        "600ns",
        "700ns",
        "topology single.switch.latency was 600ns, is 700ns",
    ),
    (
        "a setting",
        "sweep.yaml",
        "9.5Gbps",
        "9Gbps",
        "was topology.single.rate=9.5Gbps when the sweep began",
    ),
    (
        "another point",
        "sweep.yaml",
        "9.5Gbps]",
        "9.5Gbps, 8Gbps]",
        "points: was 2 when the sweep began, and is 3",
    ),
    (
        "the seed",
        "sweep.yaml",
        "repeats: 3",
        "repeats: 3\nseed: 9",
        "seed: was 1 when the sweep began, and is 9",
    ),
    ("the order", "sweep.yaml", "repeats: 3", "repeats: 3\norder: listed", "order: was interleaved when"),
    (
        "fewer repeats",
        "sweep.yaml",
        "repeats: 3",
        "repeats: 2",
        "repeats: were 3 when the sweep began, and are 2",
    ),
)


@pytest.mark.parametrize(
    ("file", "old", "new", "reported"), [row[1:] for row in CHANGES], ids=[row[0] for row in CHANGES]
)
def test_a_sweep_that_is_another_does_not_go_on(
    files: Path, capsys: pytest.CaptureFixture[str], file: str, old: str, new: str, reported: str
) -> None:
    change(files / file, old, new)
    code, _, err = sweep(files, capsys, "--resume")
    assert code == ExitCode.PREPARATION_FAILED
    assert reported in err


def test_nor_does_one_whose_traces_are_others(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "job").unlink()
    main(["synth", str(files / "job"), "--sweep", "all_reduce", "--sizes", "64KiB-64KiB", "--ranks", "4"])
    code, _, err = sweep(files, capsys, "--resume")
    assert code == ExitCode.PREPARATION_FAILED
    assert "its traces changed" in err


def test_nor_one_that_never_began(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(files / "out")
    code, _, err = sweep(files, capsys, "--resume")
    assert code == ExitCode.PREPARATION_FAILED
    assert "has no sweep.json: no sweep was started here; leave --resume out" in err


def test_the_problems_of_all_points_are_told_before_the_first_run(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(files / "sweep.yaml", "[10Gbps, 9.5Gbps]", "[10Gbps, fast]\n  iterations: [1, 0]")
    code, _, err = answered(capsys, "sweep", str(files / "sweep.yaml"), "--twin", "--out", str(files / "new"))
    assert code == ExitCode.PREPARATION_FAILED
    assert "point p001 (topology.single.rate=10Gbps, iterations=0): " in err
    assert "point p002 (topology.single.rate=fast, iterations=1): " in err
    assert not (files / "new").exists()


def test_three_runs_in_a_row_that_break_off_end_it(
    files: Path, capsys: pytest.CaptureFixture[str], counted: list[tuple[str, int]]
) -> None:
    """A link that is down from the start and stays so: every queue pair gives up."""
    (files / "t.yaml").write_text(TOPOLOGY + "outages: [{port: c/p0, from: 10us}]\n")
    change(
        files / "s.yaml",
        "iterations: 8",
        "iterations: 8\ntransport: {timeout: 1ms, timeout_floor: 1ms, retries: 1}",
    )
    code, _, err = answered(capsys, "sweep", str(files / "sweep.yaml"), "--twin", "--out", str(files / "new"))
    assert code == ExitCode.RUN_ERROR
    assert "3 runs in a row failed" in err
    assert len(counted) == 3
    assert {one["result"] for one in json.loads((files / "new" / "sweep.json").read_text())["runs"]} == {
        "broken"
    }


def test_the_worst_verdict_is_the_exit_code(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(
        files / "s.yaml",
        "iterations: 8",
        "iterations: 8\nverdict: {checks: [{check: jct_max_ns <= 1us, why: never}]}",
    )
    words = ("sweep", str(files / "sweep.yaml"), "--twin", "--repeats", "1", "--out", str(files / "new"))
    code, _, err = answered(capsys, *words)
    assert code == ExitCode.VERDICT_FAILED
    assert "; fail" in err


def test_without_a_place_for_results_nothing_begins(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = answered(capsys, "sweep", str(files / "sweep.yaml"), "--twin")
    assert code == ExitCode.PREPARATION_FAILED
    assert "--out: is missing; name a directory for the results" in err


def test_a_topology_is_needed_to_be_one_in_virtual_time(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = (files / "out" / "points" / "p000" / "rig.yaml").read_text()
    (files / "rig.yaml").write_text(rig)
    (files / "sweep.yaml").write_text("scenario: s.yaml\nrig: rig.yaml\naxes: {iterations: [1]}\n")
    code, _, err = answered(capsys, "sweep", str(files / "sweep.yaml"), "--twin", "--dry-run")
    assert code == ExitCode.PREPARATION_FAILED
    assert "the sweep names no topology; write topology: FILE; --twin runs on the switches" in err


@pytest.fixture
def lab_files(files: Path) -> Path:
    if not namespaces_are_allowed():
        pytest.skip(NO_NAMESPACES)
    (files / "t.yaml").write_text("single: {ports: [a/p0, b/p0, c/p0, d/p0], rate: 100Mbps}\n")
    (files / "sweep.yaml").write_text(
        "scenario: s.yaml\ntopology: t.yaml\nrepeats: 1\norder: listed\nlab: {bind: 'tcp://127.0.0.1:7431'}\n"
        "set: {iterations: 2}\n"
        "axes:\n  on:\n    two ports: {mapping.ports: [a/p0, b/p0]}\n    all ports: {seed: 1}\n"
        "    another switch: {topology.single.switch.queues.3.ecn.kmin: 64KiB}\n"
    )
    return files


@pytest.mark.e2e
def test_a_sweep_brings_up_a_lab_for_each_of_its_topologies(
    lab_files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        "sweep",
        str(lab_files / "sweep.yaml"),
        "--lab",
        "--allow-overcommit",
        "--no-ideal",
        "--out",
        str(lab_files / "lab"),
    )
    code, out, err = answered(capsys, *words)
    assert code == ExitCode.PASS, err
    assert "3 points, 3 runs, lab" in " ".join(out.split())
    kept = SweepDirectory(lab_files / "lab").run("p002", 0) / "topology.yaml"
    assert "64KiB" in kept.read_text()
    # Agents that the first point has no rank for are there for the second, in the same lab.
    agents = [
        len(read_run(SweepDirectory(lab_files / "lab").run(point, 0)).summary.agents)
        for point in ("p000", "p001")
    ]
    assert agents == [2, 4]


def test_the_example_lays_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its traces are made by the commands of its README."""
    place = tmp_path / "congestion_control"
    shutil.copytree(ROOT / "examples" / "congestion_control", place, ignore=shutil.ignore_patterns("job"))
    commands = [
        line.split()[1:]
        for line in (place / "README.md").read_text().splitlines()
        if line.startswith("etloop synth ")
    ]
    assert len(commands) == 2
    for command in commands:
        assert main([command[0], str(tmp_path / Path(command[1]).relative_to("examples")), *command[2:]]) == 0
    for name in ("sweep.yaml", "lab_sweep.yaml"):
        code, out, err = answered(capsys, "sweep", str(place / name), "--twin", "--dry-run")
        assert code == ExitCode.PASS, err
        assert "6 points" in out


@pytest.mark.e2e
def test_a_sweep_on_a_rig_whose_agents_serve_one_run_after_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = choose_rig()
    (tmp_path / "rig.yaml").write_text(rig_text(rig))
    words = ("synth", str(tmp_path / "job"), "--sweep", "all_reduce", "--sizes", "4KiB-4KiB", "--ranks", "4")
    assert main(words) == 0
    (tmp_path / "s.yaml").write_text(
        "workload: {trace: job}\nmapping: {placement: round_robin}\niterations: 6\n"
    )
    (tmp_path / "sweep.yaml").write_text(
        "scenario: s.yaml\nrepeats: 1\naxes: {transport.qps_per_connection: [1, 2]}\n"
    )
    with run_agents(tmp_path, rig.endpoint, once=False):
        asked = ("--rig", str(tmp_path / "rig.yaml"), "--out", str(tmp_path / "out"))
        code, out, err = answered(capsys, "sweep", str(tmp_path / "sweep.yaml"), *asked)
    assert code == ExitCode.PASS, err
    assert "2 points, 2 runs, live" in " ".join(out.split()), "wherever lines are broken"
    assert err.count("joined from") == 2, "what sessions say is told once"
    kept = SweepDirectory(tmp_path / "out").run("p001", 0)
    assert (kept / "kpis.json").exists()
    assert not (kept / "report.html").exists()
    assert (tmp_path / "out" / "compare.html").exists()


@pytest.mark.parametrize(
    ("means", "headings"),
    [
        ((0.0, 0.0), ()),
        ((None, 0.0), ()),
        ((0.0, 2.5), ("unexplained",)),
        ((3.0, 3.0), ("unexplained",)),
    ],
)
def test_packets_that_nobody_explains_have_a_column(
    means: tuple[float | None, ...], headings: tuple[str, ...]
) -> None:
    results = {
        f"p{number}": PointResult(
            f"p{number}",
            1,
            (),
            (
                Spread(JCT, "ns", 1, 1e6, None, 1e6, 1e6),
                *(
                    Spread("unexplained_packets", "packets", 1, one, None, one, one)
                    for one in (() if mean is None else (mean,))
                ),
            ),
            "",
            *(None, None, None, None),
            (),
        )
        for number, mean in enumerate(means)
    }
    points = tuple(PointRecord(name, {"x": name}, "", "") for name in results)
    table = group_table(Group({}, points, {}), "x", results)
    titles = [column.title for column in table.columns]
    assert [title for title in ("unexplained", "dropped", "lost") if title in titles] == list(headings)


@pytest.mark.parametrize(
    ("harm", "found"),
    [
        (lambda run: (run / "kpis.json").write_text("{}"), "kpis.json"),
        (lambda run: (run / "summary.json").unlink(), "summary.json"),
        (shutil.rmtree, "has no SHA256SUMS"),
    ],
    ids=["damaged figures", "no summary", "no directory"],
)
def test_a_repeat_that_cannot_be_read_is_named_and_makes_the_sweep_inconclusive(
    files: Path, capsys: pytest.CaptureFixture[str], harm: Callable[[Path], object], found: str
) -> None:
    out = files / "out"
    run = out / "points" / "p001" / "r001"
    kept = files / "kept"
    shutil.copytree(run, kept)
    harm(run)
    code, _, errors = sweep(files, capsys, "--twin", "--out", str(out), "--resume")
    assert code == ExitCode.INCONCLUSIVE
    assert "warning: a run is missing" in errors
    assert str(run) in errors
    assert found in errors
    index = json.loads((out / "sweep.json").read_text())
    (record,) = [one for one in index["runs"] if one["result"] == "inconclusive"]
    assert (record["point"], record["repeat"]) == ("p001", 1)
    assert found in record["reason"]
    suites = ET.fromstring((out / "junit.xml").read_bytes())
    assert [suite.get("name", "")[:9] for suite in suites if suite.get("errors") == "1"] == ["p001 r001"]
    assert len(suites) == 6
    shutil.rmtree(run, ignore_errors=True)
    kept.rename(run)
    code, _, errors = sweep(files, capsys, "--twin", "--out", str(out), "--resume")
    assert code == ExitCode.PASS, errors
    assert "missing" not in errors


def test_a_repeat_without_its_summary_is_left_out_by_name(files: Path) -> None:
    point = files / "out" / "points" / "p000"
    assert not read_side(point, 0).left_out
    (point / "r001" / "summary.json").unlink()
    (reason,) = read_side(point, 0).left_out
    assert reason.startswith("r001: it has no summary.json")
