"""What allocators hold free, and what the system has of it once a run gave it back."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pyarrow as pa
import pytest

from etloop.runtime.malloc_tuning import release_free_memory

MIB = 1 << 20
BLOCK_BYTES = 2000
"""Too large for Python's own allocator, too small for a mapping of its own."""
BLOCKS = 40_000
HELD_BYTES = BLOCKS * BLOCK_BYTES

pytestmark = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="this C library is not glibc 2.33 or later"
)


def resident_bytes() -> int:
    """Of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_what_is_free_below_a_block_in_use_goes_back_to_the_system() -> None:
    blocks = [bytes([number % 251]) * BLOCK_BYTES for number in range(BLOCKS)]
    highest = blocks[-1]
    blocks.clear()
    before_bytes = resident_bytes()
    release_free_memory()
    assert before_bytes - resident_bytes() > HELD_BYTES // 2, "the heap was not given back"
    assert len(highest) == BLOCK_BYTES


def test_arrow_gives_back_much_of_what_it_freed() -> None:
    held = [pa.array(range(1000), pa.int64()) for _ in range(8000)]
    assert pa.total_allocated_bytes() > 32 * MIB
    held.clear()
    before_bytes = resident_bytes()
    release_free_memory()
    assert before_bytes - resident_bytes() > 16 * MIB
