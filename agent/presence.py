"""Tells a rack's MQTT broker that this agent's process lives, with a last will for when it does not. A shell: the connection.

Nothing is listened to, and nothing depends on it: without the broker the agent serves its controller as ever, and this
comes back with growing pauses. It is the same client to the broker after a restart, so that the will of the process
before, should it still hang somewhere, is said before the new one is alive and not after.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiomqtt
from etloop.contract.base.errors import ConfigError, Mistakes, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import parse_at, parse_name
from etloop.contract.protocol.endpoint import is_loopback
from etloop.contract.protocol.presence import FORMAT, AgentProcess, ProcessState, process_bytes, process_topic
from etloop.runtime.broker_connection import MqttVersion, broker_connection, broker_settings, why_lost
from etloop.runtime.broker_settings import BrokerSettings
from etloop.runtime.clock import wall_time_text
from etloop.runtime.task_shutdown import end, is_ending
from etloop.runtime.version import installed_version

if TYPE_CHECKING:
    import argparse

_LOG: Final = logging.getLogger(__name__)
_QOS: Final = 1
_KEEPALIVE_S: Final = 10
_LEAST_PAUSE_S: Final = 0.5
_MOST_PAUSE_S: Final = 30.0
_GOODBYE_S: Final = 2.0
_END_AGAIN_S: Final = _GOODBYE_S + 1


@dataclass(frozen=True, slots=True)
class PresenceSettings:
    """Which broker the agent publishes to, and under which rack."""

    broker: BrokerSettings
    rack: str


def add_presence(parser: argparse.ArgumentParser) -> None:
    """The arguments of `etloop-agent run` about MQTT."""
    group = parser.add_argument_group("tell a broker that this process lives (docs/rack-api)")
    group.add_argument("--mqtt", metavar="HOST[:PORT]", help="broker of the rack (default: none is told)")
    group.add_argument("--rack", default="rack", metavar="NAME", help="name of the rack (default rack)")
    group.add_argument("--mqtt-username", default="", metavar="USER", help="of the broker")
    group.add_argument("--mqtt-password-file", type=Path, metavar="FILE", help="holds the password")
    group.add_argument(
        "--mqtt-ca", type=Path, metavar="FILE", help="encrypt; authority of the broker's certificate"
    )


def presence_settings(options: argparse.Namespace) -> PresenceSettings | None:
    """What the arguments say; None if no broker is to be told. Raises `ConfigError` with all mistakes."""
    if options.mqtt is None:
        return None
    found = Mistakes()
    broker = found.of(
        lambda: broker_settings(
            options.mqtt,
            username=options.mqtt_username,
            password_file=options.mqtt_password_file,
            ca=options.mqtt_ca,
            where="--mqtt",
        )
    )
    found.of(lambda: parse_at("--rack", parse_name, options.rack))
    encrypted = options.mqtt_ca is not None
    if broker and not encrypted and not options.insecure and not is_loopback(f"tcp://{broker.host}:1"):
        what = f"what is published to {broker.host} crosses the network unencrypted, the password included"
        remedy = "give --mqtt-ca FILE, or --insecure in a closed lab"
        found.problems.append(Problem("--mqtt", what, remedy))
    found.refuse(ConfigError)
    assert broker is not None
    return PresenceSettings(broker, options.rack)


@contextlib.asynccontextmanager
async def presence_published(settings: PresenceSettings | None, name: str) -> AsyncIterator[None]:
    """Tells that agent `name` lives while the block is open, and at its end that it has stopped."""
    if settings is None:
        yield
        return
    alive = AgentProcess(
        FORMAT,
        name,
        ProcessState.ALIVE,
        socket.gethostname(),
        os.getpid(),
        installed_version(),
        wall_time_text(),
    )
    publishing = asyncio.create_task(_keep_published(settings, alive))
    try:
        yield
    finally:
        await end((publishing,), again_s=_END_AGAIN_S)


async def _keep_published(settings: PresenceSettings, alive: AgentProcess) -> None:
    pause_s = _LEAST_PAUSE_S
    silent = False
    while True:
        try:
            async with _connection(settings, alive) as (client, _):
                # A broker may have passed the word on before it is known here: the goodbye is owed from now on.
                try:
                    await _publish(client, settings, alive)
                    pause_s, silent = _LEAST_PAUSE_S, False
                    async for _ in client.messages:
                        pass  # Nothing is subscribed to; this ends when the connection does.
                except asyncio.CancelledError:
                    async with asyncio.timeout(_GOODBYE_S):
                        await _publish(client, settings, replace(alive, state=ProcessState.STOPPED))
                    raise
        except (aiomqtt.MqttError, OSError, ConfigError) as error:
            if is_ending():
                return
            if not silent:
                broker = settings.broker
                _LOG.warning("broker %s:%d is not told: %s", broker.host, broker.port, why_lost(error))
            silent = True
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _MOST_PAUSE_S)


def _connection(
    settings: PresenceSettings, alive: AgentProcess
) -> contextlib.AbstractAsyncContextManager[tuple[aiomqtt.Client, MqttVersion]]:
    lost = process_bytes(replace(alive, state=ProcessState.LOST))
    return broker_connection(
        settings.broker,
        f"etloop-agent-{settings.rack}-{alive.name}",
        will=aiomqtt.Will(process_topic(settings.rack, alive.name), lost, qos=_QOS, retain=True),
        keepalive=_KEEPALIVE_S,
    )


async def _publish(client: aiomqtt.Client, settings: PresenceSettings, process: AgentProcess) -> None:
    topic = process_topic(settings.rack, process.name)
    await client.publish(topic, process_bytes(process), qos=_QOS, retain=True)
