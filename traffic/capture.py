"""Decide where an agent writes captures of its ports, and how much. The files are written by
traffic/native/port/capture.

The command line of the agent decides whether and where packets are captured, and the limits; a scenario may restrict
the ports and lower the limits.
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
    """Capture options that the agent was started with."""

    directory: Path
    snap_bytes: int = 262_144
    """Bytes captured of each frame."""
    file_bytes: int = 1 << 30
    """Maximum size of a file; frames after it are counted but not written."""

    def paths(self, assignment: Assignment) -> tuple[Path, ...]:
        """Return one file per port: run-RUN-AGENT-PORT.pcapng; unusual characters in names become "_".

        A port with several queues has one per queue: run-RUN-AGENT-PORT-qN.pcapng.
        """
        ports = Counter(port.name for port in assignment.ports)
        seen: dict[str, int] = {}
        names = []
        for port in assignment.ports:
            queue = seen[port.name] = seen.get(port.name, -1) + 1
            suffix = f"-q{queue}" if ports[port.name] > 1 else ""
            names.append(f"{assignment.run_id}-{assignment.agent}-{port.name}{suffix}")
        return tuple(
            self.directory / (re.sub(r"[^A-Za-z0-9._-]", "_", f"run-{name}") + ".pcapng") for name in names
        )


@dataclass(frozen=True, slots=True)
class PlannedCapture:
    """The captures of one run."""

    paths: tuple[str, ...] = ()
    """File of each port of the assignment, "" for a port that is not captured; empty: no port is."""
    snap_bytes: int = 0
    file_bytes: int = 0
    degraded: tuple[str, ...] = ()
    """Requests of the scenario that the agent does not fulfil, as text."""


def plan_capture(assignment: Assignment, target: CaptureTarget | None) -> PlannedCapture:
    """Plan the captures: all ports, or those that the scenario names if it names any, with the smaller of both limits."""
    request = assignment.capture
    if target is None:
        refusals = (
            f"port {name}: packets are not captured as the scenario requests: this agent was started without --capture DIR"
            for name in request.ports
        )
        return PlannedCapture(degraded=tuple(refusals))
    if not request.ports:
        paths = tuple(str(path) for path in target.paths(assignment))
        return PlannedCapture(paths, target.snap_bytes, target.file_bytes)
    chosen = tuple(
        str(path) if port.name in request.ports else ""
        for port, path in zip(assignment.ports, target.paths(assignment), strict=True)
    )
    limits = (
        ("bytes of a frame", request.snap_bytes, target.snap_bytes),
        ("bytes of a file", request.file_bytes, target.file_bytes),
    )
    return PlannedCapture(
        chosen,
        min(request.snap_bytes, target.snap_bytes),
        min(request.file_bytes, target.file_bytes),
        tuple(
            f"captures keep {allowed} {quantity}, not {requested}: limited by this agent's options"
            for quantity, requested, allowed in limits
            if allowed < requested
        ),
    )
