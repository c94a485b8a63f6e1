"""What a broker is told of a rack: nothing that happened while it was away stays unsaid, and nothing is retained for ever."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace

import aiomqtt
import pytest

from etloop.cli.main import main
from etloop.contract.base.errors import ExitCode
from etloop.controller.rack.client.client import RackClient, RackUnreachable
from etloop.controller.rack.job import JobState
from etloop.controller.rack.mqtt.messages import JobStatus
from etloop.runtime.broker_settings import BrokerSettings
from tests.controller.rack.mqtt.test_rack_mqtt import Broker, Mosquitto, mosquitto, rack_with
from tests.controller.rack.test_rack_daemon import SCENARIO, Serving, place
from tests.support.first_light.commands import PATIENCE_S, Place

__all__ = ["mosquitto", "place"]


def on(mosquitto: Mosquitto, more: str = "") -> Broker:
    """A rack's broker, with more of the section `mqtt`."""
    return Broker(BrokerSettings("127.0.0.1", mosquitto.port), f"mqtt: {{port: {mosquitto.port}{more}}}\n")


async def states(mosquitto: Mosquitto, holds: Callable[[dict[str, str]], bool]) -> dict[str, str]:
    """Job -> state as the broker retains it, once that is so."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await retained_states(mosquitto)
            if holds(found):
                return found


async def retained_states(mosquitto: Mosquitto) -> dict[str, str]:
    """Job -> state. The controller's own state, asked for after those of the jobs, comes after them."""
    found: dict[str, str] = {}
    async with aiomqtt.Client("127.0.0.1", mosquitto.port) as viewer:
        for topic in ("jobs/+/state", "controller/status"):
            await viewer.subscribe(f"etloop/v1/rack/{topic}", qos=1)
        async for message in viewer.messages:
            parts = str(message.topic).split("/")
            if parts[3] == "controller":
                return found
            assert isinstance(message.payload, bytes)
            if message.payload:
                found[parts[4]] = json.loads(message.payload)["state"]
            else:
                found.pop(parts[4], None)
    raise AssertionError("the broker went away")


async def hasty_result(mosquitto: Mosquitto, job_id: str) -> object:
    """Waits for a job's result, and not long for the broker to know of it."""
    async with RackClient(
        BrokerSettings("127.0.0.1", mosquitto.port), "rack", response_timeout_s=0.5
    ) as rack:
        return await rack.result(job_id)


async def ended_unheard(rack: Serving, mosquitto: Mosquitto, submitted: int, ended: int) -> dict[str, str]:
    """Jobs of which the broker knows, and which it does not see end, for it is killed before; their states then."""
    jobs = [rack.submit() for _ in range(submitted)]
    await states(mosquitto, lambda found: len(found) == len(jobs))
    mosquitto.kill()
    await rack.until(lambda: any(line["event"] == "broker lost" for line in rack.log()))
    for job_id in jobs[:ended]:
        rack.rack.cancel(job_id, "test")
    return dict.fromkeys(jobs[:ended], "cancelled") | dict.fromkeys(jobs[ended:], "queued")


async def test_a_job_that_ended_while_the_broker_was_away_is_told_however_many_came_after_it(
    place: Place, mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etloop.controller.rack.mqtt.gateway._REPUBLISHED_JOBS", 2)
    async with rack_with(place, on(mosquitto)) as (rack, _):
        expected = await ended_unheard(rack, mosquitto, submitted=8, ended=5)
        mosquitto.start()
        found = await states(mosquitto, lambda found: len(found) == len(expected))
        assert found == expected


async def test_a_new_controller_tells_what_the_one_before_it_had_not_come_to_tell(
    place: Place, mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etloop.controller.rack.mqtt.gateway._REPUBLISHED_JOBS", 2)
    async with rack_with(place, on(mosquitto)) as (rack, _):
        expected = await ended_unheard(rack, mosquitto, submitted=6, ended=4)
    mosquitto.start()
    async with rack_with(place, on(mosquitto)):
        found = await states(mosquitto, lambda found: len(found) == len(expected))
        assert found == expected


async def test_of_ended_jobs_the_last_are_retained(place: Place, mosquitto: Mosquitto) -> None:
    async with rack_with(place, on(mosquitto, ", retained_jobs: 3")) as (rack, client):
        jobs = [rack.submit() for _ in range(7)]
        for job_id in reversed(jobs[1:]):
            assert await client.cancel(job_id) is not None
        kept = {*jobs[1:4], jobs[0]}
        await states(mosquitto, lambda found: found.keys() == kept)
        with pytest.raises(RackUnreachable, match=r"no job .* at the broker"):
            await hasty_result(mosquitto, jobs[6])


@pytest.mark.parametrize("most_waiting", [1000, 1], ids=["one after another", "after events were missed"])
async def test_what_is_listed_no_longer_is_retained_no_longer(
    place: Place, mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch, most_waiting: int
) -> None:
    monkeypatch.setattr("etloop.controller.rack.store.retention._PASS_NS", 0)
    monkeypatch.setattr("etloop.controller.rack.store.job_store._TRIM_LINES", 1)
    broker = on(mosquitto)
    few = replace(broker, config=broker.config + "retention: {ended_jobs: 2}\n")
    async with rack_with(place, few) as (rack, client):
        monkeypatch.setattr("etloop.controller.rack.events._MOST_WAITING", most_waiting)
        jobs = [rack.submit() for _ in range(5)]
        for job_id in jobs:
            assert await client.cancel(job_id) is not None
        await states(mosquitto, lambda found: found.keys() == set(jobs[3:]))


async def test_who_follows_a_job_that_does_not_exist_is_told_so(place: Place, mosquitto: Mosquitto) -> None:
    async with rack_with(place, on(mosquitto)):
        with pytest.raises(RackUnreachable, match="no job nobody at the broker"):
            await hasty_result(mosquitto, "nobody")


async def test_what_a_job_waits_for_stands_in_its_state(place: Place, mosquitto: Mosquitto) -> None:
    async with rack_with(place, on(mosquitto)) as (_, client):
        job = await client.submit(SCENARIO, ports=["a/p0"])
        reason = ""
        async with asyncio.timeout(PATIENCE_S):
            async for reported in client.follow(job.job_id):
                assert isinstance(reported, JobStatus)
                assert reported.state is JobState.QUEUED
                reason = reported.reason
                if reason:
                    break
        assert reason == "agent 'a' has not joined"


async def test_who_is_patient_is_taken_when_the_queue_has_room(place: Place, mosquitto: Mosquitto) -> None:
    scenario = place.write("scenario.yaml", SCENARIO)
    command = ["submit", str(scenario), "--broker", f"127.0.0.1:{mosquitto.port}"]
    async with rack_with(place, on(mosquitto)) as (rack, client):
        rack.rack.limits = replace(rack.rack.limits, queued_jobs=1)
        first = rack.submit()
        assert await asyncio.to_thread(main, command) == ExitCode.PREPARATION_FAILED
        before = len(rack.daemon.store.audit())
        patient = asyncio.create_task(asyncio.to_thread(main, [*command, "--patience", "100s"]))
        await rack.until(lambda: len(rack.daemon.store.audit()) > before)
        rack.rack.cancel(first, "test")
        assert await patient == ExitCode.PASS
        assert [job.state for job in await client.jobs()] == [JobState.QUEUED, JobState.CANCELLED]
