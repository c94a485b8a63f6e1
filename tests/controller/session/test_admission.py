"""Whom an encrypted controller lets in, under which name and until when: keys, connections and time as values."""

from __future__ import annotations

import pytest

from etloop.controller.session.admission import (
    CONNECTION_OF_ANOTHER,
    FORGET_AFTER_NS,
    HANDSHAKE,
    KEY_NOT_ALLOWED,
    MOST_CONNECTIONS,
    MOST_NOTICES,
    Admission,
    Revoked,
)

A, B, C = ("a" * 40, "b" * 40, "c" * 40)


def admission() -> Admission:
    """Two agents."""
    return Admission({A: "a", B: "b"})


def told(one: Admission) -> list[str]:
    """What it says since the last call."""
    return [notice.text for notice in one.take_notices()]


def test_a_key_on_the_list_comes_in_and_another_is_counted_and_told() -> None:
    one = admission()
    assert one.admits(A, "10.0.0.1")
    assert told(one) == []
    assert not one.admits(C, "10.0.0.9")
    assert one.refused == {KEY_NOT_ALLOWED: 1}
    (line,) = told(one)
    assert line == (
        f"refused a connection from 10.0.0.9: its key {C} is not on the list of agents' keys; "
        "etloop keys allow NAME.key with the file of that key admits its agent"
    )
    one.on_broken_handshakes(1)
    assert one.refused == {KEY_NOT_ALLOWED: 1, HANDSHAKE: 1}


@pytest.mark.parametrize(
    ("key", "name", "expected"),
    [
        (A, "a", ""),
        (B, "a", "its key belongs to agent 'b', but it uses the name 'a'; start it with --name b, or"),
        (B, "stranger", "its key belongs to agent 'b', but it uses the name 'stranger'"),
        (B, "x" * 5000, "its key belongs to agent 'b', but it uses the name '" + "x" * 64 + "';"),
    ],
)
def test_a_key_is_one_agents(key: str, name: str, expected: str) -> None:
    one = admission()
    assert one.accepts(b"1", key, 0)
    why = one.name_problem(b"1", name)
    assert why.startswith(expected) if expected else why == ""


def test_a_connection_that_was_never_heard_has_no_name() -> None:
    assert "was removed from the list of agents' keys" in admission().name_problem(b"1", "a")


def test_a_connection_stays_the_keys_that_it_began_with() -> None:
    one = admission()
    assert one.accepts(b"1", A, 0)
    assert not one.accepts(b"1", B, FORGET_AFTER_NS - 1)
    assert one.refused == {CONNECTION_OF_ANOTHER: 1}
    assert one.name_problem(b"1", "a") == ""
    assert one.accepts(b"1", B, FORGET_AFTER_NS), "nobody is left who could have had it"
    assert one.name_problem(b"1", "b") == ""


def test_a_revoked_key_ends_its_connections_and_is_heard_no_more() -> None:
    one = admission()
    for identity, key in ((b"1", A), (b"2", B), (b"3", B)):
        one.accepts(identity, key, 0)
    assert one.renew({A: "a"}) == (Revoked(b"2", "b"), Revoked(b"3", "b"))
    assert told(one) == ["agents' keys: revoked: b"]
    assert not one.accepts(b"2", B, 1)
    assert not one.admits(B, "10.0.0.2")
    assert one.accepts(b"1", A, 1)
    assert one.renew({A: "a"}) == ()


def test_a_key_that_is_allowed_again_or_anew_comes_in() -> None:
    one = admission()
    one.renew({A: "a"})
    assert one.renew({A: "a", B: "b", C: "c"}) == ()
    assert told(one) == ["agents' keys: revoked: b", "agents' keys: now admitted: b, c"]
    assert one.admits(C, "10.0.0.9")
    assert one.accepts(b"2", B, 2)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ({C: "a", B: "b"}, "agents' keys: has another key: a"),
        ({A: "other", B: "b"}, "agents' keys: now admitted: other"),
    ],
)
def test_a_connection_ends_when_its_key_is_another_or_anothers(names: dict[str, str], sentence: str) -> None:
    one = admission()
    one.accepts(b"1", A, 0)
    one.accepts(b"2", B, 0)
    assert one.renew(names) == (Revoked(b"1", "a"),)
    assert sentence in told(one)


def test_what_is_kept_is_bounded() -> None:
    one = admission()
    for number in range(MOST_CONNECTIONS + 10):
        one.accepts(number.to_bytes(4, "big"), A, number)
        one.accepts(b"living", B, number)
    assert one.follows(b"living")
    assert not one.follows((0).to_bytes(4, "big"))
    assert one.follows((MOST_CONNECTIONS + 9).to_bytes(4, "big"))
    for _ in range(10 * MOST_NOTICES):
        one.admits(C, "10.0.0.9")
    assert len(told(one)) == MOST_NOTICES
    assert one.refused[KEY_NOT_ALLOWED] == 10 * MOST_NOTICES, "the count goes on"


def test_a_list_that_is_read_because_somebody_asked_says_so() -> None:
    one = admission()
    one.on_reload("")
    assert told(one) == ["agents' keys reloaded: 2 are admitted"]
