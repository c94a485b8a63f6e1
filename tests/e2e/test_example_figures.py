"""Figures that READMEs of the examples print are those that the examples print today. In virtual time, so exactly these."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from etloop.cli.main import main
from etloop.contract.base.errors import ExitCode

from tests.support.places import ROOT

pytestmark = pytest.mark.e2e
SHOWN = re.compile(r"^```\n((?:job|    ).*?)^```$", re.MULTILINE | re.DOTALL)
"""A block of output: it begins with no command."""


def shown(readme: Path) -> str:
    """The one block of output in a README."""
    (block,) = SHOWN.findall(readme.read_text())
    assert isinstance(block, str)
    return block


def test_congestion_control(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sweep that its README prints, made by the commands that it gives; and the comparison below it."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("job"))
    readme = ROOT / "examples" / "congestion_control" / "README.md"
    text = readme.read_text()
    synths = re.findall(r"^etloop (synth .*)$", text, re.MULTILINE)
    assert len(synths) == 2
    for command in synths:
        assert main(command.split()) == ExitCode.PASS
    (sweep,) = re.findall(r"^etloop (sweep \S+ --twin --out cc/)", text, re.MULTILINE)
    capsys.readouterr()
    assert main(sweep.split()) == ExitCode.PASS
    assert shown(readme) in capsys.readouterr().out
    (compare,) = re.findall(r"`etloop (compare [^`]*)`", text)
    assert main(compare.split()) == ExitCode.PASS
    (answer,) = re.findall(r"`(jct: [^`]*)`, an improvement", text)
    assert capsys.readouterr().out.startswith(f"verdict         IMPROVEMENT\n                {answer}\n")


def test_interference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "examples" / "interference", tmp_path / "example")
    monkeypatch.chdir(tmp_path / "example")
    readme = ROOT / "examples" / "interference" / "README.md"
    (command,) = re.findall(r"^etloop (twin .*)$", readme.read_text(), re.MULTILINE)
    assert main(command.split()) == ExitCode.PASS
    assert shown(readme) in capsys.readouterr().out
