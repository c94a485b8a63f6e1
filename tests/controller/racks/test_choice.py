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
from etloop.controller.racks.choice import JobWish, choose, wish_of
from etloop.controller.racks.needs import Needs
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
    return RackAnswer(RackPlace(name, "127.0.0.1", rack=name), view)


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
_TWO = tuple(PortStatus(f"a/p{k}", GIGABIT, "", k * "broken", "udp") for k in range(2))
_PRESENT = AgentStatus(1, "a", True, True, 0, "host", {}, None, None)
OUT = changed(rack("x"), inventory=InventoryResponse(1, (_PRESENT,), _TWO, (), (), ""))
"""Its second port is out of service."""
_MIXED = (
    *(PortStatus(f"a/p{k}", GIGABIT, "", "", "udp") for k in range(2)),
    *(PortStatus(f"a/x{k}", GIGABIT, "", "", "xdp") for k in range(3)),
)
MIXED = changed(rack("x"), inventory=InventoryResponse(1, (_PRESENT,), _MIXED, (), (), ""))
SILENT: RackAnswer[RackView] = RackAnswer(RackPlace("x", "127.0.0.1", rack="x"), None, "no broker")


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
            "its device under test is b; needs a",
        ),
        ("no device", rack("x"), JobWish(dut="a"), "its device under test is not named; needs a"),
        (
            "no such port",
            rack("x"),
            JobWish(Needs(ports=("c/p0",), ports_key="mapping.ports")),
            "it has no port c/p0 (mapping.ports)",
        ),
        (
            "too few that are fast enough",
            rack("x", link=100),
            JobWish(Needs(port_count=2, least_link_bps=400 * GIGABIT)),
            "needs 2 ports of at least 400Gbps; 0 are in service with their agents; 2 other ports do not match",
        ),
        (
            "too few",
            rack("x"),
            JobWish(Needs(port_count=3)),
            "needs 3 ports; 2 are in service with their agents",
        ),
        ("an agent is away", ABSENT, JobWish(), "needs 2 ports; 0 are in service with their agents"),
        (
            "ports of another backend",
            rack("x"),
            JobWish(Needs(backends=("packet", "xdp"), backend_key="transport.kind uet")),
            (
                "needs 1 ports of backend packet or xdp (transport.kind uet); 0 are in service with their agents;"
                " 2 other ports do not match"
            ),
        ),
        (
            "a named one, too",
            rack("x"),
            JobWish(Needs(("a/p0",), backends=("xdp",), backend_key="--backend")),
            "port a/p0 has backend udp; needs xdp (--backend)",
        ),
        (
            "a named one that is too slow",
            rack("x", link=10),
            JobWish(Needs(("a/p0",), least_link_bps=25 * GIGABIT, link_key="workload: flows.rate")),
            "port a/p0 has 10Gbps; needs 25Gbps (workload: flows.rate)",
        ),
        (
            "a port that a part of the job is on",
            OUT,
            JobWish(Needs(among=("a/p1",), ports_key="background")),
            "port a/p1 (background) does not fit, is out of service, or its agent is absent",
        ),
        (
            "one port, where nothing would cross the device",
            OUT,
            JobWish(Needs(port_count=4, least_ports=2), shares=True),
            "needs 2 ports; 1 are in service with their agents",
        ),
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
    (candidate,) = choose([busy], JobWish(Needs(port_count=1))).candidates
    assert candidate.why == "0 jobs hold its ports and 1 are ahead in the queue, about 30 s"


@pytest.mark.parametrize(
    ("sentence", "answer", "wish", "asked"),
    [
        ("the rack chooses where all of its ports fit", rack("x"), JobWish(Needs(port_count=2)), ((), 2)),
        ("all that fit, where nobody knows how many", rack("x"), JobWish(), ((), 0)),
        (
            "ports are named where the rack has others, too, of which it would take any",
            MIXED,
            JobWish(Needs(port_count=2, backends=("packet", "xdp"))),
            (("a/x0", "a/x1"), 0),
        ),
        ("all of them", MIXED, JobWish(Needs(backends=("xdp",))), (("a/x0", "a/x1", "a/x2"), 0)),
        (
            "with those that a part of the job is on",
            MIXED,
            JobWish(Needs(among=("a/x2",), port_count=2)),
            (("a/p0", "a/x2"), 0),
        ),
        (
            "hosts share what there is",
            rack("x"),
            JobWish(Needs(port_count=4, least_ports=2), shares=True),
            ((), 2),
        ),
        ("as named", MIXED, JobWish(Needs(ports=("a/x1", "a/p0"))), (("a/x1", "a/p0"), 0)),
    ],
)
def test_a_rack_is_asked_for_ports_that_fit(
    sentence: str, answer: RackAnswer[RackView], wish: JobWish, asked: tuple[tuple[str, ...], int]
) -> None:
    (candidate,) = choose([answer], wish).candidates
    assert (candidate.ports, candidate.port_count) == asked, sentence


def test_a_rack_with_a_port_for_each_host_comes_before_one_that_waits_less() -> None:
    small = changed(rack("x"), inventory=InventoryResponse(1, (_PRESENT,), _TWO[:1], (), (), ""))
    wish = JobWish(Needs(port_count=2), shares=True)
    choice = choose([small, rack("y", job(JobState.QUEUED))], wish)
    assert [one.place.name for one in choice.candidates] == ["y", "x"]
    assert choice.candidates[1].why == "1 of its ports are free and no job waits; 2 hosts share its 1 ports"


STATED = Needs(
    ports=("a/p0", "b/p0"),
    ports_key="mapping.ports",
    least_link_bps=10,
    link_key="k",
    backends=("xdp",),
    backend_key="t",
)


def test_what_the_command_line_says_holds_over_the_scenario() -> None:
    assert wish_of(STATED, Needs(), "", 0).needs == STATED
    given = Needs(port_count=3, count_key="--port-count", least_link_bps=20, link_key="--least-link")
    wish = wish_of(STATED, given, "", 0)
    assert (wish.needs.ports, wish.needs.among, wish.needs.port_count, wish.shares) == (
        (),
        ("a/p0", "b/p0"),
        3,
        False,
    )
    assert (wish.needs.least_link_bps, wish.needs.link_key, wish.needs.backends) == (
        20,
        "--least-link",
        ("xdp",),
    )
    other = wish_of(STATED, Needs(ports=("c/p0",), ports_key="--ports", backends=("udp",)), "", 0).needs
    assert (other.ports, other.among, other.ports_key, other.backends) == (("c/p0",), (), "--ports", ("udp",))
