"""Parses and holds the address and credentials of an MQTT broker. Pure, for agents, gateways and clients."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import QuantityError

_PORT: Final = 1883
_TLS_PORT: Final = 8883
_ADDRESS: Final = re.compile(r"(?P<host>[^:\[\]\s]+|\[[^\[\]\s]+\])(:(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Address, credentials and encryption of a broker."""

    host: str
    port: int
    username: str = ""
    password: str = ""
    ca_file: Path | None = None
    """Verify the broker against this authority; with it or `tls`, the connection is encrypted."""
    cert_file: Path | None = None
    key_file: Path | None = None
    tls: bool = False

    def __repr__(self) -> str:
        """Return a text without the password."""
        return f"BrokerSettings({self.host}:{self.port}, user {self.username or '-'})"


def parse_broker_address(text: str) -> tuple[str, int | None]:
    """Parse HOST or HOST:PORT; the port is None if not given. Raises `QuantityError`."""
    address = _ADDRESS.fullmatch(text)
    host, port = (address["host"].strip("[]"), address["port"] or "") if address else ("", "")
    if not host or (port and not 0 < int(port) < 1 << 16):
        remedy = "write HOST or HOST:PORT, an IPv6 address as [::1]:1883"
        raise QuantityError(f'"{text[:64]}" is not a broker address', remedy)
    return host, int(port) if port else None


def default_port(*, encrypted: bool) -> int:
    """Return the port that IANA assigned to MQTT, or to MQTT over TLS."""
    return _TLS_PORT if encrypted else _PORT
