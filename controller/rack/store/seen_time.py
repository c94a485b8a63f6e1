"""How much time a rack has seen pass, over all its controllers: by it results grow old, whatever the wall clock says. Pure.

Time counts that a kernel saw pass: while a controller ran, and between two controllers of one boot. What a machine was off, or
another boot, counts for nothing: results are then kept for longer.
"""

from __future__ import annotations

from etloop.contract.base.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SeenTime:
    """A ledger of one line."""

    seen_ns: int = 0
    """Seen to pass in all."""
    boot: str = ""
    uptime_ns: int = 0
    """Where that boot's time stood when the line was written."""

    def at(self, boot: str, uptime_ns: int) -> SeenTime:
        """Return the ledger as it is now, at that time of that boot."""
        passed_ns = uptime_ns - self.uptime_ns if boot == self.boot else 0
        return SeenTime(self.seen_ns + max(passed_ns, 0), boot, uptime_ns)
