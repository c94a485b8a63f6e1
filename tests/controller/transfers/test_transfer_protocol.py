"""Lines of `etloop twin --serve`: answers, and every kind of line that is refused without changing anything."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from etloop.controller.run.transfer_server import flow_network
from etloop.controller.transfers import protocol
from etloop.controller.transfers.protocol import LATEST_NS, MOST_LINE_BYTES, TransferSession
from etloop.traffic.topology.topology_file import parse_topology

TOPOLOGY = "single: {ports: [p0/e, p1/e, d0/e, d1/e, x/1, x/2], rate: 200Gbps}"
GIGABYTE = 10**9
GIGABYTE_NS = 40_000_000
"""Duration of a gigabyte at 200 Gb/s."""


def session() -> TransferSession:
    return TransferSession(*flow_network(parse_topology(TOPOLOGY.encode(), "topology.yaml")))


def say(served: TransferSession, **request: Any) -> dict[str, Any]:
    reply: dict[str, Any] = json.loads(served.answer(json.dumps(request).encode() + b"\n"))
    return reply


def start(**changed: Any) -> dict[str, Any]:
    return {"op": "start", "t": 0, "id": "r1", "src": "p0", "dst": "d0", "bytes": GIGABYTE} | changed


def test_hello_names_the_endpoints_and_the_level() -> None:
    reply = say(session(), op="hello", v=1)
    assert reply == {
        "v": 1,
        "unit": "ns",
        "level": "flow",
        "next": "earliest",
        "endpoints": ["p0/e", "p1/e", "d0/e", "d1/e", "x/1", "x/2"],
    }


def test_a_completion_is_reported_once_time_has_reached_it_and_next_moves_with_later_starts() -> None:
    served = session()
    first = say(served, **start())
    assert (first["t"], first["done"]) == (0, [])
    assert first["next"] == pytest.approx(GIGABYTE_NS, rel=1e-3)
    later = say(served, **start(t=GIGABYTE_NS // 2, id=2, src="p1/e"))
    assert later["done"] == []
    assert later["next"] == pytest.approx(1.5 * GIGABYTE_NS, rel=1e-3)
    assert say(served, op="advance", t=later["next"] - 1)["done"] == []
    ended = say(served, op="advance", t=3 * GIGABYTE_NS)
    assert [done["id"] for done in ended["done"]] == ["r1", 2]
    assert ended["done"][0]["t"] == later["next"]
    assert ended["next"] is None
    assert ended["t"] == 3 * GIGABYTE_NS


def test_a_batch_starts_all_its_transfers_at_one_time_as_single_starts_do() -> None:
    rows = [{"id": n, "src": "p0", "dst": f"d{n % 2}", "bytes": GIGABYTE} for n in range(4)]
    batched, single = session(), session()
    last = say(batched, op="batch", t=5, start=rows)
    for row in rows:
        one_by_one = say(single, op="start", t=5, **row)
    assert last == one_by_one
    end = {"op": "advance", "t": LATEST_NS}
    assert say(batched, **end) == say(single, **end)
    assert say(batched, op="batch", t=LATEST_NS, start=[])["next"] is None


def test_a_cancelled_transfer_reports_what_it_had_left_and_is_never_done() -> None:
    served = session()
    say(served, **start())
    reply = say(served, op="cancel", t=GIGABYTE_NS // 4, id="r1")
    assert reply["left"] == pytest.approx(GIGABYTE * 3 / 4, rel=1e-3)
    assert (reply["done"], reply["next"]) == ([], None)
    assert say(served, op="cancel", t=GIGABYTE_NS, id="r1")["at"] == "id"


def test_a_transfer_that_was_done_before_its_cancellation_is_done() -> None:
    served = session()
    say(served, **start())
    reply = say(served, op="cancel", t=2 * GIGABYTE_NS, id="r1")
    assert [done["id"] for done in reply["done"]] == ["r1"]
    assert reply["left"] == 0


def test_ask_and_stats_change_nothing() -> None:
    served, untouched = session(), session()
    for other in (served, untouched):
        say(other, **start())
    expected = say(served, op="ask", src="p1", dst="d0", bytes=GIGABYTE)
    assert expected["eta"] == pytest.approx(2 * GIGABYTE_NS, rel=1e-3)
    stats = say(served, op="stats")
    assert stats["endpoints"]["p0/e"]["waiting_out"] == GIGABYTE
    assert (stats["started"], stats["under_way"], stats["slowdown_max"]) == (1, 1, 0)
    end = {"op": "advance", "t": LATEST_NS}
    assert say(served, **end) == say(untouched, **end)
    assert say(served, op="stats")["links"] == {"p0/e out": GIGABYTE, "switch/2": GIGABYTE}


def test_an_id_may_be_used_again_once_it_was_among_the_done() -> None:
    served = session()
    say(served, **start(bytes=1))
    assert say(served, op="advance", t=GIGABYTE_NS)["done"][0]["id"] == "r1"
    assert say(served, **start(t=GIGABYTE_NS))["done"] == []


REFUSED: list[tuple[str, Any, str]] = [
    ("no JSON", b"start", ""),
    ("no object", [1], ""),
    ("an empty line", b"\n", ""),
    ("text that is not UTF-8", b'{"op":"\xff"}', ""),
    ("NaN", b'{"op":"advance","t":NaN}', ""),
    ("a repeated key", b'{"op":"advance","t":1,"t":2}', ""),
    ("deep nesting", b"[" * 100_000, ""),
    ("a number of a million digits", b'{"op":"advance","t":1' + b"0" * 1_000_000 + b"}", ""),
    ("a long line", b'{"op":"advance","t":1}' + b" " * MOST_LINE_BYTES, ""),
    ("an unknown request", {"op": "stop"}, "op"),
    ("no request", {"t": 1}, "op"),
    ("a request that is no text", {"op": ["start"]}, "op"),
    ("another version", {"op": "hello", "v": 2}, "v"),
    ("a missing key", {"op": "advance"}, "t"),
    ("an unknown key", {"op": "advance", "t": 1, "tt": 1}, "tt"),
    ("a time before the last", {"op": "advance", "t": 99}, "t"),
    ("a time that is too late", {"op": "advance", "t": LATEST_NS + 1}, "t"),
    ("a time that is not whole", {"op": "advance", "t": 100.5}, "t"),
    ("a time that is true", {"op": "advance", "t": True}, "t"),
    ("an unknown source", start(t=100, id="n", src="p9"), "src"),
    ("an agent of two ports", start(t=100, id="n", src="x"), "src"),
    ("a source that is no text", start(t=100, id="n", src={"a": 1}), "src"),
    ("one endpoint", start(t=100, id="n", dst="p0/e"), "dst"),
    ("negative bytes", start(t=100, id="n", bytes=-1), "bytes"),
    ("too many bytes", start(t=100, id="n", bytes=1 << 51), "bytes"),
    ("an id under way", start(t=100, id="r1"), "id"),
    ("an empty id", start(t=100, id=""), "id"),
    ("a long id", start(t=100, id="x" * 129), "id"),
    ("an id of 64 bits and more", start(t=100, id=1 << 63), "id"),
    ("an id that is null", start(t=100, id=None), "id"),
    ("a cancellation of nothing", {"op": "cancel", "t": 100, "id": "n"}, "id"),
    ("a batch that is no list", {"op": "batch", "t": 100, "start": {}}, "start"),
    ("a row that is no object", {"op": "batch", "t": 100, "start": [1]}, "start[0]"),
    (
        "a mistake in a row",
        {"op": "batch", "t": 100, "start": [{"id": 1, "src": "p0", "dst": "d0"}]},
        "start[0].bytes",
    ),
    (
        "an id twice in a batch",
        {"op": "batch", "t": 100, "start": [{"id": 1, "src": "p0", "dst": "d0", "bytes": 1}] * 2},
        "start[1].id",
    ),
]


@pytest.mark.parametrize(("line", "at"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_refused_line_names_the_key_and_changes_nothing(line: Any, at: str) -> None:
    served, untouched = session(), session()
    for other in (served, untouched):
        say(other, **start(t=100))
    raw = line if isinstance(line, bytes) else json.dumps(line).encode()
    answer = served.answer(raw)
    assert len(answer) < 1000
    reply = json.loads(answer)
    assert (set(reply), reply["at"], reply["line"]) == ({"error", "at", "line"}, at, 2)
    assert say(served, op="stats") == say(untouched, op="stats")
    end = {"op": "advance", "t": LATEST_NS}
    assert say(served, **end) == say(untouched, **end)


def test_more_transfers_than_allowed_are_refused_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MOST_TRANSFERS", 8)
    served = session()
    rows = [{"id": n, "src": "p0", "dst": "d0", "bytes": 0} for n in range(9)]
    assert say(served, op="batch", t=0, start=rows)["at"] == "start"
    assert "error" not in say(served, op="batch", t=0, start=rows[:8])
    reply = say(served, **start())
    assert (reply["at"], reply["error"]) == ("op", "more than 8 transfers under way; advance first")
    assert len(say(served, op="advance", t=10_000)["done"]) == 8


def test_the_same_lines_have_the_same_answers() -> None:
    seed = 5
    draw = random.Random(seed)
    lines, at_ns = [], 0
    for number in range(300):
        at_ns += draw.randrange(20_000_000)
        src, dst = draw.sample(["p0", "p1", "d0", "d1"], 2)
        lines.append(start(t=at_ns, id=number, src=src, dst=dst, bytes=draw.randrange(1 << 28)))
    lines.append({"op": "advance", "t": LATEST_NS})
    runs = [[served.answer(json.dumps(line).encode()) for line in lines] for served in (session(), session())]
    assert runs[0] == runs[1]
    done = [row["id"] for answer in runs[0] for row in json.loads(answer)["done"]]
    assert sorted(done) == list(range(300)), f"seed {seed}"


def test_random_bytes_are_always_answered() -> None:
    seed = 3
    draw = random.Random(seed)
    served = session()
    whole = json.dumps(start()).encode()
    for _ in range(300):
        mutated = bytearray(whole)
        for _ in range(draw.randrange(1, 6)):
            mutated[draw.randrange(len(mutated))] = draw.randrange(256)
        reply = json.loads(served.answer(bytes(mutated)))
        assert ("error" in reply) != ("done" in reply), f"seed {seed}"
