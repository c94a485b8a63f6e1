"""Keeps a long-running process from holding on to the memory of its largest messages. A shell: glibc's malloc.

glibc raises its mmap and trim thresholds with every large block that is freed, up to 32 MiB. A controller passes
batches of records of any size to runs. Their blocks then come from the heap, which some sequences of sizes leave larger
and more fragmented, although no memory is leaked. With fixed thresholds large blocks are pages of their own, returned
to the system when they are freed, and so is the heap's free end (mallopt(3)).

A process that is not this project's, such as a notebook that makes one run after another, keeps its thresholds. There
the end of a run returns free memory; otherwise the allocators of glibc and Arrow hold on to it, by thread, and its size
varies by a third.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Final

_TRIM_THRESHOLD: Final = -1
"""malloc.h"""
_MMAP_THRESHOLD: Final = -3
_LARGE_BYTES: Final = 128 << 10
"""glibc's initial value of both thresholds."""


def give_memory_back() -> bool:
    """Fix both thresholds for this process; return False if the C library does not support it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(mallopt(option, _LARGE_BYTES) == 1 for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD))


def release_free_memory() -> None:
    """Return the free memory in the heaps of the C library (malloc_trim(3)) and of Arrow, if loaded, to the system."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
    if arrow := sys.modules.get("pyarrow"):
        arrow.default_memory_pool().release_unused()
