"""`etloop sweep` with worker processes, in shards, and with less output: the same bytes however it is made."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

from etloop.cli import sweep_crew
from etloop.cli.main import main
from etloop.contract.base.errors import ExitCode
from etloop.experiments.sweep import tasks
from etloop.experiments.sweep.directory import SweepDirectory
from etloop.experiments.sweep.shard import Shard
from tests.support.runs.doomed_worker import make_runs_or_die
from tests.support.runs.sweep_by_hand import TOPOLOGY, answered

SWEEP = """\
scenario: s.yaml
topology: t.yaml
repeats: 2
axes:
  topology.single.rate: [10Gbps, 9.5Gbps, 9Gbps]
"""
SCENARIO = "workload: {incast: {senders: 3, size: 64KiB, bursts: 2}}\nmapping: {placement: round_robin}\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a sweep, and the directory `one` of the sweep made by one process."""
    place = tmp_path_factory.mktemp("sweep")
    (place / "s.yaml").write_text(SCENARIO)
    (place / "t.yaml").write_text(TOPOLOGY)
    (place / "sweep.yaml").write_text(SWEEP)
    assert run(place, place / "one") == ExitCode.PASS
    return place


def run(place: Path, out: Path, *words: str) -> int:
    return main(["sweep", str(place / "sweep.yaml"), "--twin", "--out", str(out), *words])


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def test_workers_that_die_at_random_moments_leave_the_same_bytes(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    monkeypatch.setattr(tasks, "make_runs", partial(make_runs_or_die, marks))
    assert run(files, tmp_path / "out", "--jobs", "2") == ExitCode.PASS
    assert len(list(marks.iterdir())) == 6
    assert "[6/6] " in capsys.readouterr().err
    assert contents(tmp_path / "out") == contents(files / "one")


def test_shards_of_two_directories_that_are_collected_are_one_sweep(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "0")
    assert run(files, out, "--shard", "3") == ExitCode.PASS
    assert run(files, out, "--shard", "1/3") == ExitCode.PASS
    capsys.readouterr()
    assert run(files, out, "--collect") == ExitCode.PREPARATION_FAILED
    problem = "lacks 2 of 6 runs, such as p002 repeat 0; start the shards again that did not end"
    assert problem in capsys.readouterr().err
    assert run(files, other, "--shard", "2/3") == ExitCode.PASS
    assert run(files, out, "--collect", str(other)) == ExitCode.PASS
    assert contents(out) == contents(files / "one")


def test_a_shard_makes_no_run_twice_and_refuses_runs_of_other_inputs(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place, out = tmp_path / "files", tmp_path / "out"
    shutil.copytree(files, place)
    assert run(place, out, "--shard", "0/3") == ExitCode.PASS
    made = {path: path.stat().st_mtime_ns for path in out.rglob("summary.json")}
    assert len(made) == 2
    assert run(place, out, "--shard", "0/3") == ExitCode.PASS
    assert {path: path.stat().st_mtime_ns for path in out.rglob("summary.json")} == made
    capsys.readouterr()
    assert run(place, out, "--shard", "0/3", "--no-ideal") == ExitCode.PREPARATION_FAILED
    assert "r000: was made of other files, traces, seed or options than now" in capsys.readouterr().err
    (place / "s.yaml").write_text(SCENARIO.replace("bursts: 2", "bursts: 3"))
    assert run(place, out, "--shard", "0/3") == ExitCode.PREPARATION_FAILED
    assert "scenario.yaml: differs: the directory is of another sweep" in capsys.readouterr().err


def test_shards_share_a_directory_and_nothing_else_does(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = SweepDirectory(tmp_path)
    with directory.locked_by(Shard(1, 3)), directory.locked_by(Shard(2, 3)):
        assert run(files, tmp_path, "--collect") == ExitCode.PREPARATION_FAILED
    assert "another sweep is running in it" in capsys.readouterr().err


def test_figures_alone_decide_the_same_times(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {}
    reports = {"everything": json.loads((files / "one" / "sweep.json").read_text())}
    for output in ("figures", "tables"):
        assert run(files, tmp_path / output, "--output", output) == ExitCode.PASS
        reports[output] = json.loads((tmp_path / output / "sweep.json").read_text())
        run_dir = tmp_path / output / "points" / "p001" / "r001"
        sizes[output] = {path.name for path in run_dir.iterdir()}
        assert (run_dir / "kpis.json").read_bytes() == (
            files / "one" / "points" / "p001" / "r001" / "kpis.json"
        ).read_bytes()
    assert sizes["figures"] == {
        *("SHA256SUMS", "summary.json", "kpis.json", "inputs.sha256"),
        *("scenario.yaml", "rig.yaml", "topology.yaml"),
    }
    assert "ops.parquet" in sizes["tables"]
    assert not sizes["tables"] & {"plan.json", "case.zip"}
    changes = [[result["change"] for result in report["results"]] for report in reports.values()]
    assert changes[0] == changes[1] == changes[2]
    assert changes[0][2] > 0.05


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (
            ("--lab", "--jobs", "2"),
            "--jobs: is for virtual time: runs of a lab or of hardware share its ports",
        ),
        (("--lab", "--shard", "0/2"), "--shard: is for virtual time"),
        (("--twin", "--jobs", "0"), "--jobs: 0 processes; write 1 to 1024"),
        (("--twin", "--shard", "3/2"), "--shard: shard 3 of 2 does not exist; write I/N such as 3/16"),
    ],
)
def test_options_that_cannot_be_used(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reported: str
) -> None:
    code, _, err = answered(
        capsys, "sweep", str(files / "sweep.yaml"), "--out", str(tmp_path / "out"), *words
    )
    assert code == ExitCode.PREPARATION_FAILED
    assert reported in err


def test_small_sweeps_start_no_workers(monkeypatch: pytest.MonkeyPatch, files: Path, tmp_path: Path) -> None:
    def refuse(*_: object) -> None:
        pytest.fail("six runs are made faster without workers")

    monkeypatch.setattr(sweep_crew, "Workers", refuse)
    monkeypatch.setattr(sweep_crew, "usable_cores", lambda: 64)
    assert run(files, tmp_path / "out") == ExitCode.PASS
