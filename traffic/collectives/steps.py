"""The entries that NCCL's device primitives stand for, each value made once and shared by all tables.

A ring of 1024 positions has two million entries but only a few thousand different ones.
"""

from __future__ import annotations

from functools import lru_cache

from traffic.collectives.table import Entry, EntryKind


@lru_cache(maxsize=65536)
def _entry(kind: EntryKind, chunk: int, block: int) -> Entry:
    return Entry(kind, chunk, block)


def send(chunk: int, block: int) -> Entry:
    """Send what this position holds of the block."""
    return _entry(EntryKind.SEND, chunk, block)


def recv(chunk: int, block: int) -> Entry:
    """Receive the block's final content and keep it."""
    return _entry(EntryKind.RECV | EntryKind.COPY, chunk, block)


def recv_copy_send(chunk: int, block: int) -> Entry:
    """Receive the block's final content, keep it and pass it on."""
    return _entry(EntryKind.RECV | EntryKind.COPY | EntryKind.SEND, chunk, block)


def recv_reduce_send(chunk: int, block: int) -> Entry:
    """Add this position's contribution to a partial result and pass it on."""
    return _entry(EntryKind.RECV | EntryKind.REDUCE | EntryKind.SEND, chunk, block)


def recv_reduce_copy(chunk: int, block: int) -> Entry:
    """Add this position's contribution, which completes the block, and keep it."""
    return _entry(EntryKind.RECV | EntryKind.REDUCE | EntryKind.COPY, chunk, block)


def recv_reduce_copy_send(chunk: int, block: int) -> Entry:
    """Add this position's contribution, which completes the block, keep it and pass it on."""
    return _entry(EntryKind.RECV | EntryKind.REDUCE | EntryKind.COPY | EntryKind.SEND, chunk, block)
