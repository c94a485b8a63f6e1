"""`transport.capture` of a scenario: which ports keep their packets, and how many bytes of them.

Decides the keys and limits; ports that the plan does not use are refused later. The agent decides where files go
(`etloop-agent run --capture DIR`); an agent that was started without a directory keeps nothing.
"""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import parse_bytes, parse_port_label
from etloop.contract.base.value_parsers import bounded
from etloop.contract.base.yaml_reader import Section
from etloop.contract.model.transport import CaptureSettings

LEAST_SNAP_BYTES: Final = 64
"""Headers up to the BTH: Ethernet, IPv4, UDP, BTH."""
MOST_SNAP_BYTES: Final = 1 << 18
LEAST_FILE_BYTES: Final = 4096
MOST_FILE_BYTES: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class Capture:
    """The captures that a scenario requests."""

    wanted: bool = False
    ports: tuple[str, ...] = ()
    """Ports as "agent/port"; empty for every port of the run."""
    snap_bytes: int = CaptureSettings().snap_bytes
    file_bytes: int = CaptureSettings().file_bytes


def read_capture(transport: Section) -> Capture:
    """Read the `capture:` of a `transport:` section. Mistakes are added to its file."""
    section = transport.section("capture")
    snap = bounded(parse_bytes, LEAST_SNAP_BYTES, MOST_SNAP_BYTES, lambda size: f"{size}B")
    limit = bounded(parse_bytes, LEAST_FILE_BYTES, MOST_FILE_BYTES, lambda size: f"{size}B")
    capture = Capture(
        wanted=transport.has("capture"),
        ports=section.texts("ports", parse_port_label, "?/?") if section.has("ports") else (),
        snap_bytes=section.optional("snap", snap, CaptureSettings().snap_bytes),
        file_bytes=section.optional("limit", limit, CaptureSettings().file_bytes),
    )
    if section.has("ports") and not capture.ports:
        section.mistake("ports", "the list is empty", "name ports, or leave it out for all of them")
    section.close()
    return capture
