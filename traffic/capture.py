"""Where an agent keeps what its ports send and receive, and how much. Writing is done by traffic/native/port/capture.

Who started the agent decides whether and where anything is kept, and the most of it; a scenario may ask for some ports
and for less.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    from etloop.contract.model.assignment import Assignment


@dataclass(frozen=True, slots=True)
class CaptureTarget:
    """What the agent was started with."""

    directory: Path
    snap_bytes: int = 262_144
    """Of each frame."""
    file_bytes: int = 1 << 30
    """The most that a file takes; what comes after is counted and not kept."""

    def paths(self, assignment: Assignment) -> tuple[Path, ...]:
        """One file a port: RUN-AGENT-PORT.pcapng, whatever characters a controller put into the names.

        Of a port with several queues, each has one: RUN-AGENT-PORT-qN.pcapng.
        """
        ports = Counter(port.name for port in assignment.ports)
        seen: dict[str, int] = {}
        names = []
        for port in assignment.ports:
            queue = seen[port.name] = seen.get(port.name, -1) + 1
            marked = f"-q{queue}" if ports[port.name] > 1 else ""
            names.append(f"{assignment.run_id}-{assignment.agent}-{port.name}{marked}")
        return tuple(
            self.directory / (re.sub(r"[^A-Za-z0-9._-]", "_", f"run-{name}") + ".pcapng") for name in names
        )


@dataclass(frozen=True, slots=True)
class PlannedCapture:
    """What is kept of one run."""

    paths: tuple[str, ...] = ()
    """Of each port of the assignment; empty: its packets are not kept."""
    snap_bytes: int = 0
    file_bytes: int = 0
    degraded: tuple[str, ...] = ()
    """What the scenario asked for in vain."""


def plan_capture(assignment: Assignment, target: CaptureTarget | None) -> PlannedCapture:
    """What is kept: all ports if the scenario asks for none, else those it names; the smaller of both limits."""
    asked = assignment.capture
    if target is None:
        refusals = (
            f"port {name}: packets are not kept as the scenario asks: this agent was started without --capture DIR"
            for name in asked.ports
        )
        return PlannedCapture(degraded=tuple(refusals))
    if not asked.ports:
        paths = tuple(str(path) for path in target.paths(assignment))
        return PlannedCapture(paths, target.snap_bytes, target.file_bytes)
    chosen = tuple(
        str(path) if port.name in asked.ports else ""
        for port, path in zip(assignment.ports, target.paths(assignment), strict=True)
    )
    limits = (
        ("bytes of a frame", asked.snap_bytes, target.snap_bytes),
        ("bytes of a file", asked.file_bytes, target.file_bytes),
    )
    return PlannedCapture(
        chosen,
        min(asked.snap_bytes, target.snap_bytes),
        min(asked.file_bytes, target.file_bytes),
        tuple(
            f"captures keep {allowed} {what}, not {wanted}: this agent was started so"
            for what, wanted, allowed in limits
            if allowed < wanted
        ),
    )
