"""One connection to a broker, for agents, the controller's gateway and clients alike. A shell: aiomqtt, TLS.

A broker is asked for MQTT 5 first, and 3.1.1 taken of one that refuses it, such as the embedded one. Decides nothing about
what is said.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import aiomqtt
from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.units import parse_at
from etloop.runtime.broker_settings import BrokerSettings, default_port, parse_broker_address
from etloop.runtime.secret_file import exposed_secret, read_secret
from paho.mqtt.client import ConnectFlags
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode


class MqttVersion(IntEnum):
    """By the number that CONNECT carries (MQTT 3.1.1 and 5, section 3.1.2.2)."""

    V311 = 4
    V5 = 5

    def __str__(self) -> str:
        """As people write it."""
        return "3.1.1" if self is MqttVersion.V311 else "5"


MOST_UNACKNOWLEDGED: Final = 512
"""Messages that a broker which speaks MQTT 5 hands to a client that has not acknowledged the ones before."""
_VERSION_REFUSALS: Final = frozenset({1, 132})
"""CONNACK of MQTT 3.1.1 (section 3.2.2.3) and of MQTT 5 (section 3.2.2.2)."""
_UNSPECIFIED: Final = 128
_REMEDIES: Final = {
    129: "is it a broker of MQTT? look at its log",
    130: "is it a broker of MQTT? look at its log",
    134: "check the name of the account and the file of its password against the broker's",
    135: "let the broker's access list give this account the topics of the rack (examples/rack/mosquitto/acl)",
    136: "look at the broker's log",
    137: "look at the broker's log",
    138: "look at the broker's log",
    139: "it is asked again until it is back",
    141: "the broker heard nothing for too long: look at the network, and whether a machine was stopped or overloaded",
    142: "another client of this broker has the same name; "
    "give every controller a rack name of its own, and every agent its own name",
    149: "let the broker take larger messages (Mosquitto: max_packet_size, message_size_limit)",
    150: "let the broker take more messages",
    151: "let the broker keep more (Mosquitto: max_queued_messages, memory_limit)",
    152: "somebody who administers the broker has ended it",
    159: "let the broker take more connections",
}
"""What to do about the reason of a DISCONNECT or CONNACK (MQTT 5, sections 3.14.2.1 and 3.2.2.2)."""
_WITHOUT_A_WORD: Final = (
    "the connection was closed and no reason given: the broker was ended, a network between is cut, or another client of the "
    "same name has come in (two controllers of one rack name, two agents of one name); the broker's log says which"
)
"""What the library calls an unspecified error, too. Mosquitto 2.0.11 tells nobody that a session was taken over."""


def broker_settings(
    broker: str,
    *,
    username: str = "",
    password_file: Path | None = None,
    ca: Path | None = None,
    where: str = "broker",
) -> BrokerSettings:
    """Return how HOST[:PORT], which stands at `where`, is reached, over TLS if there is a `ca`.

    Raises `ConfigError` for what cannot be meant, read or used.
    """
    host, port = parse_at(where, parse_broker_address, broker)
    settings = BrokerSettings(
        host=host,
        port=port or default_port(encrypted=ca is not None),
        username=username,
        password=read_secret(password_file) if password_file else "",
        ca_file=ca,
    )
    tls_context(settings)  # Files may change later; those that cannot be used now are told now.
    return settings


class BrokerClient(aiomqtt.Client):
    """A client whose session stays with the broker, and which says itself when it is done with a message.

    What comes with QoS 1 while it is away waits for it, and what it had not acknowledged when it died comes again.
    """

    def __init__(
        self, settings: BrokerSettings, protocol: MqttVersion, identifier: str, kept_s: int, **more: Any
    ) -> None:
        """As for `aiomqtt.Client`; the session is kept for `kept_s` seconds, by MQTT 3.1.1 as long as the broker likes."""
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
        """Whether the broker had a session for it, in which something may have waited."""

    def _on_connect(self, client: Any, userdata: Any, flags: ConnectFlags, *more: Any) -> None:
        self.is_resumed = flags.session_present
        super()._on_connect(client, userdata, flags, *more)

    def acknowledge(self, message: aiomqtt.Message) -> None:
        """Let the broker forget a message, which has been dealt with."""
        self._client.ack(message.mid, message.qos)


@contextlib.asynccontextmanager
async def broker_connection(
    settings: BrokerSettings, identifier: str, **more: Any
) -> AsyncIterator[tuple[aiomqtt.Client, MqttVersion]]:
    """A connection and the version of MQTT that is spoken on it; `more` is for `aiomqtt.Client`.

    Raises `aiomqtt.MqttError` or `OSError`, also in the block if the connection is lost.
    """
    protocol = await _spoken(settings)
    async with aiomqtt.Client(**_settings_of(settings, protocol, identifier), **more) as client:
        yield client, protocol


@contextlib.asynccontextmanager
async def kept_connection(
    settings: BrokerSettings, identifier: str, kept_s: int, **more: Any
) -> AsyncIterator[tuple[BrokerClient, MqttVersion]]:
    """The same as `broker_connection` with a session that the broker keeps; see `BrokerClient`."""
    protocol = await _spoken(settings)
    async with BrokerClient(settings, protocol, identifier, kept_s, **more) as client:
        yield client, protocol


async def _spoken(settings: BrokerSettings) -> MqttVersion:
    """Asked without a last will and a name: of those, a broker that does not know version 5 may make no sense, nor answer."""
    try:
        async with aiomqtt.Client(**_settings_of(settings, MqttVersion.V5, "")):
            return MqttVersion.V5
    except aiomqtt.MqttCodeError as error:
        if (error.rc.value if isinstance(error.rc, ReasonCode) else error.rc) in _VERSION_REFUSALS:
            return MqttVersion.V311
        raise


def why_lost(error: BaseException) -> str:
    """Return why a connection was lost, with the reason that a broker of MQTT 5 gave when it ended it, and what to do."""
    cause: BaseException | None = error
    while cause is not None:
        code = cause.rc if isinstance(cause, aiomqtt.MqttCodeError) else None
        if isinstance(code, ReasonCode):
            if code.value == _UNSPECIFIED:
                return _WITHOUT_A_WORD
            return f"{code}: {_REMEDIES[code.value]}" if code.value in _REMEDIES else str(code)
        cause = cause.__cause__
    return str(error) or type(error).__name__


def properties_of(protocol: MqttVersion, **named: Any) -> Properties | None:
    """Properties of a message, by their names in paho-mqtt; those that are None are left out, and all of them before MQTT 5."""
    if protocol is not MqttVersion.V5:
        return None
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    for name, value in named.items():
        if value is not None:
            setattr(properties, name, value)
    return properties


def tls_context(settings: BrokerSettings) -> ssl.SSLContext | None:
    """What a connection is encrypted by; None if it is not. Raises `ConfigError` with every file that cannot be used."""
    if not settings.tls and settings.ca_file is None:
        return None
    context = ssl.create_default_context()
    problems = []
    if settings.ca_file is not None:
        try:
            context = ssl.create_default_context(cafile=settings.ca_file)
        except OSError as error:
            problems.append(
                _unusable("ca", settings.ca_file, error, "the authority of the broker's certificate, as PEM")
            )
    if settings.cert_file is not None:
        try:
            # Without a password: of a key that has one nobody could be asked for it.
            context.load_cert_chain(settings.cert_file, settings.key_file, password="")
        except OSError as error:
            what = "a certificate and its key, as PEM and without a passphrase"
            problems.append(_unusable("cert", settings.cert_file, error, what))
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
    return Problem(f"mqtt.tls.{key}", f"{path} cannot be used: {why}", f"name {wanted}")


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
