"""A rack whose rig names sources of counters: the process of a run reads them, and its results have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etloop.controller.rack.job import JobState
from tests.controller.rack.test_rack_daemon import place, serving
from tests.support.first_light.commands import Place, agents

__all__ = ["place"]  # a fixture

DUT = """\
dut:
  profile: loopback
  counters:
    - {reader: linux, name: here, interval: 50ms, timeout: 20s, ports: {a/p0: lo}}
    - {reader: soft_switch, name: gone, lab: nosuch}
"""


async def test_a_run_of_a_rack_has_the_devices_counters_and_their_gaps(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    rig = place.directory / "rig.yaml"
    rig.write_text(rig.read_text() + DUT)
    with agents(place):
        async with serving(place) as rack:
            job = await rack.reaches(rack.submit(), JobState.FINISHED)
    directory = place.directory / "state" / "artifacts" / job.run_directory
    device = json.loads((directory / "summary.json").read_text())["dut"]
    assert device["profile"] == "loopback"
    here, gone = device["sources"]
    assert (here["name"], here["whole"]) == ("here", True)
    assert here["readings"] >= 2
    assert gone["readings"] == 0
    assert [gap["why"] for gap in device["gaps"]] == ['unreachable: no lab named "nosuch" is up']
    # Everybody's packets cross the one loopback, and the kernel joins datagrams on it, so frames say little; bytes are there.
    (sent, came) = device["reconciliation"]
    assert min(sent["device_frames"], sent["agent_frames"], came["agent_frames"]) > 0
    assert sent["device_bytes"] > sent["agent_bytes"] * 3 // 4
    assert (directory / "dut.parquet").exists()
