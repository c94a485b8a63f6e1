"""A job through a lab whose counters are read: exact agreement, a class in the wrong queue, loss by port, sources that fail. Real
frames, real agents, the commands that a user types."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest

from etloop.cli.main import main
from etloop.lab.client import lab_down
from tests.lab.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed
from tests.support.places import ROOT
from tests.support.ports import free_endpoint

TOPOLOGY: Final = """\
single:
  rate: 200Mbps
  ports: [a/p0, b/p0, c/p0]
  switch: {preset: lossy, buffer: 48KiB, maps: {dscp_to_class: {26: 1}}}
"""
"""DSCP 26 is in class 1 although the profile soft-switch says 3, nothing pauses, and there is little room."""
SCENARIO: Final = """\
workload: {{trace: {trace}}}
transport: {{dscp: {dscp}, timeout_floor: 100ms}}
limits: {{gather_timeout: 60s}}
verdict:
  emulator: {{slip: 100%, busy: 100%}}
"""
PYTHON: Final = (sys.executable, "-P", "-m")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not namespaces_are_allowed(), reason=NO_NAMESPACES),
]


@dataclass(frozen=True, slots=True)
class Bench:
    """A lab with agents, and two traces: one that fits its buffer, and one that does not."""

    directory: Path

    def etloop(self, *words: str, expected: int = 0) -> str:
        """A command as it is typed in the bench's directory; what it wrote to both streams."""
        reported = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(reported), redirect_stderr(reported):
            patch.chdir(self.directory)
            patch.setenv("XDG_RUNTIME_DIR", str(self.directory))
            patch.setenv("PYTHONPATH", str(ROOT))
            code = main(list(words))
        assert code == expected, reported.getvalue()
        return reported.getvalue()

    def run(
        self, name: str, rig: str, expected: int, *, trace: str, dscp: int | str, checks: str = ""
    ) -> str:
        """`dscp`: with other keys of `transport` behind it, where there are any."""
        scenario = f"{name}.scenario.yaml"
        (self.directory / scenario).write_text(SCENARIO.format(trace=trace, dscp=dscp) + checks)
        words = ("run", scenario, "--rig", rig, "--out", name, "--no-twin", "-v")
        return self.etloop(*words, expected=expected)

    def summary(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / name / "summary.json").read_text())
        return found


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    directory = tmp_path_factory.mktemp("counted")
    made = Bench(directory)
    (directory / "topology.yaml").write_text(TOPOLOGY)
    bind = free_endpoint()
    up = ("lab", "up", "topology.yaml", "--unmeasured", "--agents", "--bind", bind, "--rig-out", "rig.yaml")
    try:
        assert "switch maps DSCP 26 to queue 1, the profile soft-switch to 3: " in made.etloop(*up)
        made.etloop(
            "synth",
            "small",
            "--sweep",
            "all_reduce",
            "--sizes",
            "16KiB-16KiB",
            "--ranks",
            "3",
            "--repeat",
            "2",
        )
        made.etloop("synth", "incast", "--sweep", "gather", "--sizes", "1MiB-1MiB", "--ranks", "3")
        yield made
    finally:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_RUNTIME_DIR", str(directory))
            lab_down("lab")


def test_device_and_agents_agree_frame_for_frame(bench: Bench) -> None:
    reported = bench.run("exact", "rig.yaml", 0, trace="small", dscp=10)
    assert "agreement       of agents and device, 6 directions of cables: 6 frame for frame" in reported
    assert "verdict         PASS of soft-switch: 3 pass" in reported
    device = bench.summary("exact")["dut"]
    assert [row["difference_bytes"] for row in device["reconciliation"]] == [0] * 6
    assert all(row["agent_frames"] > 0 for row in device["reconciliation"])
    assert device["gaps"] == []
    assert device["sources"][0]["at_rest"]
    phases = pq.read_table(bench.directory / "exact" / "dut.parquet").column("phase").unique().to_pylist()
    assert sorted(phases) == ["after", "before", "drained", "during"]
    times = pq.read_table(bench.directory / "exact" / "dut.parquet").column("time_ns").to_pylist()
    assert min(times) < 0 < max(times), "read before the job began and after"
    assert bench.etloop("report", "exact") in reported
    assert "PASS" in bench.etloop("report", "exact", "--verdict")


def test_background_that_the_end_of_a_run_cuts_is_counted_alike(bench: Bench) -> None:
    """Bursts fill two thirds of the time, so that most runs end within one: what is under way then crosses the device still."""
    beside = "background:\n  - {name: bursts, incast: {senders: 1, size: 16KiB, period: 1ms}, dscp: 10}\n"
    for number in range(3):
        bench.run(f"beside{number}", "rig.yaml", 0, trace="small", dscp=10, checks=beside)
        rows = bench.summary(f"beside{number}")["dut"]["reconciliation"]
        assert {row["difference_frames"] for row in rows} == {0}, rows


def test_a_class_in_another_queue_and_loss_fail_and_are_named(bench: Bench) -> None:
    lost = "  checks: [{check: switches.queue_dropped_packets + switches.group_dropped_packets == 0, why: RoCE pauses}]\n"
    reported = bench.run("wrong", "rig.yaml", 30, trace="incast", dscp=26, checks=lost)
    verdict = bench.summary("wrong")["verdict"]
    checks = {one["expression"]: one for one in verdict["checks"]}
    queues = checks["classes.missing_share <= 1000ppm"]
    assert queues["result"] == "fail"
    assert "dscp 26, expected_queue 3, queue_packets 0, found_queue 1" in queues["rows"][0]
    drops = next(one for expression, one in checks.items() if expression.startswith("switches"))
    assert drops["result"] == "fail"
    assert any("peer b/p0" in row or "peer c/p0" in row or "peer a/p0" in row for row in drops["rows"])
    assert checks["reconciliation.difference_share <= 1000ppm"]["result"] == "pass", "loss is no disagreement"
    assert "found_queue 1" in reported
    page = (bench.directory / "wrong" / "report.html").read_text()
    assert "counted by the device" in page
    assert "dropped" in page


@pytest.mark.parametrize(
    ("name", "marks", "carries"),
    [
        ("acks-apart", "ack: {dscp: 48}", {0: "data", 6: "acknowledgements"}),
        ("grants-apart", "clear_to_send: {dscp: 48}", {0: "data", 6: "clear to send"}),
        (
            "both-apart",
            "ack: {dscp: 48}, clear_to_send: {dscp: 26}",
            {0: "data", 3: "clear to send", 6: "acknowledgements"},
        ),
    ],
)
def test_packets_with_marks_of_their_own_are_no_fault_of_the_device(
    bench: Bench, name: str, marks: str, carries: dict[int, str]
) -> None:
    # DSCP 26 alone leaves by another queue than the profile says.
    expected = {queue for queue in carries if queue == 3}
    reported = bench.run(name, "rig.yaml", 30 if expected else 0, trace="small", dscp=f"10, {marks}")
    rows = pq.read_table(bench.directory / name / "classes.parquet").to_pylist()
    # Notifications, which share queue 6, come when they come.
    found = {row["expected_queue"]: row["carries"].removesuffix(", notifications") for row in rows}
    assert found == carries
    assert {row["expected_queue"] for row in rows if row["missing_packets"]} == expected, reported


def test_losses_add_up_to_what_the_switch_dropped(bench: Bench) -> None:
    checks = "  checks: [{check: unexplained_packets == 0}, {check: dut_dropped_packets == 0}]\n"
    reported = bench.run("lost", "rig.yaml", 30, trace="incast", dscp=10, checks=checks)
    summary = bench.summary("lost")
    losses = summary["losses"]
    rows = {row["name"]: row for row in losses["rows"]}
    dropped = [row["packets"] for name, row in rows.items() if name.startswith("dropped_") and row["packets"]]
    assert losses["dropped_packets"] == sum(dropped) > 0
    counted = ("acknowledgements", "naks", "cnps")
    missing = sum(rows[name]["packets"] for name in ("data", *counted, "others"))
    assert missing == rows["all"]["packets"] == rows["all"]["sent"] - rows["all"]["received"] == sum(dropped)
    assert (losses["unexplained_packets"], losses["why"]) == (0, "")
    assert rows["data_again"]["sent"] == summary["transport"]["retransmitted_packets"] > 0
    words = f"{rows['all']['packets']} of {rows['all']['sent']} packets not received: {rows['data']['packets']} of data, "
    assert words in " ".join(reported.split())
    verdict = {one["expression"]: one["result"] for one in summary["verdict"]["checks"]}
    assert (verdict["unexplained_packets == 0"], verdict["dut_dropped_packets == 0"]) == ("pass", "fail")


def test_a_case_brings_its_lab_up_as_it_was(bench: Bench) -> None:
    bench.run("again", "rig.yaml", 0, trace="small", dscp=10)
    said = bench.etloop("bundle", "again")
    assert "etloop lab up case/topology.yaml --name lab --addresses 8 --bind tcp://127.0.0.1:" in said
    assert " --unmeasured --agents\n" in said


BROKEN: Final = """\
    - {{reader: soft_switch, name: gone, lab: nosuch}}
    - {{reader: linux, name: liar, command: [sh, -c, 'while read x; do echo nonsense; done']}}
    - {{reader: linux, name: slow, timeout: 200ms, command: [sleep, '100']}}
    - reader: linux
      name: brief
      side: host
      interval: 100ms
      command: [sh, -c, 'test -e told || {{ touch told; read x; echo "$ANSWER"; }}', '--']
      ports: {{c/p0: p0}}
    - reader: linux
      name: host-a
      side: host
      timeout: 30s
      command: {command}
      ports: {{a/p0: p0}}
"""


def test_sources_that_fail_leave_gaps_and_the_run_ends(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"version": 1, "interfaces": {"p0": {"link": {"rx_packets": 5, "tx_packets": 5}}}}
    monkeypatch.setenv("ANSWER", json.dumps(answer))
    etloop = [*PYTHON, "etloop.cli.main"]
    command = [*etloop, "lab", "exec", "a", "--", *PYTHON, "etloop.counters.readers.linux_process"]
    rig = (bench.directory / "rig.yaml").read_text()
    broken = rig.replace("agents:\n", BROKEN.format(command=json.dumps(command)) + "agents:\n", 1)
    # Joined frames would count once at the interface.
    broken = broken.replace("link: 200Mbps", "link: 200Mbps, segmentation_offload: false")
    (bench.directory / "broken.yaml").write_text(broken)
    unknown = "  checks: [{check: rtt_p50_ns < 1s, why: nobody samples it}]\n"
    reported = bench.run("gaps", "broken.yaml", 20, trace="small", dscp=10, checks=unknown)
    assert 'counters by gone: unreachable: no lab named "nosuch" is up; the run goes on' in reported
    summary = bench.summary("gaps")
    assert summary["state"] == "done"
    why = {gap["source"]: gap["why"] for gap in summary["dut"]["gaps"]}
    assert why["gone"] == 'unreachable: no lab named "nosuch" is up'
    assert why["liar"].startswith("nonsense: sh wrote ")
    assert why["slow"] == "late: no answer within 0.2 s"
    assert why["brief"] == "ended: sh ended without a message"
    agreement = {(row["source"], row["port"]): row["agreement"] for row in summary["dut"]["reconciliation"]}
    assert agreement["soft_switch", "a/p0"] == "exact"
    assert agreement["host-a", "a/p0"] in ("exact", "unknown"), (
        "the kernel's own count; unknown if it came up too late"
    )
    assert agreement["brief", "c/p0"] == "unknown"
    assert "rtt_p50_ns" in str(summary["verdict"])
    reported = bench.etloop("dut", "counters", "--rig", "broken.yaml", expected=65)
    assert "gone: unreachable" in reported
    assert "soft_switch: " in reported


def test_a_profile_that_cannot_be_read_is_refused_before_the_run(bench: Bench) -> None:
    rig = (bench.directory / "rig.yaml").read_text().replace("profile: soft-switch", "profile: none.yaml")
    (bench.directory / "unknown.yaml").write_text(rig)
    reported = bench.run("unknown", "unknown.yaml", 65, trace="small", dscp=10)
    assert "none.yaml: cannot be read: No such file or directory" in reported
