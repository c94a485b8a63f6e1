"""examples/cloudai: points are sweeps that ETLoop reads, or scenarios of a rack; CloudAI itself explores all combinations."""

from __future__ import annotations

import csv
import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from etloop.cli.main import main
from etloop.experiments.sweep.file import parse_sweep, points_of
from tests.support.places import ROOT

EXAMPLE = ROOT / "examples" / "cloudai"
SETTINGS = {"transport": {"cc": {"algorithm": "dctcp"}}, "topology": {"leaf_spine": {"spines": 1}}}
CLOUDAI = os.environ.get("ETLOOP_CLOUDAI", "")
"""Interpreter of an environment with CloudAI."""


@pytest.fixture
def point(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(EXAMPLE)
    yield importlib.import_module("etloop_cloudai.point")
    for name in [name for name in sys.modules if name.startswith("etloop_cloudai")]:
        del sys.modules[name]


def test_a_point_is_a_sweep_of_one_point(point: ModuleType, tmp_path: Path) -> None:
    text = point.sweep_text(EXAMPLE / "scenario.yaml", EXAMPLE / "topology.yaml", SETTINGS, 2)
    sweep = parse_sweep(text.encode(), "point.yaml", tmp_path)
    assert points_of(sweep) == 1
    assert [axis.name for axis in sweep.axes] == ["transport.cc.algorithm", "topology.leaf_spine.spines"]
    assert sweep.repeats == 2


def test_a_point_of_a_rack_is_a_scenario(point: ModuleType) -> None:
    text = point.scenario_text((EXAMPLE / "scenario.yaml").read_text(), {"transport": {"path_mtu": 1024}})
    changed = yaml.safe_load(text)
    assert changed.pop("transport") == {"path_mtu": 1024}
    assert changed == yaml.safe_load((EXAMPLE / "scenario.yaml").read_text())


def test_what_no_point_can_have_is_named(point: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(point.PointError, match=r"cmd_args\.set is empty"):
        point.sweep_text(tmp_path, None, {}, 1)
    with pytest.raises(point.PointError, match="a rack has its own topology"):
        point.scenario_text("workload: {}", SETTINGS)
    with pytest.raises(point.PointError, match=r"cmd_args\.rig is missing"):
        point.command("etloop", "rig", "", "", tmp_path)
    with pytest.raises(point.PointError, match="write twin, lab, rig or rack"):
        point.command("etloop", "cluster", "", "", tmp_path)


def test_figures_of_a_sweep_and_of_a_job(
    point: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = point.sweep_text(EXAMPLE / "scenario.yaml", EXAMPLE / "topology.yaml", SETTINGS, 1)
    (tmp_path / "point.yaml").write_text(text)
    words = (
        point.command("etloop", "twin", "", "", tmp_path).partition("etloop ")[2].partition(" >")[0].split()
    )
    words[words.index("point.yaml")] = str(tmp_path / "point.yaml")
    words[words.index("study")] = str(tmp_path / "study")
    assert main(words) == 0
    result = capsys.readouterr().out
    iteration_ns = point.figure(result, "jct_avg_ns")
    assert iteration_ns > 0
    assert point.figure(result, "no such figure") is None
    job = json.dumps({"job_id": "1", "summary": {"job": {"iteration_jct_avg_ns": 5, "jct_ns": 9}}})
    assert point.figure(job, "jct_avg_ns") == 5
    assert point.figure(job, "jct_ns") == 9
    assert point.figure(json.dumps({"job_id": "1", "summary": None}), "jct_avg_ns") is None
    assert point.figure("", "jct_avg_ns") is None


@pytest.mark.timeout(600)
@pytest.mark.skipif(not CLOUDAI, reason="CloudAI is not installed; ETLOOP_CLOUDAI names its interpreter")
def test_cloudai_explores_all_combinations_and_keeps_the_best(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "cloudai")
    place = tmp_path / "cloudai"
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    words = ["python", "-m", "etloop_cloudai", "run"]
    words += ["--system-config", "system.toml", "--test-scenario", "exploration.toml"]
    done = subprocess.run(
        [CLOUDAI, *words[1:]],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (trajectory,) = (place / "results").rglob("trajectory.csv")
    with trajectory.open() as file:
        steps = list(csv.DictReader(file))
    assert len(steps) == 8
    rewards = [float(step["reward"]) for step in steps]
    assert all(0 < reward < 1 for reward in rewards)
    assert len(set(rewards)) > 1, "settings make a difference"
    studies = list((place / "results").rglob("study/sweep.json"))
    assert len(studies) == 8
