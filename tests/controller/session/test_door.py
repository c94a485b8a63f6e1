"""Decisions of a control port's door: handshakes are followed, places given and taken, descriptors divided."""

from __future__ import annotations

import random

import pytest

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.listening_clock import LONGEST_TURN_NS
from etloop.controller.session.door.budget import DoorBudget, door_budget
from etloop.controller.session.door.handshake import HandshakeSide, signature_is_possible
from etloop.controller.session.door.places import HANDSHAKE_NS, SILENT_NS, Places
from etloop.controller.session.door.relay import source_of
from etloop.controller.session.door.reports import LONGEST_BYTES, parse_report, report_of

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)


def command(name: bytes, body: bytes = b"") -> bytes:
    content = bytes([len(name)]) + name + body
    if len(content) < 256:
        return bytes([4, len(content)]) + content
    return b"\x06" + len(content).to_bytes(8, "big") + content


# ---- handshake


@pytest.mark.parametrize("chunk", [1, 2, 7, 63, 64, 65, 4096])
def test_a_handshake_is_over_with_its_last_command_however_it_is_cut(chunk: int) -> None:
    said = GREETING + command(b"HELLO", bytes(194)) + command(b"INITIATE", bytes(600))
    side = HandshakeSide(b"INITIATE", b"READY")
    over_at = len(GREETING) + len(command(b"HELLO", bytes(194))) + 9 + 1 + len(b"INITIATE")
    for at in range(0, len(said), chunk):
        side.feed(said[at : at + chunk])
        assert side.is_over == (at + chunk >= over_at)
        assert not side.is_broken


def test_an_error_is_no_end_of_a_handshake() -> None:
    side = HandshakeSide(b"READY")
    side.feed(GREETING + command(b"WELCOME", bytes(160)) + command(b"ERROR", b"\x03400"))
    assert not side.is_over
    assert not side.is_broken


def test_what_no_handshake_has_is_noticed() -> None:
    for wrong in (b"\x00\x01x", b"\x04\x20\x1fx", b"\x01\x00"):
        side = HandshakeSide(b"READY")
        side.feed(GREETING + wrong)
        assert side.is_broken, wrong


def test_noise_is_no_handshake_and_ends() -> None:
    rng = random.Random(11)
    for _ in range(500):
        side = HandshakeSide(b"READY")
        side.feed(GREETING + rng.randbytes(300).replace(b"READY", b"ready"))
        assert not side.is_over


def test_the_first_bytes_tell_a_peer_from_a_browser() -> None:
    assert all(signature_is_possible(GREETING[:length]) for length in range(65))
    assert not signature_is_possible(b"G")
    assert not signature_is_possible(b"\xff" + bytes(9))


# ---- places


def test_one_source_takes_no_place_from_another() -> None:
    places = Places(DoorBudget(members=4, strangers=8))
    assert places.arrive(0, "agent", 0) is None
    leavers = [places.arrive(number, "flood", number) for number in range(1, 1100)]
    assert leavers[:7] == [None] * 7
    assert 0 not in leavers
    assert leavers[7:] == list(range(1, 1093)), "the first to come are the first to go"


def test_who_has_begun_stays_before_who_is_silent_behind_one_address() -> None:
    places = Places(DoorBudget(members=4, strangers=8))
    places.arrive(0, "nat", 0)
    places.begin(0)
    assert 0 not in [places.arrive(number, "nat", number) for number in range(1, 1100)]
    assert places.admit(0)


def test_many_sources_keep_no_newcomer_out() -> None:
    places = Places(DoorBudget(members=4, strangers=8))
    for number in range(100):
        places.arrive(number, f"source {number}", number)
    assert places.arrive(100, "agent", 100) != 100
    assert [places.arrive(number, f"source {number}", number) for number in range(101, 107)].count(100) == 0


def test_256_agents_behind_one_address_all_become_members() -> None:
    """As they are connected anew when they lose their place, and half of those that have one go on at each step."""
    rng = random.Random(3)
    places = Places(door_budget(1024, 1024, 40))
    waiting, strangers, joined, steps = list(range(256)), set[int](), set[int](), 0
    while len(joined) < 256:
        steps += 1
        for number in waiting:
            leaver = places.arrive(number, "nat", steps)
            strangers.add(number)
            if leaver is not None:
                strangers.discard(leaver)
        waiting = [number for number in range(256) if number not in strangers | joined]
        for number in sorted(strangers):
            if rng.random() < 0.5:
                places.begin(number)
                assert places.admit(number)
                strangers.discard(number)
                joined.add(number)
        assert steps < 100


def test_members_beyond_the_budget_find_no_place_until_one_leaves() -> None:
    places = Places(DoorBudget(members=1, strangers=2))
    for number in range(2):
        places.arrive(number, "x", 0)
    assert places.admit(0)
    assert not places.admit(1)
    places.leave(0)
    places.arrive(2, "x", 0)
    assert places.admit(2)


def test_strangers_have_their_time_and_members_have_no_end() -> None:
    places = Places(DoorBudget(members=4, strangers=4))
    for number in range(3):
        places.arrive(number, "x", 0)
    places.begin(1)
    places.admit(2)
    assert places.overdue(SILENT_NS - 1) == ()
    assert places.overdue(SILENT_NS) == (0,)
    places.leave(0)
    assert places.overdue(HANDSHAKE_NS - 1) == ()
    assert places.overdue(HANDSHAKE_NS) == (1,)
    places.leave(1)
    places.leave(1)
    assert places.overdue(1000 * NS_PER_S) == ()


def test_time_without_a_turn_of_the_door_is_no_stranger_s_silence() -> None:
    places = Places(DoorBudget(members=4, strangers=4))
    places.arrive(0, "x", 0)
    places.turn(LONGEST_TURN_NS + 10 * NS_PER_S)
    now_ns = LONGEST_TURN_NS + 10 * NS_PER_S
    places.arrive(1, "x", now_ns)
    assert places.overdue(now_ns) == ()
    assert places.overdue(now_ns + SILENT_NS - LONGEST_TURN_NS) == (0,)
    assert places.overdue(now_ns + SILENT_NS) == (0, 1)


def test_places_never_exceed_their_budget() -> None:
    rng = random.Random(5)
    budget = DoorBudget(members=5, strangers=7)
    places, strangers, members, numbers = Places(budget), set[int](), set[int](), iter(range(10**6))
    for now_ns in range(5000):
        match rng.randrange(4):
            case 0 | 1:
                number = next(numbers)
                leaver = places.arrive(number, str(rng.randrange(3)), now_ns)
                strangers.add(number)
                strangers.discard(-1 if leaver is None else leaver)
            case 2 if strangers:
                number = rng.choice(sorted(strangers))
                strangers.discard(number)
                if places.admit(number):
                    members.add(number)
            case 3 if members | strangers:
                number = rng.choice(sorted(members | strangers))
                places.leave(number)
                strangers.discard(number)
                members.discard(number)
        assert len(strangers) <= budget.strangers
        assert len(members) <= budget.members


# ---- budget


@pytest.mark.parametrize("limit", [256, 300, 512, 1024, 4096, 20_000, 65_536, 1 << 20, 1 << 30])
def test_what_is_kept_for_all_else_is_never_a_connections(limit: int) -> None:
    open_now = 30
    budget = door_budget(limit, limit, open_now)
    connections = budget.members + budget.strangers
    assert limit - open_now - connections >= min(192, limit * 5 // 8)
    assert 2 * connections + 16 <= limit, "of the door's own process"
    assert budget.strangers >= 16
    assert budget.members >= 48


@pytest.mark.parametrize(("limit", "members"), [(1024, 256), (4096, 1024), (65_536, 7000)])
def test_members_that_a_limit_has_room_for(limit: int, members: int) -> None:
    assert door_budget(limit, limit, 40).members >= members


# ---- sources and reports


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
    ],
)
def test_whom_an_address_counts_to(host: str, source: str) -> None:
    assert source_of(host) == source


def test_a_report_is_read_as_it_was_written() -> None:
    assert parse_report(report_of("asking", 7, "fe80::1%eth0")) == ("asking", "7 fe80::1%eth0")
    assert len(report_of("broke", "x" * 9999)) == LONGEST_BYTES
