"""What operators order holds until it is taken back, after a restart too; what makes no sense is refused, whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from etloop.contract.base.errors import ExitCode
from etloop.controller.rack.api import Rack, ScenarioRules
from etloop.controller.rack.dispatch import RackPort
from etloop.controller.rack.job import Job, JobEvent, JobRequest, JobState, PortDemand
from etloop.controller.rack.maintenance import OrderKind, StandingOrder, StandingOrders
from etloop.controller.rack.operators import Operators, Refused
from etloop.controller.rack.store.job_store import JobStore
from etloop.controller.rack.submissions import Accepted, RackLimits, Rejected

PORTS = tuple(RackPort(label, label[0], 1) for label in ("a/p0", "a/p1", "b/p0"))
PRESENT = frozenset("ab")
ON_A = PortDemand(named=("a/p0",))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.sqlite"


def rack_of(path: Path, first_id: int = 0) -> Rack:
    numbers = iter(range(first_id, 100))
    limits = RackLimits(10, 10, 1 << 20, 1 << 40)
    return Rack(JobStore.open(path), PORTS, limits, ScenarioRules(path.parent), lambda: f"j{next(numbers)}")


def submitted(rack: Rack, demand: PortDemand = ON_A, priority: int = 0, retries: int = 0) -> str:
    answer = rack.submit(JobRequest("x", demand, priority, retries=retries), "test", ())
    assert isinstance(answer, Accepted)
    return answer.job.job_id


def starting(rack: Rack) -> list[str]:
    """Jobs that would start now; none is begun."""
    return [start.job.job_id for start in rack.starts(PRESENT)]


def ended(rack: Rack, job_id: str, code: ExitCode = ExitCode.PASS, *, at_limit: bool = False) -> Job:
    """A queued job that ran, and ended so."""
    (start,) = rack.starts(PRESENT)
    assert start.job.job_id == job_id
    rack.begin(start)
    rack.note(job_id, JobEvent.GATHERED)
    return rack.finish(job_id, code, "it broke" if code else "", at_limit=at_limit)


def test_a_drained_port_gets_no_job_until_it_is_back(path: Path) -> None:
    rack = rack_of(path)
    operators, job_id = Operators(rack), submitted(rack)
    assert operators.drain(("a/p0",), "cable swap", "ann") == (PORTS[0],)
    assert starting(rack) == []
    assert rack.waits_for(job_id) == "port a/p0 is drained by ann: cable swap"
    assert rack.out_of_service() == {"a/p0": "drained by ann: cable swap"}
    operators.undrain(("a/p0",), "swapped", "ann")
    assert starting(rack) == [job_id]


def test_who_wants_any_port_gets_one_that_is_not_drained(path: Path) -> None:
    rack = rack_of(path)
    submitted(rack, PortDemand(count=1))
    Operators(rack).drain(("a",), "", "ann")
    assert [start.ports for start in rack.starts(PRESENT)] == [("b/p0",)]
    assert set(rack.out_of_service()) == {"a/p0", "a/p1"}, "an agent stands for all of its ports"


def test_a_port_that_has_a_job_is_drained_when_that_ends(path: Path) -> None:
    rack = rack_of(path)
    first, second = submitted(rack), submitted(rack)
    (start,) = rack.starts(PRESENT)
    rack.begin(start)
    Operators(rack).drain(("a/p0",), "", "ann")
    rack.note(first, JobEvent.GATHERED)
    assert rack.finish(first, ExitCode.PASS, "").state is JobState.FINISHED
    assert (starting(rack), rack.waits_for(second)) == ([], "port a/p0 is drained by ann")


def test_orders_outlive_the_controller(path: Path) -> None:
    rack = rack_of(path)
    operators, job_id = Operators(rack), submitted(rack)
    operators.drain(("b/p0",), "noisy", "ann")
    operators.hold(job_id, "wait for the lab", "ann")
    operators.pause("move", "bob")
    rack.store.close()
    after = rack_of(path, 50)
    assert after.pause_text() == "paused by bob: move"
    assert after.waits_for(job_id) == "held by ann: wait for the lab"
    assert after.out_of_service() == {"b/p0": "drained by ann: noisy"}
    operators = Operators(after)
    operators.resume("", "bob")
    assert starting(after) == [], "it is held"
    operators.release(job_id, "", "ann")
    assert starting(after) == [job_id]


def test_a_restored_port_is_in_service_whatever_failed_on_it(path: Path) -> None:
    rack = rack_of(path)
    job_id = submitted(rack)
    for other in ("x", "y"):
        rack.note_unprepared(other, {"a/p0": "its link is down"})
    assert starting(rack) == []
    Operators(rack).undrain(("a/p0",), "", "ann")
    assert (starting(rack), rack.out_of_service()) == ([job_id], {})


def test_while_the_queue_is_paused_jobs_are_taken_and_none_starts(path: Path) -> None:
    rack = rack_of(path)
    operators = Operators(rack)
    operators.pause("firmware", "ann")
    job_id = submitted(rack)
    assert (starting(rack), rack.waits_for(job_id)) == ([], "the queue is paused by ann: firmware")
    rack.hold("the disk is full")
    assert rack.waits_for(job_id) == "the queue is paused by ann: firmware; the disk is full"
    rack.hold("")
    operators.resume("", "ann")
    assert (starting(rack), rack.pause_text()) == ([job_id], "")


def test_a_held_job_lets_others_pass_and_keeps_no_port(path: Path) -> None:
    rack = rack_of(path)
    first, second = submitted(rack), submitted(rack)
    Operators(rack).hold(first, "", "ann")
    assert (starting(rack), rack.waits_for(first)) == ([second], "held by ann")


def test_a_held_job_that_is_cancelled_leaves_no_order(path: Path) -> None:
    rack = rack_of(path)
    job_id = submitted(rack)
    Operators(rack).hold(job_id, "", "ann")
    rack.cancel(job_id, "bob")
    assert rack.store.standing_orders() == ()


def test_a_job_gets_another_place_and_keeps_it(path: Path) -> None:
    rack = rack_of(path)
    first, second = submitted(rack), submitted(rack)
    moved = Operators(rack).prioritise(second, 7, "ann")
    assert isinstance(moved, Job)
    assert (moved.request.priority, starting(rack)) == (7, [second])
    rack.store.close()
    assert starting(rack_of(path)) == [second]
    assert first != second


def test_an_ended_job_is_run_again_once(path: Path) -> None:
    rack = rack_of(path)
    first = submitted(rack, priority=3)
    ended(rack, first)
    operators = Operators(rack)
    again, twice = operators.requeue(first, "ann"), operators.requeue(first, "ann")
    assert isinstance(again, Job)
    assert again == twice
    assert (again.request.requeue_of, again.request.priority, again.state) == (first, 3, JobState.QUEUED)
    assert rack.requeued_as(first) == again.job_id
    ended(rack, again.job_id)
    third = operators.requeue(again.job_id, "ann")
    assert isinstance(third, Job)
    assert third.job_id != again.job_id


@pytest.mark.parametrize(
    ("sentence", "code", "at_limit", "retries", "is_run_again"),
    [
        ("the rack broke it", ExitCode.RUN_ERROR, False, 2, True),
        ("nobody asked for it", ExitCode.RUN_ERROR, False, 0, False),
        ("it had taken all of its time", ExitCode.RUN_ERROR, True, 2, False),
        ("the device failed", ExitCode.VERDICT_FAILED, False, 2, False),
        ("it cannot be prepared", ExitCode.PREPARATION_FAILED, False, 2, False),
        ("all is well", ExitCode.PASS, False, 2, False),
    ],
)
def test_what_the_rack_broke_is_queued_again(
    path: Path, sentence: str, code: ExitCode, at_limit: bool, retries: int, is_run_again: bool
) -> None:
    rack = rack_of(path)
    job_id = submitted(rack, retries=retries)
    job = ended(rack, job_id, code, at_limit=at_limit)
    again = rack.store.find(rack.requeued_as(job_id))
    assert (again is not None) == is_run_again, sentence
    if again is not None:
        assert job.reason == f"it broke; queued again as job {again.job_id}"
        assert again.request.retries == retries - 1


def test_no_more_retries_than_were_asked_for(path: Path) -> None:
    rack = rack_of(path)
    first = submitted(rack, retries=1)
    second = rack.requeued_as(ended(rack, first, ExitCode.RUN_ERROR).job_id)
    assert ended(rack, second, ExitCode.RUN_ERROR).reason == "it broke"
    assert rack.requeued_as(second) == ""


def test_a_job_that_was_cancelled_is_not_queued_again(path: Path) -> None:
    rack = rack_of(path)
    job_id = submitted(rack, retries=1)
    rack.begin(rack.starts(PRESENT)[0])
    rack.cancel(job_id, "ann")
    assert rack.finish(job_id, ExitCode.RUN_ERROR, "x").reason == "cancelled by ann"
    assert rack.requeued_as(job_id) == ""


def test_a_controller_that_went_away_twice_queues_a_job_once(path: Path) -> None:
    rack = rack_of(path)
    job_id = submitted(rack, retries=1)
    rack.begin(rack.starts(PRESENT)[0])
    running = rack.store.find(job_id)
    assert running is not None
    # Killed between the new job and the end of the old one.
    again = rack.requeue(running, running.request, "controller")
    rack.store.close()
    after = rack_of(path, 50)
    after.recover()
    assert after.interrupt(job_id, "", 0).reason.endswith(f"; queued again as job {again.job_id}")
    assert after.store.count(JobState.QUEUED) == 1


@pytest.mark.parametrize(
    ("order", "arguments", "said"),
    [
        (
            "drain",
            (("c",), ""),
            'ports: the rack has no agent or port "c"; name some of: a, a/p0, a/p1, b, b/p0',
        ),
        ("drain", ((), ""), 'ports: the list is empty; name ports as "agent/port", or agents'),
        ("undrain", (("a", "a/p7"), ""), 'ports: the rack has no agent or port "a/p7"; name some of'),
        ("drain", (("a",), "x" * 501), "reason: 501 characters; give at most 500"),
        ("pause", ("one\ntwo",), "reason: "),
        (
            "hold",
            ("j1", ""),
            "job j1: is finished, and only a queued job can be held or released; see etloop submit --list",
        ),
        ("prioritise", ("j1", 1), "job j1: is finished, and only a queued job can get another"),
        ("prioritise", ("j2", 101), "priority: 101 is outside -100 to 100; give a number in that range"),
        ("requeue", ("j2",), "job j2: is queued, and only an ended job can be run again"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(
    path: Path, order: str, arguments: tuple[object, ...], said: str
) -> None:
    rack = rack_of(path, 1)
    ended(rack, submitted(rack))
    submitted(rack)
    answer = getattr(Operators(rack), order)(*arguments, "ann")
    assert isinstance(answer, Refused)
    assert str(answer.problems[0]).startswith(said)
    assert (rack.store.standing_orders(), starting(rack)) == ((), ["j2"])


@pytest.mark.parametrize("order", ["hold", "release", "requeue"])
def test_a_job_that_is_not_there(path: Path, order: str) -> None:
    operators = Operators(rack_of(path))
    assert getattr(operators, order)(*(("j9", "", "ann") if order != "requeue" else ("j9", "ann"))) is None
    assert operators.prioritise("j9", 1, "ann") is None


def test_clients_have_no_keys_like_those_of_requeued_jobs(path: Path) -> None:
    rack = rack_of(path)
    answer = rack.submit(JobRequest("x", ON_A, client_key="etloop:requeue:j0"), "test", ())
    assert isinstance(answer, Rejected)
    assert str(answer.problems[0]).startswith("client_key: ")


def test_every_order_is_in_the_audit_trail_with_its_reason(path: Path) -> None:
    rack = rack_of(path)
    operators, job_id = Operators(rack), submitted(rack)
    operators.drain(("a/p0",), "cable", "ann")
    operators.undrain(("a/p0",), "done", "ann")
    operators.undrain(("a/p0",), "again", "ann")
    operators.hold(job_id, "later", "bob")
    operators.prioritise(job_id, 3, "bob")
    operators.pause("move", "ann")
    assert [(line.who, line.event, line.job_id, line.detail) for line in rack.store.audit()][1:] == [
        ("ann", "drained: port a/p0", "", "cable"),
        ("ann", "no longer drained: port a/p0", "", "done"),
        ("bob", "held: the job", job_id, "later"),
        ("bob", "priority 0 -> 3", job_id, ""),
        ("ann", "paused: the queue", "", "move"),
    ]


def test_the_last_order_about_something_stands() -> None:
    first, second = (
        StandingOrder(OrderKind.DRAINED, "a/p0", who, "", "2026-01-01T00:00:00Z") for who in ("ann", "bob")
    )
    orders = StandingOrders((first,))
    orders.keep(second)
    assert orders.texts(OrderKind.DRAINED) == {"a/p0": "drained by bob"}
    orders.drop(OrderKind.DRAINED, "a/p0")
    assert orders.find(OrderKind.DRAINED, "a/p0") is None
