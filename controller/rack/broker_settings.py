"""How a broker is reached and how much is taken from it. Pure values, for the controller's road and for clients."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from contract.clock import NS_PER_S


class Protocol(IntEnum):
    """Versions of MQTT."""

    V311 = 4
    V5 = 5


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """How the broker is reached."""

    host: str
    port: int
    protocol: Protocol = Protocol.V5
    username: str = ""
    password: str = ""
    ca_file: Path | None = None
    """Verify the broker against this authority; with it or `tls`, the connection is encrypted."""
    cert_file: Path | None = None
    key_file: Path | None = None
    tls: bool = False
    progress_interval_ns: int = NS_PER_S
    """Least time between two progress messages of one job."""
    requests_per_s: int = 100
    """More are dropped, and counted."""
    request_bytes: int = 16 << 20

    def __repr__(self) -> str:
        """Without the password."""
        return f"BrokerSettings({self.host}:{self.port}, {self.protocol.name}, user {self.username or '-'})"
