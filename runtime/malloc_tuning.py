"""Keeps a process that lives for months from holding on to the memory of its largest messages. A shell: glibc's malloc.

glibc raises its threshold for giving memory back with every large block that is freed, up to 32 MiB. A controller hands
batches of records of any size on to runs: their blocks then come from the heap, which is left larger and with more holes by
every unlucky sequence of them, though nothing is leaked. With fixed thresholds large blocks are pages of their own, given
back when they are freed, and so is the heap's free end (mallopt(3)).

A process that does one run after another and is not ours, such as a notebook, keeps its thresholds. There the end of a run gives
back what is free: glibc's and Arrow's allocators hold on to it otherwise, by thread, and go up and down by a third.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Final

_TRIM_THRESHOLD: Final = -1
"""malloc.h"""
_MMAP_THRESHOLD: Final = -3
_LARGE_BYTES: Final = 128 << 10
"""glibc's own values before it adapts them."""


def give_memory_back() -> bool:
    """Fixes the thresholds for this process; whether its C library knows them."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(mallopt(option, _LARGE_BYTES) == 1 for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD))


def release_free_memory() -> None:
    """Give the system what is free in the heaps of the C library (malloc_trim(3)) and of Arrow, where that is loaded."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
    if arrow := sys.modules.get("pyarrow"):
        arrow.default_memory_pool().release_unused()
