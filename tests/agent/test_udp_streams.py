"""Streams of plain UDP over real sockets of loopback: whoever did not answer a probe is sent none."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import pytest

from etloop.contract.base.units import NS_PER_S
from etloop.contract.model.assignment import UdpStream
from etloop.contract.model.records import STREAM_PROBE_BYTES
from etloop.traffic.udp_streams import UdpStreams

HERE: Final = "127.87.0.1"
THERE: Final = "127.87.0.2"
THIRD: Final = "127.87.0.3"
SHORT_NS: Final = 120_000_000


def stream(datagram_bytes: int = 1000) -> UdpStream:
    return UdpStream(
        "bulk", True, HERE, THERE, 47910, 47910, 32, 8_000 * datagram_bytes, datagram_bytes, 0, 0
    )


def looked_at_until(condition: Callable[[], bool]) -> None:
    last_ns = time.monotonic_ns() + 20 * NS_PER_S
    while not condition():
        assert time.monotonic_ns() < last_ns


@contextmanager
def socket_at(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind((address, 47910))
        made.settimeout(20)
        yield made


@pytest.mark.parametrize("datagram_bytes", [1, 8, STREAM_PROBE_BYTES, 1000])
def test_a_receiver_answers_and_gets_its_stream(datagram_bytes: int) -> None:
    one = stream(datagram_bytes)
    streams = UdpStreams((one, replace(one, sends=False)))
    try:
        streams.start_probe()
        looked_at_until(lambda: streams.is_answered)
        streams.start(time.monotonic_ns())
        looked_at_until(lambda: streams.counts()[1].datagrams > 0)
        streams.stop()
        sent, received = streams.counts()
    finally:
        streams.close()
    assert not streams.failure
    assert received.datagrams == sent.datagrams, "loopback loses nothing that has room"
    assert received.left_out == 0, "a probe is no datagram of somebody else's"
    assert (received.probes_received, received.probes_sent) == (sent.probes_sent, sent.probes_received)
    assert sent.probes_sent >= 1


def test_a_host_that_takes_no_part_gets_probes_and_no_stream() -> None:
    with socket_at(THERE) as bystander:
        streams = UdpStreams((stream(),), probe_ns=SHORT_NS)
        try:
            streams.start_probe()
            looked_at_until(lambda: bool(streams.failure))
            assert not streams.is_answered
            streams.start(time.monotonic_ns())
            streams.stop()
            (sent,) = streams.counts()
        finally:
            streams.close()
        assert streams.failure == (
            "background bulk: no answer to probes from 127.87.0.2 (UDP port 47910), so no traffic is sent there; "
            "check links and addresses between the two ports, and filters of UDP"
        )
        assert (sent.datagrams, sent.payload_bytes) == (0, 0)
        came = [len(bystander.recv(2000)) for _ in range(sent.probes_sent)]
        assert set(came) == {STREAM_PROBE_BYTES}
        bystander.setblocking(False)
        with pytest.raises(BlockingIOError):
            bystander.recv(2000)


@pytest.mark.parametrize(
    ("what", "answers_from", "answer"),
    [
        ("somebody else's address", THIRD, lambda probe: b"etloop-yes" + probe[10:]),
        ("another number than was asked", THERE, lambda probe: b"etloop-yes" + bytes(16)),
        ("the probe sent back, as an echo service does", THERE, lambda probe: probe),
    ],
)
def test_what_answers_for_nobody(what: str, answers_from: str, answer: Callable[[bytes], bytes]) -> None:
    with socket_at(THERE) as asked, socket_at(THIRD) as third:
        streams = UdpStreams((stream(),), probe_ns=SHORT_NS)
        try:
            streams.start_probe()
            probe = asked.recv(2000)
            (third if answers_from == THIRD else asked).sendto(answer(probe), (HERE, 47910))
            looked_at_until(lambda: bool(streams.failure) or streams.is_answered)
            assert not streams.is_answered, what
        finally:
            streams.close()


def test_a_receiver_answers_nobody_but_its_sender() -> None:
    with socket_at(THIRD) as stranger:
        streams = UdpStreams((replace(stream(), sends=False),))
        try:
            streams.start_probe()
            stranger.sendto(b"etloop-ask" + bytes(16), (THERE, 47910))
            looked_at_until(lambda: streams.counts()[0].left_out == 1)
            assert streams.counts()[0].probes_sent == 0
        finally:
            streams.close()
