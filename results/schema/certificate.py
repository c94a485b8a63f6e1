"""The shape of certificate.json: the steps of a certification, the parts that they named, and the figures of every port."""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.schema.findings import Finding
from etloop.results.schema.sweep import Mode
from etloop.results.schema.verdict import Result

CERTIFICATE_SCHEMA: Final = "etloop-certificate/1"
CERTIFICATE_FILE: Final = "certificate.json"
CERTIFICATE_PAGE: Final = "certificate.html"
CERTIFICATE_TEXT: Final = "certificate.txt"


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step."""

    name: str
    shows: str
    """Purpose of the step, in words."""
    result: Result
    reason: str
    """Why it is inconclusive, or the limits of its answer; "" otherwise."""
    parts: int
    """Parts that it named first."""
    left_out: tuple[str, ...]
    """Rig ports that took no part, because of parts that an earlier step named."""
    packets: int
    """Data packets sent."""
    traffic_ns: int
    """Time of the traffic, in virtual time in a twin."""
    wall_ns: int


@dataclass(frozen=True, slots=True)
class PortRecord:
    """Figures of one rig port; None where no step measured them."""

    name: str
    device_port: str
    """Port of the device on its cable; "" if not known."""
    stated_bps: int
    sends_bps: float | None
    """Best payload rate of a round."""
    receives_bps: float | None
    lost_sent: int | None
    """Packets that it sent and that did not arrive, in all steps."""
    lost_received: int | None
    queue: int | None
    """Queue of the device's port by which data leave."""
    kmin_bytes: float | None
    kmax_bytes: float | None
    pauses: int | None
    """Pauses that the device's port sent to it."""
    result: Result


@dataclass(frozen=True, slots=True)
class Certificate:
    """The content of certificate.json."""

    schema: str
    rig: str
    device: str
    """Topology or profile of the device; "" if none is stated."""
    mode: Mode
    started_at: str
    result: Result
    findings: tuple[Finding, ...]
    """Named parts, one finding each, by precedence."""
    steps: tuple[StepRecord, ...]
    ports: tuple[PortRecord, ...]
    notes: tuple[str, ...]
    wall_ns: int

    def __repr__(self) -> str:
        """Return the result and the numbers of steps and findings."""
        return f"<Certificate of {self.rig}: {self.result}, {len(self.steps)} steps, {len(self.findings)} findings>"
