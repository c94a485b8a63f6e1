"""What a run puts on the wire, seen by others: a packet socket, the definition of the ICRC, Wireshark."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from etloop.traffic import _native
from tests.support.first_light import commands
from tests.support.first_light.cable import NETWORK, cable_agents, cabled, for_root, run_tool
from tests.support.first_light.commands import Left, Place
from tests.support.first_light.packet_socket import Capture, capture, icrc_holds, packet, pcap, written_bytes

pytestmark = [pytest.mark.e2e, for_root]

SCENARIO: Final = (
    "workload: {trace: job}\nmapping: {placement: round_robin}\nlimits: {gather_timeout: 30s}\n"
    "collectives: {algorithm: ring, protocol: simple, channels: 1}\n"
)
DEFAULT_DSCP: Final = 26
PROBE: Final = 0x64
CLEAR_TO_SEND_BYTES: Final = 64


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = commands.free_place(tmp_path)
    made = commands.etloop(place, "synth", "job", "--hidden", "128", "--sequence", "128")
    assert made.exit_code == 0, made.err
    return place


def test_every_frame_on_loopback_is_what_others_call_rocev2(place: Place) -> None:
    place.rig(port_keys=", segmentation_offload: false")
    with commands.agents(place), capture("lo", place.networks[0].rpartition(".")[0]) as taken:
        ended = commands.run_to_end(place, SCENARIO)
    assert ended.exit_code == 0, ended.err
    assert_frames_are_the_run(taken, commands.left_by(place))
    assert_wireshark_reads(taken, place)


def test_a_device_behind_segmentation_offload_sees_single_packets(place: Place) -> None:
    with cabled(place) as cable:
        with cable_agents(place, cable), capture(cable.near, NETWORK) as taken:
            ended = commands.run_to_end(place, SCENARIO)
        assert ended.exit_code == 0, ended.err
        left = commands.left_by(place)
        (gso_calls, datagrams) = (
            sum(row[name] for row in left.rows("ports")) for name in ("tx_calls", "tx_datagrams")
        )
        assert gso_calls < datagrams, "the kernel was given super-frames"
        assert_frames_are_the_run(taken, left)
        assert_wireshark_reads(taken, place)


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
        pytest.skip(
            "the frames were checked, but not by Wireshark: tshark is not installed (Debian package tshark)"
        )
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
