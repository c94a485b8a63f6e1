"""`transport.capture` of a scenario: which ports keep their packets, and how many bytes of them.

Decides the keys and limits; ports that the plan does not use are refused later. The agent decides where files go
(`etloop-agent run --capture DIR`); an agent that was started without a directory keeps nothing.
"""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import list_setting, setting
from etloop.contract.base.settings_reader import read_settings
from etloop.contract.base.units import parse_bytes, parse_port_label
from etloop.contract.base.value_parsers import with_bounds
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
    ports: tuple[str, ...] = list_setting("ports", parse_port_label)
    """Ports whose packets are kept; all of the run if left out."""
    snap_bytes: int = setting(
        "snap",
        with_bounds(parse_bytes, LEAST_SNAP_BYTES, MOST_SNAP_BYTES, lambda size: f"{size}B"),
        CaptureSettings().snap_bytes,
    )
    """Bytes that are kept of a packet."""
    file_bytes: int = setting(
        "limit",
        with_bounds(parse_bytes, LEAST_FILE_BYTES, MOST_FILE_BYTES, lambda size: f"{size}B"),
        CaptureSettings().file_bytes,
    )
    """Size of a port's file."""


def read_capture(transport: Section) -> Capture:
    """Read the `capture:` of a `transport:` section. Mistakes are added to its file."""
    section = transport.section(
        "capture", "Keep packets of ports, of agents that were started with `--capture`."
    )
    capture = read_settings(Capture, section, wanted=transport.has("capture"))
    if section.has("ports") and not capture.ports:
        section.mistake("ports", "the list is empty", "name ports, or leave it out for all of them")
    section.close()
    return capture
