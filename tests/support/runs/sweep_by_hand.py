"""A small sweep in virtual time, for tests of the commands that make and read one: two speeds of a link, three rounds."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest

from etloop.cli.main import main
from etloop.contract.base.errors import ExitCode

SCENARIO = "workload: {trace: job}\niterations: 8\nmapping: {ranks_per_host: 1}\n"
TOPOLOGY = "single: {ports: [a/p0, b/p0, c/p0, d/p0], rate: 10Gbps, switch: {latency: 600ns}}\n"
SWEEP = """\
scenario: s.yaml
topology: t.yaml
repeats: 3
axes:
  topology.single.rate: [10Gbps, 9.5Gbps]
"""
SEARCHED: Final = """\
workload: {incast: {senders: 1, size: 64KiB, bursts: 100, rate: 1Gbps}}
mapping: {placement: round_robin}
transport: {cc: {algorithm: none}}
verdict:
  checks:
    - {check: jct_avg_ns / compute_ns <= 1.03, why: the load is carried as fast as it is offered}
"""
SEARCH: Final = """\
scenario: searched.yaml
topology: t.yaml
axes: {topology.single.rate: [10Gbps, 4Gbps]}
search: {path: workload.incast.rate, from: 1Gbps, to: 9Gbps, resolution: 5%}
"""


def make_search(directory: Path) -> Path:
    """A finished search of the throughput of two links; its directory."""
    (directory / "searched.yaml").write_text(SEARCHED)
    (directory / "t.yaml").write_text(TOPOLOGY)
    (directory / "search.yaml").write_text(SEARCH)
    out = directory / "searched"
    assert (
        main(["sweep", str(directory / "search.yaml"), "--twin", "--no-ideal", "--out", str(out)])
        == ExitCode.PASS
    )
    return out


def make_study(directory: Path) -> Path:
    """A finished sweep and its files."""
    assert (
        main(
            [
                "synth",
                str(directory / "job"),
                "--sweep",
                "all_reduce,all_to_all",
                "--sizes",
                "64KiB-64KiB",
                "--ranks",
                "4",
            ]
        )
        == 0
    )
    (directory / "s.yaml").write_text(SCENARIO)
    (directory / "t.yaml").write_text(TOPOLOGY)
    (directory / "sweep.yaml").write_text(SWEEP)
    assert (
        main(["sweep", str(directory / "sweep.yaml"), "--twin", "--out", str(directory / "out")])
        == ExitCode.PASS
    )
    return directory


def copy_study(study: Path, to: Path) -> Path:
    """The same files and the finished sweep, to be changed."""
    for name in ("s.yaml", "t.yaml", "sweep.yaml"):
        shutil.copy(study / name, to)
    (to / "job").symlink_to(study / "job")
    shutil.copytree(study / "out", to / "out")
    return to


def point(study: Path, number: int) -> str:
    return str(study / "out" / "points" / f"p{number:03d}")


def answered(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(words)
    printed = capsys.readouterr()
    return code, printed.out, printed.err
