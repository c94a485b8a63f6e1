"""`etloop otg serve` over a lab: the client of examples/otg sends all its messages, a raw flow all its frames, and the switch
counted the same.
"""

from __future__ import annotations

import json
import shutil
import ssl
import struct
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

import pytest

from etloop.lab.client import lab_counters, lab_down
from tests.lab.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed
from tests.support.first_light.commands import PATIENCE_S, etloop, free_place, running
from tests.support.places import ROOT

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(2 * PATIENCE_S),
    pytest.mark.skipif(not namespaces_are_allowed(), reason=NO_NAMESPACES),
]

TOPOLOGY: Final = "single: {rate: 100Mbps, ports: [a/p0, b/p0], switch: {preset: lossy}}\n"
UP: Final = ("lab", "up", "topology.yaml", "--rig-out", "rig.yaml", "--agents")
SERVE: Final = ("otg", "serve", "--rig", "rig.yaml", "--messages", "100")
CLIENT: Final = ("python", "two_ports.py")
RAW_CONFIG: Final = {
    "ports": [{"name": "port0", "location": "a/p0"}, {"name": "port1", "location": "b/p0"}],
    "layer1": [{"name": "l", "port_names": ["port0", "port1"], "speed": "speed_100_fd_mbps"}],
    "captures": [{"name": "c", "port_names": ["port1"], "format": "pcap"}],
    "flows": [
        {
            "name": "raw",
            "tx_rx": {"choice": "port", "port": {"tx_name": "port0", "rx_names": ["port1"]}},
            "packet": [
                {
                    "choice": "ethernet",
                    "ethernet": {"src": {"choice": "value", "value": "00:00:01:01:01:01"}},
                },
                {
                    "choice": "ipv4",
                    "ipv4": {
                        "src": {"choice": "value", "value": "198.18.1.1"},
                        "dst": {"choice": "value", "value": "198.18.2.1"},
                    },
                },
                {"choice": "tcp", "tcp": {"src_port": {"choice": "values", "values": [5000, 5010]}}},
            ],
            "size": {"choice": "fixed", "fixed": 128},
            "rate": {"choice": "pps", "pps": "500"},
            "duration": {"choice": "fixed_packets", "fixed_packets": {"packets": 50}},
            "metrics": {"enable": True, "latency": {"enable": True}},
        }
    ],
}
FRAMES: Final = 100 * 16
"""100 messages of 64 KiB by frames of 4 KiB; one more message of the same size connected the queue pair."""


def test_client_of_the_page_runs_over_a_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = free_place(tmp_path)
    bind = free_place(tmp_path).endpoint.removeprefix("tcp://")
    place.write("topology.yaml", TOPOLOGY)
    shutil.copy(ROOT / "examples/otg/two_ports.py", tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    up = etloop(place, *UP, "--unmeasured", "--bind", place.endpoint)
    assert up.exit_code == 0, up.err
    try:
        with running(place, "etloop", *SERVE, "--bind", bind) as server:
            server.wait_for("serving OTG for 2 ports at ")
            url = server.printed().partition(" at ")[2].split()[0]
            command = [sys.executable, *CLIENT[1:], url]
            client = subprocess.run(
                command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
            )
            received = received_packets()
            raw, capture = run_raw_flow(url)
            raw_received = received_packets()
        assert client.returncode == 0, client.stdout + client.stderr + server.printed()
        row = json.loads(client.stdout[client.stdout.index("{") :])
    finally:
        lab_down("lab")
    assert int(row["message_tx"]) == 100
    assert int(row["rx_bytes"]) == 100 * 65_536
    assert int(row["data_frames_tx"]) - int(row["data_frames_retransmitted"]) == FRAMES
    # Those of the run that connected, grants and acknowledgements are counted by the switch too.
    assert received[0] > int(row["data_frames_tx"]) + 16
    assert received[1] > int(row["ack_tx"])
    assert (raw["frames_tx"], raw["frames_rx"], raw["loss"]) == ("50", "50", 0.0)
    assert 0 < raw["latency"]["minimum_ns"] <= raw["latency"]["average_ns"]
    assert raw_received[0] - received[0] == 50
    frames = [frame for frame in frames_of(capture) if frame[6:12] == bytes.fromhex("000001010101")]
    assert [len(frame) for frame in frames] == [128] * 50
    assert [int.from_bytes(frame[34:36], "big") for frame in frames] == [5000, 5010] * 25


def received_packets() -> list[int]:
    """Return the packets that each port of the lab's switch received."""
    return [int(port.counters["rx_packets"]) for port in lab_counters("lab").switches[0].ports]


def run_raw_flow(url: str) -> tuple[dict[str, Any], bytes]:
    """Send 50 frames from a/p0 to b/p0 and return the row of the flow and the capture of b/p0."""

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def ask(path: str, body: object) -> bytes:
        request = urllib.request.Request(
            url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S, context=context) as answer:
            body_bytes: bytes = answer.read()
            return body_bytes

    ask("/config", RAW_CONFIG)
    ask("/control/state", {"choice": "port", "port": {"choice": "capture", "capture": {"state": "start"}}})
    transmit = {"choice": "flow_transmit", "flow_transmit": {"state": "start"}}
    ask("/control/state", {"choice": "traffic", "traffic": transmit})
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        (row,) = json.loads(ask("/monitor/metrics", {"choice": "flow"}))["flow_metrics"]
        if row["transmit"] == "stopped":
            break
        assert time.monotonic() < deadline_s, row
    capture = ask("/monitor/capture", {"port_name": "port1"})
    (row,) = json.loads(ask("/monitor/metrics", {"choice": "flow"}))["flow_metrics"]
    return row, capture


def frames_of(pcap: bytes) -> list[bytes]:
    """Return the frames of a pcap file."""
    frames, at = [], 24
    while at < len(pcap):
        (size,) = struct.unpack_from("<I", pcap, at + 8)
        frames.append(pcap[at + 16 : at + 16 + size])
        at += 16 + size
    return frames
