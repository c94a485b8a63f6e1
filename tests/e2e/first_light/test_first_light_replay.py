"""Packets of an earlier run that the network still held come into the next run of the same scenario."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.support.first_light import commands
from tests.support.first_light.cable import for_root
from tests.support.first_light.packet_socket import capture

pytestmark = [pytest.mark.e2e, for_root]

SCENARIO: Final = (
    "workload: {trace: job}\nmapping: {placement: round_robin}\nlimits: {gather_timeout: 30s}\niterations: ITERATIONS\n"
    "collectives: {algorithm: ring, protocol: simple, channels: 1}\ntransport: {cc: {algorithm: none}KEYS}\n"
)
ETHERNET_BYTES: Final = 14
ACKNOWLEDGE: Final = 0x11
CHECKSUM_AT: Final = 40
"""Of UDP: on loopback it is begun and not finished."""
OPCODE_AT: Final = 42


@contextlib.contextmanager
def replayed(frames: Sequence[bytes]) -> Iterator[None]:
    """Sends the IP packets of frames, with UDP checksum 0, over and over as long as the block lasts."""
    packets = [frame[ETHERNET_BYTES:CHECKSUM_AT] + bytes(2) + frame[CHECKSUM_AT + 2 :] for frame in frames]
    done = threading.Event()

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
            while not done.is_set():
                for packet in packets:
                    raw.sendto(packet, (socket.inet_ntoa(packet[16:20]), 0))
                done.wait(0.002)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        done.set()
        sender.join()


@pytest.mark.parametrize(
    ("keys", "are_foreign"),
    [("", True), (", run_nonce: 7", False)],
    ids=["numbers of the run", "the same numbers again"],
)
def test_acknowledgements_of_an_earlier_run(tmp_path: Path, keys: str, *, are_foreign: bool) -> None:
    """They are of no queue pair: discarded and counted. With numbers that a scenario fixes they are taken for its own."""
    scenario = SCENARIO.replace("KEYS", keys)
    place = commands.free_place(tmp_path)
    place.rig(port_keys=", segmentation_offload: false")
    sizes = ("--sweep", "all_reduce", "--sizes", "4KiB-16KiB", "--ranks", "8")
    made = commands.etloop(place, "synth", "job", *sizes)
    assert made.exit_code == 0, made.err
    with commands.agents(place):
        with capture("lo", place.networks[0].rpartition(".")[0]) as taken:
            first = commands.run_to_end(place, scenario.replace("ITERATIONS", "1"), out="first")
        assert first.exit_code == 0, first.err
        late = [frame for frame in taken.frames if frame[OPCODE_AT] == ACKNOWLEDGE]
        assert late, "the first run acknowledged what it received"
        with replayed(late[:64]):
            second = commands.run_to_end(place, scenario.replace("ITERATIONS", "100"), out="second")
    before, after = (commands.left_by(place, out) for out in ("first", "second"))
    foreign = [sum(row["foreign_datagrams"] for row in left.rows("ports")) for left in (before, after)]
    assert foreign[0] == 0
    assert (foreign[1] > 0) == are_foreign
    numbers = [{row["local_qpn"] for row in left.rows("flows")} for left in (before, after)]
    assert numbers[0].isdisjoint(numbers[1]) == are_foreign
    sports = [sorted(row["udp_source_port"] for row in left.rows("flows")) for left in (before, after)]
    assert sports[0] == sports[1], "both took the same paths"
    if are_foreign:
        assert second.exit_code == 0, second.err
        assert after.summary["ops"]["missing"] == 0
        acks = [sum(row[name] for row in after.rows("flows")) for name in ("acks_tx", "acks_rx")]
        assert acks[0] == acks[1], "nothing of the first run acknowledged anything"
