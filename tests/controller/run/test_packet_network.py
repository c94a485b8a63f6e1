"""`etloop twin --serve --level packet`: answers next to those of the flow level, what only packets have, and failures."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from etloop.contract.base.errors import InputError
from etloop.controller.run.packet_network import packet_network
from etloop.controller.run.prepare import InputFile
from etloop.controller.run.transfer_server import flow_network
from etloop.controller.transfers.protocol import TransferSession
from etloop.traffic.topology.topology_file import parse_topology

TOPOLOGY = (
    "single: {ports: [p0/e, p1/e, d0/e, d1/e], rate: 200Gbps, delay: 500ns, switch: {preset: lossless}}"
)
SIZE = 32 << 20
HEADERS = (4096 + 82) / 4096
SIZE_NS = SIZE * HEADERS * 8 / 200
"""Duration of a transfer alone, with headers."""


@contextmanager
def packets(topology: str = TOPOLOGY) -> Iterator[TransferSession]:
    file = InputFile(Path("topology.yaml"), topology.encode())
    with packet_network(file, "", None) as (served, network):
        yield TransferSession(served, network)


def flows() -> TransferSession:
    return TransferSession(*flow_network(parse_topology(TOPOLOGY.encode(), "topology.yaml")))


def say(session: TransferSession, **request: Any) -> dict[str, Any]:
    reply: dict[str, Any] = json.loads(session.answer(json.dumps(request).encode() + b"\n"))
    return reply


def start(**changed: Any) -> dict[str, Any]:
    return {"op": "start", "t": 0, "id": "r", "src": "p0", "dst": "d0", "bytes": SIZE} | changed


def wait(session: TransferSession, reply: dict[str, Any], most: int = 10_000) -> dict[Any, int]:
    """Ask at every `next` as a client does; return the completions. None was announced too late, none too early."""
    done: dict[Any, int] = {}
    for _ in range(most):
        if reply["next"] is None:
            return done
        before, reply = reply, say(session, op="advance", t=reply["next"])
        assert reply["t"] == before["next"] > before["t"]
        for row in reply["done"]:
            assert before["t"] < row["t"] <= reply["t"]
            done[row["id"]] = row["t"]
    raise AssertionError("the transfers do not end")


@pytest.mark.parametrize("size", [4096, 1 << 20, SIZE, 3 * SIZE + 1234])
def test_a_transfer_alone_takes_as_long_as_at_the_flow_level(size: int) -> None:
    """Flows count bytes as they are; packets have headers. A grant takes the path's latency before the first byte."""
    by_flow = say(flows(), **start(bytes=round(size * HEADERS)))["next"]
    with packets() as session:
        reply = say(session, **start(bytes=size))
        assert 0 < reply["next"] <= by_flow
        (at_ns,) = wait(session, reply).values()
    assert at_ns == pytest.approx(by_flow, rel=0.02, abs=4_000)


def test_an_overload_shares_the_receivers_port() -> None:
    sources = [{"id": number, "src": f"p{number}", "dst": "d0", "bytes": SIZE} for number in range(2)]
    at_flow_level = flows()
    by_flow = wait(at_flow_level, say(at_flow_level, op="batch", t=0, start=sources))
    with packets() as session:
        done = wait(session, say(session, op="batch", t=0, start=sources))
        stats = say(session, op="stats")
    assert set(done) == set(by_flow) == {0, 1}
    # Congestion control cuts both rates first, and raises them again by and by.
    assert 1 < max(done.values()) / (max(by_flow.values()) * HEADERS) < 1.3
    assert stats["slowdown_max"] > 2 * HEADERS
    assert stats["endpoints"]["d0/e"]["received"] == 2 * SIZE


def test_a_cancelled_transfer_leaves_its_rate_to_the_other_one() -> None:
    """Messages that the card has are sent all the same: at most eight of a mebibyte."""
    half_ns = round(SIZE_NS / 2)
    left, ends_ns = {}, {}
    for name, session_of in {"flow": _as_context(flows()), "packet": packets()}.items():
        with session_of as session:
            say(session, **start(id="goes", bytes=4 * SIZE))
            say(session, **start(id="stays", src="p1"))
            reply = say(session, op="cancel", t=half_ns, id="goes")
            assert reply["done"] == []
            left[name] = reply["left"]
            done = wait(session, reply)
            assert list(done) == ["stays"]
            ends_ns[name] = done["stays"]
            assert say(session, op="stats")["cancelled"] == 1
    assert 0 < left["flow"] - left["packet"] < 9 << 20
    # Sooner than over half of the port until its end.
    assert ends_ns["flow"] * HEADERS < ends_ns["packet"] < 2 * SIZE_NS


@contextmanager
def _as_context(session: TransferSession) -> Iterator[TransferSession]:
    yield session


def test_the_same_lines_have_the_same_answers() -> None:
    seed = 7
    runs = []
    for _ in range(2):
        draw, at_ns, answers = random.Random(seed), 0, []
        with packets() as session:
            for number in range(20):
                at_ns += draw.randrange(200_000)
                src, dst = draw.sample(["p0", "p1", "d0", "d1"], 2)
                row = start(t=at_ns, id=number, src=src, dst=dst, bytes=draw.randrange(1 << 21))
                answers.append(say(session, **row))
            answers.append(say(session, op="advance", t=10**9))
        runs.append(answers)
    assert runs[0] == runs[1]
    assert sorted(row["id"] for answer in runs[0] for row in answer["done"]) == list(range(20)), (
        f"seed {seed}"
    )


def test_hello_says_that_next_is_a_bound_and_ask_is_refused() -> None:
    with packets() as session:
        reply = say(session, op="hello", v=1)
        assert (reply["level"], reply["next"]) == ("packet", "bound")
        asked = say(session, op="ask", src="p0", dst="d0", bytes=1)
        assert (asked["at"], "flow level" in asked["error"]) == ("op", True)
        assert say(session, **start(bytes=0))["done"] == []
        assert [row["id"] for row in say(session, op="advance", t=100_000)["done"]] == ["r"]
        assert say(session, op="advance", t=1 << 60)["next"] is None


def test_a_network_that_breaks_answers_with_an_error() -> None:
    """A link that stays down ends the twin once a queue pair has retried often enough."""
    broken = TOPOLOGY + "\noutages: [{port: d0/e, from: 100us}]"
    with packets(broken) as session:
        say(session, **start())
        reply = say(session, op="advance", t=5 * 10**9)
        assert reply["error"].startswith("the network has ended: ")
        assert "error" in say(session, **start(t=5 * 10**9, id="later"))


def test_a_topology_of_too_many_endpoints_is_refused_before_the_twin_starts() -> None:
    ports = ", ".join(f"h{number}/e" for number in range(129))
    with (
        pytest.raises(InputError, match="129 attachments"),
        packets(f"single: {{ports: [{ports}], rate: 100Gbps}}"),
    ):
        pass
