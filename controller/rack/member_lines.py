"""Log lines that agents and other peers can cause repeatedly, bounded per kind, and their counts as metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etloop.contract.base.clock import NS_PER_S
from etloop.controller.session.log_limit import WINDOW_NS, LogLimit

if TYPE_CHECKING:
    from etloop.controller.rack.log import RackLog
    from etloop.controller.rack.telemetry.metrics import Tallies
    from etloop.controller.session.router import RouterLink


class MemberLines:
    """Writes a few lines of each kind, and how many were left out."""

    def __init__(self, log: RackLog, tallies: Tallies) -> None:
        self._log = log
        self._tallies = tallies
        self._limit = LogLimit()
        self._refused: dict[str, int] = {}
        """Refused connections as of the last look, by reason."""

    def write(self, kind: str, text: str, now_ns: int) -> None:
        """Log a line, unless there were too many of its kind."""
        if self._limit.takes(kind, now_ns):
            self._log.rack(text)

    def look(self, link: RouterLink, now_ns: int) -> None:
        """Log the link's notices about admission, and count its refusals."""
        for notice in link.take_notices():
            self.write(notice.kind, notice.text, now_ns)
        self._tallies.refused_connections.update(
            {why: count - self._refused.get(why, 0) for why, count in link.refused.items()}
        )
        self._refused = dict(link.refused)
        for kind, count in self._limit.left_out(now_ns):
            self._log.rack("lines left out", about=kind, lines=count, in_s=WINDOW_NS // NS_PER_S)
