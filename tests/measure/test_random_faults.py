"""A rack that chance breaks loses nothing; and whatever it could lose is found by those who look.

The seed is in the test's name. ETLOOP_FULL=1 breaks it a thousand times over five hundred jobs; otherwise it meets the three
faults that other tests do not inflict on a whole rack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etloop.contract.base.errors import ExitCode
from etloop.controller.rack.job import Job, JobEvent, JobRequest, PortDemand
from etloop.controller.rack.store.job_store import JobStore
from tests.measure.breaking.causes import REASONS, Inflicted, Unpassed, wrong_causes
from tests.measure.breaking.faults import Fault, drawn_faults
from tests.measure.breaking.rack import absence
from tests.measure.random_faults import (
    Healed,
    Outcome,
    broken_rack,
    mistakes_of,
    table_of,
)
from tests.support.first_light.commands import FULL

JOBS = 500 if FULL else 3
FEW = (Fault.ALL_STOPPED, Fault.CONTROL_CUT, Fault.DESCRIPTORS_GONE)
TO_THE_END = (JobEvent.LEASED, JobEvent.GATHERED, JobEvent.TRAFFIC_ENDED)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JobStore]:
    opened = JobStore.open(tmp_path / "jobs.sqlite")
    yield opened
    opened.close()


def ended(store: JobStore, job_id: str, **ending: Any) -> Job:
    """A job that came to its end in this way."""
    job, _ = store.submit(job_id, JobRequest("x", PortDemand(), client_key=f"key of {job_id}"), "test")
    for event in TO_THE_END:
        job = store.advance(job, event, "test")
    return store.advance(job, JobEvent.STORED, "test", **ending)


@pytest.mark.parametrize(
    ("sentence", "ending", "found"),
    [
        ("a verdict with its reason", {"exit_code": ExitCode.VERDICT_FAILED, "reason": "slow"}, ()),
        (
            "nobody knows how it ended",
            {"exit_code": ExitCode.RUN_ERROR},
            ("j1 ended as finished with exit code 50 and no reason",),
        ),
        ("a pass of nothing", {"exit_code": ExitCode.PASS}, ("j1 passed and kept nothing",)),
        (
            "the directory is gone",
            {"exit_code": ExitCode.VERDICT_FAILED, "reason": "slow", "run_directory": "gone"},
            ("j1 kept no whole run: ",),
        ),
        (
            "no exit code",
            {"reason": "slow"},
            ("j1 has no exit code",),
        ),
    ],
)
def test_what_a_job_lacks_is_found(
    store: JobStore, tmp_path: Path, sentence: str, ending: dict[str, Any], found: tuple[str, ...]
) -> None:
    ended(store, "j1", **ending)
    mistakes = mistakes_of(store, tmp_path, {"key of j1": "j1"})
    assert len(mistakes) == len(found), sentence
    assert all(mistake.startswith(each) for mistake, each in zip(mistakes, found, strict=True)), mistakes


def test_a_job_that_was_acknowledged_and_is_gone_is_found(store: JobStore, tmp_path: Path) -> None:
    assert mistakes_of(store, tmp_path, {"key": "j0"}) == ("j0 was acknowledged and is not there",)


def test_a_job_that_has_not_ended_is_found(store: JobStore, tmp_path: Path) -> None:
    store.submit("j1", JobRequest("x", PortDemand()), "test")
    assert mistakes_of(store, tmp_path, {}) == ("j1 has not ended: queued",)


def test_a_job_that_ran_twice_is_found(store: JobStore, tmp_path: Path) -> None:
    ended(store, "j1", exit_code=ExitCode.VERDICT_FAILED, reason="slow")
    store.note("test", "starting -> running", "j1")
    assert mistakes_of(store, tmp_path, {}) == ("j1 ran 2 times and was queued 1 times",)
    store.note("test", "interrupted -> queued", "j1")
    assert mistakes_of(store, tmp_path, {}) == (), "it was queued again"


@pytest.mark.parametrize(
    ("ready_s", "mistakes", "holds"), [(30.0, (), True), (30.1, (), False), (0.0, ("j1 is gone",), False)]
)
def test_an_outcome_holds_if_nothing_was_lost_and_the_rack_was_ready_in_time(
    ready_s: float, mistakes: tuple[str, ...], *, holds: bool
) -> None:
    outcome = Outcome((Healed(Fault.DISK_FULL, ready_s),), {"finished, 0": 2}, mistakes)
    assert outcome.holds is holds
    assert "| disk full for a while | 1 |" in table_of(outcome)
    assert all(f"MISTAKE: {each}" in table_of(outcome) for each in mistakes)


@pytest.mark.parametrize(
    ("sentence", "reason", "right"),
    [
        ("the agent that was killed", "agent 'b': its connection is closed, in RUN", True),
        ("the other agent", "agent 'a': its connection is closed, in RUN", False),
        (
            "the engine of the other, with the agent that was killed",
            "agent 'b': was not heard for 3.0 s",
            True,
        ),
        ("no reason at all", "its process ended without a result", False),
        ("a damaged trace needs no fault", "traces/damaged/w.0.et: is not a Chakra trace", True),
    ],
)
def test_a_wrong_cause_is_found(sentence: str, reason: str, right: bool) -> None:
    killed = (Inflicted(Fault.AGENT_KILLED, 10.0, 11.0, "b"),)
    wrong = wrong_causes([Unpassed("j1", reason, 9.0, 12.0, has_damaged_trace=True)], killed)
    assert wrong == (
        () if right else (f"j1 gives a wrong cause: {reason} (faults meanwhile: agent killed b)",)
    ), sentence


@pytest.mark.parametrize(
    ("begin_s", "end_s", "right"),
    [(9.0, 10.5, True), (13.9, 20.0, True), (14.1, 20.0, False), (8.0, 9.9, False)],
)
def test_a_fault_causes_only_ends_of_jobs_that_it_meets(begin_s: float, end_s: float, *, right: bool) -> None:
    killed = (Inflicted(Fault.AGENT_KILLED, 10.0, 11.0, "b"),)
    job = Unpassed("j1", "agent 'b': its connection is closed, in RUN", begin_s, end_s)
    assert (wrong_causes([job], killed) == ()) is right


@pytest.mark.parametrize(
    "fault", [Fault.CONTROL_CUT, Fault.ALL_STOPPED, Fault.BROKER_KILLED, Fault.RIG_DAMAGED]
)
def test_a_fault_that_must_end_nothing_is_no_cause(fault: Fault) -> None:
    job = Unpassed("j1", "all agents have fallen silent together", 9.0, 12.0)
    assert len(wrong_causes([job], [Inflicted(fault, 10.0, 11.0)])) == 1


def test_only_a_job_of_the_damaged_trace_may_name_it() -> None:
    assert len(wrong_causes([Unpassed("j1", "traces/damaged/w.0.et: is not a trace", 9.0, 12.0)], [])) == 1


def test_every_kind_of_fault_has_its_causes_and_comes_equally_often() -> None:
    assert REASONS.keys() == set(Fault)
    assert Counter(Counter(drawn_faults(3 * len(Fault), 1)).values()) == {3: len(Fault)}


@pytest.mark.e2e
@pytest.mark.timeout(300 if not FULL else 4 * 3600)
@pytest.mark.parametrize("seed", [20261123])
def test_a_rack_that_chance_breaks_loses_nothing(tmp_path: Path, seed: int) -> None:
    if why := absence():
        pytest.skip(f"a rack cannot be broken here: {why}")
    faults = drawn_faults(1000 if FULL else len(FEW), seed, tuple(Fault) if FULL else FEW)
    outcome = broken_rack(tmp_path, faults, JOBS, seed, print, None if FULL else 4.0)
    assert outcome.mistakes == ()
    assert outcome.wrong_causes == () or FULL
    assert outcome.holds, table_of(outcome)
    assert sum(outcome.ended.values()) == JOBS
