"""A broker inside the daemon, so that one command serves a whole rack API on a laptop. A shell around amqtt.

amqtt speaks MQTT 3.1.1 without encryption or users: for use on one machine only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from amqtt.broker import Broker  # type: ignore[import-untyped]  # ships no types
from amqtt.session import Session  # type: ignore[import-untyped]

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.protocol.endpoint import is_loopback
from etloop.runtime.broker_settings import BrokerSettings

if TYPE_CHECKING:
    from etloop.controller.rack.log import RackLog
    from etloop.controller.rack.mqtt.gateway import MqttGateway

_ENDING_S: Final = 5.0
MOST_CONNECTIONS: Final = 64
"""Connections at once. Beyond it the one that has waited longest without a CONNECT packet is closed, or the new one."""
CONNECT_TIMEOUT_S: Final = 10.0
"""From the connection until its CONNECT packet is complete: a connection takes a descriptor of the controller."""
_BACKLOG: Final = 16
"""Connections that wait to be accepted, and that are accepted at once."""


class BoundedBroker(Broker):  # type: ignore[misc]  # amqtt ships no types
    """Works around faults of amqtt: retained messages for wrong clients, and connections left open or unlimited.

    amqtt sends each client that connects the retained messages of all clients' subscriptions, and leaves a connection
    open if its client disconnects while the broker is closing it. It accepts connections beyond its limit and keeps
    them waiting, and waits without limit for the first packet.
    """

    def __init__(
        self,
        config: dict[str, object],
        most: int = MOST_CONNECTIONS,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        super().__init__(config)
        self._most = most
        self._connect_timeout_s = connect_timeout_s
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._strangers: dict[asyncio.Task[None], asyncio.TimerHandle] = {}
        """Connections without a CONNECT packet, oldest first."""

    async def stream_connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, listener_name: str
    ) -> None:
        task = asyncio.current_task()
        assert task is not None, "connections are served by tasks"
        if len(self._connections) >= self._most and self._strangers:
            self._close(next(iter(self._strangers)))
        if len(self._connections) >= self._most:
            writer.transport.abort()
            return
        self._connections[task] = writer
        loop = asyncio.get_running_loop()
        self._strangers[task] = loop.call_later(self._connect_timeout_s, self._close, task)
        try:
            await super().stream_connected(reader, writer, listener_name)
        finally:
            self._no_stranger(task)
            self._connections.pop(task, None)
            writer.transport.abort()

    async def _initialize_client_session(self, *connection: Any) -> Any:
        session = await super()._initialize_client_session(*connection)
        if (task := asyncio.current_task()) is not None:
            self._no_stranger(task)
        return session

    async def _create_server_instance(self, *listener: Any) -> asyncio.Server:
        name, _, address, port, _ = listener
        return await asyncio.start_server(
            partial(self.stream_connected, listener_name=name),
            address,
            port,
            reuse_address=True,
            backlog=_BACKLOG,
        )

    def _no_stranger(self, task: asyncio.Task[None]) -> None:
        if timer := self._strangers.pop(task, None):
            timer.cancel()

    def _close(self, task: asyncio.Task[None]) -> None:
        self._no_stranger(task)
        self._connections.pop(task).transport.abort()

    async def _publish_retained_messages_for_subscription(
        self, subscription: tuple[str, int], session: Session
    ) -> None:
        holders = self.subscriptions.get(subscription[0], ())
        if any(holder is session for holder, _ in holders):
            await super()._publish_retained_messages_for_subscription(subscription, session)

    async def shut_down(self) -> None:
        """Disconnect each client within a time limit, and close the remaining connections."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_ENDING_S):
                await self.shutdown()
        open_connections = dict(self._connections)
        for task in open_connections:
            task.cancel()
        await asyncio.gather(*open_connections, return_exceptions=True)
        await asyncio.gather(
            *(writer.wait_closed() for writer in open_connections.values()), return_exceptions=True
        )


class EmbeddedBroker:
    """A gateway with its own broker. Raises `ConfigError` if it would be reachable from other machines."""

    def __init__(self, settings: BrokerSettings, gateway: MqttGateway, log: RackLog) -> None:
        if not is_loopback(f"tcp://{settings.host}:{settings.port}"):
            problem = f"the embedded broker has no users: any client that reaches {settings.host} could command this rack"
            raise ConfigError(
                Problem("mqtt.host", problem, "name a loopback address, or run Mosquitto with users")
            )
        self._address = f"{settings.host}:{settings.port}"
        self._gateway = gateway
        self._log = log

    async def serve(self) -> None:
        """Start the broker and serve the gateway. See `Gateway`."""
        logging.getLogger("amqtt").setLevel(logging.CRITICAL)
        broker = BoundedBroker(
            {
                "listeners": {"default": {"type": "tcp", "bind": self._address, "max_connections": -1}},
                "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
            }
        )
        await broker.start()
        self._log.rack("embedded broker listens", broker=self._address)
        try:
            await self._gateway.serve()
        finally:
            await broker.shut_down()

    async def farewell(self) -> None:
        """Announce that the controller ends. See `Gateway`."""
        await self._gateway.farewell()
