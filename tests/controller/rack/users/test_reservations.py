"""Ports that are kept for somebody: who gets them when, over a restart too, and reservations that make no sense."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import Problem
from etloop.controller.rack.api import Rack, ScenarioRules
from etloop.controller.rack.dispatch import RackPort
from etloop.controller.rack.job import JobRequest, PortDemand
from etloop.controller.rack.operators import Operators, Refused, Wanted
from etloop.controller.rack.store.job_store import JobStore
from etloop.controller.rack.submissions import Accepted, RackLimits
from etloop.controller.rack.users.reservations import (
    MOST_RESERVATIONS,
    Reservation,
    Reservations,
    parse_time_ns,
    time_text,
)

PORTS = tuple(RackPort(label, label[0], 1) for label in ("a/p0", "b/p0"))
HOUR_NS = 3600 * NS_PER_S
NOW_NS = int(datetime(2026, 11, 24, 8, tzinfo=UTC).timestamp()) * NS_PER_S
AT_10 = "2026-11-24T10:00Z"
AT_12 = "2026-11-24T13:00+01:00"


def rack_of(path: Path) -> Rack:
    numbers = iter(range(100))
    limits = RackLimits(10, 10, 1 << 20, 24 * HOUR_NS)
    return Rack(JobStore.open(path / "s"), PORTS, limits, ScenarioRules(path), lambda: f"j{next(numbers)}")


def submitted(rack: Rack, hours: int, owner: str = "", port: str = "a/p0") -> str:
    request = JobRequest("x", PortDemand((port,)), time_limit_ns=hours * HOUR_NS, owner=owner)
    answer = rack.submit(request, "test", ())
    assert isinstance(answer, Accepted)
    return answer.job.job_id


def starting(rack: Rack, at_ns: int) -> list[str]:
    return [start.job.job_id for start in rack.starts(frozenset("ab"), wall_ns=at_ns)]


def reserved(rack: Rack, user: str = "ann", ports: tuple[str, ...] = ("a",)) -> Reservation:
    made = Operators(rack).reserve("r1", Wanted(ports, user, AT_10, AT_12, "a demo"), "mqtt:ops", NOW_NS)
    assert isinstance(made, Reservation), made
    return made


def test_a_job_that_would_run_into_a_reservation_waits_and_a_shorter_one_starts(tmp_path: Path) -> None:
    rack = rack_of(tmp_path)
    reserved(rack)
    long, short, hers = submitted(rack, 3), submitted(rack, 1), submitted(rack, 3, "ann", "a/p0")
    assert starting(rack, NOW_NS) == [short], "it is over when the reservation begins"
    assert rack.waits_for(long) == (
        "port a/p0 is reserved for ann from 2026-11-24T10:00:00Z until 2026-11-24T12:00:00Z by mqtt:ops: a demo; "
        "the job may take until 2026-11-24T11:00:00Z"
    )
    assert starting(rack, NOW_NS + 2 * HOUR_NS) == [hers], "in its time the user's jobs get the port"
    assert starting(rack, NOW_NS + 4 * HOUR_NS) == [long], "afterwards everybody's"
    assert rack.orders.reservations.all() == ()
    assert rack.store.reservations() == ()


def test_what_is_reserved_for_nobody_is_left_alone(tmp_path: Path) -> None:
    rack = rack_of(tmp_path)
    reserved(rack, user="")
    submitted(rack, 3, "ann")
    other = submitted(rack, 3, "ann", "b/p0")
    assert starting(rack, NOW_NS + 2 * HOUR_NS) == [other]


def test_reservations_stand_over_a_restart_and_are_taken_back(tmp_path: Path) -> None:
    made = reserved(rack_of(tmp_path))
    rack = rack_of(tmp_path)
    assert rack.orders.reservations.all() == (made,)
    job_id = submitted(rack, 3)
    assert starting(rack, NOW_NS) == []
    operators = Operators(rack)
    assert operators.unreserve("r2", "", "mqtt:ops") is None
    assert operators.unreserve("r1", "not today", "mqtt:ops") == made
    assert starting(rack, NOW_NS) == [job_id]
    assert [line.event for line in rack.store.audit()][-1] == "no longer reserved: a/p0"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Wanted(("c",), "ann", "", AT_12), 'ports: the rack has no agent or port "c"'),
        (Wanted((), "ann", "", AT_12), "ports: the list is empty"),
        (Wanted(("a",), "an/n", "", AT_12), 'user: "an/n" is not a user name'),
        (Wanted(("a",), "ann", "", "noon"), 'ends_at: "noon" is not a time; write a time with its offset'),
        (Wanted(("a",), "ann", "2026-11-24T09:00", AT_12), "has no UTC offset"),
        (Wanted(("a",), "ann", AT_12, AT_10), "ends_at: 2026-11-24T10:00:00Z is not after the start"),
        (Wanted(("a",), "ann", "", "2026-11-24T07:00Z"), "or has passed; give a later end"),
        (
            Wanted(("a",), "ann", "", "2036-11-24T07:00Z"),
            "is more than a year ahead; reserve at most a year ahead",
        ),
        (Wanted(("b",), "bob", "", "2026-11-24T11:00Z"), "ports: b/p0 is reserved for ann from"),
        (Wanted(("a",), "ann", "", AT_12, "x" * 501), "reason: 501 characters"),
    ],
)
def test_a_reservation_that_makes_no_sense_is_refused(tmp_path: Path, wanted: Wanted, expected: str) -> None:
    rack = rack_of(tmp_path)
    reserved(rack, ports=("b",))
    refused = Operators(rack).reserve("r2", wanted, "mqtt:ops", NOW_NS)
    assert isinstance(refused, Refused)
    assert expected in "; ".join(map(str, refused.problems))
    assert len(rack.orders.reservations.all()) == 1


def test_one_that_begins_in_the_past_begins_now(tmp_path: Path) -> None:
    made = Operators(rack_of(tmp_path)).reserve(
        "r1", Wanted(("a",), "", "2026-11-01T00:00Z", AT_12), "mqtt", NOW_NS
    )
    assert isinstance(made, Reservation)
    assert made.begins_ns == NOW_NS


def test_there_are_only_so_many() -> None:
    window = (NOW_NS, NOW_NS + HOUR_NS)
    kept = Reservations(
        Reservation(f"r{n}", ("a/p0",), "", *window, "", "") for n in range(MOST_RESERVATIONS)
    )
    (problem,) = kept.problems(("b/p0",), "", window, NOW_NS)
    assert problem.what == f"there are {MOST_RESERVATIONS} reservations, the most allowed"


@pytest.mark.parametrize("text", ["", "1", "2026-13-01T00:00Z", "9999-12-31T23:59:59-14:00", "x" * 1000])
def test_what_is_no_time_is_refused(text: str) -> None:
    found = parse_time_ns("ends_at", text)
    assert isinstance(found, Problem) or time_text(found).endswith("Z")
