"""Whole sessions in virtual time: agents with clocks hours apart, deaths, breaches, floods and second thoughts."""

from __future__ import annotations

import heapq
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.contract.base.errors import ConfigError, ExitCode, ProtocolError
from etloop.contract.model.records import FLOW_RECORD, OP_RECORD, PORT_RECORD, WAIT_RECORD
from etloop.contract.protocol.machine import AgentState, RunState
from etloop.contract.protocol.message_set import VersionMismatch
from etloop.contract.protocol.messages import (
    Armed,
    Assign,
    Collect,
    EngineEnd,
    Faulted,
    Finished,
    Flows,
    Hello,
    Ping,
    Progress,
    Refused,
    Report,
    Started,
    Waits,
)
from etloop.contract.protocol.wire import encode
from etloop.controller.session.actions import Send
from etloop.controller.session.settings import SessionSettings, check_exposure
from tests.support.control_plane.rehearsal import OPS, Rehearsal

PROGRESS = Progress(1, 20, 0, 0, 0)


def test_a_run_goes_through_all_its_states() -> None:
    play = Rehearsal("a", "b")
    play.run_to_end()
    assert [line for line in play.log if line.startswith("run r1: ")] == [
        f"run r1: {state}" for state in ("ASSIGN", "CONNECT", "ARM", "RUN", "COLLECT")
    ]
    outcome = play.session.outcome("2026-01-01")
    assert (outcome.run_id, outcome.state, outcome.reason) == ("r1", "done", "")
    for agent in outcome.agents:
        assert agent.ops["op"].tolist() == list(range(OPS))
        assert (len(agent.flows), len(agent.ports), agent.complete) == (2, 1, True)
        assert agent.host == f"host-{agent.agent}"
        assert agent.degraded == ("slow clock",)
    assert {agent.life.state for agent in play.agents.values()} == {AgentState.JOINING}


def members(count: int) -> tuple[str, ...]:
    return tuple(f"a{number:02}" for number in range(count))


def test_heartbeats_go_between_the_parts_of_many_agents() -> None:
    play = Rehearsal(*members(20))
    play.run(30, lambda: play.session.state is RunState.ASSIGN)
    printed: list[list[type]] = []
    for _ in range(4):
        play.now_ns += 500 * NS_PER_MS
        turn = play.session.on_tick(play.now_ns)
        printed.append([type(each.message) for each in turn if isinstance(each, Send)])
    assert [turn.count(Assign) for turn in printed] == [4, 4, 4, 0], "eight had theirs already"
    assert [turn.count(Ping) for turn in printed] == [20, 20, 20, 20]


def test_a_controller_that_takes_half_a_millisecond_a_message_starts_many_agents() -> None:
    """Pings that did not wait for answers would pile up in front of it faster than it reads them."""
    play = Rehearsal(*members(64))
    began_ns = free_ns = play.now_ns

    def taken_one_after_another_ns() -> int:
        nonlocal free_ns
        free_ns = max(free_ns, play.now_ns) + NS_PER_MS // 2
        return free_ns - play.now_ns

    play.delay_ns = taken_one_after_another_ns
    play.run(30, lambda: play.session.state is RunState.RUN)
    assert play.session.reason == ""
    assert play.now_ns - began_ns < 2 * NS_PER_S


@pytest.mark.parametrize(
    ("agents", "stall_timeout_ns", "report_ns"),
    [(2, 5 * NS_PER_S, 100), (100, 5 * NS_PER_S, 400), (1000, 5 * NS_PER_S, 1000), (1000, NS_PER_MS, 100)],
    ids=[
        "few: as often as people look",
        "a hundred: 250 a second in all",
        "for a stall to be seen",
        "never more often",
    ],
)
def test_many_agents_report_more_rarely(agents: int, stall_timeout_ns: int, report_ns: int) -> None:
    welcome = replace(SessionSettings("r1", "x"), stall_timeout_ns=stall_timeout_ns).welcome(agents)
    assert welcome.report_ns == report_ns * NS_PER_MS


def test_a_run_that_breaks_while_parts_are_handed_out_asks_nothing_of_those_without_one() -> None:
    play = Rehearsal(*members(20))
    play.run(30, lambda: play.session.state is RunState.ASSIGN)
    reported = play.session.on_stop("stopped", play.now_ns)
    asked = {
        each.identity for each in reported if isinstance(each, Send) and isinstance(each.message, Collect)
    }
    assert asked == {play.agents[name].identity for name in members(20)[:8]}
    play.act(reported)
    play.run_to_end()
    assert {agent.life.state for agent in play.agents.values()} == {AgentState.JOINING}


@given(seed=st.integers(0, 1000))
@settings(max_examples=20)
def test_clocks_are_mapped_within_the_bound_and_all_start_together(seed: int) -> None:
    play = Rehearsal("a", "b", seed=seed)
    play.run(30, lambda: play.session.state is RunState.RUN)
    play.run(0.1)
    starts = []
    for agent in play.agents.values():
        assert agent.engine is not None
        assert agent.engine.start_ns is not None
        starts.append(agent.engine.start_ns - agent.clock_ahead_ns)
    play.run_to_end()
    outcome = play.session.outcome("")
    for measured, start_ns in zip(outcome.agents, starts, strict=True):
        truth_ns = play.agents[measured.agent].clock_ahead_ns
        assert abs(measured.clock_offset_ns - truth_ns) <= measured.clock_error_ns + 1
        assert abs(start_ns - outcome.start_ns) <= measured.clock_error_ns + 1


def test_missing_agents_are_named_with_the_command_that_starts_them() -> None:
    play = Rehearsal("a", "b", "c")
    play.agents["b"].alive = play.agents["c"].alive = False
    play.run_to_end(61)
    assert [str(problem) for problem in play.session.problems] == [
        f"agent '{name}': did not join at tcp://127.0.0.1:1 within 60.0 s; "
        f"start it on its host: etloop-agent run --controller tcp://127.0.0.1:1 --name {name}"
        for name in ("b", "c")
    ]
    assert "agent 'a' joined from host-a; waiting for agents 'b', 'c'" in play.log


def test_an_agent_of_the_rig_without_ranks_waits_for_a_run_that_needs_it() -> None:
    """A rig of three, of which a run takes two: the third is neither refused, which would end it, nor waited for."""
    settings = SessionSettings("r1", "tcp://127.0.0.1:1", standing_by=("c",))
    play = Rehearsal("a", "b", settings=settings)
    idle, stranger = play.add_agent("c"), play.add_agent("x")
    play.run_to_end()
    assert play.session.state is RunState.DONE
    assert (idle.life.state, idle.exit_code) == (AgentState.JOINING, None)
    assert stranger.exit_code is ExitCode.PREPARATION_FAILED
    assert not any("'c'" in line and "refused" in line for line in play.log)
    assert "agent 'x' is not in the rig, which has a, b, c" in " ".join(play.log)


def test_an_agent_that_dies_while_others_gather_may_come_back() -> None:
    play = Rehearsal("a", "b")
    play.agents["b"].alive = False
    play.run(1)
    play.agents["a"].alive = False
    play.run(4)
    assert "agent 'a' left: no heartbeat for 3.0 s; waiting for agents 'a', 'b'" in play.log
    play.agents["b"].alive = True
    play.add_agent("a", key="a again").connection = 7
    play.run_to_end()
    assert play.session.state is RunState.DONE


@pytest.mark.parametrize("when", [RunState.ASSIGN, RunState.CONNECT, RunState.ARM, RunState.RUN])
def test_a_death_in_any_state_ends_the_run_by_name(when: RunState) -> None:
    play = Rehearsal("a", "b")
    play.delay_ns = lambda: 30 * NS_PER_MS  # every state lasts a few steps
    play.run(30, lambda: play.session.state is when)
    play.agents["b"].alive = False
    play.run_to_end(10)
    assert play.session.state is RunState.ABORTED
    assert play.session.reason.startswith(f"agent 'b': no heartbeat for 3.0 s, in {when.name}")
    assert (play.session.problems == ()) == (when is RunState.RUN)


@given(victim=st.sampled_from("abc"), after_ms=st.integers(0, 3500), seed=st.integers(0, 99))
@settings(max_examples=40)
def test_whenever_an_agent_dies_the_session_ends_and_keeps_what_came(
    victim: str, after_ms: int, seed: int
) -> None:
    play = Rehearsal(
        "a",
        "b",
        "c",
        settings=SessionSettings("r1", "x", gather_timeout_ns=5 * NS_PER_S, lost_after_ns=3 * NS_PER_S),
        seed=seed,
    )
    play.run(after_ms / 1000)
    play.agents[victim].alive = False
    play.run_to_end(15)
    session = play.session
    if session.state is RunState.DONE:
        assert session.reason == ""
        return
    assert f"agent '{victim}'" in session.reason
    outcome = session.outcome("")
    for agent in outcome.agents:
        assert agent.ops["op"].tolist() == list(range(len(agent.ops)))
        assert agent.complete == (agent.agent != victim)


@given(after_ms=st.integers(0, 3500))
@settings(max_examples=40)
def test_whenever_the_user_stops_it_the_session_ends_within_seconds(after_ms: int) -> None:
    play = Rehearsal("a", "b")
    play.run(after_ms / 1000)
    before = play.session.state
    play.stop("stopped by Ctrl-C")
    play.run_to_end(5)
    if before in (RunState.DONE, RunState.ABORTED):
        assert play.session.reason == ""
    else:
        assert play.session.reason == f"stopped by Ctrl-C while in {before.name}"
        assert play.session.state is RunState.ABORTED
    assert play.session.problems == ()


def test_an_agent_that_cannot_open_tells_why() -> None:
    play = Rehearsal("a", "b")
    play.agents["b"].cannot_open = True
    play.run_to_end()
    assert [str(problem) for problem in play.session.problems] == ["agent 'b': port 4791: is taken; free it"]


def test_a_failed_probe_names_ranks_and_addresses() -> None:
    play = Rehearsal("a", "b")
    play.agents["a"].cannot_probe = True
    play.run_to_end()
    (problem,) = play.session.problems
    assert str(problem).startswith("rank 0 (127.0.0.1) -> rank 1 (127.0.0.2): no reply; check link")


def test_a_probe_that_failed_while_an_agent_was_paused_names_that_agent_first() -> None:
    play = Rehearsal("a", "b", settings=SessionSettings("r1", "tcp://127.0.0.1:1"))
    play.delay_ns = lambda: 30 * NS_PER_MS
    play.agents["a"].cannot_probe = True
    play.run(30, lambda: play.session.state is RunState.CONNECT)
    play.agents["b"].paused = True
    play.run(5)
    play.resume("b")
    play.run_to_end(20)
    assert [str(problem).partition(": ")[0] for problem in play.session.problems] == [
        "agent 'b'",
        "rank 0 (127.0.0.1) -> rank 1 (127.0.0.2)",
    ]
    assert play.session.reason.startswith("agent 'b': was not heard for 5.")
    assert "; probes had no reply" in play.session.reason


def test_a_failed_engine_ends_the_run_and_names_who_has_gone_quiet() -> None:
    play = Rehearsal("a", "b")
    play.agents["a"].fails, play.agents["a"].stops_at = True, 18
    play.run(30, lambda: play.session.state is RunState.RUN)
    play.run(0.05)
    play.agents["b"].alive = False
    play.run_to_end(10)
    assert play.session.reason.startswith("agent 'b': has not been heard for 1.")
    assert "the engine of agent 'a' failed: queue pair 0x1: no acknowledgement" in play.session.reason


@pytest.mark.parametrize(
    "when", [RunState.ASSIGN, RunState.CONNECT, RunState.ARM, RunState.RUN, RunState.COLLECT]
)
@pytest.mark.parametrize("paused", ["controller", "everything", "agent"])
def test_whoever_pauses_for_ten_seconds_the_run_goes_on(paused: str, when: RunState) -> None:
    play = Rehearsal("a", "b", settings=SessionSettings("r1", "tcp://127.0.0.1:1"))
    play.delay_ns = lambda: 30 * NS_PER_MS
    play.run(30, lambda: play.session.state is when)
    match paused:
        case "controller":
            play.pause_controller(10)
        case "everything":
            play.now_ns += 10 * NS_PER_S
        case "agent":
            play.run(1 if when is RunState.RUN else 0)  # A start order that one agent misses ends the run.
            play.agents["b"].paused = True
            play.run(10)
            play.resume("b")
    play.run_to_end(20)
    assert play.session.reason == ""
    if paused != "agent":
        assert "the process of the run did not run for 9.7 s" in play.log


def test_orders_that_wait_in_a_paused_controller_beyond_the_start_are_given_again() -> None:
    play = Rehearsal("a", "b")
    play.delay_ns = lambda: 30 * NS_PER_MS
    play.run(30, lambda: play.session.state is RunState.RUN)
    late_ns = play.now_ns + 5 * NS_PER_S
    play.mail = [(late_ns, *letter[1:]) for letter in play.mail]
    play.run_to_end(20)
    assert [line for line in play.log if line.startswith("run r1: ")][3:] == [
        "run r1: RUN",
        "run r1: ARM",
        "run r1: RUN",
        "run r1: COLLECT",
    ]
    assert play.session.reason == ""


def test_one_late_start_ends_the_run_and_names_the_pause_before_it() -> None:
    play = Rehearsal("a", "b")
    play.delay_ns = lambda: 30 * NS_PER_MS
    play.run(30, lambda: play.session.state is RunState.RUN)
    play.act(play.session.on_pause("the controller", 5 * NS_PER_S, play.now_ns))
    play.mail = [
        (play.now_ns + NS_PER_S, *letter[1:]) if letter[2] == "b" else letter for letter in play.mail
    ]
    heapq.heapify(play.mail)
    play.run_to_end(20)
    assert play.session.reason.startswith("agent 'b': got the start order")
    assert "the controller did not run for 5.0 s until 1." in play.session.reason


def test_agents_that_fall_silent_together_point_at_the_controller() -> None:
    play = Rehearsal("a", "b")
    play.run(30, lambda: play.session.progress().ops_done > 2)
    for agent in play.agents.values():
        agent.alive = False
    play.run_to_end(10)
    assert play.session.reason == (
        "the controller: all agents have fallen silent together: no heartbeat for 3.0 s, in RUN; "
        "check its host and its link to the control network"
    )


def test_a_closed_connection_ends_the_run_within_seconds_unless_the_agent_returns() -> None:
    play = Rehearsal("a", "b", settings=SessionSettings("r1", "tcp://127.0.0.1:1"))
    play.run(30, lambda: play.session.progress().ops_done > 2)
    play.agents["b"].alive = False
    play.run(0.1)
    for agent in play.agents.values():
        play.session.on_closed(agent.identity, play.now_ns)
    play.run_to_end(6)
    assert play.session.reason.startswith(
        "agent 'b': its connection is closed, and it has not returned for 3.0 s, in RUN after "
    )


def test_a_stall_is_asked_about_and_told() -> None:
    play = Rehearsal("a", "b")
    for agent in play.agents.values():
        agent.stops_at = 10
    play.run_to_end()
    assert "no progress for 5.0 s; querying what every rank waits for" in play.log
    assert play.session.reason.startswith("run: no progress for 5.0 s:\nrank 0 all_reduce #10")
    assert "packet 5 was never acknowledged" in play.session.reason
    assert [len(agent.ops) for agent in play.session.outcome("").agents] == [10, 10]


def test_a_late_start_order_is_refused() -> None:
    play = Rehearsal("a", "b")
    play.delay_ns = lambda: 30 * NS_PER_MS
    play.run(30, lambda: play.session.state is RunState.RUN)
    play.mail = sorted((each[0] + 2 * NS_PER_S * (each[2] == "b"), *each[1:]) for each in play.mail)
    play.run_to_end()
    assert "agent 'b': got the start order " in play.session.reason
    assert play.session.reason.endswith(
        "ns after the start; check for load on its host or delay on the control network"
    )


BREACHES = {
    "a message of another run": (Armed("r0"), "Armed of run r0 during run r1"),
    "an answer nobody asked for": (Armed("r1"), "Armed while the run is in RUN"),
    "too many ops": (
        Report("r1", PROGRESS, False, np.zeros(OPS + 1, OP_RECORD)),
        f"op records; its assignment allows {OPS}",
    ),
    "too many flows": (Flows("r1", np.zeros(99, FLOW_RECORD)), "99 flow records; its assignment allows 4"),
    "records handed over too soon": (
        Finished("r1", EngineEnd.DONE, "", 0, 0, np.zeros(0, PORT_RECORD)),
        "Finished while the run is in RUN",
    ),
}


@pytest.mark.parametrize(("message", "expected"), BREACHES.values(), ids=BREACHES.keys())
def test_a_breach_of_the_protocol_ends_the_run_by_name(
    message: Armed | Report | Flows | Finished, expected: str
) -> None:
    play = Rehearsal("a", "b")
    play.run(30, lambda: play.session.progress().ops_done > 2)
    play.say_raw(play.agents["a"].identity, encode(message))
    play.run_to_end(10)
    assert play.session.reason.startswith("agent 'a': violated the protocol: ")
    assert expected in play.session.reason


def test_answers_to_an_old_inquiry_are_ignored() -> None:
    play = Rehearsal("a", "b")
    play.run(30, lambda: play.session.progress().ops_done > 2)
    play.say_raw(play.agents["a"].identity, encode(Waits("r1", 3, True, np.zeros(1, WAIT_RECORD))))
    play.run_to_end()
    assert play.session.state is RunState.DONE


def test_records_that_went_missing_abort_the_run() -> None:
    play = Rehearsal("a", "b")
    play.delay_ns = lambda: 30 * NS_PER_MS
    play.run(30, lambda: play.session.state is RunState.COLLECT)
    play.agents["a"].alive = False
    finished = Finished("r1", EngineEnd.DONE, "", OPS, 2, np.zeros(1, PORT_RECORD))
    play.say_raw(play.agents["a"].identity, encode(finished))
    play.run_to_end()
    assert play.session.reason == "agent 'a': 2 flow records sent, 0 received"


def test_an_agent_that_never_ends_handing_over_is_given_up() -> None:
    play = Rehearsal("a", "b", settings=SessionSettings("r1", "x", lost_after_ns=600 * NS_PER_S))
    play.agents["a"].keeps_records = True
    play.delay_ns = lambda: 30 * NS_PER_MS
    play.run(30, lambda: play.session.state is RunState.COLLECT)
    play.run_to_end(12)
    assert play.session.reason == "agent 'a' did not transfer all records in time"
    first, second = play.session.outcome("").agents
    assert (first.complete, second.complete) == (False, True)


def test_what_breaks_while_records_are_handed_over_aborts_the_run_with_less_patience() -> None:
    play = Rehearsal("a", "b", settings=SessionSettings("r1", "x", lost_after_ns=600 * NS_PER_S))
    play.delay_ns = lambda: 30 * NS_PER_MS
    play.run(30, lambda: play.session.state is RunState.COLLECT)
    play.agents["b"].alive = False
    play.say_raw(play.agents["a"].identity, encode(Faulted("r1", "its card went away")))
    play.run(1, lambda: play.session.state is RunState.ABORTING)
    assert play.session.progress().state is RunState.ABORTING
    began_ns = play.now_ns
    play.run_to_end(12)
    assert play.session.state is RunState.ABORTED
    assert "its card went away" in play.session.reason
    assert play.now_ns - began_ns < SessionSettings("r1", "x").collect_timeout_ns


def test_an_agent_that_was_paused_finds_its_run_over_and_lets_go_at_once() -> None:
    play = Rehearsal("a", "b")
    play.run(30, lambda: play.session.progress().ops_done > 2)
    play.agents["b"].paused = True
    play.run(30, lambda: play.session.state is RunState.ABORTING)
    play.run(1, lambda: False)
    play.resume("b")
    assert play.agents["b"].life.state is AgentState.JOINING
    assert any("aborted: agent 'b': no heartbeat" in line for line in play.agents["b"].log)
    play.run_to_end()
    assert play.session.reason.startswith("agent 'b': no heartbeat for 3.0 s, in RUN")


def test_an_agent_that_comes_back_into_a_run_is_left_to_ask() -> None:
    play = Rehearsal("a", "b")
    play.run(30, lambda: play.session.progress().ops_done > 2)
    play.agents["b"].alive = False
    play.run(30, lambda: play.session.state is RunState.ABORTING)
    again = play.add_agent("b", key="b again")
    again.connection = 5
    play.run_to_end()
    assert again.life.state is AgentState.JOINING
    assert again.exit_code is None


def test_garbage_of_strangers_is_answered_and_does_no_harm() -> None:
    play = Rehearsal("a")
    mismatch = VersionMismatch(9, 3, "install the same etloop")
    (reported, sent) = play.session.on_malformed(b"stranger", mismatch, play.now_ns)[-2:]
    assert "refused a connection: the peer speaks protocol 9, this side 3" in str(reported)
    assert sent == Send(b"stranger", Refused(str(mismatch)))
    play.run_to_end()
    assert play.session.state is RunState.DONE


def test_garbage_of_a_member_ends_the_run() -> None:
    play = Rehearsal("a")
    play.run(30, lambda: play.session.progress().ops_done > 2)
    play.session.on_malformed(play.agents["a"].identity, ProtocolError("Pong: missing field"), play.now_ns)
    play.run_to_end(10)
    assert play.session.reason.startswith("agent 'a': violated the protocol: Pong: missing field")


def test_a_flood_of_strangers_is_told_with_restraint() -> None:
    play = Rehearsal("a")
    play.agents["a"].alive = False
    for number in range(1000):
        hello = Hello(f"x{number}", "h", 1, {})
        play.say_raw(f"x{number}".encode(), encode(hello))
    play.run(1)
    assert len(play.log) < 50


def test_once_ends_agents_with_the_run() -> None:
    play = Rehearsal("a", "b", once=True)
    play.run_to_end()
    assert [agent.exit_code for agent in play.agents.values()] == [ExitCode.PASS, ExitCode.PASS]


def test_messages_of_late_agents_after_a_break_are_ignored() -> None:
    play = Rehearsal("a", "b")
    play.run(30, lambda: play.session.state is RunState.ARM)
    play.stop("stopped by Ctrl-C")
    play.say_raw(play.agents["a"].identity, encode(Started("r1", 5)))
    play.run_to_end(5)
    assert play.session.reason == "stopped by Ctrl-C while in ARM"


EXPOSED = {
    "every interface": ("tcp://0.0.0.0:5555", True),
    "another address": ("tcp://10.0.0.1:5555", True),
    "a name that only looks local": ("tcp://127.0.0.1.example.org:5555", True),
    "loopback": ("tcp://127.0.0.1:5555", False),
    "another loopback address": ("tcp://127.8.0.1:5555", False),
    "loopback by name": ("tcp://localhost:5555", False),
    "a socket file": ("ipc:///tmp/x", False),
}


@pytest.mark.parametrize(("bind", "exposed"), EXPOSED.values(), ids=EXPOSED.keys())
def test_who_can_reach_an_endpoint_is_known(bind: str, exposed: bool) -> None:
    settings = SessionSettings("r1", bind)
    if exposed:
        with pytest.raises(ConfigError, match="reachable from other machines"):
            check_exposure(settings)
    check_exposure(replace(settings, insecure=True))
    if not exposed:
        check_exposure(settings)


def test_a_hello_repeated_in_vain_does_no_harm() -> None:
    play = Rehearsal("a", "b")
    play.run(30, lambda: play.session.state is RunState.RUN)
    play.say_raw(play.agents["a"].identity, encode(Hello("a", "host-a", 1, {})))
    play.run_to_end()
    assert play.session.state is RunState.DONE


def test_progress_counts_all_agents() -> None:
    play = Rehearsal("a", "b")
    play.run(30, lambda: play.session.progress().ops_done == 10)
    progress = play.session.progress()
    assert (progress.state, progress.ops_total) == (RunState.RUN, 2 * OPS)
