"""Counts a trace's dependencies by their treatment (honoured, added, changed, dropped), and words them in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

HONOURED: Final = ("data", "ctrl")
"""Dependencies of the file; ctrl only those that no data dependency implies."""
ADDED: Final = ("stream", "communicator", "recorded")
"""Added by the policy of that name, where no other edge implies it."""
CHANGED: Final = ("begin",)
"""The recording shows both nodes at the same time: one waits for the begin of the other, not for its end."""
DROPPED: Final = ("self", "dangling", "duplicate", "cycle")
"""Edges to the node itself, to a missing node, given twice, and ctrl edges between nodes that wait for each other."""

EDGE_SORTS: Final = (*HONOURED, *ADDED, *CHANGED, *DROPPED)


def edge_words(edges: Mapping[str, int]) -> str:
    """Return the counts in one line; kinds of edges with a count of 0 are left out."""
    parts = []
    for verb, sorts in (("honoured", HONOURED), ("added", ADDED), ("dropped", DROPPED)):
        counts = ", ".join(f"{edges[sort]} {sort}" for sort in sorts if edges.get(sort))
        parts += [f"{verb} {counts}"] if counts else []
    if edges.get("begin"):
        parts.append(f"{edges['begin']} only wait for a begin")
    return "; ".join(parts) or "none"
