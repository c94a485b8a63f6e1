"""How the bytes of an op become messages: what a library decides, as one value that every algorithm is built with.

`Cutting` is chosen by the shaping (`nccl_shaping`, `other_shapings`) for a byte count; an algorithm says who sends what
to whom in which order and takes the rest from here. `Request` is all that a builder gets: equal requests make equal
schedules, so schedules are kept by it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic.collectives.core.table import Handshake, Protocol, Split

KIB: Final = 1024
MAX_CHANNELS: Final = 64
"""NCCL's MAXCHANNELS (include/device.h), and the most that anything here uses."""
_PART_ALIGN_BYTES: Final = 4 * KIB


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

    def scaled(self, bytes_of: int, bytes_to: int) -> PeerParts:
        """The same for transfers that are `bytes_to / bytes_of` of what these bounds are for."""
        least_bytes, most_bytes = (
            max(1, -(-bound * bytes_to // bytes_of)) for bound in (self.min_part_bytes, self.max_part_bytes)
        )
        return replace(self, min_part_bytes=least_bytes, max_part_bytes=most_bytes)


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
    split: Split = Split.EQUAL
    """How the bytes of an op are shared by its channels."""
    traffic_per_byte: int = 1
    """Of `Split.CELLS`, as `Schedule.traffic_per_byte`."""
    handshake: Handshake = Handshake.CTS
    aggregation: int = 1
    """PAT: chunks that travel in one message (aggFactor)."""
    window: int = 0
    """Direct algorithms: peers served side by side; 0: all."""
    peers: PeerParts | None = None
    """Grouped send/recv: how transfers go over channels; None: whole ones on channel 0, in chunks of `chunk_bytes`."""
    parts: int = 1
    """Grouped send/recv of equal transfers: `peers.parts_of` one of them. Uneven ones ask `peers` for each transfer."""
    segments: int = 0
    """gloo's ring: pieces of the buffer, a multiple of the group's size and at least twice it; 0: twice it."""
    token_bytes: int = 0
    """DeepEP: what one write carries; 0: a token of DeepSeek-V3."""


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
