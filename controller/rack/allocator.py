"""Keeps a process that lives for months from holding on to memory that it is done with. A shell: glibc's malloc, Python's gc.

glibc raises its threshold for giving memory back with every large block that is freed, up to 32 MiB. A controller hands
batches of records of any size on to runs: their blocks then come from the heap, which is left larger and with more holes by
every unlucky sequence of them, though nothing is leaked. With fixed thresholds large blocks are pages of their own, given
back when they are freed, and so is the heap's free end (mallopt(3)).

Python looks for rings of objects that nothing refers to when enough was made since, and through old ones when a quarter as
many have joined them. Modules and classes are a hundred thousand objects, so what runs leave behind would lie about for
hundreds of runs (docs.python.org, gc.set_threshold). What stays is set aside once, so that a look at the rest takes a
millisecond and can be had every few seconds.
"""

from __future__ import annotations

import ctypes
import gc
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


def set_start_aside() -> int:
    """Takes what there is, which stays, out of every later look for garbage; how many objects that are."""
    gc.collect()
    gc.freeze()
    return gc.get_freeze_count()


def look_for_garbage() -> None:
    """Frees the rings among what was made since `set_start_aside`."""
    gc.collect()
