"""Orders of operators over real brokers, by the client and by `etloop rack` as a person types it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from datetime import UTC, datetime, timedelta

import pytest

from etloop.cli.main import main
from etloop.controller.rack.client.client import RequestRefused
from etloop.controller.rack.job import JobState
from etloop.controller.rack.mqtt.messages import JobChange, JobStatus
from etloop.controller.rack.store import locks
from etloop.controller.rack.store.orphaned_runs import lock_of
from tests.controller.rack.mqtt.test_rack_mqtt import (
    Broker,
    Mosquitto,
    mosquitto,
    mosquitto_broker,
    rack_with,
)
from tests.controller.rack.test_rack_daemon import LONG, SCENARIO, place
from tests.support.first_light.commands import PATIENCE_S, Place, agents

__all__ = ["mosquitto", "place"]
pytestmark = pytest.mark.e2e


@pytest.fixture
def broker(mosquitto: Mosquitto) -> Broker:
    """Mosquitto alone: test_rack_mqtt.py has the messages of a rack over both brokers."""
    return mosquitto_broker(mosquitto)


async def test_a_person_drains_holds_and_runs_again(
    place: Place, broker: Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    where = ["--broker", f"127.0.0.1:{broker.settings.port}"]

    async def etloop(*words: str, code: int = 0) -> str:
        assert await asyncio.to_thread(main, [*words, *where]) == code
        printed = capfd.readouterr()
        return printed.out or printed.err

    with agents(place):
        async with rack_with(place, broker) as (rack, client):
            said = await etloop("rack", "drain", "a/p1", "b/p1", "--reason", "cables")
            assert said.splitlines()[0].startswith("port a/p1  100Gbps  drained by mqtt (says ")
            assert said.splitlines()[1].endswith("): cables")
            job = await client.submit(SCENARIO, ports=["a/p1", "b/p1"])
            await rack.until(lambda: "is drained by" in rack.rack.waits_for(job.job_id))
            await etloop("rack", "hold", job.job_id, "--reason", "later")
            await etloop("rack", "undrain", "a", "b")
            assert "in service" in await etloop("rack", "status")
            assert (await client.jobs())[0].reason.endswith("): later")
            (moved,) = json.loads(await etloop("rack", "priority", job.job_id, "--to", "9", "--json"))["jobs"]
            assert (moved["priority"], moved["state"]) == (9, "queued")
            await etloop("rack", "release", job.job_id)
            assert (await client.result(job.job_id, PATIENCE_S)).exit_code == 0
            refused = await etloop("rack", "hold", job.job_id, code=65)
            assert "is finished, and only a queued job can be held or released" in refused
            again = json.loads(await etloop("rack", "requeue", job.job_id, "--json"))["jobs"][0]
            assert again["requeue_of"] == job.job_id
            assert (await client.result(again["job_id"], PATIENCE_S)).exit_code == 0
            assert await client.newest(job.job_id) == again["job_id"]
            # Who asks for it from now on gets what came of the newest.
            assert (await client.result(job.job_id, PATIENCE_S)).job_id == again["job_id"]


async def test_a_job_whose_process_is_killed_is_queued_again_and_followed(
    place: Place, broker: Broker
) -> None:
    with agents(place):
        async with rack_with(place, broker) as (rack, client):
            first = (await client.submit(LONG, retries=1)).job_id
            waiting = asyncio.create_task(client.result(first, PATIENCE_S))
            await rack.reaches(first, JobState.RUNNING)
            pid = locks.signature(lock_of(place.directory / "state", first))
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await rack.reaches(first, JobState.FINISHED)
            again = rack.rack.requeued_as(first)
            assert rack.job(first).reason == f"its process was killed by SIGKILL; queued again as job {again}"
            await rack.reaches(again, JobState.RUNNING)
            rack.rack.cancel(again, "test")
            result = await waiting
            assert (result.job_id, result.reason) == (again, "cancelled by test")


async def test_while_the_queue_is_paused_everybody_is_told_why(
    place: Place, broker: Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    with agents(place):
        async with rack_with(place, broker) as (rack, client):
            assert (await client.pause(paused=True, reason="firmware", submitter="ann")).endswith(
                ": firmware"
            )
            async with asyncio.timeout(PATIENCE_S):
                while not (told := (await client.controller()).paused):
                    pass  # It is answered first, and then told to all.
            assert told == 'paused by mqtt (says "ann"): firmware'
            job = await client.submit(SCENARIO)
            async for update in client.follow(job.job_id):
                assert isinstance(update, JobStatus)
                if "the queue is paused by" in update.reason:
                    break
            assert rack.job(job.job_id).state is JobState.QUEUED
            assert await client.pause(paused=False) == ""
            assert (await client.result(job.job_id, PATIENCE_S)).exit_code == 0


async def test_jobs_are_named_by_a_label(
    place: Place, broker: Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    async with rack_with(place, broker) as (rack, client):
        jobs = [(await client.submit(LONG, labels={"suite": name})).job_id for name in ("a", "b", "a")]

        async def etloop(*words: str) -> int:
            where = ["--broker", f"127.0.0.1:{broker.settings.port}"]
            return await asyncio.to_thread(main, ["rack", *words, "--label", "suite=a", *where])

        assert await etloop("hold") == 0
        assert ["held by" in rack.rack.waits_for(job) for job in jobs] == [True, False, True]
        assert await etloop("cancel") == 0
        assert [rack.job(job).state for job in jobs] == [
            JobState.CANCELLED,
            JobState.QUEUED,
            JobState.CANCELLED,
        ]
        capfd.readouterr()
        assert await etloop("cancel") == 65
        assert (
            "no job with label suite=a is queued or running or starting or storing" in capfd.readouterr().err
        )
        assert await etloop("requeue") == 0
        assert await etloop("requeue") == 65, "those have been run again"


async def test_orders_that_make_no_sense_are_refused(place: Place, broker: Broker) -> None:
    async with rack_with(place, broker) as (_, client):
        with pytest.raises(
            RequestRefused, match=r'ports: the rack has no agent or port "z"; name some of: a, a/p0'
        ):
            await client.service(["z"], in_service=False)
        with pytest.raises(RequestRefused, match=r"submitter: .*has unprintable characters"):
            await client.pause(paused=True, submitter="a\nb")
        assert await client.change("nobody", JobChange.HOLD) is None
        job = await client.submit(LONG)
        with pytest.raises(RequestRefused, match=f"job {job.job_id}: is queued, and only an ended job"):
            await client.change(job.job_id, JobChange.REQUEUE)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pause", "a/p0"], "etloop rack pause: takes no names; leave them out"),
        (["drain"], "etloop rack drain: names are missing; name ports or agents"),
        (["hold"], "etloop rack hold: names are missing; name jobs"),
        (["hold", "a/p0"], 'etloop rack hold: "a/p0" is not a job id; see etloop submit --list'),
        (["hold", "j1", "--label", "a=b"], "--label: selects jobs instead of names; give one or the other"),
        (["drain", "--label", "a=b"], "--label: selects jobs instead of names; give one or the other"),
        (["hold", "--label", "a"], '--label: "a" is not a label; write NAME=VALUE'),
        (["drain", "a", "--to", "3"], "--to: applies only to priority; leave it out"),
    ],
)
def test_a_command_that_is_not_clear(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rack", *words]) == 65
    assert said in capsys.readouterr().err


async def test_a_person_reserves_ports_and_takes_that_back(
    place: Place, broker: Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    where = ["--broker", f"127.0.0.1:{broker.settings.port}"]

    async def etloop(*words: str, code: int = 0) -> str:
        assert await asyncio.to_thread(main, [*words, *where]) == code
        printed = capfd.readouterr()
        return printed.out or printed.err

    with agents(place):
        async with rack_with(place, broker) as (rack, client):
            far = await etloop(
                "rack", "reserve", "a", "--for", "ann", "--until", "2126-01-01T00:00Z", code=65
            )
            assert (
                "ends_at: 2126-01-01T00:00:00Z is more than a year ahead; reserve at most a year ahead" in far
            )
            until = f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%dT%H:%MZ}"
            made = await etloop(
                "rack", "reserve", "a", "--for", "ann", "--until", until, "--reason", "a demo"
            )
            assert "a/p0, a/p1 for ann from " in made
            job = await client.submit(SCENARIO, ports=["a/p0", "b/p0"])
            await rack.until(lambda: "port a/p0 is reserved for ann from" in rack.rack.waits_for(job.job_id))
            line = (await etloop("rack", "status")).splitlines()[-1]
            assert line == made.rstrip()
            assert await etloop("rack", "unreserve", line.split()[1]) == made
            assert "there is no reservation r; see etloop rack status" in await etloop(
                "rack", "unreserve", "r", code=65
            )
            assert (await client.result(job.job_id, PATIENCE_S)).exit_code == 0
            assert "is missing; give the end" in await etloop("rack", "reserve", "a", code=65)
            assert "takes no --for, --from or --until" in await etloop(
                "rack", "drain", "a", "--for", "ann", code=65
            )
