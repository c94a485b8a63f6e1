"""Where a rack is: broker, account and name, as people write them -> values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.units import QuantityError, parse_name
from etloop.controller.rack.mqtt.broker_connection import tls_context
from etloop.controller.rack.mqtt.broker_settings import BrokerSettings

if TYPE_CHECKING:
    from pathlib import Path

_ADDRESS: Final = re.compile(r"(?P<host>[^:\[\]\s]+|\[[^\[\]\s]+\])(:(?P<port>[0-9]{1,5}))?")


def broker_settings(
    broker: str,
    *,
    username: str = "",
    password_file: Path | None = None,
    ca: Path | None = None,
) -> BrokerSettings:
    """How HOST[:PORT] is reached, over TLS if there is a `ca`. Raises `ConfigError` for what cannot be meant or read."""
    address = _ADDRESS.fullmatch(broker)
    host, port = (address["host"].strip("[]"), address["port"] or "") if address else ("", "")
    if not host or (port and not 0 < int(port) < 65536):
        raise ConfigError(
            Problem(
                "broker",
                f'"{broker[:64]}" is no broker',
                "write HOST or HOST:PORT, an IPv6 address as [::1]:1883",
            )
        )
    settings = BrokerSettings(
        host=host,
        port=int(port) if port else (8883 if ca else 1883),
        username=username,
        password=read_text(password_file).strip() if password_file else "",
        ca_file=ca,
    )
    tls_context(settings)
    return settings


def rack_name(name: str) -> str:
    """The name of a rack. Raises `ConfigError` for what can be none."""
    try:
        return parse_name(name)
    except QuantityError as error:
        raise ConfigError(Problem("rack", error.what, error.remedy)) from None


def read_text(path: Path) -> str:
    """Return the text of a file. Raises `ConfigError` if it cannot be read."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            Problem(str(path), f"cannot be read: {error}", "check the name and the file")
        ) from None
