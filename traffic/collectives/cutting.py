"""How the bytes of an op become messages: what a library decides, as one value that every algorithm is built with.

`Cutting` is chosen by the shaping (`nccl_shaping`, `other_shapings`) for a byte count; an algorithm says who sends what
to whom in which order and takes the rest from here. `Request` is all that a builder gets: equal requests make equal
schedules, so schedules are kept by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

KIB: Final = 1024
MAX_CHANNELS: Final = 64
"""NCCL's MAXCHANNELS (include/device.h), and the most that anything here uses."""
_PART_ALIGN_BYTES: Final = 4 * KIB


class Protocol(StrEnum):
    """NCCL's ways to mark data as valid. They differ on the wire in the size of messages and in what is added to them."""

    SIMPLE = "simple"
    LL = "ll"
    """16-byte lines with 8 bytes of data: twice the bytes."""
    LL128 = "ll128"
    """128-byte lines with 120 bytes of data, 16 lines at a time: 2048 bytes for 1920."""


@dataclass(frozen=True, slots=True)
class PeerParts:
    """How one send or receive is spread over channels (NCCL enqueue.cc addP2pToPlan).

    A transfer of b bytes has `parts_of(b)` parts, part p on channel (base + p) mod `channels`; bounds are multiples of
    4 KiB. Base of a round: bit reversal of its number within log2(channels) bits (include/channel.h).
    """

    channels: int
    """p2pnChannels, a power of two."""
    least: int
    """Parts that cost no extra channel rounds (`lo`)."""
    most: int
    """Channels for one peer (`hi`), a power of two."""
    min_part_bytes: int
    max_part_bytes: int

    def parts_of(self, transfer_bytes: int) -> int:
        """Parts of a transfer, at least 1."""
        parts = max(1, min(self.least, -(-transfer_bytes // self.min_part_bytes)))
        while -(-transfer_bytes // parts) > self.max_part_bytes and parts <= self.most // 2:
            parts *= 2
        return parts

    def part_bytes(self, transfer_bytes: int) -> tuple[int, ...]:
        """Bytes of every part: equal ones rounded up to 4 KiB, the last shorter or empty."""
        parts = self.parts_of(transfer_bytes)
        # Rounding up a rounded-up quotient is rounding up once.
        share = -(-transfer_bytes // (parts * _PART_ALIGN_BYTES)) * _PART_ALIGN_BYTES
        return tuple(max(0, min(share, transfer_bytes - part * share)) for part in range(parts))


@dataclass(frozen=True, slots=True)
class Cutting:
    """What a builder copies into its `Schedule`; bytes are data bytes unless they say wire."""

    protocol: Protocol
    channels: int
    """Channels in use for this op; each has connections of its own."""
    chunk_bytes: int
    slices: int
    min_slice_bytes: int
    slots: int
    line_data_bytes: int = 0
    """0: a message of b data bytes has b bytes on the wire; else ceil(b / line_data) * line_wire."""
    line_wire_bytes: int = 0
    cells: bool = False
    """Whether channels take ranges of NCCL's cells; else each takes one of `channels` equal parts."""
    traffic_per_byte: int = 1
    """Of the cell rule: bytes moved per byte of the op (2 all-reduce, n all-gather and reduce-scatter, 1 else; LL x 4)."""
    aggregation: int = 1
    """PAT: chunks that travel in one message (aggFactor)."""
    window: int = 0
    """Direct algorithms: peers served side by side; 0: all."""
    peers: PeerParts | None = None
    """Grouped send/recv; None: whole transfers on channel 0, chunks of `chunk_bytes` whatever the size."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of an algorithm. Hosts have `ranks_per_host` consecutive positions each."""

    collective: str
    """As `Schedule.collective`: "all-reduce", "all-to-all", ..."""
    size: int
    ranks_per_host: int
    cutting: Cutting
    splits: tuple[tuple[int, ...], ...] = ()
    """Bytes from position i to position j, of an uneven all-to-all; else empty."""
