"""A run whose process dies, at every stage of its life: a readable run with its reason is left, or nothing and no name of it.

Either the process alone is killed, or its controller goes away with it and the next one finds what is left.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from etloop.contract.base.errors import ExitCode
from etloop.controller.rack.job import ENDED, Job, JobState
from etloop.controller.rack.runs.run_state import MOST_CLOSINGS
from etloop.controller.rack.store.orphaned_runs import lock_of
from etloop.results.store.run_dir import read_run
from tests.controller.rack.test_rack_daemon import SCENARIO, place, serving
from tests.support.first_light.commands import Place, agents
from tests.support.rack.run_that_stops import STAGES, stand_still_at

__all__ = ["place"]

NOTHING_MEASURED = tuple(STAGES)[:4]
ALL_MEASURED = ("as its first table is written", "after its tables, before its summary")
"""Whoever makes the results then makes all of them but what they are held against: they pass."""
KILLED = "its process was killed by SIGKILL"


def refuse_half_a_run(place: Place, job: Job, stage: str, why: str) -> None:
    """What a job left is whole, with its reason; or there is nothing of it on disk, and no name of it."""
    directory = place.directory / "state" / "artifacts" / job.job_id
    if why == KILLED and stage in ALL_MEASURED:
        assert (job.exit_code, job.reason) == (ExitCode.PASS, "")
    else:
        assert job.exit_code is ExitCode.RUN_ERROR
        assert why in job.reason
    if stage in NOTHING_MEASURED:
        assert (job.run_directory, job.artifact_bytes) == ("", 0), stage
        assert not directory.exists(), sorted(directory.rglob("*"))
        return
    assert job.run_directory == job.job_id, stage
    run = read_run(directory)
    assert not (directory / "spool").exists()
    assert not list(directory.glob(".*")), "nothing half written is left"
    assert job.artifact_bytes == sum(path.stat().st_size for path in directory.rglob("*"))
    if stage == "as its traffic begins":
        assert run.summary.reason == why
    else:
        assert run.summary.ops.recorded == len(run.ops) > 0


@pytest.mark.timeout(240)
@pytest.mark.parametrize("stage", STAGES)
async def test_a_process_that_is_killed(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    stood = stand_still_at(monkeypatch, stage, tmp_path)
    with agents(place):
        async with serving(place) as rack:
            job_id = rack.submit(SCENARIO, "a/p0", "b/p0")
            await rack.until(stood.exists)
            os.kill(int(stood.read_text()), signal.SIGKILL)
            refuse_half_a_run(place, await rack.reaches(job_id, *ENDED), stage, KILLED)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("stage", STAGES)
async def test_a_controller_that_goes_away(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    stood = stand_still_at(monkeypatch, stage, tmp_path)
    with agents(place):
        async with serving(place) as rack:
            job_id = rack.submit(SCENARIO, "a/p0", "b/p0")
            await rack.until(stood.exists)
        async with serving(place) as rack:
            job = await rack.reaches(job_id, *ENDED)
            refuse_half_a_run(place, job, stage, "the controller stopped")


@pytest.mark.timeout(240)
async def test_a_process_that_is_killed_while_its_controller_has_no_more_time(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = "after its traffic"
    stood = stand_still_at(monkeypatch, stage, tmp_path)
    with agents(place):
        async with serving(place) as rack:
            job_id = rack.submit(SCENARIO, "a/p0", "b/p0")
            await rack.until(stood.exists)
            os.kill(os.getpid(), signal.SIGTERM)
            await rack.until(lambda: "draining" in str(rack.log()))
            os.kill(os.getpid(), signal.SIGTERM)
            await rack.until(lambda: "stopping" in str(rack.log()))
            os.kill(int(stood.read_text()), signal.SIGKILL)
            await rack.ends()
            assert "left its results to the next controller" in str(rack.log())
        async with serving(place) as rack:
            assert rack.job(job_id).state is JobState.RUNNING
            job = await rack.reaches(job_id, *ENDED)
            refuse_half_a_run(place, job, stage, "the controller stopped")


@pytest.mark.timeout(240)
async def test_a_process_that_cannot_be_started_does_not_count_as_one_that_died_of_what_is_left(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = "as its traffic begins"
    stood = stand_still_at(monkeypatch, stage, tmp_path)
    monkeypatch.setattr("etloop.controller.rack.runs.run_state.CLOSE_AGAIN_NS", 1)
    with agents(place):
        async with serving(place) as rack:
            job_id = rack.submit(SCENARIO, "a/p0", "b/p0")
            await rack.until(stood.exists)
            lock = lock_of(place.directory / "state", job_id)
            os.kill(int(stood.read_text()), signal.SIGKILL)
            await rack.until(lambda: not lock.exists())
            lock.mkdir()
            await rack.until(lambda: str(rack.log()).count("storing results from its spool") > MOST_CLOSINGS)
            lock.rmdir()
            refuse_half_a_run(place, await rack.reaches(job_id, *ENDED), stage, KILLED)
