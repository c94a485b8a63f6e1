"""Where a rack is: broker, account and name, as people write them -> values."""

from __future__ import annotations

from pathlib import Path

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.units import QuantityError, parse_name
from etloop.runtime.broker_connection import tls_context
from etloop.runtime.broker_settings import BrokerSettings, default_port, parse_broker_address


def broker_settings(
    broker: str,
    *,
    username: str = "",
    password_file: Path | None = None,
    ca: Path | None = None,
) -> BrokerSettings:
    """How HOST[:PORT] is reached, over TLS if there is a `ca`. Raises `ConfigError` for what cannot be meant or read."""
    try:
        host, port = parse_broker_address(broker)
    except QuantityError as error:
        raise ConfigError(Problem("broker", error.what, error.remedy)) from None
    settings = BrokerSettings(
        host=host,
        port=port or default_port(encrypted=ca is not None),
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
