"""Which connections a rack's hub counts as its own while agents join, are leased, come back and fall silent."""

from __future__ import annotations

from etloop.contract.protocol.messages import Bye, Dismissed, Hello, Refused, Welcome
from etloop.controller.rack.agent_pool import GONE_AFTER_NS, Hub
from etloop.controller.session.actions import LogLine, Send

LOST_AFTER_NS = 100


def hub() -> Hub:
    """Two agents, the first with two slots."""
    return Hub({"a": 2, "b": 1}, 10, LOST_AFTER_NS)


def hello(name: str, slot: int = 0, host: str = "here") -> Hello:
    """What an agent says first."""
    return Hello(name, host, 1, {}, slot)


def sent(actions: tuple[Send | LogLine, ...]) -> list[object]:
    """The messages among actions."""
    return [each.message for each in actions if isinstance(each, Send)]


def test_connections_are_those_of_idle_and_of_lent_seats() -> None:
    rack = hub()
    for identity, printed in ((b"a0", hello("a")), (b"b0", hello("b")), (b"a1", hello("a", 1))):
        (welcome,) = sent(rack.on_message(identity, printed, 0))
        assert isinstance(welcome, Welcome)
    assert {slot.identity for slot in rack.lease("run", ["a", "b"])} == {b"a0", b"b0"}
    assert rack.connections() == {b"a0", b"a1", b"b0"}
    rack.release("run")
    assert rack.connections() == {b"a1"}, "the others connect anew"


def test_whoever_leaves_falls_silent_or_is_refused_is_no_connection() -> None:
    rack = hub()
    rack.on_message(b"a0", hello("a"), 0)
    rack.on_message(b"b0", hello("b"), 0)
    (refused,) = sent(rack.on_message(b"x", hello("stranger"), 0))
    assert isinstance(refused, Refused)
    rack.on_message(b"a0", Bye("done"), 0)
    assert rack.connections() == {b"b0"}
    rack.on_tick(LOST_AFTER_NS + 1)
    assert rack.connections() == frozenset()


def test_an_agent_is_gone_when_it_has_had_no_connection_for_long() -> None:
    rack = hub()
    assert rack.gone(0) == frozenset(), "nobody had the time to join yet"
    rack.on_message(b"a0", hello("a"), 0)
    rack.lease("run", ["a"])
    later_ns = GONE_AFTER_NS + 1
    assert rack.gone(later_ns) == {"b"}, "a takes part in a run"
    rack.release("run")
    rack.on_message(b"b0", hello("b"), later_ns)
    assert rack.gone(later_ns) == frozenset()
    assert rack.gone(2 * later_ns) == {"a"}


def test_a_run_that_broke_off_is_waited_for_until_its_agents_have_connected_anew() -> None:
    rack = hub()
    rack.on_message(b"b0", hello("b"), 0)
    rack.lease("run", ["b"])
    (reported,) = rack.dismiss("run", "it died")
    assert isinstance(reported, Send)
    assert reported.message == Dismissed("run", aborted=True, reason="it died")
    assert not rack.returned("run")
    rack.on_message(b"b1", hello("b"), 1)
    assert rack.returned("run")
    assert rack.connections() == {b"b1"}


def test_an_agent_that_was_started_anew_takes_the_place_of_its_predecessor_on_its_host_only() -> None:
    rack = hub()
    rack.on_message(b"b0", hello("b"), 0)
    (refused,) = sent(rack.on_message(b"b1", hello("b", host="elsewhere"), 1))
    assert isinstance(refused, Refused)
    (welcome,) = sent(rack.on_message(b"b2", hello("b"), 2))
    assert isinstance(welcome, Welcome)
    assert rack.connections() == {b"b2"}
