"""The workflow and the action for GitHub: well-formed, and the action's scripts do what they say where bash runs them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from etloop.contract.base.errors import ExitCode
from tests.support.places import ROOT

ACTION: Final = ROOT / "action.yml"
SCENARIO: Final = """\
workload: {incast: {senders: 1, size: 64KiB, bursts: 2}}
mapping: {placement: round_robin}
verdict: {checks: [{check: "lost_packets == LOST"}]}
"""


def action() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(ACTION.read_text())
    return found


def script(step: str, place: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a step of the action as a runner does: bash, told to end at the first mistake."""
    (one,) = (each for each in action()["runs"]["steps"] if each["id"] == step)
    known = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    known |= {"GITHUB_STEP_SUMMARY": str(place / "summary.md")}
    command = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", one["run"])
    return subprocess.run(
        command, cwd=place, env={**known, **environment}, capture_output=True, text=True, check=False
    )


def test_every_input_is_used_and_comes_by_the_environment() -> None:
    """An expression inside a script would let the name of a file be a command."""
    found = action()
    text = ACTION.read_text()
    assert all(f"inputs.{name}" in text for name in found["inputs"])
    for step in found["runs"]["steps"]:
        assert "${{" not in step["run"], step["id"]
        assert step["shell"] == "bash"
        asked = set(re.findall(r"\$\{?(SCENARIO|TOPOLOGY|OUT|BEFORE|SOURCE)\b", step["run"]))
        assert asked == set(step["env"]), step["id"]


@pytest.mark.parametrize(
    ("lost", "code", "badge"), [("0", ExitCode.PASS, "PASS"), ("1", ExitCode.VERDICT_FAILED, "FAIL")]
)
def test_a_run_ends_by_its_verdict_and_writes_the_summary(
    tmp_path: Path, lost: str, code: ExitCode, badge: str
) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("LOST", lost))
    (tmp_path / "t.yaml").write_text("single: {ports: [a/p0, b/p0], rate: 10Gbps}\n")
    done = script("run", tmp_path, SCENARIO="s.yaml", TOPOLOGY="t.yaml", OUT="out")
    assert done.returncode == code, done.stderr
    assert badge in (tmp_path / "summary.md").read_text().splitlines()[0]
    if lost == "0":
        shutil.copytree(tmp_path / "out", tmp_path / "before")
        done = script("compare", tmp_path, BEFORE="before", OUT="out")
        assert done.returncode in (ExitCode.PASS, ExitCode.INCONCLUSIVE), done.stderr
        assert (tmp_path / "out" / "compare.html").exists()


def test_what_cannot_be_read_ends_the_job_without_a_summary(tmp_path: Path) -> None:
    done = script("run", tmp_path, SCENARIO="none.yaml", TOPOLOGY="", OUT="out")
    assert done.returncode in (ExitCode.PREPARATION_FAILED, ExitCode.USAGE)
    assert not (tmp_path / "summary.md").exists()


def test_the_workflow_runs_what_every_change_must_pass() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    (job,) = workflow["jobs"].values()
    assert any(".ci/run" in step.get("run", "") for step in job["steps"])
    assert workflow["permissions"] == {"contents": "read"}
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
