"""Versions are installed by a command, run, judged against the first one, and recorded with their names."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.experiments.bisect.run import BisectSettings, bisect, parse_install, parse_versions
from etloop.results.schema.comparison import ComparisonSettings
from etloop.results.schema.summary import Summary
from etloop.results.schema.verdict import ConditionOutcome, Result, Verdict
from etloop.results.store.history import HISTORY_FILE, read_history
from etloop.results.store.run_dir import write_run
from tests.support.runs.records_by_hand import run_by_hand

VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4", "1.5")


def judged(summary: Summary, result: Result) -> Summary:
    check = ConditionOutcome("a < 1", "2", "1", result, "", "", 1, 1, (), "")
    return replace(summary, verdict=Verdict(result, "", ("a < 1: 2",), (), (check,)))


class Device:
    """A device whose installed version is a file, and that is worse from `first_bad` on."""

    def __init__(self, directory: Path, first_bad: str) -> None:
        self.installed = directory / "installed"
        self.first_bad = first_bad
        self.runs: list[str] = []

    @property
    def command(self) -> str:
        code = "import sys; v = sys.argv[1]; sys.exit('no image') if v == '1.2' else open(sys.argv[2], 'w').write(v)"
        return shlex.join([sys.executable, "-c", code, "{version}", str(self.installed)])

    def run(self, run_dir: Path, _: int) -> None:
        version = self.installed.read_text()
        self.runs.append(version)
        made = run_by_hand(texts=("a: 1\n", "b: 2\n"))
        result = Result.FAIL if version >= self.first_bad else Result.PASS
        write_run(run_dir, replace(made, summary=judged(made.summary, result)))


def settings(device: Device) -> BisectSettings:
    return BisectSettings(
        VERSIONS, parse_install(device.command), 1, 60 * 10**9, ComparisonSettings(warm_up=0)
    )


def test_the_first_version_whose_verdict_fails_is_found_and_runs_are_kept(tmp_path: Path) -> None:
    device, out_dir = Device(tmp_path, "1.4"), tmp_path / "out"
    lines: list[str] = []
    record = bisect(settings(device), device, out_dir, lines.append)
    assert (record.last_good, record.first_bad, record.unclear) == ("1.3", "1.4", ())
    assert [trial.version for trial in record.trials] == ["1.0", "1.5", "1.2", "1.3", "1.4"]
    assert record.trials[2].reasons == ("not installed: exit code 1: no image",)
    assert {row.run.version for row in read_history(out_dir / HISTORY_FILE)} == set(device.runs)
    assert (out_dir / "bisect.json").is_file()
    again = Device(tmp_path, "1.4")
    assert bisect(settings(again), again, out_dir, lines.append).first_bad == "1.4"
    assert again.runs == []


def test_a_device_that_does_not_become_worse(tmp_path: Path) -> None:
    device = Device(tmp_path, "9")
    record = bisect(settings(device), device, tmp_path / "out", lambda _: None)
    assert (record.first_bad, record.unclear) == ("", ())
    assert device.runs == ["1.0", "1.5"]


@pytest.mark.parametrize(
    ("install", "versions", "message"),
    [
        ("./install.sh", "1,2", "does not contain {version}"),
        ("'./install.sh {version}", "1,2", "close the quotes"),
        ("a {version}", "1", "name 2 to"),
        ("a {version}", "1,2,1", "each once"),
        ("a {version}", "1,../2", "cannot name a directory"),
    ],
)
def test_wrong_arguments_are_refused(install: str, versions: str, message: str) -> None:
    def parse() -> None:
        parse_install(install)
        parse_versions(versions)

    with pytest.raises(ConfigError, match=message.replace("{", r"\{")):
        parse()


def test_a_file_of_versions_has_comments(tmp_path: Path) -> None:
    path = tmp_path / "versions.txt"
    path.write_text("# oldest first\n4.4 \n\n4.5  # SAI update\n")
    assert parse_versions(str(path)) == ("4.4", "4.5")
