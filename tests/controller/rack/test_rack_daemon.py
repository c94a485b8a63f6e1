"""A rack as its daemon runs it: real agents as processes, a real store, runs as processes; asked through `Rack` itself."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import zmq

from etloop.cli.main import main
from etloop.contract.base.errors import ExitCode, Problem
from etloop.controller.rack.config import parse_rack_config
from etloop.controller.rack.daemon import Daemon
from etloop.controller.rack.events import JobMoved, RackState
from etloop.controller.rack.job import ENDED, Job, JobRequest, JobState, PortDemand
from etloop.controller.rack.log import RackLog
from etloop.controller.rack.log_settings import LogFormat
from etloop.controller.rack.startup import open_daemon
from etloop.controller.rack.store import locks
from etloop.controller.rack.store.orphaned_runs import lock_of
from etloop.controller.rack.submissions import Accepted, Rejected
from etloop.controller.session.router import RouterLink
from etloop.results.store.history import HISTORY_FILE, read_history
from tests.support.first_light.commands import GLANCE_S, PATIENCE_S, Place, agents, free_place

SCENARIO = "workload: {trace: job}\niterations: 3\nmapping: {placement: round_robin}\nallow_local: true\n"
"""Some of these jobs have one port."""
CALM = "scale: {bytes: 1/16, time: 20}\n"
"""Mostly waiting for its compute, 50 ms an iteration: what a test does beside it has the cores."""
LONG = SCENARIO.replace("iterations: 3", "iterations: 1000000") + CALM


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A rack's directory; see `make_place`."""
    return make_place(tmp_path)


def make_place(tmp_path: Path) -> Place:
    """A rack's directory with a trace in it and a folder without one, and a rig of two agents with two ports each."""
    place = free_place(tmp_path)
    (tmp_path / "traces" / "empty").mkdir(parents=True)
    main(["synth", str(tmp_path / "traces" / "job"), "--layers", "1", "--tp", "1", "--dp", "2", "--pp", "1"])
    text = f"controller: {{bind: {place.endpoint}}}\nagents:\n"
    for name, network in zip("ab", place.networks, strict=True):
        ports = ", ".join(
            f"{{name: p{k}, addresses: {network}.{10 * k + 1}-{network}.{10 * k + 4}, link: 100Gbps}}"
            for k in (0, 1)
        )
        text += f"  - {{name: {name}, host: here, ports: [{ports}]}}\n"
    place.write("rig.yaml", text)
    place.write(
        "controller.yaml",
        "rig: rig.yaml\nstate_dir: state\nscenario_root: traces\nlimits: {free_disk: 1KiB}\n",
    )
    return place


class Serving:
    """A daemon under way in the test's own event loop."""

    def __init__(self, daemon: Daemon, task: asyncio.Task[ExitCode], log: io.StringIO) -> None:
        self.daemon = daemon
        self._task = task
        self.rack = daemon.rack
        self._log = log

    def log(self) -> list[dict[str, object]]:
        """What it wrote to its log."""
        return [json.loads(line) for line in self._log.getvalue().splitlines()]

    def submit(self, scenario: str = SCENARIO, *ports: str) -> str:
        """Queues a job; its id."""
        answer = self.rack.submit(JobRequest(scenario, PortDemand(named=ports)), "test")
        assert isinstance(answer, Accepted), answer
        return answer.job.job_id

    def job(self, job_id: str) -> Job:
        """Present state of the job."""
        job = self.rack.store.find(job_id)
        assert job is not None
        return job

    async def until(self, holds: Callable[[], bool]) -> None:
        """Waits for something to come true."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await asyncio.wait([self._task], timeout=GLANCE_S)
                assert not self._task.done(), f"the daemon ended: {self.log()}"

    async def ends(self) -> None:
        """Waits until the daemon has ended by itself."""
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait([self._task])

    async def reaches(self, job_id: str, *states: JobState) -> Job:
        """Waits until a job is in one of these states."""
        await self.until(lambda: self.job(job_id).state in states)
        return self.job(job_id)


@contextlib.asynccontextmanager
async def serving(place: Place) -> AsyncIterator[Serving]:
    """A daemon that is told to end, and does, when the block is left."""
    text = (place.directory / "controller.yaml").read_bytes()
    log = io.StringIO()
    daemon = open_daemon(
        parse_rack_config(text, "controller.yaml", place.directory), RackLog(LogFormat.JSON, log)
    )
    task = asyncio.create_task(daemon.run())
    try:
        yield Serving(daemon, task, log)
    finally:
        daemon.rack.enter(RackState.STOPPED)
        async with asyncio.timeout(PATIENCE_S):
            await task


async def test_two_jobs_on_disjoint_ports_run_side_by_side_and_leave_their_results(place: Place) -> None:
    with agents(place):
        async with serving(place) as rack:
            first = rack.submit(SCENARIO, "a/p0", "b/p0")
            second = rack.submit(SCENARIO, "a/p1", "b/p1")
            await rack.until(lambda: len(set(rack.rack.leases().values())) == 2)
            for job_id in (first, second):
                job = await rack.reaches(job_id, JobState.FINISHED)
                assert (job.exit_code, job.reason) == (ExitCode.PASS, "")
                directory = place.directory / "state" / "artifacts" / job.run_directory
                assert json.loads((directory / "summary.json").read_text())["state"] == "done"
                assert job.artifact_bytes > 0
            rows = read_history(place.directory / "state" / HISTORY_FILE)
            assert {row.run.place for row in rows} == {f"artifacts/{first}", f"artifacts/{second}"}
            # Their agents have a single, idle connection again.
            await rack.until(lambda: all(each.idle_slots == 1 for each in rack.daemon.hub.presence(0)))


async def test_a_running_job_that_is_cancelled_keeps_what_it_measured(place: Place) -> None:
    with agents(place):
        async with serving(place) as rack:
            job_id = rack.submit(LONG)
            await rack.reaches(job_id, JobState.RUNNING)
            rack.rack.cancel(job_id, "test")
            job = await rack.reaches(job_id, JobState.CANCELLED)
            assert job.reason == "cancelled by test"
            assert (place.directory / "state" / "artifacts" / job.run_directory / "ops.parquet").exists()
            assert rack.rack.leases() == {}
            # The rack is whole: the next job runs.
            assert (await rack.reaches(rack.submit(), JobState.FINISHED)).exit_code is ExitCode.PASS


async def test_a_job_that_cannot_be_prepared_says_why_and_sends_nothing(place: Place) -> None:
    with agents(place):
        async with serving(place) as rack:
            job_id = rack.submit(SCENARIO.replace("job", "empty"))
            job = await rack.reaches(job_id, JobState.FINISHED)
            assert job.exit_code is ExitCode.PREPARATION_FAILED
            assert "empty: has no PREFIX.<rank>.et files" in job.reason


async def test_a_job_that_does_not_pass_says_which_condition_it_owes(place: Place) -> None:
    unknown = "verdict: {checks: [{check: dut_dropped_packets == 0}, {check: lost_share >= 0}]}\n"
    unheard = "verdict: {checks: [{check: unheard <= 1}]}\n"
    with agents(place):
        async with serving(place) as rack:
            job = await rack.reaches(rack.submit(SCENARIO + unknown), *ENDED)
            assert (job.state, job.exit_code) == (JobState.FINISHED, ExitCode.INCONCLUSIVE)
            assert job.reason.startswith("dut_dropped_packets == 0: ")
            assert "lost_share >= 0" not in job.reason
            job = await rack.reaches(rack.submit(SCENARIO + unheard), *ENDED)
            assert (job.state, job.exit_code) == (JobState.FINISHED, ExitCode.PREPARATION_FAILED)
            assert '"unheard <= 1", column 1: no figure is called unheard' in job.reason


async def test_a_path_that_leaves_the_scenario_root_is_refused(place: Place) -> None:
    (place.directory / "traces" / "out").symlink_to("/etc")
    async with serving(place) as rack:
        for trace in ("../rig.yaml", "/etc", "out/passwd"):
            answer = rack.rack.submit(JobRequest(SCENARIO.replace("job", trace), PortDemand()), "test")
            assert isinstance(answer, Rejected)
            assert str(answer.problems[0]).startswith("workload.trace: lies outside the rack's scenario root")


async def test_a_trace_that_is_not_there_is_refused_before_the_job_waits(place: Place) -> None:
    async with serving(place) as rack:
        answer = rack.rack.submit(JobRequest(SCENARIO.replace("job", "none"), PortDemand()), "test")
        assert isinstance(answer, Rejected)
        what = 'no file "none" below the rack\'s scenario root'
        assert answer.problems == (Problem("workload.trace", what, "copy it there, or submit with --upload"),)


async def test_a_submission_is_refused_with_all_that_is_wrong_with_it(place: Place) -> None:
    async with serving(place) as rack:
        answer = rack.rack.submit(
            JobRequest("workload: {trace: 1, nonsense: 2}\n", PortDemand(named=("c/p0",)), priority=999),
            "test",
        )
        assert isinstance(answer, Rejected)
        assert {problem.where.split(":")[0] for problem in answer.problems} >= {
            "priority",
            "ports",
            "scenario",
        }


async def test_a_run_whose_process_is_killed_ends_with_its_reason(place: Place) -> None:
    with agents(place):
        async with serving(place) as rack:
            job_id = rack.submit(LONG)
            await rack.reaches(job_id, JobState.RUNNING)
            pid = locks.signature(lock_of(place.directory / "state", job_id))
            assert pid is not None
            heard = rack.daemon.rack.subscribe()
            async with asyncio.timeout(PATIENCE_S):
                while not (isinstance(event := await heard.next(), JobMoved) and event.progress.ops_done):
                    pass
            os.kill(pid, signal.SIGKILL)
            job = await rack.reaches(job_id, JobState.FINISHED)
            assert (job.exit_code, job.reason) == (ExitCode.RUN_ERROR, "its process was killed by SIGKILL")
            directory = place.directory / "state" / "artifacts" / job.run_directory
            summary = json.loads((directory / "summary.json").read_text())
            assert (summary["state"], summary["reason"]) == ("aborted", "its process was killed by SIGKILL")
            assert summary["ops"]["recorded"] > 0
            assert any(note.startswith("written from the spool") for note in summary["notes"])
            assert not (directory / "spool").exists()
            assert (await rack.reaches(rack.submit(), JobState.FINISHED)).exit_code is ExitCode.PASS


async def test_a_queue_outlives_the_daemon_and_what_ran_is_marked(place: Place) -> None:
    with agents(place):
        async with serving(place) as rack:
            running = rack.submit(LONG)
            await rack.reaches(running, JobState.RUNNING)
            waiting = rack.submit()
            assert rack.job(waiting).state is JobState.QUEUED
        async with serving(place) as rack:
            job = await rack.reaches(running, JobState.INTERRUPTED)
            assert job.reason == "the controller stopped while the job was running; its records are kept"
            assert (await rack.reaches(waiting, JobState.FINISHED)).exit_code is ExitCode.PASS


class NeverSilent:
    """A socket on which there is always something, so that awaiting it never pauses."""

    async def wait(self, _timeout_ms: int) -> bool:
        """Something is there."""
        return True

    def receive(self) -> list[zmq.Frame]:
        """This."""
        return [zmq.Frame(b"someone"), zmq.Frame(b"noise")]

    def send(self, *_frames: bytes) -> None:
        """Takes what it is given."""


async def test_agents_that_never_pause_starve_neither_gateways_nor_clients(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.asynccontextmanager
    async def opened(*_: object) -> AsyncIterator[RouterLink]:
        yield RouterLink(NeverSilent())  # type: ignore[arg-type]

    monkeypatch.setattr("etloop.controller.rack.daemon.open_router", opened)
    async with serving(place) as rack:
        await rack.until(lambda: rack.daemon.tallies.refused_connections.total() > 1000)
        assert rack.rack.state is RackState.READY
