"""Which uploaded traces a rack keeps, and which of them go to make room. Pure: files are `trace_pages`'.

The sum of all is bounded, those included that are still coming. The trace that was used longest ago goes first; one that a
job names which has not ended never does.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final

from etloop.contract.base.errors import Problem
from etloop.controller.rack.exchange.trace_names import PREFIX, digests_in

MOST_TRACES: Final = 10_000


class TraceShelf:
    """The traces of one rack, by digest. One thread: the daemon's loop."""

    def __init__(self, most_bytes: int = 0) -> None:
        self.most_bytes = most_bytes
        self._kept: dict[str, int] = {}
        """Digest -> bytes of its archive, in the order of their last use."""
        self._coming_bytes = 0

    @property
    def kept(self) -> dict[str, int]:
        """Bytes of every trace by digest; the one that was used longest ago comes first."""
        return dict(self._kept)

    def missing(self, digests: AbstractSet[str]) -> list[str]:
        """Return which of these are not kept; the others count as used now."""
        for digest in digests & self._kept.keys():
            self._kept[digest] = self._kept.pop(digest)
        return sorted(digests - self._kept.keys())

    def problems(self, scenario_text: str) -> tuple[Problem, ...]:
        """Return which traces a scenario names that are not kept; the others count as used now."""
        remedy = "upload it with etloop submit --upload, or by PUT to /traces/ of the rack's HTTP server"
        return tuple(
            Problem(f"{PREFIX}{digest}", "this rack has no such trace, or none any more", remedy)
            for digest in self.missing(digests_in(scenario_text))
        )

    def keep(self, digest: str, size_bytes: int) -> None:
        """A trace is there."""
        self._kept.pop(digest, None)
        self._kept[digest] = size_bytes

    def drop(self, digest: str) -> None:
        """A trace is there no more."""
        self._kept.pop(digest, None)

    def expect(self, size_bytes: int, referenced: AbstractSet[str]) -> tuple[str, ...] | None:
        """Take up room for a trace that is to come, until `expected` gives it back; the traces that must go for it, or None,
        and nothing is taken up, where those that no job names are not enough."""
        left_bytes = sum(self._kept.values()) + self._coming_bytes
        gone: list[str] = []
        for digest, kept_bytes in self._kept.items():
            if left_bytes + size_bytes <= self.most_bytes and len(self._kept) - len(gone) < MOST_TRACES:
                break
            if digest not in referenced:
                gone.append(digest)
                left_bytes -= kept_bytes
        if left_bytes + size_bytes > self.most_bytes or len(self._kept) - len(gone) >= MOST_TRACES:
            return None
        self._coming_bytes += size_bytes
        return tuple(gone)

    def expected(self, size_bytes: int) -> None:
        """What was to come is there, or does not come."""
        self._coming_bytes -= size_bytes
