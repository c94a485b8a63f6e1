"""RoCEv2 beside MRC and UET through one switch of software: agents whose ports speak unlike transports."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq
import pytest

from etloop.cli.main import main
from etloop.cli.text.uet_lines import uet_text
from tests.lab.test_lab import desk
from tests.lab.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed
from tests.support.places import ROOT
from tests.support.ports import free_endpoint

if TYPE_CHECKING:
    from tests.lab.test_lab import Desk

__all__ = ["desk"]

TOPOLOGY: Final = "single: {rate: 100Mbps, ports: [a/p0, a/p1, b/p0, b/p1]}\n"
SCENARIO: Final = """\
jobs:
  - name: ring
    workload: {collective: {kind: all_reduce, ranks: 2, size: 512KiB, count: 2}}
    mapping: {ports: [a/p0, b/p0]}
  - name: exchange
    workload: {collective: {kind: all_to_all, ranks: 2, size: 512KiB, count: 2}}
    mapping: {ports: [a/p1, b/p1]}
    transport: {kind: KIND}
background:
  - {name: loose, udp: {from: a/p0, to: b/p0, rate: 1Mbps, size: 1000B, as: uud}, dscp: 8}
transport: {timeout_floor: 500ms}
limits: {gather_timeout: 60s, stall_timeout: 30s}
"""

SNIFF: Final = """\
import select, socket, sys
taken = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
print("ready", flush=True)
with open(sys.argv[1], "w") as kept:
    while sys.stdin not in select.select([sys.stdin, taken], [], [])[0]:
        frame, origin = taken.recvfrom(9000)
        if origin[0] in ("p0", "p1") and origin[2] == socket.PACKET_HOST:
            print(origin[0], frame[:110].hex(), file=kept)
"""
"""Keeps what comes to the two ports, as the port and the frame's begin, until its input ends."""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not namespaces_are_allowed(), reason=NO_NAMESPACES),
]


@pytest.mark.parametrize(("kind", "udp_port"), [("mrc", 4971), ("uet", 4793)])
def test_an_agent_has_ports_of_unlike_transports(desk: Desk, kind: str, udp_port: int) -> None:
    bind = free_endpoint()
    (desk.directory / "topology.yaml").write_text(TOPOLOGY)
    (desk.directory / "s.yaml").write_text(SCENARIO.replace("KIND", kind))
    words = (
        "lab",
        "up",
        str(desk.directory / "topology.yaml"),
        "--unmeasured",
        "--agents",
        "--backend",
        "packet",
    )
    assert main([*words, "--bind", bind, "--rig-out", str(desk.directory / "rig.yaml")]) == 0
    seen = seen_at_b(desk)
    summary = json.loads((desk.directory / "out" / "summary.json").read_text())
    assert summary["verdict"]["result"] == "pass"
    assert summary["ops"]["missing"] == 0
    assert [job["name"] for job in summary["jobs"][:2]] == ["ring", "exchange"]
    flows = pq.read_table(desk.directory / "out" / "flows.parquet").to_pylist()
    sent = {
        name: sum(one["tx_payload_bytes"] for one in flows if one["job"] == name)
        for name in ("ring", "exchange")
    }
    assert min(sent.values()) >= 2 * (512 << 10), sent
    assert {udp for port, udp in seen if port == "p1"} == {udp_port}
    assert {udp for port, udp in seen if port == "p0"} == {4791, 4793}
    (stream,) = summary["streams"]
    assert (stream["form"], stream["sent_datagrams"] > 0) == ("uud", True)
    assert stream["received_datagrams"] == stream["sent_datagrams"]
    assert "UET_UUD datagram message 0 of 952 B to 0x0 key 0x0" in seen["p0", 4793]


def seen_at_b(desk: Desk) -> dict[tuple[str, int], set[str]]:
    """Runs the scenario; of what comes to host `b`: by port and UDP port, what UET's parser says of a packet."""
    kept = desk.directory / "frames"
    words = [sys.executable, "-m", "etloop.cli.main", "lab", "exec", "b", "--"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [*words, sys.executable, "-c", SNIFF, str(kept)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        env=environment,
    ) as sniffing:
        assert sniffing.stdout is not None
        assert sniffing.stdin is not None
        assert sniffing.stdout.readline() == b"ready\n"
        desk.etloop("run", "s.yaml", "--rig", "rig.yaml", "--out", "out")
        sniffing.stdin.close()
        assert sniffing.wait(60) == 0
    seen: dict[tuple[str, int], set[str]] = {}
    for line in kept.read_text().splitlines():
        interface, content = line.split()
        frame = bytes.fromhex(content)
        if frame[23] != socket.IPPROTO_UDP:
            continue
        (to,) = struct.unpack_from(">H", frame, 36)
        (length,) = struct.unpack_from(">H", frame, 38)
        seen.setdefault((interface, to), set()).add(uet_text(frame[42:], length - 8) if to == 4793 else "")
    return seen
