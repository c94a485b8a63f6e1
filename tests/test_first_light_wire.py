"""What a run puts on the wire, seen by others: a packet socket, the definition of the ICRC, Wireshark."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests import first_light
from tests.first_light import Left, Place
from tests.first_light_capture import Capture, capture, icrc_holds, packet, pcap, written_bytes
from traffic import _native

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(os.geteuid() != 0, reason="packet sockets and namespaces are for root"),
]

SCENARIO: Final = "workload: {trace: job}\nmapping: {placement: round_robin}\nlimits: {gather_timeout: 30s}\n"
DEFAULT_DSCP: Final = 26
PROBE: Final = 0x64
CLEAR_TO_SEND_BYTES: Final = 64
VETH_NETWORKS: Final = ("198.18.77", "198.18.78")
"""Of the range that is set aside for benchmarks of network devices."""
VETH_MTU: Final = 4200


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = first_light.free_place(tmp_path)
    made = first_light.etloop(place, "synth", "job", "--hidden", "128", "--sequence", "128")
    assert made.exit_code == 0, made.err
    return place


def test_every_frame_on_loopback_is_what_others_call_rocev2(place: Place) -> None:
    place.rig(port_keys=", segmentation_offload: false")
    with first_light.agents(place), capture("lo", place.networks[0].rpartition(".")[0]) as taken:
        ended = first_light.run_to_end(place, SCENARIO)
    assert ended.exit_code == 0, ended.err
    assert_frames_are_the_run(taken, first_light.left_by(place))
    assert_wireshark_reads(taken, place)


def test_a_device_behind_segmentation_offload_sees_single_packets(place: Place) -> None:
    with veth_pair() as (interface, namespace):
        place.write("rig.yaml", veth_rig(place))
        within = ("ip", "netns", "exec", namespace)
        endpoint = f"tcp://{VETH_NETWORKS[0]}.1:{place.endpoint.rpartition(':')[2]}"
        with (
            first_light.agent(place, "a"),
            first_light.agent(place, "b", "--insecure", endpoint=endpoint, within=within),
            capture(interface, "198.18") as taken,
        ):
            ended = first_light.run_to_end(place, SCENARIO)
        assert ended.exit_code == 0, ended.err
        left = first_light.left_by(place)
        (gso_calls, datagrams) = (
            sum(row[name] for row in left.rows("ports")) for name in ("tx_calls", "tx_datagrams")
        )
        assert gso_calls < datagrams, "the kernel was given super-frames"
        assert_frames_are_the_run(taken, left)
        assert_wireshark_reads(taken, place)


@contextlib.contextmanager
def veth_pair() -> Iterator[tuple[str, str]]:
    """A cable from this host to a namespace, as a device sees it: every packet single, none cut or joined behind it."""
    name = f"fl{os.getpid() % 100_000}"
    near, far, namespace = f"{name}a", f"{name}b", f"{name}n"
    try:
        ip(f"netns add {namespace}")
        ip(f"link add {near} mtu {VETH_MTU} type veth peer name {far} mtu {VETH_MTU} netns {namespace}")
        for interface, network, inside in (
            (near, VETH_NETWORKS[0], ()),
            (far, VETH_NETWORKS[1], ("-n", namespace)),
        ):
            for host in range(1, 5):
                ip(f"address add {network}.{host}/16 dev {interface}", *inside)
            ip(f"link set {interface} up", *inside)
        ip("link set lo up", "-n", namespace)
        features = ("tx-udp-segmentation", "off", "gro", "off")
        run_tool("ethtool", "-K", near, *features)
        run_tool("ip", "netns", "exec", namespace, "ethtool", "-K", far, *features)
        yield near, namespace
    finally:
        for command in (f"link delete {near}", f"netns delete {namespace}"):
            with contextlib.suppress(subprocess.CalledProcessError):
                ip(command)


def ip(command: str, *options: str) -> None:
    run_tool("ip", *options, *command.split())


def run_tool(*command: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def veth_rig(place: Place) -> str:
    port = place.endpoint.rpartition(":")[2]
    agents = "".join(
        f"  - {{name: {agent}, host: here, ports: [{{name: p0, addresses: {network}.1-{network}.4, link: 10Gbps}}]}}\n"
        for agent, network in zip(first_light.AGENTS, VETH_NETWORKS, strict=True)
    )
    return f"controller: {{bind: 'tcp://*:{port}'}}\nsecurity: {{insecure: true}}\nagents:\n{agents}"


def assert_frames_are_the_run(taken: Capture, left: Left) -> None:
    """Every datagram of the run is there once, sound, and carries the bytes that the run says it carried."""
    assert taken.lost == 0, "the capture is whole"
    assert len(taken.frames) == sum(row["tx_datagrams"] for row in left.rows("ports"))
    verdicts = Counter((_native.check_frame(frame), icrc_holds(frame)) for frame in taken.frames)
    assert set(verdicts) == {("good", True)}
    packets = [packet(frame) for frame in taken.frames]
    assert {found.dscp for found in packets if found.opcode != PROBE} == {DEFAULT_DSCP}
    carried = written_bytes(packets)
    flows = left.rows("flows")
    assert {row["remote_qpn"]: row["tx_payload_bytes"] for row in flows if row["role"] == "sender"} == {
        row["remote_qpn"]: carried.get(row["remote_qpn"], 0) for row in flows if row["role"] == "sender"
    }
    assert {row["local_qpn"]: row["rx_payload_bytes"] for row in flows if row["role"] == "receiver"} == {
        row["local_qpn"]: carried.get(row["local_qpn"], 0) for row in flows if row["role"] == "receiver"
    }


def assert_wireshark_reads(taken: Capture, place: Place) -> None:
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed: the frames were checked, but not by Wireshark")
    path = place.directory / "run.pcap"
    path.write_bytes(pcap(taken.frames))
    fields = (
        "frame.protocols",
        "infiniband.bth.opcode",
        "infiniband.bth.destqp",
        "infiniband.bth.psn",
        "_ws.malformed",
    )
    columns = [option for name in fields for option in ("-e", name)]
    rows = run_tool("tshark", "-n", "-r", str(path), "-T", "fields", *columns).splitlines()
    assert len(rows) == len(taken.frames)
    for row, frame in zip(rows, taken.frames, strict=True):
        protocols, opcode, qpn, psn, *malformed = row.split("\t")
        ours = packet(frame)
        assert protocols.startswith("eth:ethertype:ip:udp:infiniband"), row
        assert (int(opcode), int(qpn, 0), int(psn)) == (ours.opcode, ours.destination_qpn, ours.psn)
        assert malformed == [""], row
