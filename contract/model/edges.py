"""What became of a trace's dependencies, as counts by sort: the sorts there are, and one line about them for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

HONOURED: Final = ("data", "ctrl")
"""Dependencies of the file; ctrl only those that no data dependency implies."""
ADDED: Final = ("stream", "communicator", "recorded")
"""By the policy of that name, where no other edge says the same."""
CHANGED: Final = ("begin",)
"""The recording shows both nodes at once: one waits for the begin of the other, not for its end."""
DROPPED: Final = ("self", "dangling", "duplicate", "cycle")
"""On the node itself; on a node that is not there; named before; ctrl between nodes that wait for each other."""

EDGE_SORTS: Final = (*HONOURED, *ADDED, *CHANGED, *DROPPED)


def edge_words(edges: Mapping[str, int]) -> str:
    """The counts in one line; sorts without any are left out."""
    parts = []
    for verb, sorts in (("honoured", HONOURED), ("added", ADDED), ("dropped", DROPPED)):
        counts = ", ".join(f"{edges[sort]} {sort}" for sort in sorts if edges.get(sort))
        parts += [f"{verb} {counts}"] if counts else []
    if edges.get("begin"):
        parts.append(f"{edges['begin']} only wait for a begin")
    return "; ".join(parts) or "none"
