"""Who may join and who counts as lost, under a clock of numbers."""

from __future__ import annotations

from etloop.contract.base.clock import NS_PER_MS
from etloop.contract.protocol.messages import Hello, Ping, Pong, RefusalCause, Refused, Welcome
from etloop.controller.session.roster import CLOCK_BURST_SAMPLES, Roster

HEARTBEAT_NS = 500 * NS_PER_MS
LOST_NS = 3000 * NS_PER_MS
WELCOME = Welcome(HEARTBEAT_NS, LOST_NS)


def hello(name: str) -> Hello:
    return Hello(name, "host", 4711, {})


def roster() -> Roster:
    return Roster(("a", "b"), WELCOME)


def answer_pings(there: Roster, now_ns: int) -> int:
    """Every member answers at once; how many pings there were."""
    pings = there.due_pings(now_ns)
    for identity, ping in pings:
        name = there.note_heard(identity, now_ns)
        assert name is not None
        there.pong(name, Pong(ping.sequence, ping.controller_ns, now_ns, now_ns), now_ns)
    return len(pings)


def test_agents_of_the_rig_are_welcome_even_twice() -> None:
    there = roster()
    assert there.missing() == ("a", "b")
    assert there.join(b"1", hello("b"), 0) == WELCOME
    assert there.join(b"1", hello("b"), 1) == WELCOME
    assert there.missing() == ("a",)
    assert [name for name, _ in there.members()] == ["b"]


def test_a_stranger_is_told_who_is_expected() -> None:
    assert roster().join(b"1", hello("x"), 0) == Refused("agent 'x' is not in the rig, which has a, b")


def test_a_namesake_is_told_who_has_the_name() -> None:
    there = roster()
    there.join(b"1", hello("a"), 0)
    assert there.join(b"2", hello("a"), 0) == Refused(
        "agent 'a' has already joined from host (process 4711); "
        "give every agent of the rig its own name, or stop the other one",
        RefusalCause.NAME_TAKEN,
    )


def test_one_connection_is_one_agent() -> None:
    there = roster()
    there.join(b"1", hello("a"), 0)
    assert there.join(b"1", hello("b"), 0) == Refused("this connection has already joined as agent 'a'")


def test_silence_makes_an_agent_overdue_and_then_lost() -> None:
    there = roster()
    there.join(b"1", hello("a"), 0)
    there.join(b"2", hello("b"), 0)
    there.note_heard(b"2", LOST_NS)
    assert there.overdue(2 * HEARTBEAT_NS) == ()
    assert there.overdue(2 * HEARTBEAT_NS + 1) == (("a", 2 * HEARTBEAT_NS + 1),)
    assert there.lost_members(LOST_NS) == ()
    assert there.lost_members(LOST_NS + 1) == (("a", "no heartbeat for 3.0 s"),)


def test_who_left_may_come_back_on_another_connection() -> None:
    there = roster()
    there.join(b"1", hello("a"), 0)
    there.leave("a")
    assert there.note_heard(b"1", 0) is None
    assert isinstance(there.join(b"2", hello("a"), 0), Welcome)


def test_membership_begins_with_a_burst_and_settles_to_heartbeats() -> None:
    there = roster()
    there.join(b"1", hello("a"), 0)
    now_ns = 0
    assert not there.clocks_fresh()
    while not there.clocks_fresh():
        answer_pings(there, now_ns)
        now_ns += NS_PER_MS
    assert now_ns < HEARTBEAT_NS
    pings = sum(answer_pings(there, now_ns + step * NS_PER_MS) for step in range(5000))
    assert pings in (10, 11)
    offset = there.offset("a", now_ns + 5000 * NS_PER_MS)
    assert offset is not None
    assert offset.offset_ns == 0


def test_of_hundreds_few_clocks_are_read_at_once_and_nobody_is_pinged_before_it_answered() -> None:
    names = tuple(f"a{number}" for number in range(100))
    there = Roster(names, WELCOME)
    for name in names:
        there.join(name.encode(), hello(name), 0)
    answer_pings(there, 0)
    there.renew_clocks(NS_PER_MS)
    assert [identity.decode() for identity, _ in there.due_pings(NS_PER_MS)] == list(names[:16])
    assert there.due_pings(HEARTBEAT_NS - 1) == (), "sixteen owe an answer, the others wait for their turn"
    now_ns, pings = HEARTBEAT_NS, 0
    while not there.clocks_fresh():
        pings += answer_pings(there, now_ns)
        now_ns += 10 * NS_PER_MS
    assert now_ns < 4 * HEARTBEAT_NS
    assert pings <= 100 * (CLOCK_BURST_SAMPLES + 3), "what the bursts need, and the others' heartbeats"


def test_renewed_clocks_want_a_full_burst_again() -> None:
    there = roster()
    there.join(b"1", hello("a"), 0)
    for step in range(CLOCK_BURST_SAMPLES):
        answer_pings(there, step * 20 * NS_PER_MS)
    assert there.clocks_fresh()
    there.renew_clocks(NS_PER_MS)
    assert not there.clocks_fresh()
    assert there.due_pings(NS_PER_MS)


def test_answers_to_unknown_pings_say_nothing() -> None:
    there = roster()
    there.join(b"1", hello("a"), 0)
    ((_, ping),) = there.due_pings(0)
    there.pong("a", Pong(ping.sequence + 1, 0, 5, 5), 10)
    there.pong("a", Pong(ping.sequence, 0, 5, 5), 10)
    there.pong("a", Pong(ping.sequence, 0, 5, 5), 90)
    member = there.member("a")
    assert member is not None
    assert len(member.clock) == 1


def test_pings_nobody_answers_are_forgotten() -> None:
    there = roster()
    there.join(b"1", hello("a"), 0)
    sent = [there.due_pings(step * HEARTBEAT_NS) for step in range(200)]
    assert all(isinstance(ping, Ping) for pings in sent for _, ping in pings)
    member = there.member("a")
    assert member is not None
    assert len(member.open_pings) == 64
