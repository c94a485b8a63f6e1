"""A lab that serves its switches' counters by gNMI: the same numbers by every source, and nothing left of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from etloop.cli.main import main
from etloop.contract.base.errors import ConfigError, InputError, RigError
from etloop.contract.model.counters import CounterBatch, CounterObject
from etloop.contract.protocol.lab import LabStatus
from etloop.counters.base.address import Address
from etloop.counters.readers.gnmi import GnmiCounters
from etloop.counters.readers.gnmi_settings import GnmiMode, GnmiSource
from etloop.counters.readers.soft_switch import SoftSwitchCounters
from etloop.dut_profiles.model.profile import CounterPaths
from etloop.lab.client import lab_down, lab_exec, lab_status, lab_up
from etloop.lab.request import GNMI_READY, LabOrder
from etloop.lab.status import status_text
from tests.e2e.lab.test_counters_lab import Bench, bench
from tests.lab.test_lab import Desk, desk, has_ended, watched
from tests.lab.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed
from tests.support.counters.snmp_by_hand import secret_file
from tests.support.places import ROOT
from tests.support.ports import free_port

__all__ = ["bench", "desk"]

PATIENCE_S: Final = 60
TOPOLOGY: Final = "single: {rate: 100Mbps, ports: [a/p0, b/p0]}\n"
SENDING: Final = """\
import socket
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(20):
    out.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, number % 2 * 26 << 2)
    out.sendto(bytes(1000), ("198.18.2.1", 9))
"""

needs_namespaces = pytest.mark.skipif(not namespaces_are_allowed(), reason=NO_NAMESPACES)


def order(port: int) -> LabOrder:
    return LabOrder("lab", TOPOLOGY, "topology.yaml", measure=False, gnmi=f"127.0.0.1:{port}")


def gnmi_process(status: LabStatus) -> int:
    assert status.gnmi is not None
    return int(status.gnmi.process.removeprefix("running, process "))


async def counted(reader: Any) -> dict[tuple[str, str], int]:
    failure = await reader.open()
    assert failure is None, failure
    batch = await reader.read()
    await reader.close()
    assert isinstance(batch, CounterBatch), batch
    return {
        (str(one.object), one.counter): one.value
        for one in batch.readings
        # What moves by itself is not compared: how late the switch's thread was.
        if one.object.kind is not CounterObject.POOL and one.counter != "late_frames"
    }


@pytest.mark.e2e
@needs_namespaces
async def test_every_source_to_a_labs_counters_says_the_same(desk: Desk) -> None:
    port = free_port()
    status = lab_up(order(port))
    assert f"gNMI at 127.0.0.1:{port}: running, process " in status_text(status)
    lab_exec("lab", "a", (sys.executable, "-c", SENDING))
    truth = await counted(SoftSwitchCounters("lab"))
    assert truth["switch/0", "rx_packets"] == 20
    assert truth["switch/1", "tx_bytes"] == 20 * (1000 + 8 + 20 + 14 + 4)
    for paths in (CounterPaths.OPENCONFIG, CounterPaths.SONIC):
        for mode in GnmiMode:
            source = GnmiSource(
                Address("127.0.0.1", port), plaintext=True, paths=paths, mode=mode, sample_ns=100_000_000
            )
            found = await counted(GnmiCounters(source, ("switch/0", "switch/1")))
            assert found.items() <= truth.items(), (paths, mode)
            assert found["switch/1", "tx_packets"] == 20
            assert sum(found[f"switch/1 queue {queue}", "packets"] for queue in range(8)) == 20
            assert (("switch/0 priority 3", "pfc_tx") in found) == (paths is CounterPaths.SONIC)
    with watched(gnmi_process(status)) as server:
        assert lab_down("lab")
        assert has_ended(server)


@pytest.mark.e2e
@needs_namespaces
def test_the_server_ends_with_a_killed_lab(desk: Desk) -> None:
    status = lab_up(order(free_port()))
    with watched(gnmi_process(status)) as server:
        os.kill(status.pid, signal.SIGKILL)
        assert has_ended(server)


@pytest.mark.e2e
@needs_namespaces
def test_a_port_that_is_taken_keeps_the_lab_down_and_says_so(desk: Desk) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="cannot listen"):
            lab_up(order(taken.getsockname()[1]))
    with pytest.raises(RigError, match='no lab named "lab" is up'):
        lab_status("lab")


@pytest.fixture
def served(desk: Desk) -> Iterator[tuple[Path, int]]:
    """A lab with `etloop lab gnmi` beside it, with TLS and a login; where its files are, and its port."""
    lab_up(LabOrder("lab", TOPOLOGY, "topology.yaml", measure=False))
    secret_file(desk.directory / "login.yaml", "{user: admin, password: hush-hush}")
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=lab"
    files = ("-keyout", "key.pem", "-out", "cert.pem", "-addext", "subjectAltName=IP:127.0.0.1")
    subprocess.run([*make.split(), *files], cwd=desk.directory, check=True, capture_output=True)
    words = "lab gnmi --bind 127.0.0.1:0 --tls-cert cert.pem --tls-key key.pem --credentials login.yaml"
    port = free_port()
    command = [sys.executable, "-P", "-m", "etloop.cli.main", *words.replace(":0", f":{port}").split()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=desk.directory, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{GNMI_READY}127.0.0.1:{port}, with TLS\n"
        yield desk.directory, port
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.e2e
@needs_namespaces
def test_a_rig_reads_a_lab_through_tls(served: tuple[Path, int], capfd: pytest.CaptureFixture[str]) -> None:
    directory, port = served
    (directory / "rig.yaml").write_text(
        f"""\
agents: [{{name: a, ports: [{{name: p0, addresses: 198.18.1.1, link: 100Mbps}}]}}]
dut:
  profile: soft-switch
  counters:
    - reader: gnmi
      address: 127.0.0.1:{port}
      credentials: login.yaml
      tls: {{ca: cert.pem}}
      paths: sonic
      ports: {{a/p0: switch/0}}
"""
    )
    assert main(["dut", "counters", "--rig", str(directory / "rig.yaml"), "--json"]) == 0
    shown = capfd.readouterr().out
    assert "hush" not in shown
    assert "switch/0" in json.dumps(json.loads(shown))


GNMI_SOURCES: Final = """\
    - reader: gnmi
      name: openconfig
      address: 127.0.0.1:{port}
      plaintext: true
      paths: openconfig
      timeout: 20s
      ports: {{a/p0: switch/0, b/p0: switch/1, c/p0: switch/2}}
    - reader: gnmi
      name: sonic
      address: 127.0.0.1:{port}
      plaintext: true
      paths: sonic
      mode: sample
      sample_interval: 200ms
      timeout: 20s
      ports: {{a/p0: switch/0, b/p0: switch/1, c/p0: switch/2}}
agents:
"""


@pytest.mark.e2e
@needs_namespaces
def test_a_run_read_by_gnmi_agrees_frame_for_frame(bench: Bench) -> None:
    port = free_port()
    rig = (bench.directory / "rig.yaml").read_text()
    (bench.directory / "gnmi.yaml").write_text(rig.replace("agents:\n", GNMI_SOURCES.format(port=port), 1))
    command = [sys.executable, "-P", "-m", "etloop.cli.main", "lab", "gnmi", "--bind", f"127.0.0.1:{port}"]
    ours = str(ROOT)
    environment = {**os.environ, "PYTHONPATH": ours, "XDG_RUNTIME_DIR": str(bench.directory)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(GNMI_READY)
        bench.run("gnmi", "gnmi.yaml", 0, trace="small", dscp=10)
        process.terminate()
        process.wait(PATIENCE_S)
    device = bench.summary("gnmi")["dut"]
    rows = [
        (row["source"], row["difference_frames"], row["difference_bytes"]) for row in device["reconciliation"]
    ]
    assert sorted(rows) == sorted(
        (name, 0, 0) for name in ("soft_switch", "openconfig", "sonic") for _ in range(6)
    )
    assert device["gaps"] == []


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        ("--bind 10.0.0.1", "10.0.0.1:9339 is reachable from other machines, but there is no certificate"),
        ("--bind a:b:c", '"a:b:c" is not an address'),
        ("--tls-cert c.pem", "and --tls-key must be given together"),
        ("--client-ca c.pem", "needs TLS"),
        ("--tls-cert gone.pem --tls-key gone.pem", "gone.pem: cannot be read"),
        ("--credentials gone.yaml", "gone.yaml: cannot be read"),
        ("--name nobody", 'no lab named "nobody" is up'),
    ],
)
def test_a_server_that_cannot_begin_says_why(
    words: str,
    reported: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["lab", "gnmi", *words.split()]) == RigError.exit_code
    assert reported in capsys.readouterr().err


def test_lab_up_serves_this_machine_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "topology.yaml").write_text(TOPOLOGY)
    words = ["lab", "up", str(tmp_path / "topology.yaml"), "--gnmi", "0.0.0.0:9339"]
    assert main(words) == ConfigError.exit_code
    assert "0.0.0.0:9339 is reachable from other machines; give one of 127.0.0.0/8" in capsys.readouterr().err
