"""MRC and UET through real ports: a collective over packet sockets and a fabric of software, whose two spines share it."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from etloop.cli.main import main
from etloop.traffic import _native
from tests.lab.test_lab import desk
from tests.lab.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed
from tests.support.places import ROOT
from tests.support.ports import free_endpoint
from tests.support.tshark import dissected, pcap

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


def brought_up(desk: Desk, backend: str, kind: str, topology: str = TOPOLOGY, *more: str) -> None:
    bind = free_endpoint()
    path = desk.directory / "topology.yaml"
    path.write_text(topology)
    (desk.directory / "scenario.yaml").write_text(SCENARIO.replace("KIND", kind))
    words = ("lab", "up", str(path), "--unmeasured", "--agents", "--backend", backend, "--bind", bind)
    assert main([*words, *more, "--rig-out", str(desk.directory / "rig.yaml")]) == 0


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


SEGMENTS: Final = """\
srv6: {block: "fc00:1::/32"}
leaf_spine:
  leaves: [{ports: [a/p0]}, {ports: [b/p0]}]
  spines: 2
  uplinks: 2
  rate: 100Mbps
"""


ETH_P_IP: Final = 0x0800
SNIFF: Final = """\
import socket, struct, sys
protocol = int(sys.argv[2])
taken = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(protocol))
taken.bind(("p0", protocol))
print("ready", flush=True)
with open(sys.argv[1], "wb") as kept:
    for _ in range(40):
        frame, origin = taken.recvfrom(9000)
        kept.write(struct.pack(">HB", len(frame), origin[2]) + frame)
"""
"""Keeps the next 40 frames of a port and a protocol, each behind its length and whether it is this host's own (4)."""


def taken_at_b(desk: Desk, protocol: int) -> bytes:
    """The frames that pass the port of host `b` during an all-reduce."""
    kept = desk.directory / "frames"
    words = [sys.executable, "-m", "etloop.cli.main", "lab", "exec", "b", "--"]
    with subprocess.Popen(
        [*words, sys.executable, "-c", SNIFF, str(kept), str(protocol)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as sniffing:
        assert sniffing.stdout is not None
        assert sniffing.stdout.readline() == b"ready\n"
        (test,) = json.loads(desk.etloop(*ALL_REDUCE).stdout)["tests"]
        assert test["errors"] == []
        assert sniffing.wait(60) == 0
    return kept.read_bytes()


def test_segments_lead_over_every_link_and_another_parser_reads_them(desk: Desk) -> None:
    from scapy.layers.inet import UDP
    from scapy.layers.inet6 import IPv6
    from scapy.layers.l2 import Ether

    brought_up(desk, "packet", "mrc", SEGMENTS, "--mtu", "4300B")
    scenario = "transport: {kind: mrc, timeout_floor: 500ms, mrc: {srv6: adjacency}}"
    usual = "transport: {kind: KIND, timeout_floor: 500ms}"
    (desk.directory / "scenario.yaml").write_text(SCENARIO.replace(usual, scenario))
    content, arrived = taken_at_b(desk, 0x86DD), 0
    switches = {switch.name: switch for switch in desk.status().counters.switches}
    carried = [port.counters["tx_packets"] for port in switches["leaf0"].ports[1:]]
    assert len(carried) == 4
    assert max(carried) - min(carried) <= 0.25 * max(carried), "the values name the links in turn"
    assert not sum(port.counters["no_route_packets"] for one in switches.values() for port in one.ports)
    while content:
        size, origin = struct.unpack_from(">HB", content)
        frame, content = Ether(content[3 : 3 + size]), content[3 + size :]
        if origin == socket.PACKET_OUTGOING or frame[IPv6].nh != socket.IPPROTO_IPV6:
            continue
        outer, inner = frame[IPv6], frame[IPv6].payload
        assert (outer.dst, outer.src, outer.plen) == ("fc00:1:d001::", inner.src, 40 + inner.plen)
        assert (inner.src, inner.dst) == ("2001:2:0:1::1", "2001:2:0:2::1")
        assert (inner.nh, inner[UDP].dport, inner[UDP].len) == (socket.IPPROTO_UDP, 4971, inner.plen)
        assert outer.fl == inner.fl == inner[UDP].sport & 0x3FFF
        arrived += 1
    assert arrived > 10


def test_contexts_that_rest_as_the_run_ends_leave_no_frame_uncounted(desk: Desk) -> None:
    """Agents are ordered to stop some milliseconds after their last byte: closing then would be counted by the device alone."""
    brought_up(desk, "packet", "uet")
    scenario = SCENARIO.replace("{kind: KIND,", "{kind: uet, uet: {close_after: 1ms},")
    (desk.directory / "scenario.yaml").write_text(scenario)
    (test,) = json.loads(desk.etloop(*ALL_REDUCE).stdout)["tests"]
    values = [check["value"] for check in test["etloop"]["verdict"]["checks"]]
    (share,) = [float(value.split()[2]) for value in values if value.startswith("reconciliation.")]
    frames = test["etloop"]["sent_packets"]
    assert share < 0.2 / frames, "one frame is more; what pads short answers to 60 bytes is less"


def test_wireshark_reads_what_a_port_sends_and_takes_by_uet(desk: Desk) -> None:
    brought_up(desk, "packet", "uet")
    content, frames = taken_at_b(desk, ETH_P_IP), []
    while content:
        (size,) = struct.unpack_from(">H", content)
        frames.append(content[3 : 3 + size])
        content = content[3 + size :]
    uet = [
        frame
        for frame in frames
        if frame[23] == socket.IPPROTO_UDP and frame[36:38] == struct.pack(">H", 4793)
    ]
    rows = dissected(
        "uet",
        pcap(desk.directory / "uet.pcap", uet),
        *("_ws.malformed", "uet.cut", "uet.unknown", "uet.pds.type", "uet.pds.psn", "uet.pds.cack_psn"),
    )
    for frame, (malformed, cut, unknown, kind, psn, cumulative) in zip(uet, rows, strict=True):
        headers, _, _ = _native.uet_decode(frame[42:], len(frame) - 42)
        pds = next(iter(headers.values()))
        assert [malformed, cut, unknown, kind] == ["", "", "", str(pds["type"])]
        assert int(cumulative or psn) == pds.get("cack_psn", pds.get("psn"))
    assert {"2", "8"} <= {row[3] for row in rows}, "requests and acknowledgements"


def test_a_port_that_cannot_choose_source_ports_refuses_by_name(desk: Desk) -> None:
    brought_up(desk, "udp", "mrc")
    done = desk.etloop(*ALL_REDUCE, expected=65)
    said = done.stdout + done.stderr
    assert "port p0: every packet of a multipath transport has a source port of its own" in said
    assert "write backend: packet or xdp in the rig" in said
