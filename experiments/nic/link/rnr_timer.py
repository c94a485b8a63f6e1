"""Times of the timer codes of an RNR NAK (InfiniBand Architecture Specification, volume 1, 9.7.5.2.8)."""

from __future__ import annotations

from typing import Final

_HUNDREDTHS_MS: Final = (
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144,
    8192, 12288, 16384, 24576, 32768, 49152,
)  # fmt: skip


def rnr_timer_ns(code: int) -> int:
    """Return the time in ns that a 5-bit code asks a requester to wait."""
    return _HUNDREDTHS_MS[code] * 10_000
