"""How the bytes of an op become messages: a library's parameters, as one value that every algorithm is built with.

The shaping (`nccl.shaping`, `other_shapings`) chooses a `Cutting` for a byte count; an algorithm decides who sends
which data to whom in which order, and takes all other parameters from here. `Request` is the complete input of a
builder: equal requests make equal schedules, so schedules are cached by it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic.collectives.core.table import MOST_SLOTS, Completion, Handshake, Protocol, Split

KIB: Final = 1024
MAX_CHANNELS: Final = 64
"""NCCL's MAXCHANNELS (include/device.h), and the maximum here."""


@dataclass(frozen=True, slots=True)
class PeerParts:
    """How one send or receive is spread over channels (NCCL enqueue.cc addP2pToPlan).

    A transfer of b bytes has `parts_of(b)` parts, part p on channel (base + p) mod `channels`; bounds are multiples of
    4 KiB. The base of a round is the bit reversal of its number within log2(channels) bits (include/channel.h).
    """

    channels: int
    """p2pnChannels, a power of two."""
    least: int
    """Parts that cost no extra channel rounds (`lo`)."""
    most: int
    """Maximum channels for one peer (`hi`), a power of two."""
    min_part_bytes: int
    max_part_bytes: int

    def parts_of(self, transfer_bytes: int) -> int:
        """Return the number of parts of a transfer, at least 1."""
        parts = max(1, min(self.least, -(-transfer_bytes // self.min_part_bytes)))
        while -(-transfer_bytes // parts) > self.max_part_bytes and parts <= self.most // 2:
            parts *= 2
        return parts

    def rescale(self, bytes_of: int, bytes_to: int) -> PeerParts:
        """Return the bounds for transfers of `bytes_to / bytes_of` the size that these bounds are for."""
        least_bytes, most_bytes = (
            max(1, -(-bound * bytes_to // bytes_of)) for bound in (self.min_part_bytes, self.max_part_bytes)
        )
        return replace(self, min_part_bytes=least_bytes, max_part_bytes=most_bytes)


@dataclass(frozen=True, slots=True)
class Cutting:
    """Parameters that a builder copies into its `Schedule`. Bytes are data bytes unless the name says wire."""

    protocol: Protocol
    channels: int
    """Channels in use for this op; each has its own connections."""
    chunk_bytes: int
    slices: int
    min_slice_bytes: int
    slots: int
    split: Split = Split.EQUAL
    """How the bytes of an op are divided among its channels."""
    traffic_per_byte: int = 1
    """For `Split.CELLS`, as `Schedule.traffic_per_byte`."""
    handshake: Handshake = Handshake.CTS
    completion: Completion = Completion.ACKNOWLEDGED
    eager_bytes: int = 0
    connection_slots: int = MOST_SLOTS
    aggregation: int = 1
    """PAT: chunks that travel in one message (aggFactor)."""
    window: int = 0
    """Direct algorithms: peers served in parallel; 0: all."""
    peers: PeerParts | None = None
    """Grouped send/recv: how transfers are spread over channels; None: whole on channel 0, in chunks of `chunk_bytes`."""
    parts: int = 1
    """Grouped send/recv of equal transfers: the parts of each, from `peers.parts_of`. Uneven ones call it for each
    transfer."""
    segments: int = 0
    """gloo's ring: segments of the buffer, a multiple of the group's size and at least twice it; 0: twice it."""
    token_bytes: int = 0
    """DeepEP: bytes of one write; 0: a token of DeepSeek-V3."""


@dataclass(frozen=True, slots=True)
class Request:
    """The input of an algorithm. Hosts have `ranks_per_host` consecutive positions each."""

    collective: str
    """As `Schedule.collective`: "all-reduce", "all-to-all", ..."""
    size: int
    ranks_per_host: int
    cutting: Cutting
    splits: tuple[tuple[int, ...], ...] = ()
    """Uneven all-to-all: bytes from position i to position j; else empty."""
