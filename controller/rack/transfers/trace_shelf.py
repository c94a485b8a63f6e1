"""Decides which uploaded traces a rack keeps, and which it removes to make room. Pure: `trace_pages` handles the files.

The total size is bounded, uploads in progress included. The least recently used trace is removed first, but never one
that an unfinished job names.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final

from etloop.contract.base.errors import Problem
from etloop.controller.rack.transfers.trace_names import PREFIX, digests_in

MOST_TRACES: Final = 10_000


class TraceShelf:
    """The traces of one rack, by digest. Single-threaded: the daemon's loop."""

    def __init__(self, most_bytes: int = 0) -> None:
        self.most_bytes = most_bytes
        self._kept: dict[str, int] = {}
        """Digest -> bytes of its archive, the least recently used first."""
        self._coming_bytes = 0

    @property
    def kept(self) -> dict[str, int]:
        """Return the bytes of every trace by digest, the least recently used first."""
        return dict(self._kept)

    def missing(self, digests: AbstractSet[str]) -> list[str]:
        """Return which of these digests are not kept, and mark the rest as used now."""
        for digest in digests & self._kept.keys():
            self._kept[digest] = self._kept.pop(digest)
        return sorted(digests - self._kept.keys())

    def problems(self, scenario_text: str) -> tuple[Problem, ...]:
        """Return the traces of a scenario that are not kept as problems, and mark the rest as used now."""
        remedy = "upload it with etloop submit --upload, or by PUT to /traces/ of the rack's HTTP server"
        return tuple(
            Problem(
                f"{PREFIX}{digest}",
                "this rack does not have the trace: it was never uploaded, or was removed",
                remedy,
            )
            for digest in self.missing(digests_in(scenario_text))
        )

    def keep(self, digest: str, size_bytes: int) -> None:
        """Add a trace, or mark it as used now."""
        self._kept.pop(digest, None)
        self._kept[digest] = size_bytes

    def drop(self, digest: str) -> None:
        """Remove a trace."""
        self._kept.pop(digest, None)

    def expect(self, size_bytes: int, referenced: AbstractSet[str]) -> tuple[str, ...] | None:
        """Reserve room for an upload until `expected` releases it; return the traces to remove for it.

        Returns None, and reserves nothing, if removing every trace that is not `referenced` would not be enough.
        """
        used_bytes = sum(self._kept.values()) + self._coming_bytes
        removed_digests: list[str] = []
        for digest, kept_bytes in self._kept.items():
            if (
                used_bytes + size_bytes <= self.most_bytes
                and len(self._kept) - len(removed_digests) < MOST_TRACES
            ):
                break
            if digest not in referenced:
                removed_digests.append(digest)
                used_bytes -= kept_bytes
        if used_bytes + size_bytes > self.most_bytes or len(self._kept) - len(removed_digests) >= MOST_TRACES:
            return None
        self._coming_bytes += size_bytes
        return tuple(removed_digests)

    def release(self, size_bytes: int) -> None:
        """Release the room reserved by `expect`, after the upload has succeeded or failed."""
        self._coming_bytes -= size_bytes
