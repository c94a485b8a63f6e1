"""Which connections a rack's hub counts as its own while agents join, are leased, come back and fall silent."""

from __future__ import annotations

import pytest

from etloop.contract.base.errors import ProtocolError
from etloop.contract.protocol.messages import (
    Bye,
    Dismissed,
    Hello,
    Ping,
    Pong,
    RefusalCause,
    Refused,
    Welcome,
)
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
    assert rack.absent_agents(0) == frozenset(), "nobody had the time to join yet"
    rack.on_message(b"a0", hello("a"), 0)
    rack.lease("run", ["a"])
    later_ns = GONE_AFTER_NS + 1
    assert rack.absent_agents(later_ns) == {"b"}, "a takes part in a run"
    rack.release("run")
    rack.on_message(b"b0", hello("b"), later_ns)
    assert rack.absent_agents(later_ns) == frozenset()
    assert rack.absent_agents(2 * later_ns) == {"a"}


def test_a_run_that_broke_off_is_waited_for_until_its_agents_have_connected_anew() -> None:
    rack = hub()
    rack.on_message(b"b0", hello("b"), 0)
    rack.lease("run", ["b"])
    (reported,) = rack.dismiss("run", "it died")
    assert isinstance(reported, Send)
    assert reported.message == Dismissed("run", aborted=True, reason="it died")
    assert not rack.has_returned("run")
    rack.on_message(b"b1", hello("b"), 1)
    assert rack.has_returned("run")
    assert slots(rack) == {"b": (1, 0)}


def process(name: str, process: str, host: str = "here", slot: int = 0) -> Hello:
    """What a process says first that can be told from others."""
    return Hello(name, host, 1, {}, slot, process=process)


def test_a_process_that_connects_anew_takes_its_own_place_at_once() -> None:
    rack = hub()
    rack.on_message(b"b0", process("b", "p"), 0)
    (welcome,) = sent(rack.on_message(b"b1", process("b", "p"), 1))
    assert isinstance(welcome, Welcome)
    assert [slot.identity for slot in rack.lease("run", ["b"])] == [b"b1"]


@pytest.mark.parametrize("host", ["here", "elsewhere"])
def test_a_second_process_of_a_name_is_refused_once_the_first_has_shown_that_it_lives(host: str) -> None:
    rack = hub()
    rack.on_message(b"b0", process("b", "first"), 0)
    second = process("b", "second", host)
    assert rack.on_message(b"b1", second, 10) == (Send(b"b0", Ping(0, 10)),), "the first is asked"
    assert rack.on_message(b"b1", second, 20) == (), "nobody knows yet"
    rack.on_message(b"b0", Pong(0, 10, 11, 11), 25)
    (refused,) = sent(rack.on_message(b"b1", second, 30))
    assert refused == Refused(
        "agent 'b' has already joined from here (process 1); "
        "give every agent of the rig its own name, or stop the other one",
        RefusalCause.NAME_TAKEN,
    )
    assert slots(rack) == {"b": (1, 0)}
    assert [slot.identity for slot in rack.lease("run", ["b"])] == [b"b0"]


def test_the_successor_of_a_process_that_is_gone_joins_when_that_is_known() -> None:
    rack = hub()
    rack.on_message(b"b0", process("b", "first"), 0)
    rack.on_unreachable(b"b0", 0)
    assert slots(rack) == {}, "no job gets an agent whose connection is closed"
    rack.on_message(b"b0", Pong(0, 0, 0, 0), 5)
    assert slots(rack) == {"b": (1, 0)}, "the connection was opened again"
    assert rack.on_message(b"b1", process("b", "second"), 10) == (Send(b"b0", Ping(0, 10)),)
    rack.on_unreachable(b"b0", 0)
    (welcome,) = sent(rack.on_message(b"b1", process("b", "second"), 20))
    assert isinstance(welcome, Welcome)
    assert [slot.identity for slot in rack.lease("run", ["b"])] == [b"b1"]


def test_the_successor_of_a_process_that_fell_silent_joins() -> None:
    rack = hub()
    rack.on_message(b"b0", process("b", "first"), 0)
    rack.on_message(b"b1", process("b", "second"), 10)
    rack.on_tick(LOST_AFTER_NS + 1)
    (welcome,) = sent(rack.on_message(b"b1", process("b", "second"), LOST_AFTER_NS + 2))
    assert isinstance(welcome, Welcome)


def test_nobody_gets_a_name_whose_process_takes_part_in_a_run() -> None:
    rack = hub()
    rack.on_message(b"b0", process("b", "first"), 0)
    rack.lease("run", ["b"])
    second = process("b", "second")
    rack.on_message(b"b1", second, 10)
    assert rack.on_message(b"b1", second, 20) == ()
    assert rack.holder(b"b0", 25) == "run"
    (refused,) = sent(rack.on_message(b"b1", second, 30))
    assert isinstance(refused, Refused)
    rack.release("run")
    (welcome,) = sent(rack.on_message(b"b1", second, 40))
    assert isinstance(welcome, Welcome)


def test_slots_of_one_process_are_no_rivals() -> None:
    rack = hub()
    rack.on_message(b"a0", process("a", "p"), 0)
    (welcome,) = sent(rack.on_message(b"a1", process("a", "p", slot=1), 0))
    assert isinstance(welcome, Welcome)
    rack.on_message(b"x", process("a", "q", slot=1), 1)
    rack.on_message(b"a0", Pong(0, 1, 1, 1), 2)
    (refused,) = sent(rack.on_message(b"x", process("a", "q", slot=1), 3))
    assert isinstance(refused, Refused)


def test_who_is_not_named_by_the_rig_is_let_in_once_it_is() -> None:
    rack = hub()
    (refused,) = sent(rack.on_message(b"x0", hello("x"), 0))
    assert refused == Refused("agent 'x' is not in the rig, which has a, b", RefusalCause.NOT_NAMED)
    rack.on_message(b"b0", hello("b"), 1)
    (refused,) = sent(rack.serve({"a": 1}))
    assert refused == Refused(
        "the rack's rig no longer lists this agent; add it to the rig, or stop this agent",
        RefusalCause.NOT_NAMED,
    )
    rack.serve({"a": 1, "b": 1, "x": 1})
    for name in ("b", "x"):
        (welcome,) = sent(rack.on_message(name.encode(), hello(name), 2))
        assert isinstance(welcome, Welcome)


def test_every_line_that_a_member_can_bring_about_says_its_kind() -> None:
    rack = hub()
    lines = [
        *rack.on_message(b"a0", process("a", "p"), 0),
        *rack.on_message(b"a0", Bye("x" * 4096), 1),
        *rack.on_message(b"s", process("stranger", "p"), 2),
        *rack.on_message(b"s", process("a", "p", slot=9), 2),
        *rack.on_malformed(b"s", ProtocolError("noise"), 3),
    ]
    rack.on_message(b"b0", process("b", "p"), 3)
    lines += [*rack.on_malformed(b"b0", ProtocolError("noise"), 4)]
    kinds = [each.kind for each in lines if isinstance(each, LogLine)]
    assert kinds == [
        "agent 'a' joined",
        "agent 'a' left",
        "refused a connection",
        "refused a connection",
        "refused a connection",
        "refused agent 'b'",
    ]
    assert all(len(each.text) < 400 for each in lines if isinstance(each, LogLine))
