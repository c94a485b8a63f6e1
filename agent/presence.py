"""Publishes to a rack's MQTT broker that this agent's process is alive, with a last will for its loss. A shell: the
connection.

The client subscribes to no topic, and the agent does not depend on it: without the broker the agent serves its
controller as before, and this client reconnects with growing pauses. After a restart it uses the same client
identifier, so that the will of the previous process, if its connection still exists, is published before the new
process is announced and not after. MQTT is loaded with `--mqtt` only: an agent without it does without aiomqtt.
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

from etloop.contract.base.errors import ConfigError, Mistakes, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import parse_at, parse_name
from etloop.contract.protocol.endpoint import is_loopback
from etloop.contract.protocol.presence import FORMAT, AgentProcess, ProcessState, process_bytes, process_topic
from etloop.runtime.broker_settings import BrokerSettings
from etloop.runtime.clock import wall_time_text
from etloop.runtime.task_shutdown import end, is_ending
from etloop.runtime.version import installed_version

if TYPE_CHECKING:
    import argparse

    from etloop.runtime.broker_connection import MqttClient, MqttVersion

_LOG: Final = logging.getLogger(__name__)
_QOS: Final = 1
_KEEPALIVE_S: Final = 10
_LEAST_PAUSE_S: Final = 0.5
_MOST_PAUSE_S: Final = 30.0
_GOODBYE_S: Final = 2.0
_END_AGAIN_S: Final = _GOODBYE_S + 1


@dataclass(frozen=True, slots=True)
class PresenceSettings:
    """Broker to which the agent publishes, and name of its rack."""

    broker: BrokerSettings
    rack: str


def add_presence(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `etloop-agent run` about MQTT."""
    group = parser.add_argument_group("publish this process's state to an MQTT broker (docs/rack-api)")
    group.add_argument("--mqtt", metavar="HOST[:PORT]", help="broker of the rack (default: none)")
    group.add_argument("--rack", default="rack", metavar="NAME", help="name of the rack (default rack)")
    group.add_argument("--mqtt-username", default="", metavar="USER", help="account at the broker")
    group.add_argument("--mqtt-password-file", type=Path, metavar="FILE", help="file with the password")
    group.add_argument(
        "--mqtt-ca", type=Path, metavar="FILE", help="use TLS; CA file for the broker's certificate"
    )


def presence_settings(options: argparse.Namespace) -> PresenceSettings | None:
    """Return the settings that the arguments give; None without `--mqtt`. Raises `ConfigError` with all mistakes."""
    if options.mqtt is None:
        return None
    try:
        from etloop.runtime.broker_connection import broker_settings
    except ModuleNotFoundError as error:
        problem = f"needs {error.name}, which is not installed here"
        raise ConfigError(Problem("--mqtt", problem, "pip install 'etloop[agent]'")) from None
    mistakes = Mistakes()
    broker = mistakes.of(
        lambda: broker_settings(
            options.mqtt,
            username=options.mqtt_username,
            password_file=options.mqtt_password_file,
            ca=options.mqtt_ca,
            where="--mqtt",
        )
    )
    mistakes.of(lambda: parse_at("--rack", parse_name, options.rack))
    encrypted = options.mqtt_ca is not None
    if broker and not encrypted and not options.insecure and not is_loopback(f"tcp://{broker.host}:1"):
        problem = f"messages to {broker.host}, including the password, would be sent unencrypted"
        remedy = "give --mqtt-ca FILE, or --insecure in a closed lab"
        mistakes.problems.append(Problem("--mqtt", problem, remedy))
    mistakes.refuse(ConfigError)
    assert broker is not None
    return PresenceSettings(broker, options.rack)


@contextlib.asynccontextmanager
async def presence_published(settings: PresenceSettings | None, name: str) -> AsyncIterator[None]:
    """Publish that agent `name` is alive while the block is open, and at its end that it has stopped."""
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
    from etloop.runtime.broker_connection import MqttError, why_lost

    pause_s = _LEAST_PAUSE_S
    is_loss_logged = False
    while True:
        try:
            async with _connection(settings, alive) as (client, _):
                # The broker may forward ALIVE before its acknowledgement arrives here: from now on STOPPED must be published.
                try:
                    await _publish(client, settings, alive)
                    pause_s, is_loss_logged = _LEAST_PAUSE_S, False
                    async for _ in client.messages:
                        pass  # No topic is subscribed; the loop ends when the connection does.
                except asyncio.CancelledError:
                    async with asyncio.timeout(_GOODBYE_S):
                        await _publish(client, settings, replace(alive, state=ProcessState.STOPPED))
                    raise
        except (MqttError, OSError, ConfigError) as error:
            if is_ending():
                return
            if not is_loss_logged:
                broker = settings.broker
                _LOG.warning("cannot publish to broker %s:%d: %s", broker.host, broker.port, why_lost(error))
            is_loss_logged = True
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _MOST_PAUSE_S)


def _connection(
    settings: PresenceSettings, alive: AgentProcess
) -> contextlib.AbstractAsyncContextManager[tuple[MqttClient, MqttVersion]]:
    from etloop.runtime.broker_connection import Will, broker_connection

    last_will = process_bytes(replace(alive, state=ProcessState.LOST))
    return broker_connection(
        settings.broker,
        f"etloop-agent-{settings.rack}-{alive.name}",
        will=Will(process_topic(settings.rack, alive.name), last_will, qos=_QOS, retain=True),
        keepalive=_KEEPALIVE_S,
    )


async def _publish(client: MqttClient, settings: PresenceSettings, process: AgentProcess) -> None:
    topic = process_topic(settings.rack, process.name)
    await client.publish(topic, process_bytes(process), qos=_QOS, retain=True)
