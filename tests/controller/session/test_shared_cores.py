"""Agents of one machine share its cores without two polling threads on one, whatever the rig calls their hosts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from etloop.contract.model.assignment import Assignment, HostThreads
from etloop.contract.model.capabilities import Capabilities
from etloop.contract.protocol.messages import Hello
from etloop.controller.session.shared_cores import share_cores
from etloop.traffic.threads.loop_threads import ORDINARY, LoopThreads, ThreadPlan, plan_threads
from tests.support.control_plane.control_plane_by_hand import ring_assignments


@dataclass(frozen=True)
class On:
    """Where an agent is."""

    cores: str
    machine: str = "m"
    named: bool = False
    quota: int = 0

    @property
    def capabilities(self) -> Capabilities:
        ids = tuple(map(int, self.cores.split()))
        return Capabilities(
            cores=len(ids),
            core_ids=ids,
            cores_named=self.named,
            quota_millicores=self.quota,
            machine=self.machine,
        )


def planned(places: dict[str, On], busy: dict[str, int] | None = None) -> dict[str, ThreadPlan]:
    """How the threads of agents run that have one each, on hosts that the rig tells apart; `busy`: of other runs, by agent."""
    before = {
        name: replace(one, threads=HostThreads(others, others + 1, others))
        for name, one in ring_assignments(*places).items()
        for others in [(busy or {}).get(name, 0)]
    }
    hellos = {name: Hello(name, "vm", 1, {}, 0, place.capabilities) for name, place in places.items()}
    shared = share_cores(before, hellos)
    return {name: threads_of(shared[name], places[name]) for name in places}


def threads_of(assignment: Assignment, place: On) -> ThreadPlan:
    usable = place.capabilities.core_ids
    wanted = LoopThreads(usable) if place.named else ORDINARY
    return plan_threads(wanted, assignment.threads, 1, wanted.cores or assignment.threads.cores or usable)


@pytest.mark.parametrize(
    ("sentence", "places", "cores"),
    [
        ("two agents on two cores", {"a": On("0 1"), "b": On("0 1")}, [(0,), (1,)]),
        ("on two machines each has the first", {"a": On("0 1"), "b": On("0 1", "n")}, [(0,), (0,)]),
        (
            "of a machine that is not known, as the rig says",
            {"a": On("0 1", ""), "b": On("0 1", "")},
            [(0,), (0,)],
        ),
        ("three on two cores: nobody polls", {"a": On("0 1"), "b": On("0 1"), "c": On("0 1")}, [(), (), ()]),
        ("sets that do not overlap are nobody's business", {"a": On("0 1"), "b": On("2 3")}, [(0,), (2,)]),
        (
            "sets that overlap count through what they have in common",
            {"a": On("1 2"), "b": On("0 1 2 3")},
            [(1,), (2,)],
        ),
        (
            "cores that were named are left to who named them",
            {"a": On("0", named=True), "b": On("0 1")},
            [(0,), (1,)],
        ),
        ("a quota is as good as fewer cores", {"a": On("0 1 2"), "b": On("0 1 2", quota=1500)}, [(), ()]),
    ],
)
def test_no_core_is_polled_by_two(sentence: str, places: dict[str, On], cores: list[tuple[int, ...]]) -> None:
    plans = planned(places)
    assert [plan.processors for plan in plans.values()] == cores, sentence
    assert all((plan.spin_ns > 0) == bool(plan.processors) for plan in plans.values()), sentence


def test_who_cannot_poll_says_how_many_it_shares_with() -> None:
    plans = planned({"a": On("0 1"), "b": On("0 1"), "c": On("0 1")})
    assert plans["a"].degraded == (
        "3 engine threads, with those of 2 other agents, share 2 cores: idle loops sleep instead of polling",
    )
    plans = planned({"a": On("0", named=True), "b": On("0 1", named=True)})
    assert [plan.spin_ns for plan in plans.values()] == [0, 0], "both were given core 0"
    assert "with those of 1 other agent, share" in plans["a"].degraded[0]


def test_numbers_of_other_runs_are_left_to_them() -> None:
    plans = planned({"a": On("0 1 2"), "b": On("0 1 2")}, {"a": 1, "b": 1})
    assert [plan.processors for plan in plans.values()] == [(1,), (2,)]
    plans = planned({"a": On("4 7", named=True)}, {"a": 1})
    assert [plan.processors for plan in plans.values()] == [(7,)], "another run of the agent has the first"
    plans = planned({"a": On("4", named=True)}, {"a": 1})
    assert [plan.spin_ns for plan in plans.values()] == [0]
