"""`etloop examples` copies what ETLoop brings, replaces nothing, and says what each is; `etloop schema` knows all there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from etloop.cli.commands.examples import SUMMARIES
from etloop.cli.commands.schema import MESSAGES
from etloop.cli.main import main
from etloop.contract.base.errors import ExitCode
from tests.support.places import ROOT


def test_every_example_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(SUMMARIES) == {path.name for path in (ROOT / "examples").iterdir() if path.is_dir()}
    assert main(["examples"]) == ExitCode.PASS
    printed = capsys.readouterr().out
    assert all(f"{name} " in printed and what in printed for name, what in SUMMARIES.items())
    assert main(["examples", "--json"]) == ExitCode.PASS
    assert json.loads(capsys.readouterr().out) == SUMMARIES


def test_a_copy_has_all_files_and_can_be_laid_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["examples", "flows", "cc_plugin", "--to", "a/try"]) == ExitCode.PASS
    assert capsys.readouterr().out == "a/try/flows\na/try/cc_plugin\n"
    for name in ("flows", "cc_plugin"):
        wanted = {path.name for path in (ROOT / "examples" / name).iterdir()} - {"__pycache__", "job"}
        assert {path.name for path in (tmp_path / "a/try" / name).iterdir()} == wanted
    assert main(["examples", "--all", "--to", "whole"]) == ExitCode.PASS
    assert {path.name for path in (tmp_path / "whole").iterdir()} == set(SUMMARIES)


def test_nothing_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples" / "flows").mkdir(parents=True)
    assert main(["examples", "laptop", "flows"]) == ExitCode.PREPARATION_FAILED
    assert "examples/flows exists already, so no example was copied; name another directory with --to" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "examples" / "laptop").exists()
    (tmp_path / "file").write_text("")
    assert main(["examples", "laptop", "--to", "file"]) == ExitCode.PREPARATION_FAILED
    assert "file: cannot be copied to: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text"), [("flow", "did you mean flows?"), ("zzz", "choose from bmwg, bmwg_inference, ")]
)
def test_one_that_is_not_there_is_reported(name: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["examples", name]) == ExitCode.PREPARATION_FAILED
    assert text in capsys.readouterr().err


def test_schemas_of_runs_and_of_messages_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    folder = {
        path.name.removesuffix(".schema.json") for path in (ROOT / "docs/rack-api").glob("*.schema.json")
    }
    assert set(MESSAGES) == folder
    for name in ("summary", "submit-request"):
        assert main(["schema", name]) == ExitCode.PASS
        assert json.loads(capsys.readouterr().out)["$schema"]


def test_examples_need_no_file_of_another() -> None:
    """Each is copied alone; controller, rig and topology files name others relative to themselves."""
    named = re.compile(r"^\s*(?:rig|topology|users|trace|profile): (\S+\.ya?ml)", re.MULTILINE)
    missing = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in sorted((ROOT / "examples").rglob("*.yaml"))
        for name in named.findall(file.read_text())
        if not (file.parent / name).exists() or ".." in name
    ]
    assert missing == []
    assert named.findall((ROOT / "examples/laptop/controller.yaml").read_text()) == ["rig.yaml"]
    laptop, loopback = (ROOT / f"examples/{name}/rig.yaml" for name in ("laptop", "loopback"))
    assert laptop.read_text() == loopback.read_text(), "both are two agents on loopback; change both"
