"""Strangers flood the control port at several limits of descriptors: run, controller and agents go on."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Final

import pytest

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ExitCode
from etloop.controller.rack.job import ENDED, JobState
from etloop.controller.session.door.places import SILENT_NS
from tests.controller.rack.mqtt.test_rack_mqtt import Mosquitto, mosquitto
from tests.controller.rack.test_rack_daemon import CALM, LONG, SCENARIO, place
from tests.controller.rack.test_rack_keys import keys, options
from tests.support.first_light.commands import FULL, Live, Place, agent, agents, running
from tests.support.rack.rack_under_faults import Broken, lets_pass
from tests.support.rack.strangers import KINDS, strangers

__all__ = ["keys", "mosquitto", "place"]

pytestmark = pytest.mark.e2e

COUNT: Final = 1100
HELD_S: Final = SILENT_NS / NS_PER_S + 1
"""A second longer than a stranger may be silent: the places of the first ones are others' by then."""
JOINED_S: Final = 5.0
HIGHEST: Final = min(65_536, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
LIMITS: Final = (
    tuple(round(256 * (HIGHEST / 256) ** (step / 19)) for step in range(20)) if FULL else (256, 4096)
)
SPARE: Final = 16
"""Descriptors that a controller has left at least, whatever strangers do."""


def limited(descriptors: int) -> tuple[str, ...]:
    """Return what starts a command with this limit of open files, soft and hard."""
    return ("sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh")


def most_open(live: Live, seconds: float) -> int:
    """Watch a controller for a while, which must not end; return how many descriptors it had at most."""
    most, until_s = 0, time.monotonic() + seconds
    while time.monotonic() < until_s:
        lets_pass(live, 0.05)
        most = max(most, sum(1 for _ in Path(f"/proc/{live.process.pid}/fd").iterdir()))
    return most


def flooded(broken: Broken, keys: Path, controller: Live, kind: str, descriptors: int) -> None:
    """A job runs on through a flood, in which an agent joins; after it another one joins in time."""
    place = broken.place
    job_id = broken.submit(LONG, ports=("a/p0", "a/p1"))
    broken.reaches(controller, job_id, JobState.RUNNING)
    with strangers(place.endpoint, kind, COUNT):
        assert most_open(controller, HELD_S) <= descriptors - SPARE
        with agent(place, "b", *options(keys, "b")) as b:
            b.wait_for("joined the controller")
    with agent(place, "b", *options(keys, "b")) as b:
        b.wait_for("waiting for a controller")
        began_s = time.monotonic()
        b.wait_for("joined the controller")
        assert time.monotonic() - began_s < JOINED_S
    assert broken.job(job_id).state is JobState.RUNNING, controller.printed()
    broken.cancel(job_id)
    assert broken.reaches(controller, job_id, *ENDED).reason == "cancelled by mqtt"
    assert "revoked" not in controller.printed()
    assert "cannot be read" not in controller.printed()
    assert "Traceback" not in controller.printed()


@pytest.mark.parametrize("descriptors", LIMITS)
def test_that_say_nothing(place: Place, keys: Path, mosquitto: Mosquitto, descriptors: int) -> None:
    broken = Broken(place, mosquitto)
    with broken.controller(within=limited(descriptors)) as controller, agent(place, "a", *options(keys, "a")):
        flooded(broken, keys, controller, "silent", descriptors)


def test_that_say_a_little_or_come_and_go(place: Place, keys: Path, mosquitto: Mosquitto) -> None:
    broken = Broken(place, mosquitto)
    with broken.controller(within=limited(256)) as controller, agent(place, "a", *options(keys, "a")):
        for kind in KINDS[1:]:
            flooded(broken, keys, controller, kind, 256)
        with agent(place, "b", *options(keys, "b")):
            broken.serves_on(controller)


@pytest.mark.parametrize("left", [20, 5])
def test_no_descriptors_as_a_run_ends(place: Place, keys: Path, mosquitto: Mosquitto, left: int) -> None:
    """The end of the run waits, and is noted as it was; the keys stay admitted."""
    broken = Broken(place, mosquitto)
    seconds = SCENARIO.replace("iterations: 3", "iterations: 40") + CALM
    with (
        broken.controller() as controller,
        agent(place, "a", *options(keys, "a")) as a,
        agent(place, "b", *options(keys, "b")),
    ):
        job_id = broken.submit(seconds)
        broken.reaches(controller, job_id, JobState.RUNNING)
        soft, hard = resource.prlimit(controller.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(controller.process.pid, resource.RLIMIT_NOFILE, (left, hard))
        controller.wait_for("cannot be read (Too many open files)")
        controller.wait_for(f"job {job_id} cannot be ended yet: ")
        lets_pass(controller, 1.5)
        resource.prlimit(controller.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
        job = broken.reaches(controller, job_id, *ENDED)
        assert (job.state, job.exit_code, job.reason) == (JobState.FINISHED, ExitCode.PASS, "")
        assert job.artifact_bytes > 0
        assert broken.result(job_id).summary is not None
        assert "revoked" not in controller.printed()
        broken.serves_on(controller)
        assert a.printed().count("is not on the controller's list") == 0


def test_a_run_by_itself(place: Place) -> None:
    """Without keys and a rack: the port of `etloop run`."""
    scenario = SCENARIO.replace("trace: job", "trace: traces/job").replace("iterations: 3", "iterations: 80")
    place.write("scenario.yaml", scenario + CALM)
    command = ("run", "scenario.yaml", "--rig", "rig.yaml", "--out", "out")
    with running(place, "etloop.cli.main", *command, within=limited(256)) as run:
        run.wait_for("waiting at")
        with strangers(place.endpoint, "silent", COUNT), agents(place):
            assert run.ended().exit_code == ExitCode.PASS
