"""Two racks, north and south, each a daemon behind a Mosquitto of its own; no agents join unless a test starts them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from tests.controller.rack.mqtt.test_rack_mqtt import Mosquitto
from tests.controller.rack.test_rack_daemon import Serving, make_place, serving
from tests.support.first_light.commands import Place


@dataclass(frozen=True, slots=True)
class TwoRacks:
    """Both, under way."""

    directory: Path
    north: Serving
    south: Serving
    places: tuple[Place, Place]
    brokers: tuple[Mosquitto, Mosquitto]

    def file(self, name: str, more: str = "") -> Path:
        """A file that names both, and what else it says."""
        north, south = (broker.port for broker in self.brokers)
        path = self.directory / name
        path.write_text(
            "racks:\n"
            f"  - {{name: north, broker: '127.0.0.1:{north}', rack: rack, labels: {{site: berlin}}}}\n"
            f"  - {{name: south, broker: '127.0.0.1:{south}', rack: rack, labels: {{site: rome}}}}\n{more}"
        )
        return path


@contextlib.asynccontextmanager
async def two_racks(directory: Path, more: str = "") -> AsyncIterator[TwoRacks]:
    """Both; `more` is added to the configuration of their controllers."""
    async with contextlib.AsyncExitStack() as stack:
        places, brokers, serve = [], [], []
        for name in ("north", "south"):
            (directory / name).mkdir()
            place, broker = make_place(directory / name), Mosquitto(directory / name)
            broker.start()
            stack.callback(broker.kill)
            path = place.directory / "controller.yaml"
            path.write_text(
                f"{path.read_text()}mqtt: {{port: {broker.port}, progress_interval: 100ms}}\n{more}"
            )
            serve.append(await stack.enter_async_context(serving(place)))
            places.append(place)
            brokers.append(broker)
        for rack in serve:
            await rack.until(lambda: any(entry["event"] == "broker joined" for entry in rack.log()))  # noqa: B023
        yield TwoRacks(directory, serve[0], serve[1], (places[0], places[1]), (brokers[0], brokers[1]))
