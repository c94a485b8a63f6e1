"""Flood the control port with strangers at several descriptor limits: run, controller and agents go on."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from etloop.controller.rack.job import ENDED, JobState

from tests.controller.rack.mqtt.test_rack_mqtt import Mosquitto, mosquitto
from tests.controller.rack.test_rack_daemon import LONG, SCENARIO, place
from tests.controller.rack.test_rack_keys import keys, options
from tests.support.first_light.commands import FULL, Live, Place, agent
from tests.support.rack.rack_under_faults import Broken, lets_pass

__all__ = ["keys", "mosquitto", "place"]

pytestmark = pytest.mark.e2e

COUNT: Final = 1100
HELD_S: Final = 8.0
"""Longer than a handshake may take, so that no stranger's place is still held by the first of them."""
JOIN_S: Final = 5.0


def limited(descriptors: int) -> tuple[str, ...]:
    """Return what starts a command with this soft and hard limit of open files."""
    return ("sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh")


@contextlib.contextmanager
def flood(endpoint: str, count: int) -> Iterator[None]:
    """Hold `count` connections that say nothing."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    strangers = []
    try:
        for _ in range(count):
            stranger = socket.socket()
            stranger.setblocking(False)
            stranger.connect_ex((host, int(port)))
            strangers.append(stranger)
        yield
    finally:
        for stranger in strangers:
            stranger.close()


@pytest.mark.parametrize("descriptors", [256, 1024, 4096])
def test_silent(place: Place, keys: Path, mosquitto: Mosquitto, descriptors: int) -> None:
    broken = Broken(place, mosquitto)
    with (
        broken.controller(within=limited(descriptors)) as controller,
        agent(place, "a", *options(keys, "a")) as a,
    ):
        job_id = broken.submit(LONG, ports=("a/p0", "a/p1"))
        broken.reaches(controller, job_id, JobState.RUNNING)
        with flood(place.endpoint, COUNT):
            lets_pass(controller, HELD_S)
            assert broken.job(job_id).state is JobState.RUNNING, controller.printed()
        t0 = time.monotonic()
        with agent(place, "b", *options(keys, "b")) as b:
            b.wait_for("joined the controller")
            print("joined after", time.monotonic() - t0)
        assert broken.job(job_id).state is JobState.RUNNING, controller.printed()
        broken.cancel(job_id)
        assert broken.reaches(controller, job_id, *ENDED).reason == "cancelled by mqtt"
        print(controller.printed())
