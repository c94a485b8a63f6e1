"""What happens to the network of a port: an address that goes and comes back, packets that no agent sent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import pytest

from etloop.contract.base.errors import ExitCode
from etloop.controller.rack.job import ENDED, JobState
from etloop.results.schema.losses import NEVER_SENT
from tests.controller.rack.mqtt.test_rack_mqtt import Mosquitto, mosquitto
from tests.controller.rack.test_rack_daemon import CALM, SCENARIO, place
from tests.support.first_light.cable import PREFIX_BITS, SIDES, Cable, cable_agents, cabled, for_root, ip
from tests.support.first_light.commands import FULL, Left, Live, Place, running
from tests.support.rack.rack_under_faults import Broken, lets_pass

__all__ = ["mosquitto", "place"]

pytestmark = [pytest.mark.e2e, for_root]

SECONDS: Final = SCENARIO.replace("iterations: 3", "iterations: 60") + CALM
"""A job of some seconds."""
LOST: Final = f"{SIDES[1]}.2"
"""An address of agent b's port, and not the first of its interface: the control connection keeps that."""
FORGED: Final = 50
"""Forged packets of each kind."""
BEGIN: Final = "begin"
"""File whose existence begins the forging."""
WIRES: Final = (
    ("rocev2", "udp"),
    *((("rocev2", "packet"), ("mrc", "packet"), ("uet", "packet")) if FULL else ()),
)
"""Transports, and how the agents' ports send them."""


@pytest.fixture
def broken(place: Place, mosquitto: Mosquitto) -> Broken:
    """A rack whose network is disturbed."""
    return Broken(place, mosquitto)


@contextlib.contextmanager
def without(cable: Cable, address: str) -> Iterator[None]:
    """Remove an address of the far end inside the block."""
    at = f"{address}/{PREFIX_BITS} dev {cable.far}"
    ip(f"address delete {at}", "-n", cable.namespace)
    try:
        yield
    finally:
        ip(f"address add {at}", "-n", cable.namespace)


def test_job_waits_for_a_missing_address(broken: Broken) -> None:
    with (
        cabled(broken.place) as cable,
        broken.controller() as controller,
        cable_agents(broken.place, cable),
    ):
        broken.serves_on(controller)
        with without(cable, LOST):
            controller.wait_for(f"b/p0: address {LOST} is not on")
            waiting = broken.submit()
            lets_pass(controller, 2)
            assert broken.job(waiting).state is JobState.QUEUED
        job = broken.reaches(controller, waiting, *ENDED)
        assert (job.exit_code, job.reason) == (ExitCode.PASS, "")
        assert len(broken.jobs()) == 2, "no job was burnt"


def test_address_lost_for_a_second_in_a_run(broken: Broken) -> None:
    with (
        cabled(broken.place) as cable,
        broken.controller() as controller,
        cable_agents(broken.place, cable),
    ):
        job_id = broken.submit(SECONDS)
        broken.reaches(controller, job_id, JobState.RUNNING)
        lets_pass(controller, 0.5)
        with without(cable, LOST):
            lets_pass(controller, 1)
        job = broken.reaches(controller, job_id, *ENDED)
        assert (job.exit_code, job.reason) == (ExitCode.PASS, "")


@contextlib.contextmanager
def forger(place: Place, cable: Cable, transport: str) -> Iterator[Live]:
    """Send forged answers to agent a, as from agent b's side of the cable, after a genuine one that comes after BEGIN."""
    arguments = (cable.near, cable.namespace, cable.far, transport, str(FORGED), str(place.directory / BEGIN))
    with running(place, "tests.support.rack.forger", *arguments) as live:
        yield live


@pytest.mark.parametrize(("transport", "backend"), WIRES)
def test_forged_answers_end_no_run(broken: Broken, transport: str, backend: str) -> None:
    """They fail the consistency check, are named as such, and are not the device's; the run loses nothing."""
    with cabled(broken.place) as cable:
        rig = (broken.place.directory / "rig.yaml").read_text()
        broken.place.write("rig.yaml", rig.replace("link: 10Gbps", f"link: 10Gbps, backend: {backend}"))
        with broken.controller() as controller, cable_agents(broken.place, cable):
            with forger(broken.place, cable, transport) as live:
                live.wait_for("listening")
                job_id = broken.submit(f"{SECONDS}transport: {{kind: {transport}}}\n")
                broken.reaches(controller, job_id, JobState.RUNNING)
                broken.place.write(BEGIN, "")
                live.wait_for("sent")
            job = broken.reaches(controller, job_id, *ENDED)
    assert job.exit_code is ExitCode.RUN_ERROR
    assert NEVER_SENT in job.reason
    left = Left(broken.state_dir / "artifacts" / job_id)
    assert left.summary["state"] == "done"
    assert left.summary["ops"]["missing"] == 0
    (failed,) = [check for check in left.summary["checks"] if check["result"] == "fail"]
    assert failed["name"] == NEVER_SENT
    assert FORGED < failed["mismatches"] <= 5 * FORGED, "a busy host may lose some"
    report = (left.directory / "report.html").read_text()
    assert f"{failed['mismatches']} packets were received that no agent sent" in report
