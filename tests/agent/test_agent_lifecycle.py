"""An agent's life as a pure machine: what it does at every order, at silence, at nonsense, and when it is stopped."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from etloop.agent.lifecycle import AgentLife
from etloop.agent.lifecycle_actions import (
    Action,
    CloseEngine,
    HandedOver,
    HandOver,
    JoinEnds,
    Leave,
    Log,
    OpenEngine,
    PostOps,
    Reconnect,
    SendMessage,
    StartEngine,
    StartProbe,
)
from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.contract.base.errors import ExitCode, Problem, ProtocolError
from etloop.contract.model.engine import EnginePhase, EngineStatus, ProbeOutcome
from etloop.contract.model.records import FLOW_RECORD, OP_RECORD, PORT_RECORD, POST_RECORD, WAIT_RECORD
from etloop.contract.protocol.machine import AgentState
from etloop.contract.protocol.message_set import VersionMismatch
from etloop.contract.protocol.messages import (
    MAX_BATCH_BYTES,
    Arm,
    Armed,
    Assign,
    Bye,
    Collect,
    Dismissed,
    EngineEnd,
    Faulted,
    Finished,
    Flows,
    Hello,
    Loaded,
    LoadFailed,
    Pair,
    Paired,
    Ping,
    Pong,
    Post,
    Probe,
    QueryWaits,
    QueuePairEnd,
    Refused,
    Report,
    Start,
    Started,
    Waits,
    Welcome,
)
from tests.support.control_plane.control_plane_by_hand import ring_assignments

HELLO = Hello("a", "host", 1, {})
ASSIGNMENT = ring_assignments("a", "b")["a"]
NO_OPS = np.zeros(0, OP_RECORD)
LOST_NS = 3 * NS_PER_S


def newborn(*, once: bool = False) -> AgentLife:
    return AgentLife(HELLO, "tcp://127.0.0.1:1", once=once, now_ns=0)


def ticked(life: AgentLife, until_ns: int, from_ns: int = 0) -> tuple[Action, ...]:
    """What it does while its loop turns every 200 ms, and at the end of the time."""
    turns = [life.on_tick(now_ns) for now_ns in (*range(from_ns, until_ns, 200 * NS_PER_MS), until_ns)]
    return tuple(action for actions in turns for action in actions)


def living(state: AgentState, *, once: bool = False) -> AgentLife:
    """A life that has come as far as `state`."""
    life = newborn(once=once)
    steps: dict[AgentState, Callable[[], object]] = {
        AgentState.IDLE: lambda: life.on_message(Welcome(1, LOST_NS), 0),
        AgentState.LOADING: lambda: life.on_message(Assign(ASSIGNMENT), 0),
        AgentState.LOADED: lambda: life.on_opened(()),
        AgentState.PROBING: lambda: life.on_message(Probe("r1"), 0),
        AgentState.CONNECTED: lambda: life.on_probed([ProbeOutcome(0, 0, True, 5, "")]),
        AgentState.ARMED: lambda: life.on_message(Arm("r1"), 0),
        AgentState.RUNNING: lambda: life.on_message(Start("r1", 100), 0),
        AgentState.FINISHED: lambda: life.on_status(status(EnginePhase.DONE), NO_OPS, 0),
    }
    for target, step in steps.items():
        if life.state is state:
            break
        step()
        assert life.state is target
    return life


def status(phase: EnginePhase, failure: str = "") -> EngineStatus:
    return EngineStatus(phase, 1, 2, 3, 4, 0, failure)


def printed(actions: tuple[Action, ...]) -> list[object]:
    return [action.message for action in actions if isinstance(action, SendMessage)]


def logged(actions: tuple[Action, ...]) -> str:
    return "\n".join(action.text for action in actions if isinstance(action, Log))


def left() -> HandedOver:
    none = np.zeros(0, FLOW_RECORD)
    return HandedOver(EngineEnd.DONE, "", np.zeros(1, OP_RECORD), none, np.zeros(1, PORT_RECORD))


def test_it_asks_twice_a_second_and_reminds_its_reader() -> None:
    life = newborn()
    actions = [action for step in range(700) for action in life.on_tick(step * 100 * NS_PER_MS)]
    assert len(printed(tuple(actions))) == 140
    reminders = [line for line in logged(tuple(actions)).splitlines() if line.startswith("no answer from")]
    assert len(reminders) == 3
    assert "--controller-key is not its key" in reminders[0]


def test_pings_are_answered_in_every_state() -> None:
    for state in (AgentState.IDLE, AgentState.LOADING, AgentState.RUNNING, AgentState.FINISHED):
        assert printed(living(state).on_message(Ping(4, 99), 7)) == [Pong(4, 99, 7, 7)]


def test_ops_are_posted_to_a_running_engine_alone() -> None:
    posts = np.zeros(2, POST_RECORD)
    order = Post("r1", posts, True)
    (action,) = living(AgentState.RUNNING).on_message(order, 0)
    assert isinstance(action, PostOps)
    assert action.posts is posts
    assert action.last
    failed = living(AgentState.RUNNING)
    failed.on_status(status(EnginePhase.FAILED, "broken"), NO_OPS, 0)
    assert failed.on_message(order, 0) == ()
    actions = living(AgentState.ARMED).on_message(Start("r1", 1000, True), 0)
    assert actions[0] == StartEngine(1000, True)


def test_a_refusal_ends_it_with_the_reason() -> None:
    actions = newborn().on_message(Refused("agent 'a' is not in the rig, which has b"), 0)
    assert actions[-1] == Leave(ExitCode.PREPARATION_FAILED)
    assert "agent 'a' is not in the rig, which has b" in logged(actions)


def test_another_version_ends_it_with_both_numbers() -> None:
    actions = newborn().on_malformed(VersionMismatch(9, 3, "install the same etloop"), 0)
    assert actions[-1] == Leave(ExitCode.PREPARATION_FAILED)
    assert "the peer speaks protocol 9, this side 3" in logged(actions)


def test_an_engine_that_opens_is_reported_with_what_it_lacks() -> None:
    life = living(AgentState.LOADING)
    actions = life.on_opened(("receive buffer 208 KiB",))
    assert printed(actions) == [Loaded("r1", ("receive buffer 208 KiB",))]
    assert "receive buffer 208 KiB" in logged(actions)


def test_an_engine_that_does_not_open_is_reported_with_all_reasons() -> None:
    life = living(AgentState.LOADING)
    problems = (Problem("a", "b", "c"), Problem("d", "e" * 9999, "f"))
    (message,) = printed(life.on_open_failed(problems))
    assert isinstance(message, LoadFailed)
    assert message.problems[0] == problems[0]
    assert message.problems[1].what.endswith(" ...")
    assert life.state is AgentState.FAULTED


def test_collecting_while_the_engine_is_built_waits_for_it() -> None:
    life = living(AgentState.LOADING)
    assert life.on_message(Collect("r1"), 0) == ()
    assert life.on_opened(()) == (HandOver(),)
    life = living(AgentState.LOADING)
    life.on_message(Collect("r1"), 0)
    assert HandOver() in life.on_open_failed((Problem("a", "b", "c"),))


def test_an_engine_nobody_waits_for_any_more_is_closed() -> None:
    life = living(AgentState.LOADING)
    life.on_message(Dismissed("r1", True, "Ctrl-C"), 0)
    assert life.on_opened(()) == (CloseEngine(),)


def test_arming_and_starting_are_confirmed_with_the_margin() -> None:
    assert printed(living(AgentState.CONNECTED).on_message(Arm("r1"), 0)) == [Armed("r1")]
    actions = living(AgentState.ARMED).on_message(Start("r1", 1000), 1300)
    assert actions[1:] == (SendMessage(Started("r1", -300)),), "the engine is not started late"
    life = living(AgentState.ARMED)
    life.on_message(Start("r1", 1000), 1300)
    assert life.on_message(Start("r1", 9000), 8000) == (
        StartEngine(9000),
        SendMessage(Started("r1", 1000)),
    )


def test_reports_carry_records_and_progress() -> None:
    life = living(AgentState.RUNNING)
    (report,) = printed(life.on_status(status(EnginePhase.RUNNING), np.zeros(3, OP_RECORD), 50))
    assert isinstance(report, Report)
    assert (len(report.ops), report.completed, report.progress.quiet_ns) == (3, False, 50)
    (report,) = printed(life.on_status(status(EnginePhase.DONE), NO_OPS, 60))
    assert isinstance(report, Report)
    assert report.completed
    assert life.state is AgentState.FINISHED


def test_large_reports_are_cut_and_only_the_last_part_completes() -> None:
    life = living(AgentState.RUNNING)
    many = np.zeros(MAX_BATCH_BYTES // OP_RECORD.itemsize * 2 + 1, OP_RECORD)
    reports = printed(life.on_status(status(EnginePhase.DONE), many, 0))
    assert all(isinstance(each, Report) and each.ops.nbytes <= MAX_BATCH_BYTES for each in reports)
    assert [each.completed for each in reports if isinstance(each, Report)] == [False, False, True]


@pytest.mark.parametrize(
    "state", [AgentState.LOADED, AgentState.ARMED, AgentState.RUNNING, AgentState.FINISHED]
)
def test_a_failed_engine_is_reported_in_any_state(state: AgentState) -> None:
    life = living(state)
    messages = printed(life.on_status(status(EnginePhase.FAILED, "no acknowledgement"), NO_OPS, 0))
    assert messages[-1] == Faulted("r1", "no acknowledgement")
    assert life.state is AgentState.FAULTED


def test_an_engine_that_raises_is_reported_too() -> None:
    life = living(AgentState.RUNNING)
    assert printed(life.on_engine_error("bad_alloc")) == [Faulted("r1", "engine error: bad_alloc")]
    assert printed(life.on_engine_error("again")) == []


def test_waits_answer_the_inquiry_they_were_asked_by() -> None:
    life = living(AgentState.RUNNING)
    life.on_message(QueryWaits("r1", 7), 0)
    (answer,) = printed(life.on_waits(np.zeros(0, WAIT_RECORD)))
    assert isinstance(answer, Waits)
    assert (answer.query, answer.last) == (7, True)


def test_handing_over_counts_what_was_sent() -> None:
    life = living(AgentState.RUNNING)
    life.on_status(status(EnginePhase.DONE), np.zeros(4, OP_RECORD), 0)
    assert life.on_message(Collect("r1"), 0) == (HandOver(),)
    many = np.zeros(MAX_BATCH_BYTES // FLOW_RECORD.itemsize + 1, FLOW_RECORD)
    messages = printed(
        life.on_handed_over(HandedOver(EngineEnd.DONE, "", np.zeros(1, OP_RECORD), many, left().ports))
    )
    assert [type(message) for message in messages] == [Report, Flows, Flows, Finished]
    finished = messages[-1]
    assert isinstance(finished, Finished)
    assert (finished.ops_sent, finished.flows_sent) == (5, len(many))
    assert life.state is AgentState.IDLE


def test_an_order_out_of_place_is_refused_and_changes_nothing() -> None:
    life = living(AgentState.LOADED)
    (message,) = printed(life.on_message(Start("r1", 5), 0))
    assert message == Faulted(
        "r1",
        "agent got START_ORDERED while LOADED; it accepts PAIR_ORDERED, PROBE_ORDERED, FAULT, COLLECT_ORDERED, PARTED there",
    )
    assert life.state is AgentState.LOADED


def test_queue_pairs_are_joined_before_the_probe_and_said_to_be() -> None:
    life = living(AgentState.LOADED)
    peers = (QueuePairEnd(0, 0, True, 17, 0x7F00_0000_0000, 752),)
    assert life.on_message(Pair("r1", peers), 0) == (JoinEnds(peers),)
    assert life.pairing
    assert printed(life.on_paired()) == [Paired("r1")]
    assert life.state is AgentState.LOADED
    assert life.on_message(Probe("r1"), 0) == (StartProbe(),)
    assert life.on_paired() == ()


def test_an_engine_that_cannot_join_is_told_of() -> None:
    life = living(AgentState.LOADED)
    life.on_message(Pair("r1"), 0)
    assert printed(life.on_status(status(EnginePhase.FAILED, "RTR refused"), NO_OPS, 0)) == [
        Faulted("r1", "RTR refused")
    ]
    assert life.on_paired() == ()


def test_an_order_for_another_run_is_refused() -> None:
    (message,) = printed(living(AgentState.LOADED).on_message(Probe("r0"), 0))
    assert message == Faulted("r0", "Probe for run r0, which was not assigned here")


def test_a_silent_controller_is_left_and_its_engine_stopped() -> None:
    life = living(AgentState.RUNNING)
    assert ticked(life, LOST_NS) == ()
    actions = life.on_tick(LOST_NS + 1)
    assert CloseEngine() in actions
    assert Reconnect(linger=False) in actions
    assert "the controller has been silent for 3.0 s" in logged(actions)
    assert life.state is AgentState.JOINING
    assert printed(life.on_tick(LOST_NS + 2)) == [HELLO]


def test_a_pause_of_its_own_is_no_silence_of_the_controller() -> None:
    life = living(AgentState.RUNNING)
    actions = life.on_tick(10 * LOST_NS)
    assert logged(actions) == "this process did not run for 29.7 s"
    assert life.state is AgentState.RUNNING
    assert "the controller has been silent" in logged(ticked(life, 11 * LOST_NS, 10 * LOST_NS))


def test_a_closed_connection_counts_as_the_end_of_the_controller_unless_it_is_heard_again() -> None:
    life = living(AgentState.IDLE)
    life.on_message(Welcome(1, 20 * LOST_NS), 0)
    life.on_closed(0)
    life.on_message(Ping(1, 0), LOST_NS)
    assert ticked(life, 3 * LOST_NS) == ()
    life.on_closed(3 * LOST_NS)
    assert "the connection to the controller is closed" in logged(
        ticked(life, 4 * LOST_NS + NS_PER_S, 3 * LOST_NS)
    )
    assert life.state is AgentState.JOINING


def test_a_run_that_welcomes_again_with_more_patience_is_believed_for_as_long_as_it_lasts() -> None:
    life = living(AgentState.IDLE)
    life.on_message(Welcome(1, 5 * LOST_NS), 0)
    life.on_message(Assign(ASSIGNMENT), 0)
    life.on_opened(())
    assert ticked(life, 5 * LOST_NS) == ()
    assert "the controller has been silent for 15.0 s" in logged(life.on_tick(5 * LOST_NS + 1))
    joined_ns = 6 * LOST_NS
    ticked(life, joined_ns, 5 * LOST_NS + 1)
    life.on_message(Welcome(1, LOST_NS), joined_ns)
    assert "the controller has been silent for 3.0 s" in logged(
        ticked(life, joined_ns + LOST_NS + 1, joined_ns)
    )


def test_an_agent_reports_as_rarely_as_its_run_asks_and_never_more_often_than_it_would() -> None:
    life = living(AgentState.IDLE)
    assert life.report_ns == 100 * NS_PER_MS
    life.on_message(Welcome(1, LOST_NS, report_ns=NS_PER_S), 0)
    assert life.report_ns == NS_PER_S
    life.on_message(Welcome(1, LOST_NS, report_ns=-1), 0)
    assert life.report_ns == 100 * NS_PER_MS


def test_a_hello_that_found_no_connection_is_said_again_at_once() -> None:
    life = newborn()
    assert printed(life.on_tick(1)) == [HELLO]
    assert printed(life.on_tick(2)) == []
    life.on_hello_unsent()
    assert printed(life.on_tick(3)) == [HELLO]


def test_once_ends_with_the_controller() -> None:
    actions = ticked(living(AgentState.RUNNING, once=True), LOST_NS + 1)
    assert actions[-2:] == (CloseEngine(), Leave(ExitCode.RUN_ERROR))


DISMISSALS = {
    "a run that was done": (Dismissed("r1", False, ""), ExitCode.PASS, "run r1 done"),
    "a run that was aborted": (Dismissed("r1", True, "Ctrl-C"), ExitCode.RUN_ERROR, "run r1 aborted: Ctrl-C"),
}


@pytest.mark.parametrize(("message", "code", "line"), DISMISSALS.values(), ids=DISMISSALS.keys())
def test_a_dismissal_is_acknowledged(message: Dismissed, code: ExitCode, line: str) -> None:
    actions = living(AgentState.IDLE, once=True).on_message(message, 0)
    assert printed(actions) == [Bye("dismissed")]
    assert line in logged(actions)
    assert actions[-1] == Leave(code)
    assert Reconnect(linger=True) in living(AgentState.IDLE).on_message(message, 0)


def test_a_controller_that_breaks_the_protocol_is_left() -> None:
    life = living(AgentState.RUNNING)
    actions = life.on_malformed(ProtocolError("Start.start_ns: expected an integer, got text"), 0)
    assert CloseEngine() in actions
    assert "protocol error of the controller: Start.start_ns" in logged(actions)
    assert life.state is AgentState.JOINING


STOPS = {
    "before it joined": (AgentState.JOINING, [], ExitCode.PASS),
    "between runs": (AgentState.IDLE, [Bye("stopped by Ctrl-C")], ExitCode.PASS),
    "in a run": (AgentState.RUNNING, [Bye("stopped by Ctrl-C")], ExitCode.RUN_ERROR),
}


@pytest.mark.parametrize(("state", "messages", "code"), STOPS.values(), ids=STOPS.keys())
def test_a_stopped_agent_says_goodbye(state: AgentState, messages: list[object], code: ExitCode) -> None:
    actions = living(state).on_stop("stopped by Ctrl-C")
    assert printed(actions) == messages
    assert actions[-1] == Leave(code)
    assert (CloseEngine() in actions) == (state is AgentState.RUNNING)


def test_an_agent_takes_one_run_after_another() -> None:
    life = living(AgentState.FINISHED)
    life.on_message(Collect("r1"), 0)
    life.on_handed_over(left())
    assert life.on_message(Assign(ASSIGNMENT), 0)[-1] == OpenEngine(ASSIGNMENT)
    assert not life.watches_engine


def test_a_rack_may_offer_more_slots_while_an_agent_is_joined_and_a_run_takes_none() -> None:
    life = living(AgentState.IDLE)
    life.on_message(Welcome(1, LOST_NS, slots=3), 0)
    assert (life.slots, life.state) == (3, AgentState.IDLE)
    life.on_message(Welcome(1, LOST_NS), 0)
    assert life.slots == 3
