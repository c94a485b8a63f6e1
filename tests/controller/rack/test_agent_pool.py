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


def slots(rack: Hub) -> dict[str, tuple[int, int]]:
    """Idle and leased slots of every agent that has any."""
    standings = rack.standings()
    return {name: (idle, leased) for name, (idle, leased, _) in standings.items() if idle or leased}


def test_slots_are_idle_or_leased_and_gone_after_a_run() -> None:
    rack = hub()
    for identity, printed in ((b"a0", hello("a")), (b"b0", hello("b")), (b"a1", hello("a", 1))):
        (welcome,) = sent(rack.on_message(identity, printed, 0))
        assert isinstance(welcome, Welcome)
    assert {slot.identity for slot in rack.lease("run", ["a", "b"])} == {b"a0", b"b0"}
    assert slots(rack) == {"a": (1, 1), "b": (0, 1)}
    rack.release("run")
    assert slots(rack) == {"a": (1, 0)}, "the others connect anew"


def test_whoever_leaves_falls_silent_or_is_refused_has_no_slot() -> None:
    rack = hub()
    rack.on_message(b"a0", hello("a"), 0)
    rack.on_message(b"b0", hello("b"), 0)
    (refused,) = sent(rack.on_message(b"x", hello("stranger"), 0))
    assert isinstance(refused, Refused)
    rack.on_message(b"a0", Bye("done"), 0)
    assert slots(rack) == {"b": (1, 0)}
    rack.on_tick(LOST_AFTER_NS + 1)
    assert slots(rack) == {}


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
    assert slots(rack) == {"b": (1, 0)}


def test_an_agent_that_was_started_anew_takes_the_place_of_its_predecessor_on_its_host_only() -> None:
    rack = hub()
    rack.on_message(b"b0", hello("b"), 0)
    (refused,) = sent(rack.on_message(b"b1", hello("b", host="elsewhere"), 1))
    assert isinstance(refused, Refused)
    (welcome,) = sent(rack.on_message(b"b2", hello("b"), 2))
    assert isinstance(welcome, Welcome)
    assert [slot.identity for slot in rack.lease("run", ["b"])] == [b"b2"]
