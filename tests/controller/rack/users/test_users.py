"""Who may ask what: roles, bounds, and files of users that say nonsense."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError, ExitCode
from etloop.controller.rack.actor import MQTT, actor, is_by, is_user_name
from etloop.controller.rack.api import Rack, ScenarioRules
from etloop.controller.rack.dispatch import RackPort
from etloop.controller.rack.job import Job, JobEvent, JobRequest, JobState, PortDemand
from etloop.controller.rack.store.job_store import JobStore
from etloop.controller.rack.submissions import Accepted, RackLimits, Rejected
from etloop.controller.rack.users.people import People
from etloop.controller.rack.users.users import Right, Role, User, Users, parse_users, right_over
from etloop.runtime.watched_file import WatchedFile
from tests.support.places import ROOT

PORTS = tuple(RackPort(f"a/p{index}", "a", 1) for index in range(4))
ONE = PortDemand(count=1)
HOUR_NS = 3600 * NS_PER_S
TEXT = b"""
users:
  ann: {priority: 5, queued_jobs: 2, running_jobs: 1, time: 1h}
  bob:
  ops: {role: operator}
  wall: {role: viewer}
"""


def rack_of(path: Path, text: bytes = TEXT) -> Rack:
    numbers = iter(range(100))
    limits = RackLimits(10, 10, 1 << 20, 24 * HOUR_NS)
    rack = Rack(JobStore.open(path / "s"), PORTS, limits, ScenarioRules(path), lambda: f"j{next(numbers)}")
    users = parse_users(text, "users.yaml")
    rack.people = People(lambda: users)
    return rack


def asked(owner: str, **changes: object) -> JobRequest:
    return replace(JobRequest("x", ONE, owner=owner), **changes)  # type: ignore[arg-type]


def submitted(rack: Rack, request: JobRequest) -> Job:
    answer = rack.submit(request, actor(MQTT, "", request.owner), ())
    assert isinstance(answer, Accepted), answer
    return answer.job


@pytest.mark.parametrize(
    ("name", "right", "expected"),
    [
        ("wall", Right.LOOK, ""),
        ("wall", Right.SUBMIT, '"wall" is viewer and may not submit jobs'),
        ("wall", Right.OWN, '"wall" is viewer and may not change jobs'),
        ("ann", Right.SUBMIT, ""),
        ("ann", Right.OWN, ""),
        ("ann", Right.OPERATE, '"ann" is user and may not change other users\' jobs, ports or the queue'),
        ("ops", Right.OPERATE, ""),
        ("eve", Right.LOOK, 'the rack has no user "eve"'),
        ("", Right.LOOK, "the request names no user; this rack has users and accepts only theirs"),
    ],
)
def test_a_role_has_its_rights_and_no_more(tmp_path: Path, name: str, right: Right, expected: str) -> None:
    problem = rack_of(tmp_path).people.problem(name, right)
    assert ("" if problem is None else problem.what) == expected


def test_without_a_file_of_users_everybody_may_do_what_the_broker_lets_through() -> None:
    assert all(People().problem(name, right) is None for name in ("", "eve") for right in Right)
    assert People().left((), ()) == {}


def test_others_may_do_what_the_file_says_of_them() -> None:
    users = parse_users(b"others: {role: viewer, running_jobs: 0}", "u")
    assert users.find("eve") == User("eve", Role.VIEWER, running_jobs=0)
    assert Users().find("eve") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            b"users: {}",
            "users: names no account, so no request would be served; name users, or write others:",
        ),
        (b"users: {ann: {role: boss}}", 'users.ann.role: "boss" is not one of the choices'),
        (b"users: {ann: {prio: 1}}", "users.ann.prio: unknown key; did you mean"),
        (b"users: {ann: {priority: 101}}", "users.ann.priority: 101 is out of range"),
        (b"users: {a/b: {}}", "users.a/b: is not an account name"),
        (b"users: {'a\\nb': {}}", "is not an account name"),
        (b"users: {ann: {time: 1}}", "users.ann.time:"),
        (b"people: {}", "people: unknown key"),
        (b"[", "not valid YAML"),
    ],
)
def test_a_file_that_says_nonsense_is_refused(text: bytes, expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_users(text, "users.yaml")
    assert expected in "; ".join(map(str, refused.value.problems))


def test_the_example_is_one(tmp_path: Path) -> None:
    users = WatchedFile(ROOT / "examples" / "rack" / "users.yaml", parse_users, is_secret=False).current()
    assert {name: user.role for name, user in users.accounts.items()} == {
        "automation": Role.USER,
        "operator": Role.OPERATOR,
        "viewer": Role.VIEWER,
    }


def test_a_file_that_cannot_be_used_any_more_lets_nobody_in_and_keeps_bounds(tmp_path: Path) -> None:
    path = tmp_path / "users.yaml"
    path.write_bytes(TEXT)
    rack = rack_of(tmp_path)
    rack.people = People(WatchedFile(path, parse_users, is_secret=False).current)
    assert rack.people.problem("ops", Right.OPERATE) is None
    path.write_text("users: [")
    problem = rack.people.problem("ops", Right.OPERATE)
    assert problem is not None
    assert problem.what.startswith("the rack's file of users cannot be used: line 1: not valid YAML")
    waiting = submitted(rack, asked("ann"))
    assert rack.people.left([waiting], [waiting]) == {"ann": 0}
    path.write_bytes(b"users: {ann: }")
    assert rack.people.problem("ann", Right.SUBMIT) is None
    assert rack.people.problem("ops", Right.OPERATE) is not None, "who was taken out may do nothing any more"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"priority": 6}, "priority: 6 is above the highest priority of ann; give at most 5"),
        (
            {"time_limit_ns": 2 * HOUR_NS},
            "time_limit: 7200s is above the limit of ann; ask for at most 3600s",
        ),
    ],
)
def test_a_job_beyond_its_users_bounds_is_refused(
    tmp_path: Path, changes: dict[str, object], expected: str
) -> None:
    answer = rack_of(tmp_path).submit(asked("ann", **changes), "ann", ())
    assert isinstance(answer, Rejected)
    assert [str(problem) for problem in answer.problems] == [expected]


def test_a_user_has_so_many_jobs_queued_and_so_many_run_and_keeps_no_port_from_others(tmp_path: Path) -> None:
    rack = rack_of(tmp_path)
    first, second = submitted(rack, asked("ann", priority=5)), submitted(rack, asked("ann", priority=5))
    assert first.request.time_limit_ns == HOUR_NS, "a job that names no time has its user's"
    full = rack.submit(asked("ann"), "ann", ())
    assert isinstance(full, Rejected)
    assert full.problems[0].what == "ann has 2 queued jobs, the most allowed"
    other = submitted(rack, asked("bob", ports=PortDemand()))
    starts = rack.starts(frozenset("a"))
    assert [start.job.job_id for start in starts] == [first.job_id]
    rack.begin(starts[0])
    assert rack.starts(frozenset("a")) == ()
    assert rack.waits_for(second.job_id) == "ann has reached the limit of running jobs"
    assert rack.waits_for(other.job_id) == "port a/p0 is leased to job j0"
    rack.note(first.job_id, JobEvent.GATHERED)
    assert rack.finish(first.job_id, ExitCode.PASS, "").state is JobState.FINISHED
    starts = rack.starts(frozenset("a"))
    assert [start.job.job_id for start in starts] == [second.job_id]


def test_a_bound_that_is_raised_lets_the_next_job_start(tmp_path: Path) -> None:
    rack = rack_of(tmp_path)
    submitted(rack, asked("ann"))
    second = submitted(rack, asked("ann"))
    rack.begin(rack.starts(frozenset("a"))[0])
    assert rack.starts(frozenset("a")) == ()
    more = parse_users(b"users: {ann: {running_jobs: 2}}", "u")
    rack.people = People(lambda: more)
    assert [start.job.job_id for start in rack.starts(frozenset("a"))] == [second.job_id]


def test_a_client_key_is_its_users(tmp_path: Path) -> None:
    rack = rack_of(tmp_path)
    submitted(rack, asked("ann", client_key="nightly"))
    answer = rack.submit(asked("bob", client_key="nightly"), "bob", ())
    assert isinstance(answer, Rejected)
    assert str(answer.problems[0]).startswith("client_key: is used by a job of another user")


def test_changing_a_job_of_another_takes_an_operator(tmp_path: Path) -> None:
    job = submitted(rack_of(tmp_path), asked("ann"))
    assert (right_over(job, "ann"), right_over(job, "bob"), right_over(job, "")) == (
        Right.OWN,
        Right.OPERATE,
        Right.OPERATE,
    )
    assert right_over(None, "bob") is Right.OWN, "that no such job is the answer then"


@pytest.mark.parametrize(
    ("who", "expected", "why"),
    [
        ("mqtt:ann", True, "as it is written"),
        ('mqtt:ann (says "bob")', True, "whatever was claimed"),
        ("mqtt:anna", False, "another"),
        ('mqtt (says "mqtt:ann")', False, "a claim"),
        ("mqtt", False, "nobody in particular"),
    ],
)
def test_who_did_something_is_recognised(who: str, expected: bool, why: str) -> None:
    assert is_by(who, MQTT, "ann") is expected, why


@pytest.mark.parametrize("text", ["", "+", "#", "a/b", "a b", "\x00", "é", "x" * 65, "-a"])
def test_what_no_level_of_a_topic_can_be_is_no_user(text: str) -> None:
    assert not is_user_name(text)
