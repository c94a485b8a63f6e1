"""`etloop search`, from command line to exit code, over small jobs in virtual time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from etloop.cli.main import main
from etloop.contract.base.errors import ExitCode
from tests.support.runs.sweep_by_hand import TOPOLOGY, answered

SCENARIO = "workload: {incast: {senders: 3, size: 64KiB, bursts: 2}}\nmapping: {placement: round_robin}\n"
SWEEP = """\
scenario: s.yaml
topology: t.yaml
repeats: 2
axes:
  topology.single.rate: [9Gbps, 9.5Gbps, 10Gbps]
  workload.incast.senders: [2, 3, 99]
optimize:
  minimize: [jct_avg_ns]
  constraints: ["received_bytes_are_many", "lost_packets == 0"]
  trials: 6
  parallel: 3
  best: 1
"""
GOOD = SWEEP.replace('"received_bytes_are_many", ', "")


def put(place: Path, sweep: str = GOOD) -> Path:
    (place / "s.yaml").write_text(SCENARIO)
    (place / "t.yaml").write_text(TOPOLOGY)
    (place / "sweep.yaml").write_text(sweep)
    return place / "sweep.yaml"


def search(sweep: Path, out: Path, *words: str) -> int:
    return main(["search", str(sweep), "--out", str(out), "--jobs", "1", *words])


def test_the_best_trial_is_repeated_and_a_resumed_search_ends_with_the_same_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep, out = put(tmp_path), tmp_path / "out"
    assert search(sweep, out) == ExitCode.PASS
    record = json.loads((out / "trials.json").read_text())
    assert record["combinations"] == 9
    best = next(trial for trial in record["trials"] if trial["name"] == record["best"][0])
    assert best["values"][0] == min(trial["values"][0] for trial in record["trials"] if trial["values"])
    assert all(trial["reason"] for trial in record["trials"] if trial["state"] == "failed")
    start, candidate = record["candidates"]
    assert (start["name"], candidate["name"]) == ("start", record["best"][0])
    assert (candidate["runs"], candidate["passed"]) == (2, 2)
    assert record["is_confirmed"]
    assert f"confirmed: {candidate['name']} is the best in 2 repeats" in capsys.readouterr().out
    assert "Importance of each axis" in (out / "trials.html").read_text()
    kept = {name: (out / name).read_bytes() for name in ("trials.json", "trials.html", "confirm.yaml")}
    shutil.rmtree(out / "points" / "t0001" / "r000")
    (out / "trials.json").unlink()
    made = {path: path.stat().st_mtime_ns for path in out.glob("points/*/r000/summary.json")}
    assert search(sweep, out, "--resume") == ExitCode.PASS
    assert {name: (out / name).read_bytes() for name in kept} == kept
    assert {path: path.stat().st_mtime_ns for path in made} == made


def test_a_repeat_that_cannot_be_read_is_named_and_nothing_is_confirmed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep, out = put(tmp_path, GOOD.replace("trials: 6", "trials: 3")), tmp_path / "out"
    assert search(sweep, out) == ExitCode.PASS
    figures = out / "confirm" / "points" / "p001" / "r001" / "kpis.json"
    figures.write_text("{}")
    capsys.readouterr()
    assert search(sweep, out, "--resume") == ExitCode.INCONCLUSIVE
    assert f"warning: a repeat is missing: {figures}" in capsys.readouterr().err
    record = json.loads((out / "trials.json").read_text())
    assert not record["is_confirmed"]
    assert record["conclusion"].startswith(f"not confirmed: a repeat is missing: {figures}")
    candidate = record["candidates"][1]
    assert (candidate["runs"], candidate["passed"]) == (2, 1)


def test_early_iterations_and_conditions_that_no_trial_meets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = GOOD.replace("lost_packets == 0", "jct_avg_ns < 1us").replace(
        "parallel: 3", "parallel: 3\n  early_iterations: 1"
    )
    sweep = put(tmp_path, text.replace("trials: 6", "trials: 2"))
    code, out, _ = answered(capsys, "search", str(sweep), "--out", str(tmp_path / "out"), "--jobs", "1")
    assert code == ExitCode.VERDICT_FAILED
    assert "no trial meets the conditions" in out
    record = json.loads((tmp_path / "out" / "trials.json").read_text())
    infeasible = [trial for trial in record["trials"] if trial["state"] == "infeasible"]
    assert infeasible
    assert "jct_avg_ns < 1us" in infeasible[0]["reason"]
    assert (tmp_path / "out" / "points" / infeasible[0]["name"] / "early" / "r000").is_dir()


@pytest.mark.parametrize(
    ("sweep", "words", "reported"),
    [
        (SWEEP, (), "received_bytes_are_many"),
        (GOOD.partition("optimize")[0], (), "has no optimize; write such as optimize"),
        (GOOD.replace("jct_avg_ns", "speed"), (), 'optimize.minimize: there is no figure "speed"'),
        (GOOD.replace("minimize: [jct_avg_ns]", "trials: 3"), (), "0 figures; name 1 to 4"),
        (GOOD, ("--trials", "0"), "--trials: 0 of them; write 1 to 20000"),
        (GOOD, ("--resume",), "has no sweep.yaml: no search was started here"),
    ],
)
def test_files_and_options_that_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sweep: str, words: tuple[str, ...], reported: str
) -> None:
    file = put(tmp_path, sweep.replace("trials: 6", "") if "trials: 3" in sweep else sweep)
    assert search(file, tmp_path / "out", *words) == ExitCode.PREPARATION_FAILED
    assert reported in capsys.readouterr().err


def test_a_sweep_does_not_run_every_combination_of_a_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = answered(capsys, "sweep", str(put(tmp_path)), "--twin", "--out", str(tmp_path / "out"))
    assert code == ExitCode.PREPARATION_FAILED
    assert "optimize: is for a search over all axes; run etloop search" in err
