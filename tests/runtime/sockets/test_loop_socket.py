"""ZeroMQ sockets in the event loop: nothing that comes is waited for in vain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import zmq

from etloop.runtime.sockets.loop_socket import LoopSocket

FOR_EVER_MS = 60_000


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    with zmq.Context() as context:
        yield context


def pair(context: zmq.Context[zmq.Socket[bytes]]) -> tuple[LoopSocket, LoopSocket]:
    """A ROUTER on loopback, and a DEALER that is connected to it."""
    router, dealer = LoopSocket(context.socket(zmq.ROUTER)), LoopSocket(context.socket(zmq.DEALER))
    port = router.socket.bind_to_random_port("tcp://127.0.0.1")
    dealer.socket.connect(f"tcp://127.0.0.1:{port}")
    return router, dealer


def contents(frames: list[zmq.Frame] | None) -> list[bytes] | None:
    return None if frames is None else [frame.bytes for frame in frames]


async def test_what_comes_ends_a_wait_and_time_does(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    router, dealer = pair(context)
    assert router.receive() is None
    assert not await router.wait(1), "nothing was sent"
    waiting = asyncio.create_task(router.wait(FOR_EVER_MS))
    await asyncio.sleep(0)
    dealer.send(b"one", b"two")
    assert await waiting
    assert await router.wait(FOR_EVER_MS), "it is still there"
    _, *parts = contents(router.receive()) or []
    assert parts == [b"one", b"two"]
    assert not router.has_come()
    router.close(0)
    dealer.close(0)


async def test_no_edge_is_lost_between_calls_that_take_it(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    """Each side sends as it receives, and any of its calls may take the edge that tells of the next message."""
    router, dealer = pair(context)
    most, answered = 2_000, 0
    for number in range(50):
        dealer.send(b"%d" % number)
    sent = 50
    while answered < most:
        while (frames := router.receive()) is not None:
            router.send(*(frame.bytes for frame in frames))
        while (frames := dealer.receive()) is not None:
            answered += 1
            if sent < most:
                dealer.send(b"%d" % sent)
                sent += 1
        if answered < most:
            waits = [asyncio.create_task(end.wait(FOR_EVER_MS)) for end in (router, dealer)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
    router.close(0)
    dealer.close(0)


async def test_who_waits_for_the_next_message_gets_it(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    router, dealer = pair(context)
    following = asyncio.create_task(router.next())
    await asyncio.sleep(0)
    dealer.send(b"at last")
    assert contents(await following) is not None
    router.close(0)
    dealer.close(0)


async def test_sending_ends_the_wait_of_another_task_whose_edge_it_took(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    router, dealer = pair(context)
    dealer.send(b"hello")
    name, _ = contents(await router.next()) or []
    waiting = asyncio.create_task(router.wait(FOR_EVER_MS))
    await asyncio.sleep(0)
    dealer.send(b"more")
    while not router.has_come():  # takes the edge, as any other call on the socket may
        pass
    assert not waiting.done()
    router.send(name, b"answer")
    async with asyncio.timeout(10):
        assert await waiting
    router.close(0)
    dealer.close(0)


async def test_a_message_for_which_there_is_no_room_is_refused(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    alone = LoopSocket(context.socket(zmq.DEALER))
    assert not alone.has_room()
    with pytest.raises(zmq.Again):
        alone.send(b"to nobody")
    alone.close(0)


async def test_a_loop_does_not_turn_for_what_nobody_waits_for(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    router, dealer = pair(context)
    looks = 0
    asked = router.has_come

    def counted() -> bool:
        nonlocal looks
        looks += 1
        return asked()

    router.has_come = counted  # type: ignore[method-assign]
    dealer.send(b"unread")
    assert await router.wait(FOR_EVER_MS)
    before = looks
    for _ in range(100):
        await asyncio.sleep(0)
    assert looks <= before + 2, "the descriptor stayed readable"
    router.close(0)
    dealer.close(0)
