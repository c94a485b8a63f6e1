"""`etloop collective` has the verdict of its scenario and of the device that its rig names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.first_light.commands import agents, etloop, free_place

DUT = """\
dut:
  profile: loopback
  counters: [{reader: linux, name: here, interval: 50ms, timeout: 20s, ports: {a/p0: lo}}]
"""
HOLDS, DOES_NOT = "retransmitted_packets >= 0", "flows.tx_payload_bytes == 0"


@pytest.mark.e2e
@pytest.mark.parametrize(("check", "code", "result"), [(HOLDS, 0, "pass"), (DOES_NOT, 30, "fail")])
def test_a_benchmark_has_the_verdict_of_its_scenario(
    tmp_path: Path, check: str, code: int, result: str
) -> None:
    place = free_place(tmp_path)
    place.rig(ranks_per_agent=1)
    place.write(
        "s.yaml", f"workload: {{trace: none}}\nverdict: {{checks: [{{check: {check}, why: by hand}}]}}\n"
    )
    measured = (
        "all_reduce",
        "-b",
        "64K",
        "-e",
        "64K",
        "-n",
        "2",
        "--rig",
        "rig.yaml",
        "--scenario",
        "s.yaml",
    )
    with agents(place):
        kept = etloop(place, "collective", *measured, "--out", "run", "--json", "r.json")
        shown = etloop(place, "collective", *measured)
    verdict = json.loads((tmp_path / "run" / "summary.json").read_text())["verdict"]
    assert verdict["result"] == result
    (test,) = json.loads((tmp_path / "r.json").read_text())["tests"]
    assert test["etloop"]["verdict"] == verdict
    assert (tmp_path / "run" / "junit.xml").exists()
    for ended in (kept, shown):
        assert ended.exit_code == code, ended.err
        assert f"# verdict         {result.upper()}: 1 {result}" in ended.out


@pytest.mark.e2e
def test_a_benchmark_reads_the_device_and_its_profile(tmp_path: Path) -> None:
    place = free_place(tmp_path)
    place.rig(ranks_per_agent=1)
    place.write("rig.yaml", (tmp_path / "rig.yaml").read_text() + DUT)
    measured = ("all_reduce", "-b", "64K", "-e", "64K", "-n", "2", "--rig", "rig.yaml")
    with agents(place):
        ended = etloop(place, "collective", *measured, "--out", "run")
        strict = etloop(place, "collective", *measured, "--strict")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["dut"]["sources"][0]["readings"] >= 2
    # Everybody's packets cross the one loopback: the device counts others, and the verdict says so.
    assert (summary["verdict"]["device"], summary["verdict"]["result"]) == ("loopback", "fail")
    assert ended.exit_code == 30, ended.err
    assert strict.exit_code == 65
    assert "DSCP 26 is class 0" in strict.err
