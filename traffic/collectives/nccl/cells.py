"""How NCCL divides the bytes of an op among channels: in cells of at least 32 KiB of traffic.

The rule of NCCL 2.30.7 (src/enqueue.cc scheduleCollTasksToPlan) for a single collective. The engine applies the same
rule to each op (`cells_of` in traffic/native/plan/schedule.cpp); here it gives the number of channels with bytes, and
the bytes of the first channel, which determine NCCL's chunk size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_LEAST_TRAFFIC_BYTES: Final = 32 << 10
"""MinTrafficPerChannel."""
_ALIGN_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class ChannelShares:
    """The bytes of an op by channel; for an all-gather or reduce-scatter those of one rank's block."""

    channels: int
    """Channels that get bytes, at least 1."""
    first_bytes: int
    """Bytes of the first channel. All but the last have the same, and the last too if the op divides evenly."""


def shares_of(nbytes: int, channels: int, traffic_per_byte: int) -> ChannelShares:
    """Return how `nbytes` are divided among at most `channels`; `traffic_per_byte` as in `Schedule`."""
    if channels == 1 or nbytes == 0:
        return ChannelShares(1, nbytes)
    cell_bytes = _align(-(-_LEAST_TRAFFIC_BYTES // traffic_per_byte))
    cells = -(-nbytes // cell_bytes)
    traffic = max(_LEAST_TRAFFIC_BYTES, nbytes * traffic_per_byte)
    per_channel = _align(traffic // channels)
    cells_per_channel = min(cells, -(-per_channel // (cell_bytes * traffic_per_byte)))
    channels_needed = -(-cells // cells_per_channel)
    return ChannelShares(min(channels_needed, channels), min(cells_per_channel * cell_bytes, nbytes))


def _align(nbytes: int) -> int:
    """Round up to a multiple of 16 bytes."""
    return -(-nbytes // _ALIGN_BYTES) * _ALIGN_BYTES
