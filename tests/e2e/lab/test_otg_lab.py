"""`etloop otg serve` over a lab: the client of examples/otg sends all its messages, and the switch counted the same frames."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

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
        assert client.returncode == 0, client.stdout + client.stderr + server.printed()
        row = json.loads(client.stdout[client.stdout.index("{") :])
        received = [int(port.counters["rx_packets"]) for port in lab_counters("lab").switches[0].ports]
    finally:
        lab_down("lab")
    assert int(row["message_tx"]) == 100
    assert int(row["rx_bytes"]) == 100 * 65_536
    assert int(row["data_frames_tx"]) - int(row["data_frames_retransmitted"]) == FRAMES
    # Those of the run that connected, grants and acknowledgements are counted by the switch too.
    assert received[0] > int(row["data_frames_tx"]) + 16
    assert received[1] > int(row["ack_tx"])
