"""Cards of two planes through real ports: both carry their share and count it, and one that is lost leaves the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from etloop.cli.main import main
from tests.lab.test_lab import PATIENCE_S, desk
from tests.lab.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed
from tests.support.places import ROOT
from tests.support.ports import free_endpoint

if TYPE_CHECKING:
    from tests.lab.test_lab import Desk

__all__ = ["desk"]

TOPOLOGY: Final = """\
rail: {rails: [{ports: [a0/p0, a1/p0]}, {ports: [a0/p1, a1/p1]}], rate: 200Mbps, spines: 0, rail: {preset: lossy}}
"""
SCENARIO: Final = """\
workload: {incast: {senders: 1, size: SIZE, bursts: 1}}
transport: {KIND, timeout_floor: 100ms}
limits: {gather_timeout: 60s}
"""
MIB: Final = 1 << 20
MRC: Final = "kind: mrc"
UET: Final = "kind: uet"
of_each_kind: Final = pytest.mark.parametrize("kind", [MRC, UET], ids=["mrc", "uet"])

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not namespaces_are_allowed(), reason=NO_NAMESPACES),
]


def brought_up(desk: Desk, kind: str, backend: str, size: str, timeline: str = "") -> None:
    """A lab of two agents, whose two ports each are a card."""
    bind = free_endpoint()
    path, rig = desk.directory / "topology.yaml", desk.directory / "rig.yaml"
    path.write_text(TOPOLOGY)
    scenario = SCENARIO.replace("KIND", kind).replace("SIZE", size) + timeline
    (desk.directory / "scenario.yaml").write_text(scenario)
    words = ("lab", "up", str(path), "--unmeasured", "--agents", "--backend", backend, "--bind", bind)
    assert main([*words, "--rig-out", str(rig)]) == 0
    rig.write_text(rig.read_text().replace(f"backend: {backend}", f"backend: {backend}, card: c0"))


RUN: Final = ("run", "scenario.yaml", "--rig", "rig.yaml", "--out", "run", "--no-twin")


def summary_of(desk: Desk) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((desk.directory / "run" / "summary.json").read_text())
    return found


def carried(desk: Desk) -> list[int]:
    """Bytes that the switch of each plane sent to the receiver, a0."""
    return [int(switch.ports[0].counters["tx_bytes"]) for switch in desk.status().counters.switches]


@of_each_kind
@pytest.mark.parametrize("backend", ["packet", "xdp"])
def test_a_queue_pair_takes_both_planes_and_each_counts_its_own(desk: Desk, backend: str, kind: str) -> None:
    brought_up(desk, kind, backend, "16MiB")
    desk.etloop(*RUN)
    found = summary_of(desk)
    assert found["state"] == "done"
    rows = found["dut"]["reconciliation"]
    assert {row["port"] for row in rows} == {"a0/p0", "a0/p1", "a1/p0", "a1/p1"}
    assert {row["agreement"] for row in rows} == {"exact"}
    arrived = [
        row["agent_bytes"]
        for row in rows
        if row["direction"] == "from_device" and row["port"].startswith("a0/")
    ]
    assert sum(arrived) > 16 * MIB
    assert max(arrived) < 1.2 * min(arrived)


@of_each_kind
def test_a_plane_that_is_cut_at_the_switch_leaves_the_other(desk: Desk, kind: str) -> None:
    """Nobody's port goes down: the lab's link carries nothing any more, and what is lost says so."""
    brought_up(desk, kind, "packet", "16MiB", "timeline: [{at: 100ms, link: rail1/0, state: down}]\n")
    desk.etloop(*RUN, expected=30)  # the profile's condition: packets that had no way
    found = summary_of(desk)
    assert found["state"] == "done"
    assert found["bytes"]["wire_rx_bytes"] == 16 * MIB
    first, second = carried(desk)
    assert second < 0.5 * first


@pytest.mark.parametrize(
    ("backend", "kind"),
    [("packet", MRC), ("packet", UET), ("packet", f"{UET}, uet: {{credit: true}}"), ("xdp", UET)],
    ids=["mrc", "uet", "uet with credit", "uet on xdp"],
)
def test_a_port_that_goes_down_leaves_the_other(desk: Desk, backend: str, kind: str) -> None:
    """The receiver's interface is taken down while the job runs: MRC tells the sender, with UET it loses packets by it."""
    brought_up(desk, kind, backend, "64MiB")
    # It waits in the namespace for a word, as a new process would come too late.
    order = ("lab", "exec", "a0", "--", "sh", "-c", "read word && ip link set p1 down")
    with begun(desk, *order) as cutter, begun(desk, *RUN) as run:
        deadline = time.monotonic() + PATIENCE_S
        while min(carried(desk)) < MIB:
            assert run.poll() is None
            assert time.monotonic() < deadline
        cutter.communicate(b"now\n", timeout=PATIENCE_S)
        output, _ = run.communicate(timeout=PATIENCE_S)
    assert cutter.returncode == 0
    found = summary_of(desk)
    assert found["state"] == "done", output
    assert found["bytes"]["wire_rx_bytes"] == 64 * MIB
    first, second = carried(desk)
    assert second < 0.8 * first


def begun(desk: Desk, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "etloop.cli.main", *words],
        cwd=desk.directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
