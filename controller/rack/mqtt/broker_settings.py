"""How a broker is reached and how much is taken from it. Pure values, for the controller's gateway and for clients."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from etloop.contract.base.clock import NS_PER_S


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """How the broker is reached."""

    host: str
    port: int
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
    """Of more, as many again are told to come again, and the others are not answered; both are counted."""
    request_bytes: int = 16 << 20
    retained_jobs: int = 1000
    """Ended jobs whose state and result the broker retains, those that ended last."""

    def __repr__(self) -> str:
        """Without the password."""
        return f"BrokerSettings({self.host}:{self.port}, user {self.username or '-'})"
