"""When an agent asks for a controller, how long it waits when it is refused, and how often it says so."""

from __future__ import annotations

import itertools

from etloop.agent.hello_retry import Asking
from etloop.contract.base.clock import NS_PER_MS, NS_PER_S


def attempts(asking: Asking, seconds: int) -> tuple[list[int], int]:
    """When another connection is made if each is refused at once, in ns, and how often that is said."""
    made, said = [], 0
    asking.turned_away("no key", 0)
    for now_ns in range(0, seconds * NS_PER_S, 20 * NS_PER_MS):
        if asking.wants_connection(now_ns):
            made.append(now_ns)
            said += asking.turned_away("no key", now_ns)
    return made, said


def test_a_refused_agent_goes_on_asking_every_few_seconds_and_says_so_once_a_minute() -> None:
    made, said = attempts(Asking("a", 0), 600)
    pauses = [later - sooner for sooner, later in itertools.pairwise([0, *made])]
    assert NS_PER_S <= pauses[0] < 1.3 * NS_PER_S
    assert all(5 * NS_PER_S <= pause <= 6.3 * NS_PER_S for pause in pauses[3:])
    assert said in (9, 10)


def test_agents_that_were_refused_at_once_do_not_ask_again_at_once() -> None:
    firsts = {attempts(Asking(f"agent{number}", 0), 2)[0][0] for number in range(100)}
    assert len(firsts) > 5


def test_another_reason_is_said_at_once() -> None:
    asking = Asking("a", 0)
    assert asking.note_refusal("name taken", 0)
    assert not asking.note_refusal("name taken", NS_PER_S)
    assert asking.note_refusal("key of another", NS_PER_S)


def test_one_that_was_let_in_begins_with_short_pauses_again() -> None:
    asking = Asking("a", 0)
    attempts(asking, 60)
    asking.note_welcome()
    asking.begin(60 * NS_PER_S)
    assert asking.turned_away("no key", 60 * NS_PER_S), "said at once"
    assert asking.wants_connection(62 * NS_PER_S)


def test_a_key_that_was_read_again_is_tried_at_once() -> None:
    asking = Asking("a", 0)
    attempts(asking, 60)
    asking.connect_anew(61 * NS_PER_S)
    assert asking.wants_connection(61 * NS_PER_S)
    assert asking.says_hello(61 * NS_PER_S)


def test_a_refused_connection_is_given_up_once() -> None:
    asking = Asking("a", 0)
    assert asking.turned_away("no key", 0)
    assert not asking.turned_away("mismatch", 1), "of one connection there may be several events"
    assert asking.wants_connection(2 * NS_PER_S)
    assert not asking.wants_connection(2 * NS_PER_S)
