"""How much a rack's MQTT gateway takes from its broker and leaves there. Pure values."""

from __future__ import annotations

from dataclasses import dataclass

from etloop.contract.base.clock import NS_PER_S
from etloop.runtime.broker_settings import BrokerSettings


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """One rack on one broker."""

    rack: str
    """Its name, which its topics carry."""
    broker: BrokerSettings
    progress_interval_ns: int = NS_PER_S
    """Least time between two progress messages of one job."""
    requests_per_s: int = 100
    """Of more, as many again are told to come again, and the others are not answered; both are counted."""
    request_bytes: int = 16 << 20
    retained_jobs: int = 1000
    """Ended jobs whose state and result the broker retains, those that ended last."""
