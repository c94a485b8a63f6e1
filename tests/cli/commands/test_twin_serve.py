"""`etloop twin --serve`: standard streams, the socket, the example client, and options that do not fit."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from etloop.cli.main import main
from tests.support.places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE = ROOT / "examples/twin_client"
TOPOLOGY = str(EXAMPLE / "topology.yaml")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["scenario.yaml", "--serve", "s", "--topology", TOPOLOGY], "SCENARIO: not allowed"),
        (["--serve", "s", "--topology", TOPOLOGY, "--out", "d"], "--out: not allowed"),
        (["--serve", "s"], "--serve needs --topology FILE"),
        (["--topology", TOPOLOGY], "required: SCENARIO (or --serve)"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    options: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["twin", *options])
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


def test_a_path_that_is_a_file_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    assert main(["twin", "--serve", str(path), "--topology", TOPOLOGY]) == 65
    assert "exists and is not a socket" in capsys.readouterr().err
    assert path.read_text() == "mine"


def test_a_socket_that_another_server_uses_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "twin.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen(1)
        assert main(["twin", "--serve", str(path), "--topology", TOPOLOGY]) == 65
    assert "another server listens there" in capsys.readouterr().err
    assert path.exists()


@pytest.mark.e2e
@pytest.mark.parametrize("level", ["flow", "packet"])
def test_standard_streams_carry_lines_of_any_length_and_only_answers(level: str) -> None:
    lines = [
        b'{"op":"start","t":0,"id":"r","src":"p0","dst":"d0","bytes":25000000}',
        b" " * (5 << 20),
        b'{"op":"advance","t":2000000}',
    ]
    command = [sys.executable, "-m", "etloop.cli.main", "twin", "--serve", "-", "--topology", TOPOLOGY]
    command += ["--level", level]
    ended = subprocess.run(command, input=b"\n".join(lines), capture_output=True, timeout=60, check=True)
    started, refused, moved = map(json.loads, ended.stdout.splitlines())
    assert started["next"] == pytest.approx(1_000_000, rel=0.02)
    assert "a line of more than" in refused["error"]
    (done,) = moved["done"]
    # A packet's headers are 2 %.
    assert (done["id"], done["t"]) == ("r", pytest.approx(started["next"], rel=0.03))


@pytest.mark.e2e
def test_the_example_client_runs_and_prints_the_same_figures_each_time(tmp_path: Path) -> None:
    path = tmp_path / "twin.sock"
    outputs = []
    for _ in range(2):
        command = [
            sys.executable,
            "-m",
            "etloop.cli.main",
            "twin",
            "--serve",
            str(path),
            "--topology",
            TOPOLOGY,
            "--json",
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            client = [
                sys.executable,
                str(EXAMPLE / "client.py"),
                str(path),
                "--rate",
                "50",
                "--requests",
                "200",
            ]
            ended = subprocess.run(client, capture_output=True, text=True, timeout=60, check=True)
            figures = json.loads(server.communicate(timeout=60)[0])
        assert server.returncode == 0
        assert (figures["started"], figures["done"]) == (200, 200)
        outputs.append(ended.stdout)
    assert outputs[0] == outputs[1]
    match = re.fullmatch(r"200 transfers: mean ([\d.]+) ms, p99 ([\d.]+) ms, slowdown ([\d.]+)\n", outputs[0])
    assert match is not None
    mean_ms, p99_ms, slowdown = map(float, match.groups())
    assert mean_ms == pytest.approx(42.95 * slowdown, rel=0.02)
    assert p99_ms > mean_ms > 42.9
    assert not path.exists()


def test_the_example_client_has_at_most_a_hundred_lines() -> None:
    assert len((EXAMPLE / "client.py").read_text().splitlines()) <= 100
