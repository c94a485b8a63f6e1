"""MRC and UET through real ports: a collective over packet sockets and a fabric of software, whose two spines share it."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Final

import pytest
from etloop.cli.main import main

from tests.lab.test_lab import desk
from tests.lab.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed

if TYPE_CHECKING:
    from tests.lab.test_lab import Desk

__all__ = ["desk"]

TOPOLOGY: Final = """\
leaf_spine:
  leaves: [{ports: [a/p0]}, {ports: [b/p0]}]
  spines: 2
  rate: 100Mbps
"""
SCENARIO: Final = """\
workload: {trace: none}
transport: {kind: KIND, timeout_floor: 500ms}
limits: {gather_timeout: 60s}
"""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not namespaces_are_allowed(), reason=NO_NAMESPACES),
]


def brought_up(desk: Desk, backend: str, kind: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        bind = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    path = desk.directory / "topology.yaml"
    path.write_text(TOPOLOGY)
    (desk.directory / "scenario.yaml").write_text(SCENARIO.replace("KIND", kind))
    words = ("lab", "up", str(path), "--unmeasured", "--agents", "--backend", backend, "--bind", bind)
    assert main([*words, "--rig-out", str(desk.directory / "rig.yaml")]) == 0


ALL_REDUCE: Final = (
    *("collective", "all_reduce", "--rig", "rig.yaml", "--scenario", "scenario.yaml", "--ranks", "2"),
    *("-b", "256K", "-e", "256K", "-n", "1", "-w", "0", "--json", "-"),
)


@pytest.mark.parametrize("kind", ["mrc", "uet"])
def test_a_collective_takes_both_spines_and_every_byte_arrives(desk: Desk, kind: str) -> None:
    brought_up(desk, "packet", kind)
    (test,) = json.loads(desk.etloop(*ALL_REDUCE).stdout)["tests"]
    assert test["errors"] == []
    (row,) = test["results"]
    assert row["etloop"]["fabric_bytes"] > 0
    spines = [switch for switch in desk.status().counters.switches if switch.name.startswith("spine")]
    carried = [sum(port.counters["rx_bytes"] for port in spine.ports) for spine in spines]
    assert sum(carried) > row["etloop"]["fabric_bytes"]
    assert min(carried) > 0.2 * sum(carried), "one connection each way, and each takes both"


def test_a_port_that_cannot_choose_source_ports_refuses_by_name(desk: Desk) -> None:
    brought_up(desk, "udp", "mrc")
    done = desk.etloop(*ALL_REDUCE, expected=65)
    said = done.stdout + done.stderr
    assert "port p0: every packet of a multipath transport has a source port of its own" in said
    assert "write backend: packet or xdp in the rig" in said
