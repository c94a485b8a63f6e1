"""Several jobs, background and a timeline from the command line: in the twin, over real sockets, through a lab."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from etloop.cli.demo import loopback
from etloop.cli.main import main
from etloop.contract.base.errors import ExitCode
from etloop.lab.client import lab_counters
from tests.lab.test_lab import Desk, desk  # noqa: F401 - a fixture
from tests.lab.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed
from tests.support.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

SCENARIO = """
rounds: 2
jobs:
  - {name: reduce, workload: {collective: {kind: all_reduce, ranks: 2, size: 64KiB}}, iterations: 2}
  - {name: exchange, workload: {collective: {kind: all_to_all, ranks: 4, size: 64KiB}}, start: 1ms}
mapping: {placement: round_robin}
background:
  - {name: bursts, incast: {senders: 1, size: 8KiB, period: 2ms}, dscp: 10}
  - {name: disk, storage: {clients: 1, servers: 1, sizes: [4KiB], rate: 20Mbps, depth: 2}, dscp: 12}
limits: {stall_timeout: 30s}
"""
UDP = "  - {name: bulk, udp: {from: a/p0, to: b/p0, rate: 10Mbps, size: 1000B}, dscp: 8}\n"
UUD = "  - {name: loose, udp: {from: b/p0, to: a/p0, rate: 5Mbps, size: 500B, as: uud}, dscp: 8}\n"
LAST_EVENT = "{at: 300s, link: switch/1, state: down}"


def rig_text(port: int) -> str:
    lines = [f"controller: {{bind: 'tcp://127.0.0.1:{port}'}}", "security: {insecure: true}", "agents:"]
    for number, agent in enumerate(loopback.AGENTS[:2], 1):
        addresses = f"127.0.{number}.1-127.0.{number}.8"
        lines.append(f"  - {{name: {agent}, ports: [{{name: p0, addresses: {addresses}, link: 1Gbps}}]}}")
    return "\n".join(lines) + "\n"


def the_run_is_as_asked(directory: Path) -> None:
    summary = json.loads((directory / "summary.json").read_text())
    assert summary["state"] == "done"
    assert {check["result"] for check in summary["checks"]} == {"pass"}
    reduce, exchange, bursts, disk = summary["jobs"]
    assert (reduce["alone"]["count"], reduce["together"]["count"]) == (2, 2)
    assert len(exchange["interference_by_round"]) == 2
    assert (reduce["ops_recorded"], exchange["ops_recorded"]) == (2 * 2 * 2 * 2, 4 * 2 * 2)
    assert summary["ops"] == {"planned": 32, "recorded": 32, "missing": 0}
    assert all(0 < one["ops_recorded"] < one["ops_planned"] for one in (bursts, disk)), (
        "they ended with the jobs"
    )
    assert {kind["kind"] for kind in summary["kinds"]} == {"all_reduce", "all_to_all"}
    flows = pq.read_table(directory / "flows.parquet").to_pylist()
    assert {"reduce", "exchange", "bursts", "disk"} <= {flow["job"] for flow in flows}
    jobs = pq.read_table(directory / "jobs.parquet").to_pylist()
    assert len(jobs) == 2 * (2 * 2 + 2 * 1), (
        "two rounds, alone and together; two passes of one, one of the other"
    )
    page = (directory / "report.html").read_text()
    assert "Jobs side by side" in page
    assert "jobs-busbw" in page


def test_in_the_twin(tmp_path: Path) -> None:
    scenario = SCENARIO.replace("limits:", UDP + "limits:")
    (tmp_path / "s.yaml").write_text(scenario + f"timeline: [{LAST_EVENT}]\n")
    (tmp_path / "rig.yaml").write_text(rig_text(1))
    ports = ", ".join(f"{agent}/p0" for agent in loopback.AGENTS[:2])
    (tmp_path / "t.yaml").write_text(f"single: {{rate: 1Gbps, ports: [{ports}]}}\n")
    out = tmp_path / "out"
    words = ["twin", str(tmp_path / "s.yaml"), "--rig", str(tmp_path / "rig.yaml")]
    assert main([*words, "--topology", str(tmp_path / "t.yaml"), "--out", str(out)]) == ExitCode.PASS
    the_run_is_as_asked(out)
    summary = json.loads((out / "summary.json").read_text())
    (event,) = summary["timeline"]
    assert (event["done_ns"], event["why"]) == (-1, "the run had ended")
    assert summary["degraded"] == ["timeline: switch/1 down at 300 s: not done, the run had ended"]
    (stream,) = summary["streams"]
    whole_ms = summary["job"]["end_ns"] // 1_000_000
    assert stream["sent_datagrams"] == stream["received_datagrams"] == whole_ms * 10_000 // 8000
    lanes = pq.read_table(out / "switches.parquet").to_pylist()
    # DSCP 10 and 12 are in other lanes than the jobs' 26.
    assert {row["cos"] for row in lanes if row["queue_packets"]} >= {0, 3}


@pytest.mark.e2e
def test_over_real_sockets(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("limits:", UDP + UUD + "limits:"))
    (tmp_path / "rig.yaml").write_text(rig_text(port))
    out = tmp_path / "out"
    with loopback.run_agents(tmp_path, f"tcp://127.0.0.1:{port}"):
        code = main(["run", str(tmp_path / "s.yaml"), "--rig", str(tmp_path / "rig.yaml"), "--out", str(out)])
    assert code == ExitCode.PASS
    the_run_is_as_asked(out)
    streams = {one["name"]: one for one in json.loads((out / "summary.json").read_text())["streams"]}
    assert {name: one["form"] for name, one in streams.items()} == {"bulk": "udp", "loose": "uud"}
    for name, size in (("bulk", 1000), ("loose", 500)):
        stream = streams[name]
        assert stream["sent_datagrams"] > 0
        assert stream["sent_bytes"] == size * stream["sent_datagrams"]
        assert stream["received_datagrams"] == stream["sent_datagrams"], (
            "loopback loses nothing that has room"
        )


LONG = """
iterations: 3
workload: {collective: {kind: all_reduce, ranks: 2, size: 512KiB}}
transport: {path_mtu: 1024, timeout_floor: 200ms}
limits: {stall_timeout: 30s}
timeline:
  - {at: 50ms, link: switch/0, state: down}
  - {at: 300ms, link: switch/0, state: up}
  - {at: 350ms, link: switch/1, state: down}
  - {at: 500s, link: switch/1, state: up}
"""


@pytest.mark.e2e
@pytest.mark.skipif(not namespaces_are_allowed(), reason=NO_NAMESPACES)
def test_a_lab_takes_links_down_and_has_them_up_again_in_the_end(desk: Desk) -> None:  # noqa: F811
    bind = f"tcp://127.0.0.1:{free_port()}"
    (desk.directory / "topology.yaml").write_text("single: {rate: 50Mbps, ports: [a/p0, b/p0]}\n")
    up = ("lab", "up", "topology.yaml", "--unmeasured", "--agents", "--bind", bind, "--rig-out", "rig.yaml")
    desk.etloop(*up)
    (desk.directory / "s.yaml").write_text(LONG.replace("switch/1", "switch/7"))
    refused = desk.etloop(
        "run", "s.yaml", "--rig", "rig.yaml", "--out", "no", expected=ExitCode.PREPARATION_FAILED
    )
    assert 'no switch has the port "switch/7"; switch has switch/0, switch/1' in refused.stderr
    (desk.directory / "s.yaml").write_text(LONG.replace("switch/1", "b/p0"))
    refused = desk.etloop(
        "run", "s.yaml", "--rig", "rig.yaml", "--out", "no", expected=ExitCode.PREPARATION_FAILED
    )
    assert 'no switch has the port "b/p0"; write switch/1, which it is on' in refused.stderr
    # Down for good, the run stands still; its retries end it, and the link comes up with its end.
    (desk.directory / "s.yaml").write_text(
        LONG.replace("timeout_floor", "timeout: 300ms, retries: 3, timeout_floor")
    )
    done = desk.etloop(
        "run", "s.yaml", "--rig", "rig.yaml", "--out", "out", "--no-twin", "-v", expected=ExitCode.RUN_ERROR
    )
    summary = json.loads((desk.directory / "out" / "summary.json").read_text())
    first, second, third, fourth = summary["timeline"]
    assert first["done_ns"] - first["at_ns"] > 0
    assert second["done_ns"] - second["at_ns"] > 0
    assert third["done_ns"] > 0
    assert (fourth["done_ns"], fourth["why"]) == (-1, "the run had ended")
    assert "switch/0 down at 50 ms: done" in done.stdout
    ports = [port.counters for port in lab_counters("lab").switches[0].ports]
    assert sum(port["link_dropped_packets"] for port in ports) > 0
    crossed = ports[0]["rx_packets"] + ports[1]["rx_packets"]
    send = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('198.18.1.1', 9))"
    desk.etloop("lab", "exec", "b", "--", sys.executable, "-c", send)
    ports = [port.counters for port in lab_counters("lab").switches[0].ports]
    assert ports[0]["rx_packets"] + ports[1]["rx_packets"] > crossed, (
        "the last link that went down is up again"
    )
