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
import ssl
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiomqtt
from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.units import QuantityError, parse_name
from etloop.contract.protocol.endpoint import is_loopback
from etloop.contract.protocol.presence import FORMAT, AgentProcess, ProcessState, process_bytes, process_topic
from etloop.runtime.mqtt_version import MqttVersion, is_version_refusal
from paho.mqtt.reasoncodes import ReasonCode

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator

_LOG: Final = logging.getLogger(__name__)
_QOS: Final = 1
_KEEPALIVE_S: Final = 10
_LEAST_PAUSE_S: Final = 0.5
_MOST_PAUSE_S: Final = 30.0
_GOODBYE_S: Final = 2.0
_END_AGAIN_S: Final = _GOODBYE_S + 1


@dataclass(frozen=True, slots=True)
class PresenceSettings:
    """Which broker is told, and as whom."""

    host: str
    port: int
    rack: str
    username: str = ""
    password: str = ""
    ca_file: Path | None = None
    """Encrypt, and verify the broker against this authority."""

    def __repr__(self) -> str:
        """Without the password."""
        return f"PresenceSettings({self.host}:{self.port}, rack {self.rack}, user {self.username or '-'})"


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
    problems: list[Problem] = []
    host, _, port = options.mqtt.rpartition(":") if ":" in options.mqtt else (options.mqtt, "", "")
    if not host or (port and not (port.isdecimal() and 0 < int(port) < 1 << 16)):
        problems.append(Problem("--mqtt", f'"{options.mqtt[:64]}" is no broker', "write HOST or HOST:PORT"))
    try:
        parse_name(options.rack)
    except QuantityError as error:
        problems.append(Problem("--rack", error.what, error.remedy))
    password = ""
    if options.mqtt_password_file is not None:
        try:
            password = options.mqtt_password_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            what = f"{options.mqtt_password_file} cannot be read: {error}"
            problems.append(Problem("--mqtt-password-file", what, "check the name and that it may be read"))
    if options.mqtt_ca is not None and not options.mqtt_ca.is_file():
        problems.append(
            Problem("--mqtt-ca", f"{options.mqtt_ca} is no file", "name the authority's certificate")
        )
    if host and options.mqtt_ca is None and not options.insecure and not is_loopback(f"tcp://{host}:1"):
        what = f"what is told to {host} crosses the network unencrypted, the password included"
        problems.append(Problem("--mqtt", what, "give --mqtt-ca FILE, or --insecure in a closed lab"))
    if problems:
        raise ConfigError(*problems)
    return PresenceSettings(
        host=host,
        port=int(port) if port else (1883 if options.mqtt_ca is None else 8883),
        rack=options.rack,
        username=options.mqtt_username,
        password=password,
        ca_file=options.mqtt_ca,
    )


@contextlib.asynccontextmanager
async def presence_published(settings: PresenceSettings | None, name: str) -> AsyncIterator[None]:
    """Tells that agent `name` lives while the block is open, and at its end that it has stopped."""
    if settings is None:
        yield
        return
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    alive = AgentProcess(
        FORMAT, name, ProcessState.ALIVE, socket.gethostname(), os.getpid(), _version(), started_at
    )
    publishing = asyncio.create_task(_keep_published(settings, alive))
    try:
        yield
    finally:
        # Python 3.11 forgets a cancellation that comes in the moment in which `asyncio.wait_for` has what it waits for.
        while not publishing.done():
            publishing.cancel()
            await asyncio.wait((publishing,), timeout=_END_AGAIN_S)
        await asyncio.gather(publishing, return_exceptions=True)


async def _keep_published(settings: PresenceSettings, alive: AgentProcess) -> None:
    pause_s = _LEAST_PAUSE_S
    silent = False
    while True:
        try:
            async with _client(settings, await _spoken(settings), alive) as client:
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
        except (aiomqtt.MqttError, OSError) as error:
            if _ends():
                return
            if not silent:
                _LOG.warning("broker %s:%d is not told: %s", settings.host, settings.port, error)
            silent = True
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _MOST_PAUSE_S)


async def _spoken(settings: PresenceSettings) -> MqttVersion:
    """Asked without a last will: a broker that does not know version 5 cannot read past one, and would not answer."""
    try:
        async with _client(settings, MqttVersion.V5):
            return MqttVersion.V5
    except aiomqtt.MqttCodeError as error:
        if is_version_refusal(error.rc.value if isinstance(error.rc, ReasonCode) else error.rc):
            return MqttVersion.V311
        raise


def _ends() -> bool:
    """Whether the task was cancelled, though what broke on the way out hides it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _client(
    settings: PresenceSettings, version: MqttVersion, alive: AgentProcess | None = None
) -> aiomqtt.Client:
    """With the name and the last will of `alive`, if it is given."""
    will = None
    if alive is not None:
        lost = process_bytes(replace(alive, state=ProcessState.LOST))
        will = aiomqtt.Will(process_topic(settings.rack, alive.name), lost, qos=_QOS, retain=True)
    return aiomqtt.Client(
        settings.host,
        settings.port,
        protocol=aiomqtt.ProtocolVersion(version),
        username=settings.username or None,
        password=settings.password or None,
        identifier="" if alive is None else f"etloop-agent-{settings.rack}-{alive.name}",
        will=will,
        keepalive=_KEEPALIVE_S,
        tls_context=None if settings.ca_file is None else ssl.create_default_context(cafile=settings.ca_file),
    )


async def _publish(client: aiomqtt.Client, settings: PresenceSettings, process: AgentProcess) -> None:
    topic = process_topic(settings.rack, process.name)
    await client.publish(topic, process_bytes(process), qos=_QOS, retain=True)


def _version() -> str:
    try:
        return version("etloop")
    except PackageNotFoundError:
        return "source"
