"""Jobs of a rack: what may follow what, which starts when and on which ports, and that a store keeps what it said."""

from __future__ import annotations

import json
import os
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.cli.main import main
from etloop.contract.base.errors import ConfigError, ExitCode
from etloop.contract.protocol.machine import IllegalTransition
from etloop.controller.rack.api import Rack, ScenarioRules
from etloop.controller.rack.config import Retention
from etloop.controller.rack.dispatch import RackPort, decide, misfit
from etloop.controller.rack.job import (
    ENDED,
    JOB_TRANSITIONS,
    MOST_REASON_CHARACTERS,
    Job,
    JobEvent,
    JobRequest,
    JobState,
    PortDemand,
)
from etloop.controller.rack.job_words import LIST_HEADS
from etloop.controller.rack.store import artifacts, locks
from etloop.controller.rack.store.job_store import JobStore, StoreFailed
from etloop.controller.rack.submissions import Accepted, RackLimits, Rejected

GIGABIT = 1_000_000_000
PORTS = tuple(RackPort(f"{agent}/p{k}", agent, 100 * GIGABIT) for agent in "ab" for k in range(2))
BOTH = frozenset("ab")


def job(number: int, demand: PortDemand, priority: int = 0) -> Job:
    """A queued job; its id says its number."""
    request = JobRequest("trace: x", demand, priority)
    return Job(f"j{number}", number, request, JobState.QUEUED, "2026-01-01T00:00:00.000+00:00")


def named(*labels: str) -> PortDemand:
    """Wants these ports."""
    return PortDemand(named=labels)


def started(
    jobs: list[Job], leases: dict[str, str] | None = None, most: int = 8
) -> dict[str, tuple[str, ...]]:
    """Job -> ports of what starts now."""
    decision = decide(jobs, PORTS, leases or {}, BOTH, most)
    return {start.job.job_id: start.ports for start in decision.starts}


def test_jobs_on_disjoint_ports_start_together() -> None:
    assert started([job(1, named("a/p0")), job(2, named("b/p0", "b/p1"))]) == {
        "j1": ("a/p0",),
        "j2": ("b/p0", "b/p1"),
    }


def test_the_higher_priority_starts_first_and_then_the_earlier_submission() -> None:
    same = named("a/p0")
    assert started([job(1, same), job(2, same, priority=5), job(3, same, priority=5)]) == {"j2": ("a/p0",)}


def test_a_job_that_waits_keeps_its_free_ports_from_later_ones() -> None:
    jobs = [job(2, named("a/p0", "a/p1")), job(3, named("a/p1")), job(4, named("b/p0"))]
    decision = decide(jobs, PORTS, {"a/p0": "j1"}, BOTH, 8)
    assert [start.job.job_id for start in decision.starts] == ["j4"]
    assert [(held.job.job_id, held.waits_for) for held in decision.held] == [
        ("j2", "port a/p0 is leased to job j1"),
        ("j3", "port a/p1 is kept for job j2, which is ahead in the queue"),
    ]


def test_any_ports_are_free_ones_of_agents_that_are_there() -> None:
    decision = decide([job(2, PortDemand(count=1))], PORTS, {"a/p0": "j1"}, frozenset("a"), 8)
    assert decision.starts[0].ports == ("a/p1",)


def test_no_ports_named_and_none_counted_means_all_of_them() -> None:
    assert started([job(1, PortDemand())]) == {"j1": tuple(port.label for port in PORTS)}


def test_a_job_waits_for_an_agent_that_has_not_joined() -> None:
    decision = decide([job(1, named("b/p0"))], PORTS, {}, frozenset("a"), 8)
    assert decision.held[0].waits_for == "agent 'b' has not joined"


def test_who_waits_for_an_agent_that_is_gone_holds_nobody_up() -> None:
    jobs = [job(1, named("a/p0", "b/p0")), job(2, named("a/p0"))]
    there = frozenset("a")
    (held, behind) = decide(jobs, PORTS, {}, there, 8).held
    assert (held.waits_for, behind.waits_for) == (
        "agent 'b' has not joined",
        "port a/p0 is kept for job j1, which is ahead in the queue",
    ), "b may be on its way back from a run"
    decision = decide(jobs, PORTS, {}, there, 8, gone=frozenset("b"))
    assert [start.job.job_id for start in decision.starts] == ["j2"]
    assert [held.waits_for for held in decision.held] == ["agent 'b' has not joined"]


@pytest.mark.parametrize(
    ("demand", "waits_for"),
    [
        (named("a/p0", "c/p0"), "the rig no longer has port c/p0"),
        (PortDemand(count=5), "needs 5 ports of that speed; the rig has 4"),
        (PortDemand(least_link_bps=1 << 60), "needs 1 ports of that speed; the rig has 0"),
    ],
)
def test_a_job_whose_ports_the_rig_lost_waits_and_keeps_none_from_others(
    demand: PortDemand, waits_for: str
) -> None:
    decision = decide([job(1, demand), job(2, PortDemand())], PORTS, {}, BOTH, 8)
    assert [held.waits_for for held in decision.held] == [waits_for]
    assert [start.job.job_id for start in decision.starts] == ["j2"]


def test_no_more_run_side_by_side_than_the_rack_allows() -> None:
    decision = decide([job(1, named("a/p0")), job(2, named("b/p0"))], PORTS, {}, BOTH, 1)
    assert [start.job.job_id for start in decision.starts] == ["j1"]
    assert decision.held[0].waits_for == "1 jobs are running, at most 1 may"


@pytest.mark.parametrize(
    ("demand", "what"),
    [
        (named("c/p9"), 'the rack has no port "c/p9"; it has a/p0, a/p1, b/p0, b/p1'),
        (PortDemand(count=5), "needs 5 ports of that speed; the rack has 4"),
        (
            PortDemand(count=1, least_link_bps=400 * GIGABIT),
            "needs 1 ports of that speed; the rack has 0",
        ),
    ],
)
def test_a_demand_that_can_never_be_met_is_named(demand: PortDemand, what: str) -> None:
    assert misfit(demand, PORTS) == what


demands = st.one_of(
    st.builds(PortDemand, count=st.integers(0, 4)),
    st.builds(named, *[st.sampled_from([port.label for port in PORTS])]),
)


@given(st.lists(st.tuples(demands, st.integers(-2, 2)), max_size=12))
def test_whatever_is_queued_all_of_it_runs_and_no_port_twice(wishes: list[tuple[PortDemand, int]]) -> None:
    queued = [job(number, demand, priority) for number, (demand, priority) in enumerate(wishes)]
    while queued:
        decision = decide(queued, PORTS, {}, BOTH, 8)
        ports = [label for start in decision.starts for label in start.ports]
        assert len(ports) == len(set(ports))
        assert decision.starts, "the first of the queue can always start on an idle rack"
        gone = {start.job.job_id for start in decision.starts}
        assert gone | {held.job.job_id for held in decision.held} == {each.job_id for each in queued}
        queued = [each for each in queued if each.job_id not in gone]


# ---- the store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "jobs.sqlite"


REQUEST = JobRequest(
    "iterations: 2\n",
    PortDemand(("a/p0",), 0, 5),
    7,
    "nightly-1",
    "rack",
    (("suite", "qos"),),
    60 * GIGABIT,
    scenario_name="step.yaml",
)


def test_a_job_is_found_as_it_was_submitted_after_the_store_was_closed(path: Path) -> None:
    store = JobStore.open(path)
    submitted, new = store.submit("j1", REQUEST, "client")
    store.close()
    assert new
    assert submitted.request == REQUEST
    assert JobStore.open(path).find("j1") == submitted


def test_a_second_submission_with_a_client_key_is_the_first_job(path: Path) -> None:
    store = JobStore.open(path)
    first, _ = store.submit("j1", REQUEST, "client")
    assert store.submit("j2", replace(REQUEST, priority=1), "client") == (first, False)
    assert store.find("j2") is None
    other, new = store.submit("j3", replace(REQUEST, client_key=""), "client")
    assert new
    assert store.submit("j4", replace(REQUEST, client_key=""), "client")[1]
    assert store.in_states(JobState.QUEUED)[:2] == (first, other)


def test_a_job_moves_through_its_life_and_every_step_is_in_the_audit_trail(path: Path) -> None:
    store = JobStore.open(path)
    kept, _ = store.submit("j1", REQUEST, "client")
    kept = store.advance(kept, JobEvent.LEASED, "controller", leased=("a/p0",))
    kept = store.advance(kept, JobEvent.GATHERED, "controller")
    kept = store.advance(kept, JobEvent.TRAFFIC_ENDED, "controller")
    kept = store.advance(
        kept, JobEvent.STORED, "controller", exit_code=ExitCode.PASS, run_directory="j1", artifact_bytes=10
    )
    assert store.find("j1") == kept
    assert kept.state is JobState.FINISHED
    assert kept.leased == ("a/p0",)
    assert kept.submitted_at <= kept.started_at <= kept.ended_at
    assert [line.event for line in store.audit("j1")] == [
        "submitted",
        "queued -> starting",
        "starting -> running",
        "running -> storing",
        "storing -> finished",
    ]


def test_a_step_that_is_not_allowed_changes_nothing(path: Path) -> None:
    store = JobStore.open(path)
    kept, _ = store.submit("j1", REQUEST, "client")
    with pytest.raises(IllegalTransition, match="job got STORED while QUEUED; it accepts LEASED"):
        store.advance(kept, JobEvent.STORED, "controller")
    assert store.find("j1") == kept


def test_ended_jobs_are_forgotten_oldest_first_and_only_without_artifacts(path: Path) -> None:
    store = JobStore.open(path)
    for number in range(4):
        kept, _ = store.submit(f"j{number}", replace(REQUEST, client_key=""), "client")
        if number < 3:
            directory = "kept" if number == 0 else ""
            store.advance(kept, JobEvent.UNPREPARED, "controller", run_directory=directory)
    assert store.trim(most_ended_jobs=1, most_audit_lines=2) == ("j1",)
    assert [each.job_id for each in store.latest(9)] == ["j3", "j2", "j0"]
    assert len(store.audit()) == 2
    bare = store.forget_artifacts(store.with_artifacts(9)[0], "controller")
    assert (bare.job_id, store.with_artifacts(9)) == ("j0", ())


def test_a_file_that_is_no_store_is_refused(path: Path) -> None:
    path.write_bytes(b"not a database, but long enough to be read as one" * 40)
    with pytest.raises(ConfigError, match="cannot be used as job store: file is not a database"):
        JobStore.open(path)


def test_a_store_of_another_version_is_refused(path: Path) -> None:

    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 99")
    with pytest.raises(ConfigError, match="is a job store of version 99; this controller reads version 1"):
        JobStore.open(path)


def test_every_state_is_reached_and_only_ended_ones_have_no_way_out() -> None:
    reached = {JobState.QUEUED} | {target for exits in JOB_TRANSITIONS.values() for target in exits.values()}
    assert reached == set(JobState)
    assert {JobState.FINISHED, JobState.CANCELLED, JobState.INTERRUPTED} == ENDED


def test_a_store_that_is_full_changes_nothing_and_works_on_when_there_is_room(path: Path) -> None:
    store = JobStore.open(path)
    first, _ = store.submit("j1", replace(REQUEST, client_key=""), "client")
    used = store._connection.execute("PRAGMA page_count").fetchone()[0]  # noqa: SLF001
    store._connection.execute(f"PRAGMA max_page_count = {used}")  # noqa: SLF001
    long = replace(REQUEST, client_key="", scenario_text="#" * 200_000)
    with pytest.raises(StoreFailed, match="the job store cannot be written: database or disk is full"):
        store.submit("j2", long, "client")
    assert [each.job_id for each in store.latest(9)] == ["j1"]
    store._connection.execute("PRAGMA max_page_count = 1000000")  # noqa: SLF001
    assert store.submit("j2", long, "client")[1]
    assert store.find("j1") == first


def test_a_rack_says_that_its_store_is_full_and_ends_the_job_later(tmp_path: Path, path: Path) -> None:
    store = JobStore.open(path)
    ids = iter(f"j{number}" for number in range(9))
    limits = RackLimits(queued_jobs=9, running_jobs=9, scenario_bytes=1 << 20, job_time_ns=1 << 60)
    rack = Rack(store, PORTS, limits, ScenarioRules(tmp_path), lambda: next(ids))
    (tmp_path / "x").mkdir()
    request = JobRequest("workload: {trace: x}\n", named("a/p0"))
    assert isinstance(rack.submit(request, "client"), Accepted)
    (start,) = rack.starts(BOTH)
    rack.begin(start)
    store._connection.execute("PRAGMA query_only = ON")  # noqa: SLF001 - refuses to write, as a full disk does
    refused = rack.submit(request, "client")
    assert isinstance(refused, Rejected)
    assert "the job store cannot be written" in refused.problems[0].what
    with pytest.raises(StoreFailed):
        rack.cancel("j0", "client")
    for _ in range(2):
        with pytest.raises(StoreFailed):
            rack.finish("j0", ExitCode.PASS, "")
    assert rack.leases() == {"a/p0": "j0"}, "a job whose end is not noted has not ended"
    store._connection.execute("PRAGMA query_only = OFF")  # noqa: SLF001
    assert rack.finish("j0", ExitCode.PASS, "").state is JobState.FINISHED
    assert rack.leases() == {}


def test_a_reason_is_kept_up_to_a_limit(tmp_path: Path, path: Path) -> None:
    rack = Rack(
        JobStore.open(path), PORTS, RackLimits(9, 9, 1 << 20, 1 << 60), ScenarioRules(tmp_path), lambda: "j0"
    )
    (tmp_path / "x").mkdir()
    rack.submit(JobRequest("workload: {trace: x}\n", named("a/p0")), "client")
    (start,) = rack.starts(BOTH)
    rack.begin(start)
    job = rack.finish("j0", ExitCode.PREPARATION_FAILED, "1+" * 100_000)
    assert len(job.reason) == MOST_REASON_CHARACTERS
    assert job.reason.startswith("1+1+")
    assert job.reason.endswith("1 ... (more is left out)")


def test_ports_are_named_or_wished_for_and_not_both(tmp_path: Path, path: Path) -> None:
    rack = Rack(
        JobStore.open(path), PORTS, RackLimits(5, 5, 1000, GIGABIT), ScenarioRules(tmp_path), lambda: "j1"
    )
    for demand in (PortDemand(("a/p0",), count=1), PortDemand(("a/p0",), least_link_bps=1)):
        answer = rack.submit(JobRequest("workload: {trace: x}\n", demand), "test")
        assert isinstance(answer, Rejected)
        (problem,) = answer.problems
        assert problem.where == "ports"
        assert problem.remedy == "name ports, or give port_count and least_link_bps"


def test_a_serving_workload_is_refused_at_its_submission(tmp_path: Path, path: Path) -> None:
    rack = Rack(
        JobStore.open(path), PORTS, RackLimits(5, 5, 1000, GIGABIT), ScenarioRules(tmp_path), lambda: "j1"
    )
    serving = "{model: llama-3.1-8b, prefill: {instances: 1}, decode: {instances: 1}, requests: {rate: 1}}"
    answer = rack.submit(JobRequest(f"workload: {{serving: {serving}}}\n", named("a/p0")), "test")
    assert isinstance(answer, Rejected)
    (problem,) = answer.problems
    assert problem.where == "workload.serving"
    assert "etloop run" in problem.remedy


def test_a_store_is_read_beside_its_controller_and_never_written(path: Path) -> None:
    store = JobStore.open(path)
    kept, _ = store.submit("j1", REQUEST, "client")
    beside = JobStore.look(path)
    assert beside.find("j1") == kept
    store.advance(kept, JobEvent.CANCELLED, "client")
    assert beside.find("j1") != kept
    with pytest.raises(StoreFailed, match="readonly"):
        beside.note("somebody", "wrote")


def test_no_store_is_made_by_looking_for_one(path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read as job store: unable to open database file"):
        JobStore.look(path)
    assert not path.exists()


def kept_job(number: int, ended_at: str, size_bytes: int) -> Job:
    """An ended job with artifacts."""
    return replace(
        job(number, named("a/p0")),
        state=JobState.FINISHED,
        ended_at=ended_at,
        run_directory=f"j{number}",
        artifact_bytes=size_bytes,
    )


@pytest.mark.parametrize(
    ("days", "size_bytes", "gone", "why"),
    [
        (2, 1000, [], "young and small enough"),
        (11, 1000, ["j1"], "the first is too old"),
        (2, 250, ["j1"], "too much, so the oldest goes"),
        (2, 0, ["j1", "j2", "j3"], "nothing fits"),
    ],
)
def test_artifacts_go_by_age_and_size(days: int, size_bytes: int, gone: list[str], why: str) -> None:
    retention = Retention(10 * 86_400 * GIGABIT, size_bytes, ended_jobs=9, audit_lines=9)
    jobs = [kept_job(number, f"2026-01-0{number}T00:00:00+00:00", 100) for number in (1, 2, 3)]
    ages_ns = {f"j{number}": (days + 1 - number) * 86_400 * GIGABIT for number in (1, 2, 3)}
    found = artifacts.expired_jobs(jobs, 300, retention, ages_ns)
    assert [each.job_id for each in found] == gone, why


def test_a_lock_is_its_holders_until_it_ends(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert not locks.is_held(lock)
    mine = locks.acquire(lock)
    assert mine is not None
    locks.sign(mine, 4711)
    assert (locks.is_held(lock), locks.acquire(lock), locks.signature(lock)) == (True, None, 4711)
    os.close(mine)
    assert not locks.is_held(lock)


def test_jobs_are_listed_from_the_state_directory(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = JobStore.open(path)
    kept, _ = store.submit("j1", REQUEST, "client")
    store.submit("j2", replace(REQUEST, client_key=""), "client")
    store.advance(kept, JobEvent.CANCELLED, "somebody", reason="cancelled by somebody")
    assert main(["jobs", "--state-dir", str(path.parent), "--state", "cancelled", "--json"]) == 0
    assert [each["job_id"] for each in json.loads(capsys.readouterr().out)["jobs"]] == ["j1"]
    assert main(["jobs", "--state-dir", str(path.parent)]) == 0
    heads, *lines = capsys.readouterr().out.splitlines()
    assert heads.split() == [*LIST_HEADS]
    assert [line.split()[:5] for line in lines] == [
        ["j2", "queued", "step.yaml", "-", "-"],
        ["j1", "cancelled", "step.yaml", "-", "-"],
    ]
    assert main(["jobs", "--state-dir", str(path.parent), "--audit", "j1"]) == 0
    assert "somebody: queued -> cancelled  cancelled by somebody" in capsys.readouterr().out
    assert main(["jobs", "--state-dir", str(path.parent), "--audit", "j9"]) == 65
    assert "--audit: there is no job j9" in capsys.readouterr().err
