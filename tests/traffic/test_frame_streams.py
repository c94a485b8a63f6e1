"""Streams of frames over packet sockets of a namespace: what its interfaces do to them is counted or named."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from pyroute2 import IPRoute

from etloop.contract.base.clock import NS_PER_MS
from etloop.contract.model.assignment import PortSettings
from etloop.contract.model.frame_streams import (
    CAPTURE_NUMBER,
    MARK,
    SIGNATURE_BYTES,
    FrameCount,
    FrameStream,
    FrameWork,
)
from etloop.lab.namespaces import inside, new_namespace
from etloop.traffic.frame_streams import FrameStreams
from tests.lab.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed

pytestmark = pytest.mark.skipif(not namespaces_are_allowed(), reason=NO_NAMESPACES)

PATIENCE_S: Final = 60
HEADER: Final = b"\xff" * 6 + bytes(6) + b"\x88\xb5"
FRAME: Final = HEADER + MARK + bytes(4) + bytes(SIGNATURE_BYTES - 8) + bytes(46)
SENT: Final = FrameStream("raw", 0, 0, True, len(HEADER), (FRAME,), NS_PER_MS)
RECEIVED: Final = FrameStream("raw", 0, 0, False, len(HEADER))


@pytest.fixture
def namespace() -> Iterator[int]:
    """A namespace with the veth pair v0 and v1, both up."""
    made = new_namespace()
    try:
        inside(made, lambda: on_links(add_pair))
        yield made
    finally:
        os.close(made)


def add_pair(route: IPRoute) -> None:
    route.link("add", ifname="v0", kind="veth", peer="v1")
    for name in ("v0", "v1"):
        route.link("set", index=route.link_lookup(ifname=name)[0], state="up")


def on_links(call: Callable[[IPRoute], None]) -> None:
    with IPRoute() as route:
        call(route)


def set_state(namespace: int, name: str, state: str) -> None:
    inside(
        namespace,
        lambda: on_links(
            lambda route: route.link("set", index=route.link_lookup(ifname=name)[0], state=state)
        ),
    )


def opened(namespace: int, name: str, work: FrameWork) -> FrameStreams:
    port = PortSettings("p0", (), 4791, 10**9, 0, 1, interface=name)
    return inside(namespace, lambda: FrameStreams(work, (port,)))


def wait_until(holds: Callable[[], bool]) -> None:
    clock = threading.Event()
    for _ in range(PATIENCE_S * 50):
        if holds():
            return
        clock.wait(0.02)
    raise AssertionError("waited in vain")


def only(streams: FrameStreams) -> FrameCount:
    (count,) = streams.counts()
    return count


def test_receiver_counts_on_behind_an_interruption_and_names_an_interface_that_is_gone(
    namespace: int,
) -> None:
    sender = opened(namespace, "v0", FrameWork((SENT,)))
    receiver = opened(namespace, "v1", FrameWork((RECEIVED,)))
    try:
        sender.start(time.monotonic_ns())
        receiver.start(time.monotonic_ns())
        wait_until(lambda: only(receiver).frames > 0)
        set_state(namespace, "v1", "down")
        wait_until(lambda: only(receiver).interruptions == 1)
        missed = only(receiver).frames
        set_state(namespace, "v1", "up")
        wait_until(lambda: only(receiver).frames > missed)
        assert (only(receiver).interruptions, receiver.failure, sender.failure) == (1, "", "")
        inside(
            namespace,
            lambda: on_links(lambda route: route.link("del", index=route.link_lookup(ifname="v1")[0])),
        )
        wait_until(lambda: bool(receiver.failure and sender.failure))
        assert receiver.failure == "port p0 cannot receive raw flows: its interface is gone"
        assert sender.failure.startswith("raw flow raw cannot be sent: ")
    finally:
        sender.close()
        receiver.close()


def test_interruption_of_a_port_that_only_captures_is_counted(namespace: int) -> None:
    receiver = opened(namespace, "v1", FrameWork(captures=(0,)))
    try:
        receiver.start(time.monotonic_ns())
        set_state(namespace, "v1", "down")
        wait_until(lambda: only(receiver).interruptions == 1)
        assert (only(receiver).number, receiver.failure) == (CAPTURE_NUMBER, "")
    finally:
        receiver.close()
