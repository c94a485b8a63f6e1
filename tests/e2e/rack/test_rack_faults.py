"""The fault table of the rack: whatever breaks, every job ends clear, what was kept is there, and the next job passes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from pathlib import Path
from typing import Final

import pytest

from etloop.contract.base.errors import ExitCode
from etloop.controller.rack.client.client import RequestRefused
from etloop.controller.rack.job import ENDED, JobState
from tests.controller.rack.mqtt.test_rack_mqtt import Mosquitto, mosquitto
from tests.controller.rack.test_rack_daemon import CALM, LONG, SCENARIO, place
from tests.support.first_light.cable import cable_agents, cabled, for_root, ip
from tests.support.first_light.commands import Place, agent, agents
from tests.support.rack.rack_under_faults import Broken, lets_pass, small_disk

__all__ = ["mosquitto", "place"]

pytestmark = pytest.mark.e2e

SECONDS = SCENARIO.replace("iterations: 3", "iterations: 80") + CALM
"""A job of some seconds."""
QUEUED: Final = 200 if "ETLOOP_FAULTS" in os.environ else 60
"""Jobs of a long queue: as many as docs/faults.md says where that is written, fewer for a test."""
WHOLE = frozenset(
    "collectives.parquet flows.parquet ops.parquet plan.json ports.parquet rig.yaml scenario.yaml summary.json"
    " kpis.json report.html trace.perfetto.json".split()
)
"""What every run leaves that is judged; one that is not told to stop has what it is held against, too."""


@pytest.fixture
def broken(place: Place, mosquitto: Mosquitto) -> Broken:
    """A rack to be broken."""
    return Broken(place, mosquitto)


def has_all(broken: Broken, job_id: str) -> bool:
    """Whether a job left a whole run directory."""
    return set(broken.artifacts(broken.job(job_id))) >= WHOLE


def test_broker_killed_and_back(broken: Broken) -> None:
    with agents(broken.place), broken.controller() as controller:
        job_id = broken.submit(SECONDS)
        broken.reaches(controller, job_id, JobState.RUNNING)
        broken.mosquitto.kill()
        controller.wait_for('"broker lost"')
        job = broken.reaches(controller, job_id, JobState.FINISHED)
        assert (job.exit_code, job.reason) == (ExitCode.PASS, "")
        broken.strikes(broken.mosquitto.start)
        # A broker that kept nothing is told everything anew.
        assert broken.result(job_id).exit_code == 0
        broken.cleared(
            "broker killed in a run, back after it",
            "the run goes on and passes; state and result are published to the new broker, which had lost what it retained",
            "everything",
        )
        broken.serves_on(controller)


def test_controller_killed(broken: Broken) -> None:
    with agents(broken.place):
        with broken.controller() as controller:
            running = broken.submit(LONG)
            broken.reaches(controller, running, JobState.RUNNING)
            waiting = broken.submit(SCENARIO)
            lets_pass(controller, 0.5)  # So that there are records to keep.
            broken.strikes(controller.process.kill)
        with broken.controller() as controller:
            job = broken.reaches(controller, running, JobState.INTERRUPTED)
            assert job.reason == "the controller stopped while the job was running; its records are kept"
            assert has_all(broken, running)
            broken.cleared(
                "controller killed (SIGKILL) in a run, started again at once",
                "the run's process stores what it has and ends, its ports leased until then; the job is `interrupted`",
                "records until the kill; the queue, which goes on",
            )
            assert broken.reaches(controller, waiting, JobState.FINISHED).exit_code is ExitCode.PASS


def test_agent_killed(broken: Broken) -> None:
    with agent(broken.place, "a"), broken.controller() as controller:
        with agent(broken.place, "b") as victim:
            job_id = broken.submit(LONG)
            broken.reaches(controller, job_id, JobState.RUNNING)
            lets_pass(controller, 0.5)
            broken.strikes(victim.process.kill)
            job = broken.reaches(controller, job_id, JobState.FINISHED)
            assert job.exit_code is ExitCode.RUN_ERROR
            assert "'b'" in job.reason
            assert has_all(broken, job_id)
            broken.cleared(
                "agent killed (SIGKILL) in a run",
                "the run is aborted, the agent named; jobs that need it wait for it by name",
                "records of the other agents, and the killed one's until then",
            )
        with agent(broken.place, "b"):
            broken.serves_on(controller)


def test_agent_restarted(broken: Broken) -> None:
    with agent(broken.place, "a"), broken.controller() as controller:
        with agent(broken.place, "b") as first:
            job_id = broken.submit(LONG)
            broken.reaches(controller, job_id, JobState.RUNNING)
            broken.strikes(first.process.terminate)
            first.ended()
        with agent(broken.place, "b"):
            job = broken.reaches(controller, job_id, JobState.FINISHED)
            assert job.exit_code is ExitCode.RUN_ERROR
            assert "'b'" in job.reason
            broken.cleared(
                "agent ended (SIGTERM) in a run and started again",
                "the run is aborted with the reason that the agent gave; its successor takes its place at once",
                "records until then",
            )
            broken.serves_on(controller)


def test_agent_paused(broken: Broken) -> None:
    with agent(broken.place, "a"), agent(broken.place, "b") as victim, broken.controller() as controller:
        job_id = broken.submit(LONG)
        broken.reaches(controller, job_id, JobState.RUNNING)
        lets_pass(
            controller, 0.5
        )  # Before the first grants its peer would wait for it, which no transport gives up.
        os.kill(victim.process.pid, signal.SIGSTOP)
        lets_pass(controller, 5)
        broken.strikes(lambda: os.kill(victim.process.pid, signal.SIGCONT))
        job = broken.reaches(controller, job_id, JobState.FINISHED)
        assert job.exit_code is ExitCode.RUN_ERROR
        assert "'b'" in job.reason
        broken.cleared(
            "agent paused (SIGSTOP) for 5 s in a run, resumed",
            "the engine of its peer gives up and the run is aborted; the reason names the paused agent and its silence",
            "records of the other agents, and the paused one's until then",
        )
        broken.serves_on(controller)


@for_root
def test_link_cut(broken: Broken) -> None:
    with (
        cabled(broken.place) as cable,
        broken.controller() as controller,
        cable_agents(broken.place, cable),
    ):
        job_id = broken.submit(LONG)
        broken.reaches(controller, job_id, JobState.RUNNING)
        ip(f"link set {cable.near} down")
        job = broken.reaches(controller, job_id, JobState.FINISHED)
        assert job.exit_code is ExitCode.RUN_ERROR
        assert "'b'" in job.reason
        broken.strikes(lambda: ip(f"link set {cable.near} up"))
        broken.serves_on(controller)
        broken.cleared(
            "link of a network namespace cut in a run, restored",
            "the engine of its peer gives up and the run is aborted; the reason names the silent agent, which joins again",
            "records of the other agent, and of the cut one until then",
        )


@for_root
def test_link_down_when_its_agent_joins(broken: Broken) -> None:
    """An agent looks at its host whenever it is given a part: nothing that it said before can be too old."""
    with cabled(broken.place) as cable, broken.controller() as controller:
        fix = f"ip link set dev {cable.near} up"
        refusal = f"agent 'a': port p0: interface {cable.near} is down; on {socket.gethostname()}: {fix}"

        def refused() -> None:
            job = broken.reaches(controller, broken.submit(ports=("a/p0",)), *ENDED)
            assert job.exit_code is ExitCode.PREPARATION_FAILED
            assert refusal in job.reason

        ip(f"link set {cable.near} down")
        with agent(broken.place, "a"):
            refused()
            ip(f"link set {cable.near} up")
            broken.serves_on(controller, ports=("a/p0",))
            ip(f"link set {cable.near} down")
            refused()
            broken.strikes(lambda: ip(f"link set {cable.near} up"))
            broken.serves_on(controller, ports=("a/p0",))
            broken.cleared(
                "link of a host down when its agent joins, put up, cut, put up",
                "jobs on it are refused at once with the command that fixes it; as soon as it is up they pass",
                "everything",
            )


@for_root
def test_disk_full_in_a_run(broken: Broken) -> None:
    with (
        small_disk(broken.state_dir / "artifacts", "32k") as resize,
        agents(broken.place),
        broken.controller() as controller,
    ):
        waiting = broken.submit(SCENARIO)
        resize("96m")
        job = broken.reaches(controller, waiting, JobState.FINISHED)
        assert job.exit_code is ExitCode.PASS, "it waited for room"
        job_id = broken.submit(SECONDS)
        broken.reaches(controller, job_id, JobState.RUNNING)
        filler = broken.state_dir / "artifacts" / "filler"
        broken.strikes(lambda: fill(filler))
        job = broken.reaches(controller, job_id, JobState.FINISHED)
        assert job.exit_code is ExitCode.RUN_ERROR
        assert "No space left on device" in job.reason
        assert (broken.state_dir / "artifacts" / job_id / "summary.json").exists()
        broken.cleared(
            "disk full in a run",
            "the run is aborted with that reason; no job starts while less than `limits.free_disk` is free, "
            "and those that wait say so",
            "records until then: room for their tables was reserved",
        )
        filler.unlink()
        broken.serves_on(controller)


def fill(filler: Path) -> None:
    """Takes all the room of a disk."""
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as sink:
        while True:
            sink.write(bytes(4096))


def fill_store(broken: Broken) -> None:
    """Submits until nothing is taken any more: a store on a full disk still has room in pages of its own."""
    while True:
        broken.cancel(broken.submit(f"{SCENARIO}#{20_000 * '-'}"))


@for_root
def test_disk_of_the_job_store_full(broken: Broken) -> None:
    with (
        small_disk(broken.state_dir, "1m"),
        small_disk(broken.state_dir / "artifacts", "64m"),
        agents(broken.place),
        broken.controller() as controller,
    ):
        job_id = broken.submit(SECONDS)
        broken.reaches(controller, job_id, JobState.RUNNING)
        filler = broken.state_dir / "filler"
        fill(filler)
        with pytest.raises(RequestRefused, match="the job store cannot be written"):
            fill_store(broken)
        controller.wait_for("no job starts")
        lets_pass(controller, 5)
        assert broken.job(job_id).state is not JobState.FINISHED
        broken.strikes(filler.unlink)
        job = broken.reaches(controller, job_id, JobState.FINISHED)
        assert (job.exit_code, job.reason) == (ExitCode.PASS, "")
        assert has_all(broken, job_id)
        broken.cleared(
            "disk of the job store full in a run, room made",
            "submissions are refused with that reason; the run goes on, its end is noted as soon as there is room",
            "everything",
        )
        broken.serves_on(controller)


def test_clock_stepped(broken: Broken) -> None:
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if library is None:
        pytest.skip("libfaketime is not installed (Debian package faketime)")
    clock = broken.place.write("clock", "+0\n")
    environment = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    with agents(broken.place), broken.controller("retention: {age: 864000s}\n", environment) as controller:
        kept = broken.submit()
        broken.reaches(controller, kept, JobState.FINISHED)
        job_id = broken.submit(SECONDS)
        broken.reaches(controller, job_id, JobState.RUNNING)
        clock.write_text("+400d\n")
        lets_pass(controller, 1)
        broken.strikes(lambda: clock.write_text("-400d\n"))
        job = broken.reaches(controller, job_id, JobState.FINISHED)
        assert (job.exit_code, job.reason) == (ExitCode.PASS, "")
        assert job.ended_at < job.started_at, "the clock was not stepped"
        broken.cleared(
            "wall clock stepped 400 days on and back in a run",
            "nothing; durations and limits use the monotonic clock, only dates are odd",
            "everything: results do not age by a step, only by time that passed",
        )
        clock.write_text("+400d\n")
        broken.serves_on(controller)
        lets_pass(controller, 6)  # A round of housekeeping.
        assert has_all(broken, kept)


def test_long_queue_outlives_its_controller(broken: Broken) -> None:
    with agents(broken.place):
        with broken.controller() as controller:
            running = broken.submit(LONG)
            broken.reaches(controller, running, JobState.RUNNING)
            broken.submit(SCENARIO, count=QUEUED - 1)
            urgent = broken.submit(SCENARIO, priority=5)
            broken.strikes(controller.process.kill)
        with broken.controller() as controller:
            broken.reaches(controller, urgent, JobState.FINISHED)
            queued = [job.job_id for job in broken.jobs() if job.state is JobState.QUEUED]
            first = queued.pop()
            assert len(queued) in (QUEUED - 3, QUEUED - 2)  # One may have started.
            broken.reaches(controller, first, JobState.FINISHED)
            broken.cancel(*queued)
            controller.wait_until(lambda: all(job.ended_at for job in broken.jobs()), "the end of all")
            states = [job.state for job in broken.jobs()]
            assert len(states) == QUEUED + 1
            assert JobState.INTERRUPTED in states
            broken.cleared(
                f"controller killed with {QUEUED} jobs queued",
                f"all are there again and start by priority, then by order; {QUEUED - 3} were cancelled at the end",
                "everything",
            )
            broken.serves_on(controller)


def test_run_process_killed(broken: Broken) -> None:
    with agents(broken.place), broken.controller() as controller:
        job_id = broken.submit(LONG)
        broken.reaches(controller, job_id, JobState.RUNNING)
        broken.strikes(lambda: os.kill(broken.run_pid(job_id), signal.SIGKILL))
        job = broken.reaches(controller, job_id, JobState.FINISHED)
        assert (job.exit_code, job.reason) == (ExitCode.RUN_ERROR, "its process was killed by SIGKILL")
        broken.cleared(
            "process of a run killed (SIGKILL)",
            "its agents are ordered to stop and come back, its ports stay leased until they have; the job ends with that reason",
            "records until then: another process makes results of them",
        )
        broken.serves_on(controller)


def test_drained(broken: Broken) -> None:
    with agents(broken.place):
        with broken.controller() as controller:
            job_id = broken.submit(SECONDS)
            broken.reaches(controller, job_id, JobState.RUNNING)
            waiting = broken.submit(SCENARIO)
            broken.strikes(controller.process.terminate)
            assert controller.ended().exit_code == 0
            assert broken.job(job_id).exit_code is ExitCode.PASS
            assert broken.job(waiting).state is JobState.QUEUED
            broken.cleared(
                "controller ordered to end (SIGTERM)", "runs end, none starts", "everything; the queue"
            )
        with broken.controller() as controller:
            assert broken.reaches(controller, waiting, JobState.FINISHED).exit_code is ExitCode.PASS


def test_drained_in_a_hurry(broken: Broken) -> None:
    with agents(broken.place), broken.controller() as controller:
        job_id = broken.submit(LONG)
        broken.reaches(controller, job_id, JobState.RUNNING)
        controller.process.terminate()
        controller.wait_for('"draining"')
        broken.strikes(controller.process.terminate)
        assert controller.ended().exit_code == 0
        job = broken.job(job_id)
        assert (job.state, job.reason) == (JobState.FINISHED, "the controller is shutting down while in RUN")
        assert has_all(broken, job_id)
        broken.cleared(
            "second SIGTERM while it drains",
            "runs are stopped, collected and stored; the job ends with that reason",
            "records until then",
        )
