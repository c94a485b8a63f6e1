"""A broker inside the daemon, so that one command is a whole rack API on a laptop. A shell around amqtt.

amqtt speaks MQTT 3.1.1 without encryption or users: for one machine, not for a rack that others reach.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from amqtt.broker import Broker  # type: ignore[import-untyped]  # ships no types
from amqtt.session import Session  # type: ignore[import-untyped]
from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.protocol.endpoint import is_loopback
from etloop.runtime.broker_settings import BrokerSettings

if TYPE_CHECKING:
    from etloop.controller.rack.log import RackLog
    from etloop.controller.rack.mqtt.gateway import MqttGateway

_ENDING_S: Final = 5.0


class _Broker(Broker):  # type: ignore[misc]  # amqtt ships no types
    """Sends what is retained to those alone who subscribed to it, and ends with no connection left open.

    amqtt sends a client that connects what is retained for everybody's subscriptions, and leaves a connection whose client
    goes while it says goodbye itself.
    """

    def __init__(self, config: dict[str, object]) -> None:
        super().__init__(config)
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def stream_connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, listener_name: str
    ) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is served by a task"
        self._connections[task] = writer
        try:
            await super().stream_connected(reader, writer, listener_name)
        finally:
            del self._connections[task]
            writer.transport.abort()

    async def _publish_retained_messages_for_subscription(
        self, subscription: tuple[str, int], session: Session
    ) -> None:
        holders = self.subscriptions.get(subscription[0], ())
        if any(holder is session for holder, _ in holders):
            await super()._publish_retained_messages_for_subscription(subscription, session)

    async def ended(self) -> None:
        """Says goodbye to each client for so long as that may take, and closes what is left."""
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self.shutdown(), _ENDING_S)
        left = dict(self._connections)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.gather(*(writer.wait_closed() for writer in left.values()), return_exceptions=True)


class EmbeddedBroker:
    """A gateway that brings its own broker. Raises `ConfigError` if it would be reachable from other machines."""

    def __init__(self, settings: BrokerSettings, gateway: MqttGateway, log: RackLog) -> None:
        if not is_loopback(f"tcp://{settings.host}:{settings.port}"):
            what = f"the embedded broker would let everybody who reaches {settings.host} command this rack"
            raise ConfigError(
                Problem("mqtt.host", what, "name a loopback address, or run Mosquitto with users")
            )
        self._address = f"{settings.host}:{settings.port}"
        self._gateway = gateway
        self._log = log

    async def live(self) -> None:
        """See `Gateway`."""
        logging.getLogger("amqtt").setLevel(logging.CRITICAL)
        broker = _Broker(
            {
                "listeners": {"default": {"type": "tcp", "bind": self._address, "max_connections": 256}},
                "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
            }
        )
        await broker.start()
        self._log.rack("embedded broker listens", broker=self._address)
        try:
            await self._gateway.live()
        finally:
            await broker.ended()

    async def farewell(self) -> None:
        """See `Gateway`."""
        await self._gateway.farewell()
