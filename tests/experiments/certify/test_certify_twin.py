"""`etloop certify` on the twin of a small fabric: planted parts are named, and a healthy fabric has none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from etloop.cli.main import main as etloop
from etloop.contract.base.errors import ExitCode

LEAVES: Final = 3
SPINES: Final = 2
HOSTS: Final = 3


def topology(slow: str = "", lossy: str = "", wrong_class: str = "", deaf: str = "") -> str:
    """Return three leaves of three hosts and two spines; `slow`, `lossy` and `deaf` (to pauses) are ports, `wrong_class` is a
    switch."""
    names = [f"leaf{number}" for number in range(LEAVES)] + [f"spine{number}" for number in range(SPINES)]
    switches: dict[str, dict[str, Any]] = {name: {"name": name} for name in names}
    if lossy:
        switches[lossy.partition("/")[0]]["faults"] = [{"in": lossy.partition("/")[2], "chance": "1%"}]
    if deaf:
        switches[deaf.partition("/")[0]]["pfc"] = {"ignored_at": [deaf.partition("/")[2]]}
    if wrong_class:
        switches[wrong_class]["maps"] = {"dscp_to_class": {26: 1}}

    def rate(port: str) -> str:
        return "60Gbps" if port == slow else "100Gbps"

    content = {
        "switches": list(switches.values()),
        "links": [
            {
                "from": f"leaf{leaf}/u{spine}",
                "to": f"spine{spine}/d{leaf}",
                "rate": rate(f"leaf{leaf}/u{spine}"),
            }
            for leaf in range(LEAVES)
            for spine in range(SPINES)
        ],
        "attach": [
            {"port": f"h{leaf}{host}/p0", "to": f"leaf{leaf}/p{host}", "rate": rate(f"leaf{leaf}/p{host}")}
            for leaf in range(LEAVES)
            for host in range(HOSTS)
        ],
    }
    return json.dumps(content)


def certified(
    directory: Path, capsys: pytest.CaptureFixture[str], text: str, *options: str
) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the JSON of a certification of a topology."""
    (directory / "topology.yaml").write_text(text)
    code = etloop(["certify", "--topology", str(directory / "topology.yaml"), "--json", *options])
    return code, json.loads(capsys.readouterr().out)


def test_planted_parts_are_named_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = topology(slow="leaf0/p1", lossy="leaf2/u1", wrong_class="leaf1", deaf="leaf2/p0")
    out = tmp_path / "out"
    code, certificate = certified(tmp_path, capsys, text, "--out", str(out))
    assert code == ExitCode.VERDICT_FAILED
    named = {
        (finding["kind"], finding["places"][0]["name"], finding["places"][0]["peer"])
        for finding in certificate["findings"]
    }
    assert named == {
        ("slow_link", "leaf0/p1", "h01/p0"),
        ("lossy_link", "leaf2/u1", "spine1/d2"),
        ("data_class", "leaf1", ""),
        ("pfc_ignored", "leaf2/p0", "h20/p0"),
    }
    steps = {step["name"]: step for step in certificate["steps"]}
    assert steps["incast"]["left_out"] == ["h01/p0", "h10/p0", "h11/p0", "h12/p0"]
    failed = [port["name"] for port in certificate["ports"] if port["result"] == "fail"]
    assert failed == ["h01/p0", "h10/p0", "h11/p0", "h12/p0", "h20/p0"]
    assert json.loads((out / "certificate.json").read_text()) == certificate
    assert "leaf0/p1 (to h01/p0)" in (out / "certificate.html").read_text()
    assert (
        (out / "certificate.txt")
        .read_text()
        .startswith("certificate     FAIL: 9 ports, 7 steps, 4 parts named")
    )
    assert (out / "pairs" / "summary.json").is_file()


def test_healthy_fabric_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, certificate = certified(tmp_path, capsys, topology())
    assert (code, certificate["findings"], certificate["result"]) == (ExitCode.PASS, [], "pass")
    assert all(port["kmin_bytes"] and port["pauses"] is not None for port in certificate["ports"])


def test_lossy_class_is_measured_by_incasts_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scenario.yaml").write_text("workload: {trace: none}\ntransport: {lossless: false}\n")
    options = ("--scenario", str(tmp_path / "scenario.yaml"), "--steps", "classes,hold")
    _, certificate = certified(tmp_path, capsys, topology(), *options)
    assert [step["name"] for step in certificate["steps"]] == ["classes"]
    assert certificate["notes"] == [
        "step hold was left out: transport.lossless is false, so no class of the job has PFC; Kmin and Kmax are those of incasts"
    ]


def test_unknown_step_is_refused_with_the_known_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "topology.yaml").write_text(topology())
    code = etloop(["certify", "--topology", str(tmp_path / "topology.yaml"), "--steps", "pears"])
    assert code == ExitCode.PREPARATION_FAILED
    words = 'unknown step "pears"; write some of classes, notifications, pairs, loss, hash, incast, hold'
    assert words in capsys.readouterr().err


def test_neither_rig_nor_topology_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert etloop(["certify"]) == ExitCode.PREPARATION_FAILED
    assert "--rig: and --topology are missing" in capsys.readouterr().err
