"""Which ports of a rack are in service, and what a job that cannot have one is told."""

from __future__ import annotations

import pytest

from etloop.contract.base.errors import Problem
from etloop.contract.protocol.form_digest import MESSAGES, messages_digest
from etloop.contract.protocol.machine import IllegalTransition, advance
from etloop.contract.protocol.messages import Hello, LoadFailed
from etloop.controller.rack.dispatch import RackPort, Restrictions, decide
from etloop.controller.rack.job import Job, JobRequest, JobState, PortDemand
from etloop.controller.rack.port_health import (
    PORT_TRANSITIONS,
    PortEvent,
    PortHealth,
    PortState,
    blamed_ports,
)
from etloop.controller.session.run_problems import unloadable
from tests.support.places import ROOT
from tests.support.state_diagram import mermaid

DOWN = Problem("port p0", "interface p0 is down", "on h: ip link set dev p0 up")
AGENT = Hello("a", "h", 1, {MESSAGES: messages_digest()})
PORTS = tuple(RackPort(f"{agent}/p0", agent, 10**10) for agent in "abc")
PRESENT = frozenset("abc")


@pytest.mark.parametrize("event", PortEvent)
@pytest.mark.parametrize("state", PortState)
def test_every_pair_is_legal_or_loud(state: PortState, event: PortEvent) -> None:
    if event in PORT_TRANSITIONS[state]:
        assert advance("port", PORT_TRANSITIONS, state, event) is PORT_TRANSITIONS[state][event]
    else:
        with pytest.raises(IllegalTransition):
            advance("port", PORT_TRANSITIONS, state, event)


def test_the_page_shows_the_table() -> None:
    table = mermaid(PORT_TRANSITIONS)
    page = (ROOT / "docs" / "rack.md").read_text()
    assert f"```mermaid\n{table}\n```" in page, f"put this there:\n{table}"


def test_a_port_goes_out_of_service_after_two_jobs() -> None:
    health = PortHealth(["a/p0", "b/p0"])
    assert not health.note_unprepared("a/p0", "j1", "down")
    assert not health.note_unprepared("a/p0", "j1", "down"), "the same job once more tells nothing new"
    assert health.out_of_service() == {}
    assert health.note_unprepared("a/p0", "j2", "interface p0 is down")
    assert health.out_of_service() == {"a/p0": "out of service: interface p0 is down"}
    assert not health.note_unprepared("a/p0", "j3", "down"), "it is out of service already"


def test_a_job_that_ran_on_it_clears_a_port() -> None:
    health = PortHealth(["a/p0"])
    health.note_unprepared("a/p0", "j1", "down")
    health.note_prepared(["a/p0"])
    health.note_unprepared("a/p0", "j2", "down")
    assert health.state_of("a/p0") is PortState.SUSPECT


def test_a_host_that_changed_gets_one_more_job() -> None:
    health = PortHealth(["a/p0", "b/p0"])
    for job in ("j1", "j2"):
        health.note_unprepared("a/p0", job, "down")
    assert health.host_changed("b") == ()
    assert health.host_changed("a") == ("a/p0",)
    assert health.out_of_service() == {}
    assert health.note_unprepared("a/p0", "j3", "down"), "and goes again if that did not help"


@pytest.mark.parametrize(
    ("problem", "blamed", "why"),
    [
        (DOWN, {"a/p0": "interface p0 is down; on h: ip link set dev p0 up"}, "the host's"),
        (
            Problem("port p0", "interface p0 has an MTU of 1500; a path MTU of 4096 needs 4160", "lower it"),
            {},
            "what this scenario asks for",
        ),
        (Problem("engine", "a port would record too many ops", "run fewer"), {}, "the scenario's"),
        (Problem("congestion control x", "is code", "start with --allow-plugins"), {}, "the scenario's"),
    ],
)
def test_a_port_is_blamed_for_what_is_its_hosts(problem: Problem, blamed: dict[str, str], why: str) -> None:
    assert blamed_ports(unloadable(AGENT, LoadFailed("r1", (problem,)))) == blamed, why


def queued(number: int, demand: PortDemand) -> Job:
    return Job(f"j{number}", number, JobRequest("x", demand), JobState.QUEUED, "")


def test_a_job_that_names_such_a_port_waits_and_holds_nothing() -> None:
    why = {"a/p0": "out of service: interface p0 is down"}
    named = queued(1, PortDemand(("a/p0", "b/p0")))
    other = queued(2, PortDemand(("b/p0",)))
    decision = decide((named, other), PORTS, {}, PRESENT, 9, restrictions=Restrictions(why))
    assert [start.job.job_id for start in decision.starts] == ["j2"]
    assert [held.waits_for for held in decision.held] == ["port a/p0 is out of service: interface p0 is down"]


def test_a_job_that_wants_any_port_gets_another() -> None:
    (start,) = decide(
        (queued(1, PortDemand(count=2)),),
        PORTS,
        {},
        PRESENT,
        9,
        restrictions=Restrictions({"a/p0": "out of service"}),
    ).starts
    assert start.ports == ("b/p0", "c/p0")
