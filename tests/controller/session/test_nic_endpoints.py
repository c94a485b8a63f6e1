"""Ends on network cards: what one agent reports is handed to the agent at the other end, under that one's own rows."""

from __future__ import annotations

import pytest

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ProtocolError
from etloop.contract.protocol.machine import RunState
from etloop.contract.protocol.messages import Loaded, Pair, QueuePairEnd
from etloop.controller.session.actions import Send
from etloop.controller.session.nic_endpoints import peers_of
from tests.support.control_plane.control_plane_by_hand import ring_assignments
from tests.support.control_plane.rehearsal import NEVER_NS, Rehearsal

RING = ring_assignments("a", "b", "c")
"""Connections in every agent's own order: a has 0-1 and 2-0, b has 0-1 and 1-2, c has 1-2 and 2-0."""


def end(connection: int, *, sends: bool, qpn: int = 17, queue_pair: int = 0) -> QueuePairEnd:
    return QueuePairEnd(connection, queue_pair, sends, qpn, 0x7F00_0000_0000, 752)


def test_each_end_goes_to_the_agent_at_the_other_end() -> None:
    """b is on a card: its receiving end of 0-1 is told to a, its sending end of 1-2 to c."""
    reported = peers_of(
        RING, {"a": (), "b": (end(0, sends=False, qpn=17), end(1, sends=True, qpn=18)), "c": ()}
    )
    assert reported == {"a": (end(0, sends=False, qpn=17),), "c": (end(0, sends=True, qpn=18),)}


def test_rows_are_those_of_the_agent_that_is_told() -> None:
    """Connection 2-0 is row 1 for c, which reports it, and row 1 for a; 1-2 is row 0 for c and row 1 for b."""
    reported = peers_of(RING, {"c": (end(1, sends=True), end(0, sends=False))})
    assert reported == {"a": (end(1, sends=True),), "b": (end(1, sends=False),)}


def test_without_cards_nobody_is_told_anything() -> None:
    assert peers_of(RING, {"a": (), "b": (), "c": ()}) == {}


@pytest.mark.parametrize(
    "strange",
    [
        end(2, sends=True),
        end(-1, sends=True),
        end(0, sends=True, queue_pair=1),
        end(0, sends=True, queue_pair=-1),
    ],
    ids=["no such row", "a row before the first", "no such queue pair", "a queue pair before the first"],
)
def test_an_end_of_no_connection_is_refused(strange: QueuePairEnd) -> None:
    with pytest.raises(ProtocolError, match="which it does not have"):
        peers_of(RING, {"b": (strange,)})


def test_messages_with_ends_are_values() -> None:
    """They compare by content, as everything that a session sends does."""
    assert Loaded("r", (), (end(0, sends=True),)) == Loaded("r", (), (end(0, sends=True),))
    assert Send(b"x", Pair("r", ())) == Send(b"x", Pair("r"))


def with_a_card(**played: object) -> Rehearsal:
    """Agents a, b and c; a has its receiving end of 2-0 on a card, and c is as `played` says."""
    play = Rehearsal("a", "b", "c")
    play.agents["a"].card_ends = (end(1, sends=False),)
    for name, value in played.items():
        setattr(play.agents["c"], name, value)
    return play


def test_nobody_probes_before_every_queue_pair_of_a_card_is_ready() -> None:
    """One agent takes 2 s to join; a probe to it that left earlier would be lost, sent again and counted."""
    play = with_a_card(joins_for_ns=2 * NS_PER_S)
    play.run_to_end()
    assert play.session.state is RunState.DONE
    assert "run r1: PAIR" in play.log
    assert play.agents["c"].peers == (end(1, sends=False),)
    joined_ns = play.agents["c"].joined_ns
    assert joined_ns is not None
    assert all(agent.probed_ns is not None and agent.probed_ns >= joined_ns for agent in play.agents.values())


def test_a_run_without_cards_does_not_wait_for_them() -> None:
    play = Rehearsal("a", "b")
    play.run_to_end()
    assert "run r1: PAIR" not in play.log
    assert {agent.joined_ns for agent in play.agents.values()} == {None}


def test_an_agent_that_never_joins_ends_the_run_by_name() -> None:
    play = with_a_card(joins_for_ns=NEVER_NS)
    play.run_to_end()
    (problem,) = play.session.problems
    assert str(problem) == (
        "agent 'c': did not join its queue pairs with those of network cards in time; "
        "see its log; its host may be overloaded"
    )
    assert {agent.probed_ns for agent in play.agents.values()} == {None}
