"""The bare kernel path over loopback addresses: two ends in two threads, which the GIL must not serialise.

The port itself is tested natively, in tests/native/port/test_udp_port.cpp.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from etloop.traffic import _native

SENDER: Final = "127.92.0.1"
RECEIVER: Final = "127.92.0.2"
UDP_PORT: Final = 4791
DURATION_NS: Final = 50_000_000


def test_a_blast_is_counted_at_both_ends() -> None:
    with ThreadPoolExecutor(1) as pool:
        receiving = pool.submit(_native.blast_receive, RECEIVER, UDP_PORT, DURATION_NS)
        while not receiving.done():  # the receiver may open its socket late, and it may miss the first blasts
            sent_datagrams, sent_bytes, sent_ns = _native.blast_send(SENDER, RECEIVER, UDP_PORT, 20_000_000)
        datagrams, received_bytes, received_ns = receiving.result()
    assert sent_datagrams > 0
    assert sent_bytes == sent_datagrams * 4112
    assert sent_ns >= 20_000_000
    assert datagrams > 0
    assert received_bytes == datagrams * 4112
    assert received_ns > 0


def test_a_blast_of_messages_has_their_lengths() -> None:
    """FIRST has 16 bytes more than a MIDDLE, LAST 4; the last message may be cut short where the time is over."""
    datagrams, sent_bytes, _ = _native.blast_send(SENDER, RECEIVER, UDP_PORT, 20_000_000, message_packets=33)
    messages, begun = divmod(datagrams, 33)
    assert messages > 0
    assert sent_bytes == datagrams * 4112 + messages * (16 + 4) + (16 if begun else 0)


@pytest.mark.parametrize(("packets", "segments"), [(2, 15), (33, 1)])
def test_a_message_of_a_blast_has_packets_between_its_first_and_its_last(packets: int, segments: int) -> None:
    with pytest.raises(RuntimeError, match=f"at least 3 packets, .* not {packets} sent {segments} to a call"):
        _native.blast_send(
            SENDER, RECEIVER, UDP_PORT, DURATION_NS, segments=segments, message_packets=packets
        )


def test_every_ping_has_a_round_trip_time() -> None:
    with ThreadPoolExecutor(1) as pool:
        answering = pool.submit(_native.pong, RECEIVER, UDP_PORT, 200)
        round_trips_ns = _native.ping(SENDER, RECEIVER, UDP_PORT, 200)
        answering.result()
    assert len(round_trips_ns) == 200
    assert round_trips_ns == sorted(round_trips_ns)
    assert round_trips_ns[0] > 0


def test_a_blast_beyond_a_datagram_is_refused() -> None:
    with pytest.raises(RuntimeError, match="one send of a blast has 1 to 65507 bytes, not 65792"):
        _native.blast_send(SENDER, RECEIVER, UDP_PORT, DURATION_NS, segments=16)


def test_an_address_of_another_host_is_refused_by_name() -> None:
    with pytest.raises(RuntimeError, match=r"address 192\.0\.2\.1 is not on this host"):
        _native.blast_send("192.0.2.1", RECEIVER, UDP_PORT, DURATION_NS)
