"""Opens one connection to a broker, for agents, the controller's gateway and clients alike. A shell: aiomqtt, TLS.

The only module that imports aiomqtt and paho-mqtt: all others take their names from here, so that another library or
aiomqtt 3 changes one file.

MQTT 5 is tried first, and 3.1.1 is used with a broker that refuses it, such as the embedded one. Decides nothing about
the messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import ssl
from collections.abc import AsyncIterator, Awaitable
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, TypeVar

import aiomqtt
from paho.mqtt.client import ConnectFlags
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as Properties  # noqa: PLC0414 -- for other modules
from paho.mqtt.reasoncodes import ReasonCode as ReasonCode  # noqa: PLC0414 -- for other modules
from paho.mqtt.subscribeoptions import SubscribeOptions as SubscribeOptions  # noqa: PLC0414 -- for other modules

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.units import parse_at
from etloop.runtime.broker_settings import BrokerSettings, default_port, parse_broker_address
from etloop.runtime.secret_file import exposed_secret, read_secret

MqttMessage = aiomqtt.Message
MqttError = aiomqtt.MqttError
MqttCodeError = aiomqtt.MqttCodeError
Will = aiomqtt.Will
T = TypeVar("T")


class MqttVersion(IntEnum):
    """Version of MQTT, by the number in CONNECT (MQTT 3.1.1 and 5, section 3.1.2.2)."""

    V311 = 4
    V5 = 5

    def __str__(self) -> str:
        """Return the usual spelling of the version."""
        return "3.1.1" if self is MqttVersion.V311 else "5"


MOST_UNACKNOWLEDGED: Final = 512
"""Receive Maximum: messages that a broker of MQTT 5 may have in flight to a client without an acknowledgement."""
_VERSION_REFUSALS: Final = frozenset({1, 132})
"""CONNACK codes for an unsupported version in MQTT 3.1.1 (section 3.2.2.3) and MQTT 5 (section 3.2.2.2)."""
_UNSPECIFIED: Final = 128
_REMEDIES: Final = {
    129: "check that it is an MQTT broker, and see its log",
    130: "check that it is an MQTT broker, and see its log",
    134: "check the account name and the password file against the broker's",
    135: "allow this account the topics of the rack in the broker's access list (examples/rack/mosquitto/acl)",
    136: "see the broker's log",
    137: "see the broker's log",
    138: "see the broker's log",
    139: "the connection is retried until the broker is back",
    141: "the broker's keep-alive timed out: check the network, and whether a machine was suspended or overloaded",
    142: "another client of this broker has the same name; "
    "give every controller a rack name of its own, and every agent its own name",
    149: "raise the broker's message size limit (Mosquitto: max_packet_size, message_size_limit)",
    150: "raise the broker's message rate limit",
    151: "raise the broker's quota (Mosquitto: max_queued_messages, memory_limit)",
    152: "an administrator of the broker closed the connection",
    159: "raise the broker's connection limit",
}
"""Remedies by the reason code of a DISCONNECT or CONNACK (MQTT 5, sections 3.14.2.1 and 3.2.2.2)."""
_WITHOUT_A_WORD: Final = (
    "the connection was closed without a reason: the broker was stopped, the network is interrupted, or another client of the "
    "same name connected (two controllers of one rack name, two agents of one name); the broker's log says which"
)
"""The library also reports this as an unspecified error. Mosquitto 2.0.11 does not report that a session was taken over."""


def broker_settings(
    broker: str,
    *,
    username: str = "",
    password_file: Path | None = None,
    ca: Path | None = None,
    where: str = "broker",
) -> BrokerSettings:
    """Return the settings that reach HOST[:PORT], over TLS if there is a `ca`; `where` names the input in errors.

    Raises `ConfigError` for an address that cannot be parsed and for files that cannot be read or used.
    """
    host, port = parse_at(where, parse_broker_address, broker)
    settings = BrokerSettings(
        host=host,
        port=port or default_port(encrypted=ca is not None),
        username=username,
        password=read_secret(password_file) if password_file else "",
        ca_file=ca,
    )
    tls_context(settings)  # Files may change later; report now those that cannot be used now.
    return settings


class MqttClient(aiomqtt.Client):
    """A client whose requests end when their caller is cancelled.

    aiomqtt waits by `asyncio.wait_for`, which before Python 3.12 loses a cancellation that comes together with the answer
    (python/cpython#86296): the caller's time limit then never ends its wait.
    """

    async def _wait_for(self, fut: Awaitable[T], timeout: float | None) -> T:  # noqa: ASYNC109 -- the library's
        limit_s = self.timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(None if limit_s == math.inf else limit_s):
                return await fut
        except TimeoutError:
            raise MqttError("Operation timed out") from None


class BrokerClient(MqttClient):
    """A client whose session stays with the broker, and which acknowledges each message explicitly.

    Messages of QoS 1 that arrive while it is away are kept for it; those it did not acknowledge are delivered again.
    """

    def __init__(
        self, settings: BrokerSettings, protocol: MqttVersion, identifier: str, kept_s: int, **more: Any
    ) -> None:
        """Initialize as `MqttClient`; the session is kept for `kept_s` seconds, with MQTT 3.1.1 as long as the
        broker decides.
        """
        if protocol is MqttVersion.V5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = kept_s
            properties.ReceiveMaximum = MOST_UNACKNOWLEDGED
            more |= {"clean_start": False, "properties": properties}
        else:
            more |= {"clean_session": False}
        super().__init__(**_settings_of(settings, protocol, identifier), **more)
        self._client.manual_ack_set(True)
        self.is_resumed = False
        """True if the broker had a session for this client, in which messages may have waited."""

    def _on_connect(self, client: Any, userdata: Any, flags: ConnectFlags, *more: Any) -> None:
        self.is_resumed = flags.session_present
        super()._on_connect(client, userdata, flags, *more)

    def acknowledge(self, message: MqttMessage) -> None:
        """Acknowledge a message that has been processed, so that the broker forgets it."""
        self._client.ack(message.mid, message.qos)


@contextlib.asynccontextmanager
async def broker_connection(
    settings: BrokerSettings, identifier: str, **more: Any
) -> AsyncIterator[tuple[MqttClient, MqttVersion]]:
    """Open a connection; yield it with its MQTT version. `more` is passed to `MqttClient`.

    Raises `MqttError` or `OSError`, also in the block if the connection is lost.
    """
    protocol = await _supported_version(settings)
    async with MqttClient(**_settings_of(settings, protocol, identifier), **more) as client:
        yield client, protocol


@contextlib.asynccontextmanager
async def kept_connection(
    settings: BrokerSettings, identifier: str, kept_s: int, **more: Any
) -> AsyncIterator[tuple[BrokerClient, MqttVersion]]:
    """Open a connection as `broker_connection` does, with a session that the broker keeps; see `BrokerClient`."""
    protocol = await _supported_version(settings)
    async with BrokerClient(settings, protocol, identifier, kept_s, **more) as client:
        yield client, protocol


async def _supported_version(settings: BrokerSettings) -> MqttVersion:
    """Return the MQTT version that the broker speaks.

    The test connection has no last will and no client name: a broker without version 5 may misread them and not answer.
    """
    try:
        async with MqttClient(**_settings_of(settings, MqttVersion.V5, "")):
            return MqttVersion.V5
    except MqttCodeError as error:
        if (error.rc.value if isinstance(error.rc, ReasonCode) else error.rc) in _VERSION_REFUSALS:
            return MqttVersion.V311
        raise


def why_lost(error: BaseException) -> str:
    """Return why a connection was lost: the reason code that a broker of MQTT 5 gave, if any, with its remedy."""
    cause: BaseException | None = error
    while cause is not None:
        code = cause.rc if isinstance(cause, MqttCodeError) else None
        if isinstance(code, ReasonCode):
            if code.value == _UNSPECIFIED:
                return _WITHOUT_A_WORD
            return f"{code}: {_REMEDIES[code.value]}" if code.value in _REMEDIES else str(code)
        cause = cause.__cause__
    return str(error) or type(error).__name__


def properties_of(protocol: MqttVersion, **named: Any) -> Properties | None:
    """Return message properties, by their names in paho-mqtt; values of None are left out. None before MQTT 5."""
    if protocol is not MqttVersion.V5:
        return None
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    for name, value in named.items():
        if value is not None:
            setattr(properties, name, value)
    return properties


def tls_context(settings: BrokerSettings) -> ssl.SSLContext | None:
    """Return the TLS context of a connection; None without encryption. Raises `ConfigError` with every file that cannot
    be used.
    """
    if not settings.tls and settings.ca_file is None:
        return None
    context = ssl.create_default_context()
    problems = []
    if settings.ca_file is not None:
        try:
            context = ssl.create_default_context(cafile=settings.ca_file)
        except OSError as error:
            problems.append(
                _unusable("ca", settings.ca_file, error, "the CA of the broker's certificate, as PEM")
            )
    if settings.cert_file is not None:
        try:
            # An empty password makes a key with a passphrase fail here, instead of prompting on a terminal.
            context.load_cert_chain(settings.cert_file, settings.key_file, password="")
        except OSError as error:
            requirement = "a certificate and its key, as PEM and without a passphrase"
            problems.append(_unusable("cert", settings.cert_file, error, requirement))
        else:
            exposed = exposed_secret(settings.key_file or settings.cert_file)
            problems += [exposed] if exposed else []
    if problems:
        raise ConfigError(*problems)
    return context


def _unusable(key: str, path: Path, error: OSError, wanted: str) -> Problem:
    why = error.strerror or str(error)
    if isinstance(error, ssl.SSLError):
        why = (error.reason or why).lower().replace("_", " ")
    return Problem(f"mqtt.tls.{key}", f"{path} cannot be used: {why}", f"give {wanted}")


def _settings_of(settings: BrokerSettings, protocol: MqttVersion, identifier: str) -> dict[str, Any]:
    return {
        "hostname": settings.host,
        "port": settings.port,
        "protocol": aiomqtt.ProtocolVersion(protocol),
        "username": settings.username or None,
        "password": settings.password or None,
        "identifier": identifier,
        "tls_context": tls_context(settings),
    }
