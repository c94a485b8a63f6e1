"""A thousand hostile messages on every socket and topic of a rack, from strangers and members: nobody notices anything."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import aiomqtt
import pytest
import zmq

from etloop.contract.base.errors import ExitCode
from etloop.contract.protocol.messages import Assign, Bye, Hello, Ping, Pong
from etloop.contract.protocol.wire import decode_from_controller, encode
from etloop.controller.rack.job import ENDED, JobState
from etloop.controller.rack.mqtt.topics import Topics
from tests.controller.rack.mqtt.test_rack_mqtt import Mosquitto, mosquitto
from tests.controller.rack.test_rack_daemon import LONG, SCENARIO, place
from tests.support.first_light.commands import Live, Place, agent
from tests.support.ports import free_port
from tests.support.rack.rack_under_faults import Broken

__all__ = ["mosquitto", "place"]

pytestmark = pytest.mark.e2e

COUNT: Final = 1000
HELLO: Final = Hello("b", "elsewhere", 1, {"etloop": "0"})
PATIENCE_MS: Final = 30_000
MOST_GROWTH_BYTES: Final = 64 << 20


@pytest.fixture
def broken(place: Place, mosquitto: Mosquitto) -> Broken:
    """A rack to be attacked."""
    return Broken(place, mosquitto)


def mangled(seeds: list[bytes], rng: random.Random) -> Iterator[bytes]:
    """For ever: noise, cut and flipped messages, deep nesting, lengths that lie."""
    kinds = itertools.cycle(range(6))
    for kind in kinds:
        seed = rng.choice(seeds)
        match kind:
            case 0:
                yield rng.randbytes(rng.randrange(200))
            case 1:
                yield seed[: rng.randrange(len(seed))]
            case 2:
                at = rng.randrange(len(seed))
                yield seed[:at] + bytes([seed[at] ^ (1 << rng.randrange(8))]) + seed[at + 1 :]
            case 3:
                yield b"\x91" * 2000 + b"[" * 2000
            case 4:
                yield b"\xdd\xff\xff\xff\xff" + seed + b"\xc6\x7f\xff\xff\xff"
            case _:
                yield seed + rng.randbytes(20_000)


def rss_bytes(live: Live) -> int:
    """Resident memory of a process."""
    lines = Path(f"/proc/{live.process.pid}/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


@contextlib.contextmanager
def untouched(broken: Broken, live: Live) -> Iterator[None]:
    """A job of agent a runs on through the block; the controller does not swell, and serves on."""
    job_id = broken.submit(LONG, ports=("a/p0", "a/p1"))
    broken.reaches(live, job_id, JobState.RUNNING)
    before_bytes = rss_bytes(live)
    broken.strikes(lambda: None)
    yield
    if broken.job(job_id).state is not JobState.RUNNING:
        raise AssertionError(broken.reaches(live, job_id, *ENDED).reason)
    broken.cancel(job_id)
    assert broken.reaches(live, job_id, *ENDED).reason == "cancelled by mqtt"
    assert rss_bytes(live) - before_bytes < MOST_GROWTH_BYTES
    assert all("event" in json.loads(line) for line in live.printed().splitlines()), "the log has other lines"
    job = broken.reaches(live, broken.submit(SCENARIO, ports=("a/p0", "a/p1")), *ENDED)
    assert (job.exit_code, job.reason) == (ExitCode.PASS, "")


@contextlib.contextmanager
def dealer(place: Place) -> Iterator[zmq.Socket[bytes]]:
    """A connection to the agents' socket."""
    context = zmq.Context()
    peer = context.socket(zmq.DEALER)
    peer.setsockopt(zmq.LINGER, 5000)
    peer.setsockopt(zmq.SNDTIMEO, 30_000)
    peer.connect(place.endpoint)
    try:
        yield peer
    finally:
        peer.close()
        context.term()


def test_strangers_and_members_on_the_agents_socket(broken: Broken) -> None:
    rng = random.Random(8)
    messages = mangled([encode(HELLO), encode(Bye("x")), encode(Pong(1, 2, 3, 4))], rng)
    with agent(broken.place, "a"), broken.controller() as controller, untouched(broken, controller):
        with dealer(broken.place) as stranger:
            for body in itertools.islice(messages, COUNT):
                stranger.send_multipart([body] if rng.random() < 0.9 else [body, b"", body])
        with dealer(broken.place) as member:
            for body in itertools.islice(messages, COUNT):
                member.send(encode(HELLO))
                member.send(body)
        controller.wait_for("agent 'b' joined from elsewhere")
        broken.cleared(
            "1,000 hostile messages on the agents' socket, from a stranger and from a member",
            "refused, the member put out; a running job notices nothing",
            "everything",
        )


def take_part(member: zmq.Socket[bytes]) -> None:
    """A member that does as it should until a run has given it its part."""
    while member.poll(PATIENCE_MS):
        message = decode_from_controller(member.recv())
        if isinstance(message, Ping):
            member.send(encode(Pong(message.sequence, message.controller_ns, 1, 1)))
        if isinstance(message, Assign):
            return
    pytest.fail("no run gave it a part")


def test_a_member_that_turns_hostile_in_a_run(broken: Broken) -> None:
    messages = mangled([encode(Pong(1, 2, 3, 4))], random.Random(8))
    with agent(broken.place, "a"), broken.controller() as controller, dealer(broken.place) as member:
        member.send(encode(HELLO))
        job_id = broken.submit(SCENARIO)
        take_part(member)
        broken.strikes(lambda: None)
        for body in itertools.islice(messages, COUNT):
            member.send(body)
            member.poll(1)
        job = broken.reaches(controller, job_id, *ENDED)
        assert job.exit_code in (ExitCode.PREPARATION_FAILED, ExitCode.RUN_ERROR)
        assert "'b'" in job.reason
        broken.cleared(
            "1,000 hostile messages from an agent of a run",
            "the run ends and names the agent; the controller does not read what is a run's",
            "no measurement",
        )
        job = broken.reaches(controller, broken.submit(SCENARIO, ports=("a/p0", "a/p1")), *ENDED)
        assert (job.exit_code, job.reason) == (ExitCode.PASS, "")


def test_every_topic(broken: Broken) -> None:
    topics = Topics("rack")
    requests = [
        json.dumps(
            {"scenario": SCENARIO, "client_key": "x", "ports": ["a/p0"], "response_topic": "#"}
        ).encode(),
        json.dumps({"scenario": ["x"], "priority": 1e400, "labels": {"a": None}}).encode(),
        json.dumps({"limit": -1, "before_number": "z", "response_topic": topics.submit}).encode(),
    ]
    targets = (
        topics.submit,
        topics.list,
        topics.inventory,
        topics.cancel("no-such-job"),
        topics.cancel("x" * 200),
        topics.cancel("%2e%2e"),
    )

    async def attack() -> None:
        async with aiomqtt.Client("127.0.0.1", broken.mosquitto.port) as client:
            messages = mangled(requests, random.Random(8))
            for number, body in enumerate(itertools.islice(messages, COUNT * len(targets))):
                await client.publish(targets[number % len(targets)], body, qos=0, retain=number % 50 == 0)

    with agent(broken.place, "a"), broken.controller() as controller, untouched(broken, controller):
        asyncio.run(attack())
        broken.cleared(
            "1,000 hostile messages on each topic, some of them retained",
            "answered with the mistake where an answer can be given, else dropped; a running job notices nothing",
            "everything",
        )


def test_http(broken: Broken) -> None:
    port = free_port()
    requests = [
        b"GET /runs/../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n",
        b"GET /runs/%00/%2e%2e HTTP/1.1\r\nHost: x\r\nX: " + 9000 * b"y" + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    ]

    def attack() -> None:
        for body in itertools.islice(mangled(requests, random.Random(8)), COUNT):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 10) as peer:
                peer.settimeout(0.02)
                peer.sendall(body)
                peer.recv(100)

    more = f"http: {{port: {port}}}\n"
    with agent(broken.place, "a"), broken.controller(more) as controller, untouched(broken, controller):
        controller.wait_for("http listens")
        idle = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(100)]
        attack()
        for peer in idle:
            peer.close()
        with socket.create_connection(("127.0.0.1", port), 10) as peer:
            peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert peer.recv(100).startswith(b"HTTP/1.1 200")
        open_now = sum(1 for _ in Path(f"/proc/{controller.process.pid}/fd").iterdir())
        assert open_now < 200
        broken.cleared(
            "1,000 hostile requests over HTTP, 100 connections that say nothing",
            "refused; a running job notices nothing",
            "everything",
        )
