"""Two minor versions of the protocol side by side: golden bytes of each, fields that come and go, agents as processes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]  # ships no types
import numpy as np
import pytest
from etloop.contract.base.errors import ExitCode, ProtocolError
from etloop.contract.base.evolution import came_with, laid_out, layout_at, since, since_of
from etloop.contract.protocol import codec
from etloop.contract.protocol.codec import (
    PeerTooOld,
    VersionMismatch,
    decode_from_agent,
    decode_from_controller,
    encode,
    read_from_agent,
)
from etloop.contract.protocol.messages import (
    OLDEST_MINOR,
    PROTOCOL_VERSION,
    Bye,
    Hello,
    Welcome,
)
from etloop.contract.protocol.peers import Peers

from tests.contract.test_codec import FROM_AGENT, FROM_CONTROLLER, same
from tests.e2e.first_light.test_first_light_ends import write_job
from tests.support.control_plane.protocol_golden import DIRECTORY, golden
from tests.support.control_plane.rehearsal import Rehearsal
from tests.support.first_light.commands import (
    PATIENCE_S,
    Live,
    Place,
    agents,
    free_place,
    left_by,
    run_to_end,
    running,
)

MAJOR, OURS = PROTOCOL_VERSION
SPOKEN = range(OLDEST_MINOR, OURS + 1)
SCENARIO = "workload: {trace: job}\niterations: 3\nmapping: {placement: round_robin}\n"
MESSAGES = {type(message).__name__: message for message in (*FROM_AGENT, *FROM_CONTROLLER)}


# ---- golden bytes


def test_there_are_golden_bytes_of_every_version_that_is_spoken() -> None:
    assert {path.stem for path in DIRECTORY.glob("*.json")} == {f"{MAJOR}.{minor}" for minor in SPOKEN}


@pytest.mark.parametrize("minor", SPOKEN)
def test_what_a_version_wrote_is_read(minor: int) -> None:
    """Fields that it did not have get their defaults, which is what our own examples have."""
    for name, body in golden(MAJOR, minor).items():
        decode = (
            decode_from_agent if type(MESSAGES[name]) in map(type, FROM_AGENT) else decode_from_controller
        )
        assert same(decode(body), MESSAGES[name]), name


@pytest.mark.parametrize("minor", SPOKEN)
def test_what_is_written_for_a_version_is_what_it_wrote_itself(minor: int) -> None:
    for name, body in golden(MAJOR, minor).items():
        assert encode(MESSAGES[name], minor) == body, name


def test_a_version_that_is_not_spoken_any_more_is_refused_with_all_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("etloop.contract.protocol.codec.OLDEST_MINOR", OURS)
    body = msgpack.packb([MAJOR, OURS - 1, "Bye", {"reason": ""}])
    with pytest.raises(VersionMismatch, match=rf"speaks protocol {MAJOR}\.{OURS - 1}, this side"):
        decode_from_agent(body)


# ---- fields that come with a minor version, on messages that no product has


@dataclass(frozen=True, slots=True)
class Inner:
    """Part of a message."""

    kept: int
    order: int = since(5, default=0)


@dataclass(frozen=True, slots=True)
class Outer:
    """A message that has grown: in 5 by an order and by knowledge, in 6 by more knowledge."""

    parts: tuple[Inner, ...]
    knowledge: str = since(5, droppable=True, default="")
    names: dict[str, str] = since(6, droppable=True, default_factory=dict)


def codec_at(minor: int, *, passes_over: bool = False, kind: type[Any] = Outer) -> Any:
    return codec.codec_of(kind, codec.Dialect(minor, passes_over))


GROWN = Outer((Inner(1, 2),), "known", {"a": "b"})

WRITTEN = {
    "a peer of our own gets all": (
        GROWN,
        6,
        {"parts": [{"kept": 1, "order": 2}], "knowledge": "known", "names": {"a": "b"}},
    ),
    "a peer of one back gets what it knows": (
        GROWN,
        5,
        {"parts": [{"kept": 1, "order": 2}], "knowledge": "known"},
    ),
    "knowledge is left out whatever it is, and an order at its default": (
        Outer((Inner(1),), "known"),
        4,
        {"parts": [{"kept": 1}]},
    ),
}


@pytest.mark.parametrize(("message", "minor", "fields"), WRITTEN.values(), ids=WRITTEN.keys())
def test_a_peer_is_told_what_it_knows(message: Outer, minor: int, fields: dict[str, Any]) -> None:
    assert codec_at(minor).pack(message) == fields


def test_an_order_that_a_peer_would_not_know_is_not_said_at_all() -> None:
    with pytest.raises(codec.Unsayable) as caught:
        codec_at(4).pack(GROWN)
    assert (caught.value.field, caught.value.minor) == ("Inner.order", 5)


READ = {
    "what an older peer does not send has its default": (4, {"parts": [{"kept": 1}]}, Outer((Inner(1),))),
    "also within": (5, {"parts": [{"kept": 1, "order": 3}], "knowledge": "x"}, Outer((Inner(1, 3),), "x")),
}


@pytest.mark.parametrize(("minor", "fields", "message"), READ.values(), ids=READ.keys())
def test_an_older_peer_is_understood(minor: int, fields: dict[str, Any], message: Outer) -> None:
    assert codec_at(minor).unpack(fields) == message


REFUSED = {
    "a field that its version does not have": (
        4,
        {"parts": [], "knowledge": "x"},
        "unknown field 'knowledge'",
    ),
    "one that is missing in its version": (5, {"parts": []}, "missing field knowledge"),
    "a stranger": (6, {"parts": [], "knowledge": "", "names": {}, "x": 1}, "unknown field 'x'"),
}


@pytest.mark.parametrize(("minor", "fields", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_a_peer_is_held_to_its_own_version(minor: int, fields: dict[str, Any], why: str) -> None:
    with pytest.raises(codec.Misfit) as caught:
        codec_at(minor).unpack(fields)
    assert caught.value.what == why


def test_only_a_greeting_may_have_fields_of_the_future() -> None:
    fields = {"parts": [{"kept": 1, "order": 2, "x": 1}], "knowledge": "k", "names": {}, "y": [1]}
    assert codec_at(6, passes_over=True).unpack(fields) == Outer((Inner(1, 2),), "k")
    del fields["knowledge"]
    with pytest.raises(codec.Misfit):
        codec_at(6, passes_over=True).unpack(fields)


def test_a_field_that_came_later_must_have_a_default() -> None:
    @dataclass(frozen=True)
    class Careless:
        late: int = since(5)

    with pytest.raises(AssertionError, match="since without a default"):
        codec_at(6, kind=Careless)


def test_record_columns_come_with_a_minor_version_too() -> None:
    ours = np.dtype([("a", "<i8"), ("late", "<i4"), ("b", "<u2")])
    theirs = layout_at(ours, {"late": 5}, 4)
    assert theirs == np.dtype([("a", "<i8"), ("b", "<u2")])
    assert theirs.itemsize == 10
    assert layout_at(ours, {"late": 5}, 5) is ours
    there = np.array([(1, 2), (3, 4)], theirs)
    here = laid_out(there, ours)
    assert here.tolist() == [(1, 0, 2), (3, 0, 4)]
    assert laid_out(here, theirs).tobytes() == there.tobytes()
    assert laid_out(here, ours) is here


# ---- messages and connections


def future_hello(minor: int = OURS + 1) -> bytes:
    known = msgpack.unpackb(encode(Hello("a", "host", 1, {})))[3]
    body: bytes = msgpack.packb([MAJOR, minor, "Hello", {**known, "dreams": ["of", "sheep"]}])
    return body


def test_the_greeting_of_a_newer_agent_is_understood_and_answered_in_our_version() -> None:
    hello, minor = read_from_agent(future_hello())
    assert hello == Hello("a", "host", 1, {})
    assert minor == OURS
    with pytest.raises(VersionMismatch):
        decode_from_agent(msgpack.packb([MAJOR, OURS + 1, "Bye", {"reason": ""}]))
    with pytest.raises(VersionMismatch):
        decode_from_controller(msgpack.packb([MAJOR, OURS + 1, "Hello", {}]))
    with pytest.raises(VersionMismatch):
        decode_from_agent(future_hello().replace(bytes([0x94, MAJOR]), bytes([0x94, MAJOR + 1]), 1))


def test_each_connection_is_answered_in_its_own_version() -> None:
    peers = Peers()
    peers.read(b"old", encode(Bye("x"), OLDEST_MINOR))
    peers.read(b"new", future_hello())
    assert msgpack.unpackb(peers.write(b"old", Welcome(1, 2)))[1] == OLDEST_MINOR
    assert msgpack.unpackb(peers.write(b"new", Welcome(1, 2)))[1] == OURS
    assert peers.minor(b"stranger") == OURS
    with pytest.raises(ProtocolError):
        peers.read(b"liar", b"")
    assert peers.minor(b"liar") == OURS


def test_whoever_knocks_a_heartbeat_keeps_a_connection_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etloop.contract.protocol.peers._MOST_PEERS", 10)
    peers = Peers()
    for number in range(100):
        peers.read(b"old", encode(Bye("x"), OLDEST_MINOR))
        peers.read(b"%d" % number, encode(Bye("x")))
    assert peers.minor(b"old") == OLDEST_MINOR
    assert len(peers) == 10


def test_connections_that_are_gone_are_forgotten_and_no_others() -> None:
    peers = Peers()
    for identity in (b"old", b"gone", b"new"):
        peers.read(identity, encode(Bye("x"), OURS - 1 if identity == b"old" else OURS))
    peers.keep({b"old", b"new", b"never heard"})
    assert len(peers) == 2
    assert (peers.minor(b"old"), peers.minor(b"new")) == (OURS - 1, OURS)


def test_a_message_that_came_later_is_not_said_to_older_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etloop.contract.base.evolution._MESSAGES", {})
    came_with(OURS)(Bye)
    assert decode_from_agent(encode(Bye("x"))) == Bye("x")
    with pytest.raises(
        PeerTooOld, match=rf"speaks protocol {MAJOR}\.\d+, and Bye needs {MAJOR}\.{OURS}; upgrade"
    ):
        encode(Bye("x"), OURS - 1)


def test_an_agent_that_cannot_be_told_what_to_do_ends_the_run_by_name() -> None:
    play = Rehearsal("a", "b")
    play.run(0.5)
    too_old = PeerTooOld(
        "the peer speaks protocol 1.1, and PortSettings.backend needs 1.2; upgrade etloop there"
    )
    play.act(play.session.on_malformed(play.agents["b"].identity, too_old, play.now_ns))
    play.run_to_end()
    expected = "agent 'b': the peer speaks protocol 1.1, and PortSettings.backend needs 1.2"
    assert play.session.reason.startswith(expected)


def test_every_later_field_says_what_older_peers_take_for_granted() -> None:
    later = {
        f"{type(message).__name__}.{each.name}": since_of(each)
        for message in MESSAGES.values()
        for each in dataclasses.fields(message)
        if since_of(each)
    }
    assert set(later.values()) <= set(range(1, OURS + 1))
    assert later["Hello.slot"] == later["Hello.capabilities"] == later["Welcome.slots"] == 1


# ---- as processes


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = free_place(tmp_path)
    place.rig()
    write_job(tmp_path)
    return place


@contextlib.contextmanager
def agent_of(place: Place, version: str, name: str) -> Iterator[Live]:
    """An agent of another version, see other_agent.py."""
    arguments = (version, "run", "--controller", place.endpoint, "--name", name)
    with running(place, "tests.support.control_plane.other_agent", *arguments) as live:
        yield live


@pytest.mark.parametrize("minor", [*SPOKEN, OURS + 1])
def test_a_run_with_one_agent_of_another_version_measures_all(place: Place, minor: int) -> None:
    """The versions that are spoken, and the next one: controller or agents may be upgraded first."""
    with agent_of(place, f"{MAJOR}.{minor}", "a"), agents(place, names="b"):
        ended = run_to_end(place, SCENARIO)
    assert ended.exit_code == ExitCode.PASS, ended.err
    summary = left_by(place).summary
    assert summary["state"] == "done"
    assert {agent["versions"]["protocol"] for agent in summary["agents"]} == {
        f"{MAJOR}.{minor}",
        f"{MAJOR}.{OURS}",
    }


def test_an_agent_that_is_too_old_is_told_both_versions(place: Place) -> None:
    with agent_of(place, f"{MAJOR - 1}.{OURS}", "a") as old, agents(place, names="b"):
        ended = run_to_end(place, SCENARIO + "limits: {gather_timeout: 5s}\n")
        assert ended.exit_code == ExitCode.PREPARATION_FAILED
        assert f"the peer speaks protocol {MAJOR - 1}.{OURS}, this side" in ended.err
        assert old.process.wait(PATIENCE_S) == ExitCode.PREPARATION_FAILED
