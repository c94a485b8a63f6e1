"""A broker inside the daemon, so that one command is a whole rack API on a laptop. A shell around amqtt.

amqtt speaks MQTT 3.1.1 without encryption or users: for one machine, not for a rack that others reach.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from amqtt.broker import Broker  # type: ignore[import-untyped]  # ships no types

from contract.endpoint import is_loopback
from contract.errors import ConfigError, Problem

if TYPE_CHECKING:
    from controller.rack.broker_settings import BrokerSettings
    from controller.rack.log import RackLog
    from controller.rack.mqtt import MqttRoad


class EmbeddedBroker:
    """A road that brings its own broker. Raises `ConfigError` if it would be reachable from other machines."""

    def __init__(self, settings: BrokerSettings, road: MqttRoad, log: RackLog) -> None:
        if not is_loopback(f"tcp://{settings.host}:{settings.port}"):
            what = f"the embedded broker would let everybody who reaches {settings.host} command this rack"
            raise ConfigError(
                Problem("mqtt.host", what, "name a loopback address, or run Mosquitto with users")
            )
        self._address = f"{settings.host}:{settings.port}"
        self._road = road
        self._log = log

    async def live(self) -> None:
        """See `Road`."""
        logging.getLogger("amqtt").setLevel(logging.CRITICAL)
        broker = Broker(
            {
                "listeners": {"default": {"type": "tcp", "bind": self._address, "max_connections": 256}},
                "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
            }
        )
        await broker.start()
        self._log.rack("embedded broker listens", broker=self._address)
        try:
            await self._road.live()
        finally:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(broker.shutdown(), 5)

    async def farewell(self) -> None:
        """See `Road`."""
        await self._road.farewell()
