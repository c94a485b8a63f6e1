"""Runs of a rack have what every run has: a timeline, agents that stand by, the device's counters, `strict`, a verdict."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from etloop.cli.main import main
from etloop.contract.base.errors import ExitCode
from etloop.controller.rack.job import JobRequest, JobState, PortDemand
from etloop.controller.rack.submissions import Accepted
from etloop.lab.client import lab_counters, lab_down
from tests.controller.rack.test_rack_daemon import SCENARIO, place, serving
from tests.lab.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed
from tests.support.first_light.commands import Place, agents, free_place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from etloop.controller.rack.job import Job

__all__ = ["place"]  # a fixture

pytestmark = pytest.mark.e2e

TIMELINE: Final = """\
iterations: 3
workload: {collective: {kind: all_reduce, ranks: 2, size: 512KiB}}
mapping: {placement: round_robin}
transport: {path_mtu: 1024, timeout_floor: 200ms}
limits: {gather_timeout: 60s, stall_timeout: 30s}
timeline:
  - {at: 50ms, link: switch/0, state: down}
  - {at: 200ms, link: switch/0, state: up}
verdict:
  emulator: {slip: 100%, busy: 100%}
  checks: [{check: retransmitted_packets > 0, why: what was lost with the link is sent again}]
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A rack whose device is a switch of software with three ports, an agent on each."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    place = free_place(tmp_path)
    place.write("topology.yaml", "single: {rate: 50Mbps, ports: [a/p0, b/p0, c/p0]}\n")
    place.write("controller.yaml", "rig: rig.yaml\nstate_dir: state\nscenario_root: traces\n")
    (tmp_path / "traces").mkdir()
    up = ("lab", "up", "topology.yaml", "--unmeasured", "--agents", "--bind", place.endpoint)
    assert main([*up, "--rig-out", "rig.yaml"]) == ExitCode.PASS
    yield place
    lab_down("lab")


def summary_of(place: Place, job: Job) -> dict[str, Any]:
    path = place.directory / "state" / "artifacts" / job.run_directory / "summary.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.skipif(not namespaces_are_allowed(), reason=NO_NAMESPACES)
async def test_a_job_takes_links_down_and_leaves_out_who_has_no_rank(
    lab: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(lab) as rack:
        job = await rack.reaches(rack.submit(TIMELINE), JobState.FINISHED)
        summary = summary_of(lab, job)
        assert [agent["name"] for agent in summary["agents"]] == ["a", "b"], "c had nothing to do"
        down, up = summary["timeline"]
        assert (down["why"], up["why"]) == ("", "")
        assert 0 < down["done_ns"] < up["done_ns"]
        assert lab_counters("lab").switches[0].ports[0].counters["link_dropped_packets"] > 0
        assert summary["dut"]["profile"] == "soft-switch"
        assert len(summary["dut"]["reconciliation"]) == 4, "two cables, both ways"
        # The device's profile wants no packet without a way; the scenario's own condition holds.
        assert job.exit_code is ExitCode.VERDICT_FAILED
        results = {one["expression"].split("[")[0]: one["result"] for one in summary["verdict"]["checks"]}
        assert results["counters"] == "fail"
        assert results["retransmitted_packets > 0"] == "pass"
        assert isinstance(summary["overload_frames"], int)
        # The one that stood by takes the next job.
        job = await rack.reaches(
            rack.submit(TIMELINE.replace("switch/0", "switch/2"), "b/p0", "c/p0"), JobState.FINISHED
        )
        assert [agent["name"] for agent in summary_of(lab, job)["agents"]] == ["b", "c"]
        # What it leaves repeats it by itself, on the ports that it had.
        directory = lab.directory / "state" / "artifacts" / job.run_directory
        assert main(["bundle", str(directory), "-o", "case.zip"]) == ExitCode.PASS
        capsys.readouterr()
        assert main(["plan", "case.zip", "--json"]) == ExitCode.PASS
        planned = json.loads(capsys.readouterr().out)
        assert [rank["agent"] for rank in planned["ranks"]] == ["b", "c"]
        # Links that no switch has are refused before anything is sent.
        job = await rack.reaches(rack.submit(TIMELINE.replace("switch/0", "switch/9")), JobState.FINISHED)
        assert job.exit_code is ExitCode.PREPARATION_FAILED
        assert 'no switch has the port "switch/9"' in job.reason


async def test_a_timeline_is_refused_where_nothing_takes_links_down(place: Place) -> None:
    scenario = SCENARIO + "timeline: [{at: 1ms, link: switch/0, state: down}]\n"
    with agents(place):
        async with serving(place) as rack:
            job = await rack.reaches(rack.submit(scenario), JobState.FINISHED)
    assert job.exit_code is ExitCode.PREPARATION_FAILED
    assert "links cannot be taken down: the rig names no lab" in job.reason


async def test_what_the_profile_contradicts_is_a_note_or_where_a_job_is_strict_its_end(place: Place) -> None:
    rig = place.directory / "rig.yaml"
    # A speed that no port of this device has.
    rig.write_text(rig.read_text().replace("100Gbps", "1Gbps") + "dut: {profile: sonic-tomahawk5}\n")
    with agents(place):
        async with serving(place) as rack:
            strict = rack.rack.submit(JobRequest(SCENARIO, PortDemand(), strict=True), "test")
            assert isinstance(strict, Accepted)
            refused = await rack.reaches(strict.job.job_id, JobState.FINISHED)
            done = await rack.reaches(rack.submit(), JobState.FINISHED)
    notes = [note for note in summary_of(place, done)["notes"] if "says otherwise" in note]
    assert notes
    assert refused.exit_code is ExitCode.PREPARATION_FAILED
    assert notes[0].partition("says otherwise: ")[2] in refused.reason
