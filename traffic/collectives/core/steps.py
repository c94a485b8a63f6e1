"""The entries that NCCL's device primitives stand for, each value made once and shared by all tables.

A ring of 1024 positions has two million entries but only a few thousand different ones.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from etloop.traffic.collectives.core.table import Entry, EntryKind

_SEND: Final = EntryKind.SEND
_RECV: Final = EntryKind.RECV | EntryKind.COPY
_RECV_SEND: Final = EntryKind.RECV | EntryKind.COPY | EntryKind.SEND
_RECV_REDUCE_SEND: Final = EntryKind.RECV | EntryKind.REDUCE | EntryKind.SEND
_RECV_REDUCE: Final = EntryKind.RECV | EntryKind.REDUCE | EntryKind.COPY
_RECV_REDUCE_COPY_SEND: Final = EntryKind.RECV | EntryKind.REDUCE | EntryKind.COPY | EntryKind.SEND
_DISTINCT_MAX: Final = 4096


@lru_cache(_DISTINCT_MAX)
def send(chunk: int, block: int) -> Entry:
    """Send what this position holds of the block."""
    return Entry(_SEND, chunk, block)


@lru_cache(_DISTINCT_MAX)
def recv(chunk: int, block: int) -> Entry:
    """Receive the block's final content and keep it."""
    return Entry(_RECV, chunk, block)


@lru_cache(_DISTINCT_MAX)
def recv_copy_send(chunk: int, block: int) -> Entry:
    """Receive the block's final content, keep it and pass it on."""
    return Entry(_RECV_SEND, chunk, block)


@lru_cache(_DISTINCT_MAX)
def recv_reduce_send(chunk: int, block: int) -> Entry:
    """Add this position's contribution to a partial result and pass it on."""
    return Entry(_RECV_REDUCE_SEND, chunk, block)


@lru_cache(_DISTINCT_MAX)
def recv_reduce_copy(chunk: int, block: int) -> Entry:
    """Add this position's contribution, which completes the block, and keep it."""
    return Entry(_RECV_REDUCE, chunk, block)


@lru_cache(_DISTINCT_MAX)
def recv_reduce_copy_send(chunk: int, block: int) -> Entry:
    """Add this position's contribution, which completes the block, keep it and pass it on."""
    return Entry(_RECV_REDUCE_COPY_SEND, chunk, block)
