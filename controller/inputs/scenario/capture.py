"""`transport.capture` of a scenario: which ports are to keep their packets, and how much of them.

Decides the keys and limits, and refuses ports that the plan does not use. Where files go is the agent's to say
(`etloop-agent run --capture DIR`), and an agent that was started without a directory keeps nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.units import parse_bytes, parse_port_label
from etloop.contract.base.yaml_reader import bounded
from etloop.contract.model.transport import CaptureSettings

if TYPE_CHECKING:
    from etloop.contract.base.yaml_reader import Section
    from etloop.controller.plan.placement import Placement

LEAST_SNAP_BYTES: Final = 64
"""Ethernet, IPv4, UDP and BTH."""
MOST_SNAP_BYTES: Final = 1 << 18
LEAST_FILE_BYTES: Final = 4096
MOST_FILE_BYTES: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class Capture:
    """What a scenario asks for."""

    wanted: bool = False
    ports: tuple[str, ...] = ()
    """As "agent/port"; none: every port of the run."""
    snap_bytes: int = CaptureSettings().snap_bytes
    file_bytes: int = CaptureSettings().file_bytes


def read_capture(transport: Section) -> Capture:
    """The `capture:` of a `transport:` section. Mistakes go to its file."""
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


def captures_of(capture: Capture, placement: Placement) -> dict[str, CaptureSettings]:
    """What every agent with ranks is asked to keep. Raises `PlanError` for ports that carry no rank of this run."""
    if not capture.wanted:
        return {}
    places = [(place.agent, place.port.name) for place in placement.ports if place.ranks]
    refuse_unused_ports("transport.capture.ports", capture.ports, placement)
    wanted = [place for place in places if not capture.ports or "/".join(place) in capture.ports]
    return {
        agent: CaptureSettings(
            tuple(port for owner, port in wanted if owner == agent), capture.snap_bytes, capture.file_bytes
        )
        for agent in dict.fromkeys(agent for agent, _ in wanted)
    }


def refuse_unused_ports(where: str, names: tuple[str, ...], placement: Placement) -> None:
    """Raises `PlanError` with every name of a port that no rank of the run uses: what is asked of it would not happen."""
    used = [f"{place.agent}/{place.port.name}" for place in placement.ports if place.ranks]
    strange = [name for name in names if name not in used]
    if strange:
        remedy = (
            f"name ports that ranks are placed on: {', '.join(used[:8])}{', ...' if len(used) > 8 else ''}"
        )
        raise PlanError(*(Problem(where, f"no rank uses port {name}", remedy) for name in strange))
