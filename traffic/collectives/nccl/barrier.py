"""A barrier as frameworks issue it over NCCL, which has none: an all-reduce of one 4-byte element.

Every algorithm of an all-reduce is one of a barrier: no position completes before every position has begun. Its schedule
orders all positions whatever byte count it is given: with 0 bytes its messages are empty, but they are sent.
`BARRIER_BYTES` is what a plan gives it to put NCCL's bytes on the wire.
"""

from __future__ import annotations

from typing import Final

BARRIER_BYTES: Final = 4
