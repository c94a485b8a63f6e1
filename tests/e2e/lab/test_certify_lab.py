"""`etloop certify --lab`: a slow and a lossy port of a real lab are named, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from etloop.cli.main import main as etloop
from etloop.contract.base.errors import ExitCode
from tests.lab.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed
from tests.support.first_light.commands import PATIENCE_S

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(4 * PATIENCE_S),
    pytest.mark.skipif(not namespaces_are_allowed(), reason=NO_NAMESPACES),
]

TOPOLOGY: Final = """\
switches: [{name: switch, faults: [{in: "3", chance: 1%}]}]
attach:
  - {port: a/p0, to: switch/0, rate: 100Mbps}
  - {port: b/p0, to: switch/1, rate: 100Mbps}
  - {port: c/p0, to: switch/2, rate: 60Mbps}
  - {port: d/p0, to: switch/3, rate: 100Mbps}
"""


def test_slow_and_lossy_port_of_a_lab_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "topology.yaml").write_text(TOPOLOGY)
    options = ("--lab", "--allow-overcommit", "--steps", "classes,pairs,loss", "--json")
    code = etloop(["certify", "--topology", str(tmp_path / "topology.yaml"), *options])
    certificate = json.loads(capsys.readouterr().out)
    named = {(finding["kind"], finding["places"][0]["peer"]) for finding in certificate["findings"]}
    assert named == {("slow_link", "c/p0"), ("lossy_link", "d/p0")}
    assert code == ExitCode.VERDICT_FAILED
    # Payload that arrived, and not what the hosts' buffers took.
    assert all(0 < port["sends_bps"] < 1.1 * port["stated_bps"] for port in certificate["ports"])
