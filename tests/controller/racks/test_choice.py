"""Which rack takes a job, and why the others do not: a table of wishes against three racks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from etloop.controller.rack.job import JobState
from etloop.controller.rack.mqtt.messages import (
    AgentStatus,
    ControllerStatus,
    InventoryResponse,
    JobStatus,
    PortStatus,
    RackStatus,
)
from etloop.controller.racks.choice import JobWish, choose
from etloop.controller.racks.racks_file import RackPlace
from etloop.controller.racks.survey import RackAnswer, RackView

GIGABIT = 10**9


def job(state: JobState, number: int = 1, priority: int = 0, took_s: int = 0) -> JobStatus:
    begin, end = ("2026-01-01T00:00:00+00:00", f"2026-01-01T00:00:{took_s:02}+00:00") if took_s else ("", "")
    return JobStatus(
        1, f"j{number}", number, state, priority, begin, begin, end, (), None, "", "", "", "", {}
    )


def rack(
    name: str, *jobs: JobStatus, link: int = 100, dut: str = "", backend: str = "udp"
) -> RackAnswer[RackView]:
    """A rack with ports a/p0 and a/p1, whose agent is there."""
    ports = tuple(PortStatus(f"a/p{k}", link * GIGABIT, "", "", backend) for k in range(2))
    agent = AgentStatus(1, "a", True, True, 0, "host", {}, None, None)
    inventory = InventoryResponse(1, (agent,), ports, (), (), "", dut=dut)
    view = RackView(ControllerStatus(1, RackStatus.READY, "0"), inventory, jobs)
    return RackAnswer(RackPlace(name, "127.0.0.1", name), view)


def changed(answer: RackAnswer[RackView], **fields: object) -> RackAnswer[RackView]:
    assert answer.value is not None
    return replace(answer, value=replace(answer.value, **fields))  # type: ignore[arg-type]


PAUSED = changed(rack("x"), controller=ControllerStatus(1, RackStatus.READY, "0", paused="by ann: firmware"))
DRAINS = changed(rack("x"), controller=ControllerStatus(1, RackStatus.DRAINING, "0"))
ABSENT = changed(
    rack("x"),
    inventory=InventoryResponse(
        1, (), tuple(PortStatus(f"a/p{k}", GIGABIT, "", "") for k in range(2)), (), (), ""
    ),
)
SILENT: RackAnswer[RackView] = RackAnswer(RackPlace("x", "127.0.0.1", "x"), None, "no broker")


@pytest.mark.parametrize(
    ("sentence", "answer", "wish", "reason"),
    [
        ("one that does not answer", SILENT, JobWish(), "no broker"),
        ("one that drains takes nothing", DRAINS, JobWish(), "its controller is draining"),
        ("nor does one whose queue is paused", PAUSED, JobWish(), "its queue is paused: by ann: firmware"),
        (
            "another device",
            rack("x", dut="b"),
            JobWish(dut="a"),
            "its device under test is b, and a is wanted",
        ),
        ("no device", rack("x"), JobWish(dut="a"), "its device under test is not named, and a is wanted"),
        ("no such port", rack("x"), JobWish(ports=("c/p0",)), "it has no port c/p0"),
        (
            "too few that are fast enough",
            rack("x", link=100),
            JobWish(port_count=2, least_link_bps=400 * GIGABIT),
            "2 ports of at least 400Gbps are wanted, and 0 are in service with their agents",
        ),
        (
            "too few",
            rack("x"),
            JobWish(port_count=3),
            "3 ports are wanted, and 2 are in service with their agents",
        ),
        ("an agent is away", ABSENT, JobWish(), "2 ports are wanted, and 0 are in service with their agents"),
        (
            "ports of another backend",
            rack("x"),
            JobWish(backend="verbs"),
            "port a/p0 is of backend udp (it might be given a/p0: name ports of verbs)",
        ),
        ("a named one, too", rack("x"), JobWish(("a/p0",), backend="xdp"), "port a/p0 is of backend udp"),
    ],
)
def test_a_rack_that_cannot_take_a_job_says_why(
    sentence: str, answer: RackAnswer[RackView], wish: JobWish, reason: str
) -> None:
    choice = choose([answer], wish)
    assert (choice.candidates, choice.refused) == ((), (("x", reason),)), sentence


@pytest.mark.parametrize(
    ("sentence", "answers", "wish", "order"),
    [
        ("the first of equals", [rack("x"), rack("y")], JobWish(), ["x", "y"]),
        ("a free one before a busy one", [rack("x", job(JobState.QUEUED)), rack("y")], JobWish(), ["y", "x"]),
        (
            "jobs of lower priority do not come before",
            [rack("x", job(JobState.QUEUED, priority=-1)), rack("y")],
            JobWish(),
            ["x", "y"],
        ),
        (
            "two short jobs are waited for rather than one long one",
            [
                rack("x", job(JobState.QUEUED), job(JobState.FINISHED, 2, took_s=50)),
                rack(
                    "y", job(JobState.QUEUED), job(JobState.QUEUED, 2), job(JobState.FINISHED, 3, took_s=10)
                ),
            ],
            JobWish(),
            ["y", "x"],
        ),
        ("what a rack lacks leaves the other", [rack("x"), rack("y", dut="a")], JobWish(dut="a"), ["y"]),
    ],
)
def test_the_rack_with_the_shortest_wait_comes_first(
    sentence: str, answers: list[RackAnswer[RackView]], wish: JobWish, order: list[str]
) -> None:
    assert [one.place.name for one in choose(answers, wish).candidates] == order, sentence


def test_a_wait_is_explained() -> None:
    busy = rack("x", job(JobState.QUEUED), job(JobState.FINISHED, 2, took_s=30))
    (candidate,) = choose([busy], JobWish(port_count=1)).candidates
    assert candidate.why == "0 jobs hold its ports and 1 come before, about 30 s"
