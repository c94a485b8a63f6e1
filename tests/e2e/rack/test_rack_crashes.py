"""A controller that is killed at moments that chance picks: no job is lost, none hangs, none changes once it has ended.

The seed is in the test's name. ETLOOP_FULL=1 kills for some minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess

import pytest

from etloop.controller.rack.client.client import RackClient
from etloop.controller.rack.job import ENDED, Job
from etloop.runtime.broker_settings import BrokerSettings
from tests.controller.rack.mqtt.test_rack_mqtt import Mosquitto, mosquitto
from tests.controller.rack.mqtt.test_rack_republishing import retained_states
from tests.controller.rack.test_rack_daemon import LONG, SCENARIO, place
from tests.support.first_light.commands import FULL, Live, Place, agents, running
from tests.support.rack.rack_under_faults import Broken

__all__ = ["mosquitto", "place"]

pytestmark = pytest.mark.e2e

ROUNDS = 30 if FULL else 2
KINDS = (SCENARIO, SCENARIO, LONG, SCENARIO.replace("job", "empty"))
PORTS = (("a/p0", "b/p0"), ("a/p1", "b/p1"), ("a/p0", "a/p1"), ())
Ending = tuple[str, int | None, str, str]


class Crashes:
    """A rack, what its clients were told, and what chance does to it."""

    def __init__(self, broken: Broken, seed: int) -> None:
        self._broken = broken
        self._chance = random.Random(seed)
        self._keys: dict[str, str] = {}
        """Client key -> job that the rack said it stands for."""
        self._asked: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._endings: dict[str, Ending] = {}

    def round(self, number: int) -> None:
        """One life of a controller."""
        if self._chance.random() < 0.25:
            config = self._broken.place.directory / "controller.yaml"
            with running(self._broken.place, "etloop.cli.main", "controller", "--config", config) as live:
                self._wait(live, 2.5)
            return
        with self._broken.controller() as live:
            asyncio.run(self._speak(number))
            self._wait(live, 2.0)
            if self._chance.random() < 0.3:
                self._kill_a_run()
        self.look()

    def _wait(self, live: Live, most_s: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            live.process.wait(self._chance.random() * most_s)
            raise AssertionError(f"the controller ended by itself:\n{live.printed()}")

    def _kill_a_run(self) -> None:
        names = sorted(path.name for path in (self._broken.state_dir / "running").iterdir())
        if names:
            with contextlib.suppress(AssertionError, ProcessLookupError):  # It may just have ended.
                os.kill(self._broken.run_pid(self._chance.choice(names)), signal.SIGKILL)

    async def _speak(self, number: int) -> None:
        async with self._client() as rack:
            for each in range(self._chance.randrange(1, 5)):
                self._asked[f"k{number}-{each}"] = self._chance.choice(KINDS), self._chance.choice(PORTS)
            # Again what was asked before, as a client does whose answer was lost.
            keys = [f"k{number}-{each}" for each in range(5)] + sorted(self._keys)[-2:]
            for key in keys:
                if key in self._asked:
                    scenario, ports = self._asked[key]
                    job = await rack.submit(scenario, ports=ports, client_key=key)
                    assert self._keys.setdefault(key, job.job_id) == job.job_id, "a key stands for two jobs"
            if self._chance.random() < 0.5:
                await rack.cancel(self._chance.choice(sorted(self._keys.values())))

    def _client(self) -> RackClient:
        return RackClient(BrokerSettings("127.0.0.1", self._broken.mosquitto.port), "rack")

    def look(self) -> dict[str, Job]:
        """What is kept agrees with what clients were told, and with what was kept before."""
        jobs = {job.job_id: job for job in self._broken.jobs()}
        assert jobs.keys() == set(self._keys.values())
        for job in jobs.values():
            if job.state in ENDED:
                ending = (str(job.state), job.exit_code, job.reason, job.ended_at)
                assert self._endings.setdefault(job.job_id, ending) == ending, "an ended job changed"
        return jobs

    async def cancel_all(self) -> None:
        """Nobody waits for a long job."""
        async with self._client() as rack:
            for job_id in self._keys.values():
                await rack.cancel(job_id)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [20261122, 7] if FULL else [20261122])
def test_a_controller_that_is_killed_at_any_moment_loses_nothing(
    place: Place, mosquitto: Mosquitto, seed: int
) -> None:
    broken = Broken(place, mosquitto)
    crashes = Crashes(broken, seed)
    with agents(place):
        with broken.controller():
            pass  # So that there is a configuration with a broker, whatever comes first.
        for number in range(ROUNDS):
            crashes.round(number)
        with broken.controller() as controller:
            asyncio.run(crashes.cancel_all())
            controller.wait_until(lambda: all(job.state in ENDED for job in broken.jobs()), "the end of all")
            jobs = crashes.look()
            controller.wait_until(
                lambda: (
                    asyncio.run(retained_states(mosquitto))
                    == {key: str(job.state) for key, job in jobs.items()}
                ),
                "the broker to know the same",
            )
            left = {path.name for path in (broken.state_dir / "artifacts").iterdir()}
            assert left == {job.run_directory for job in jobs.values() if job.run_directory}
            broken.serves_on(controller)
            assert not list((broken.state_dir / "running").iterdir()), "locks of runs that have ended"
