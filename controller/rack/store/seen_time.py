"""Time that a rack has seen pass over all its controllers: results age by it, whatever the wall clock shows. Pure.

Time counts if a kernel saw it pass: while a controller ran, and between two controllers of one boot. Time while the
machine was off, or of another boot, does not count: results are then kept longer.
"""

from __future__ import annotations

from etloop.contract.base.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SeenTime:
    """The time seen so far, and the kernel's clock at that moment."""

    seen_ns: int = 0
    """Total time seen to pass."""
    boot: str = ""
    uptime_ns: int = 0
    """Uptime of that boot when this was stored."""

    def at(self, boot: str, uptime_ns: int) -> SeenTime:
        """Return the time seen so far, at that uptime of that boot."""
        passed_ns = uptime_ns - self.uptime_ns if boot == self.boot else 0
        return SeenTime(self.seen_ns + max(passed_ns, 0), boot, uptime_ns)
