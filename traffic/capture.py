"""Where an agent keeps what its ports send and receive. Writing is done by traffic/native/capture."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from contract.assignment import Assignment


@dataclass(frozen=True, slots=True)
class CaptureTarget:
    """Where captures go and how much of them is kept."""

    directory: Path
    snap_bytes: int = 262_144
    """Of each frame."""
    file_bytes: int = 1 << 30
    """The most that a file takes; what comes after is counted and not kept."""

    def paths(self, assignment: Assignment) -> tuple[Path, ...]:
        """One file a port: RUN-AGENT-PORT.pcapng, whatever characters a controller put into the names."""
        return tuple(
            self.directory / (re.sub(r"[^A-Za-z0-9._-]", "_", f"run-{name}") + ".pcapng")
            for name in (f"{assignment.run_id}-{assignment.agent}-{port.name}" for port in assignment.ports)
        )
