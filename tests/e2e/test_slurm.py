"""The recipe of examples/slurm, run by a real Slurm of two nodes on this host, over loopback."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from etloop.cli.main import main
from etloop.contract.base.errors import ExitCode
from tests.support.first_light import commands
from tests.support.first_light.commands import Place
from tests.support.places import ROOT
from tests.support.ports import free_port
from tests.support.runs.sweep_by_hand import TOPOLOGY
from tests.support.slurm import Slurm, obstacle, slurm

pytestmark = pytest.mark.e2e

SWEEP = """\
scenario: s.yaml
topology: t.yaml
repeats: 2
axes: {topology.single.rate: [10Gbps, 9Gbps, 8Gbps, 7Gbps]}
"""
DOOMED_ETLOOP = """\
#!/bin/bash
# The first shard of an array dies by SIGKILL as soon as a run of the sweep is complete.
if [ "${SLURM_ARRAY_TASK_ID:-}" = 0 ] && [ "${7:-}" = 2 ] && mkdir died 2>/dev/null; then
  "@BIN@/etloop" "$@" &
  until compgen -G 'study/points/*/r00?' >/dev/null; do sleep 0.02; done
  kill -KILL $!
  exit 137
fi
exec "@BIN@/etloop" "$@"
"""

NODES = ("n1", "n2")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    if obstacle():
        pytest.skip(obstacle())
    with slurm(tmp_path_factory.mktemp("slurm"), NODES) as made:
        yield made


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A directory of submission: the recipe's files, a trace, and ports of both nodes."""
    place = commands.free_place(tmp_path)
    for file in (ROOT / "examples" / "slurm").iterdir():
        shutil.copy(file, tmp_path)
    assert commands.etloop(place, "synth", "job", "--hidden", "64", "--sequence", "128").exit_code == 0
    lines = [f"{node} {net}.1-{net}.4 100Gbps\n" for node, net in zip(NODES, place.networks, strict=True)]
    place.write("ports.txt", "".join(lines))
    return place


DOOMED_POINT = """\
import os, signal, sys
# The first job that has made a run of the sweep dies by SIGKILL.
from etloop.experiments.sweep.run import Runs
made = Runs.made_or_found
def made_or_dead(runs, point, files, repeat):
    run = made(runs, point, files, repeat)
    if "SLURM_JOB_ID" in os.environ:
        try:
            os.mkdir("died")
        except FileExistsError:
            return run
        os.kill(os.getpid(), signal.SIGKILL)
    return run
Runs.made_or_found = made_or_dead
"""


def submit(cluster: Slurm, place: Place, *arguments: str) -> CompletedProcess[str]:
    """Waits for the job; its exit code is that of the recipe."""
    return cluster.call(
        *("sbatch", "--nodes=2", "--wait", "--output=job.log", "replay.sbatch", *arguments),
        place=place.directory,
        ETLOOP_BIN=str(Path(sys.executable).parent),
        CONTROL_HOST="127.0.0.1",
        CONTROL_PORT=str(free_port()),
        ALLOW_PEERS="127.0.0.0/8",
    )


def write_sweep(place: Path) -> None:
    scenario = "workload: {incast: {senders: 3, size: 64KiB}}\nmapping: {placement: round_robin}\n"
    for name, text in (("s.yaml", scenario), ("t.yaml", TOPOLOGY), ("sweep.yaml", SWEEP)):
        (place / name).write_text(text)


def contents(place: Path) -> dict[Path, bytes]:
    return {path.relative_to(place): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def log(place: Place) -> str:
    return (place.directory / "job.log").read_text()


def test_a_job_ends_by_its_verdict_and_leaves_its_run_and_no_keys(cluster: Slurm, place: Place) -> None:
    ended = submit(cluster, place, "scenario.yaml", "ports.txt")
    assert ended.returncode == 0, log(place)
    (left,) = place.directory.glob("etloop-*")
    assert {path.name for path in left.iterdir()} == {"rig.yaml", "agents.log", "run"}
    assert (left / "run" / "summary.json").exists()
    told = (left / "agents.log").read_text()
    assert all(f"agent {node}: all operations complete" in told for node in NODES)


def test_a_verdict_that_fails_is_the_exit_code_of_the_job(cluster: Slurm, place: Place) -> None:
    scenario = (place.directory / "scenario.yaml").read_text()
    place.write(
        "scenario.yaml",
        scenario + "verdict: {checks: [{check: lost_share >= 0.5, why: no network is that bad}]}\n",
    )
    ended = submit(cluster, place, "scenario.yaml", "ports.txt")
    assert ended.returncode == ExitCode.VERDICT_FAILED, log(place)


@pytest.mark.parametrize(
    ("sentence", "arguments", "ports", "expected"),
    [
        ("an argument too few", ("scenario.yaml",), "", "expected two arguments, SCENARIO and PORTS, got 1"),
        (
            "a file that is not there",
            ("scenario.yaml", "none.txt"),
            "",
            "none.txt cannot be read; name a file",
        ),
        (
            "a node without a line",
            ("scenario.yaml", "ports.txt"),
            "n1 127.0.0.1 1Gbps\n",
            "has no line for n2; write: n2",
        ),
        (
            "no rate",
            ("scenario.yaml", "ports.txt"),
            "n1 127.0.0.1\n",
            "the line of n1 has no link rate; write: n1",
        ),
    ],
)
def test_bad_arguments_end_with_65_and_say_what_to_do(
    sentence: str, arguments: tuple[str, ...], ports: str, expected: str, cluster: Slurm, place: Place
) -> None:
    if ports:
        place.write("ports.txt", ports)
    ended = submit(cluster, place, *arguments)
    assert ended.returncode == 65, sentence
    assert expected in log(place), sentence


def test_an_array_whose_shard_is_killed_leaves_the_bytes_of_one_process(
    cluster: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    binary = Path(sys.executable).parent
    write_sweep(tmp_path)
    (tmp_path / "etloop").write_text(DOOMED_ETLOOP.replace("@BIN@", str(binary)))
    (tmp_path / "etloop").chmod(0o755)
    shutil.copy(ROOT / "examples" / "slurm" / "sweep.sbatch", tmp_path)

    def submit_sweep(array: str, shards: str) -> int:
        words = ("sbatch", "--wait", f"--array={array}", "sweep.sbatch", shards, "sweep.yaml", "study")
        return cluster.call(*words, place=tmp_path, ETLOOP_BIN=str(tmp_path)).returncode

    assert submit_sweep("0-1", "2") == 137
    assert 0 < len(list(tmp_path.glob("study/points/*/r00?"))) < 8
    assert submit_sweep("0", "2") == 0
    assert submit_sweep("0", "collect") == 0
    assert main(["sweep", "sweep.yaml", "--twin", "--out", "one"]) == 0
    assert contents(tmp_path / "study") == contents(tmp_path / "one")


def test_jobs_that_a_sweep_submits_one_of_which_is_killed_leave_the_bytes_of_one_process(
    cluster: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_sweep(tmp_path)
    (tmp_path / "doom").mkdir()
    (tmp_path / "doom" / "sitecustomize.py").write_text(DOOMED_POINT)
    words = ("sweep", "sweep.yaml", "--twin", "--out", "study", "--slurm", "2", "--slurm-option", "time=5")
    command = (sys.executable, "-m", "etloop", *words)
    ended = cluster.call(*command, place=tmp_path, PYTHONPATH=str(tmp_path / "doom"))
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "died").is_dir(), "a job was killed"
    assert not (tmp_path / "study.slurm").exists()
    assert main(["sweep", "sweep.yaml", "--twin", "--out", "one"]) == 0
    assert contents(tmp_path / "study") == contents(tmp_path / "one")
