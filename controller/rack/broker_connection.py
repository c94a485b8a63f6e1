"""One connection to a broker, for the controller's road and for clients alike. A shell: aiomqtt, TLS.

Where nobody says which version of MQTT is spoken, the broker is asked for version 5 first, and 3.1.1 taken of one that refuses
it, such as the embedded one. Decides nothing about what is said.
"""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING, Any

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from contract.mqtt_version import MqttVersion, is_version_refusal
from controller.rack.broker_settings import BrokerSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def broker_connection(
    settings: BrokerSettings, identifier: str, **more: Any
) -> AsyncIterator[tuple[aiomqtt.Client, MqttVersion]]:
    """A connection and the version of MQTT that is spoken on it; `more` is for `aiomqtt.Client`.

    Raises `aiomqtt.MqttError` or `OSError`, also in the block if the connection is lost.
    """
    protocol = settings.protocol or await _spoken(settings)
    async with _client(settings, protocol, identifier, **more) as client:
        yield client, protocol


async def _spoken(settings: BrokerSettings) -> MqttVersion:
    """Asked without a last will and a name: of those, a broker that does not know version 5 may make no sense, nor answer."""
    try:
        async with _client(settings, MqttVersion.V5, ""):
            return MqttVersion.V5
    except aiomqtt.MqttError as error:
        if refuses_version(error):
            return MqttVersion.V311
        raise


def refuses_version(error: Exception) -> bool:
    """Whether a broker does not speak the version of MQTT that it was asked for."""
    if not isinstance(error, aiomqtt.MqttCodeError):
        return False
    return is_version_refusal(error.rc.value if isinstance(error.rc, ReasonCode) else error.rc)


def properties_of(protocol: MqttVersion, **named: Any) -> Properties | None:
    """Properties of a message, by their names in paho-mqtt; those that are None are left out, and all of them before MQTT 5."""
    if protocol is not MqttVersion.V5:
        return None
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    for name, value in named.items():
        if value is not None:
            setattr(properties, name, value)
    return properties


def _client(settings: BrokerSettings, protocol: MqttVersion, identifier: str, **more: Any) -> aiomqtt.Client:
    context = None
    if settings.tls or settings.ca_file is not None:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.cert_file is not None:
            context.load_cert_chain(settings.cert_file, settings.key_file)
    return aiomqtt.Client(
        settings.host,
        settings.port,
        protocol=aiomqtt.ProtocolVersion(protocol),
        username=settings.username or None,
        password=settings.password or None,
        identifier=identifier,
        tls_context=context,
        **more,
    )
