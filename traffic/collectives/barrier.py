"""A barrier as frameworks issue it over NCCL, which has none: an all-reduce of one 4-byte element.

The schedule orders all positions whatever byte count it is given: with 0 bytes its messages are empty, but they are
sent. `BARRIER_BYTES` is what a plan gives it to put NCCL's bytes on the wire.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from traffic.collectives.ring import ring_all_reduce

if TYPE_CHECKING:
    from traffic.collectives.table import Schedule

BARRIER_BYTES: Final = 4


def ring_barrier(size: int) -> Schedule:
    """No position completes before every position has begun."""
    return replace(ring_all_reduce(size), collective="barrier", empty_message=True)
