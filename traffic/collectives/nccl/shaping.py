"""How NCCL 2.30.7 cuts an op into messages, for an algorithm, a protocol and a number of channels.

This module computes chunks, slices, slots, shares of channels and parts of grouped sends. `choice` selects which are
used; algorithms decide who sends to whom. Sources: NVIDIA/nccl v2.30.7 src/init.cc (buffers), src/enqueue.cc
calcCollChunking, scheduleCollTasksToPlan and addP2pToPlan, src/device/prims_simple.h (slices),
src/include/collectives.h.
"""

from __future__ import annotations

import math
from typing import Final

from etloop.traffic.collectives.core.cutting import KIB, MAX_CHANNELS, Cutting, PeerParts
from etloop.traffic.collectives.core.table import Protocol, Split
from etloop.traffic.collectives.nccl.cells import ChannelShares, shares_of
from etloop.traffic.collectives.nccl.constants import NcclAlgorithm
from etloop.traffic.collectives.nccl.tuning import Function, Tuning

STEPS: Final = 8
"""NCCL_STEPS: buffer steps of a connection."""
_STEP_BYTES: Final = (512 * KIB, 32 * KIB, 576_000)
"""Data bytes of one buffer step by protocol: of a 4 MiB buffer, of 64 KiB in lines that are half data, of 614,400 bytes
15/16 data."""
_GRAIN_BYTES: Final = (512, 16, 1920)
"""ncclProtoGrainSize."""
_CHANNEL_GBYTES: Final = 14
"""NCCL_P2P_PER_CHANNEL_NET_BW."""
_P2P_CHUNK_BYTES: Final = 128 * KIB
"""NCCL_P2P_NET_CHUNKSIZE."""
_P2P_CHUNK_BYTES_ONE_HOST: Final = 512 * KIB
_RING_CHUNK_STEPS: Final = 4
_RING_SLICE_STEPS: Final = 2
_MIN_SLICE_SHARE: Final = 32
"""A slice has at least 1/32 of the bytes of its buffer steps."""


def cutting_of(
    function: Function,
    algorithm: NcclAlgorithm,
    protocol: Protocol,
    channels: int,
    nbytes: int,
    tuning: Tuning,
) -> Cutting:
    """Return the cut of a tuned collective; `nbytes` as in `tuning.estimates`, `channels` from `tuning.channels_for`.

    NCCL cuts each channel's range separately. Here all channels use the chunk size of the first one; NCCL's last
    channel differs only if it is much shorter.
    """
    rooted = function in (Function.BROADCAST, Function.REDUCE)
    long_chunks = algorithm is NcclAlgorithm.RING and protocol is Protocol.SIMPLE and not rooted
    chunk_steps, slice_steps = (_RING_CHUNK_STEPS, _RING_SLICE_STEPS) if long_chunks else (1, 1)
    chunk = chunk_steps * _STEP_BYTES[protocol]
    blocks = _blocks(function, tuning)
    shares = channel_shares(function, protocol, channels, nbytes, tuning)
    if algorithm is NcclAlgorithm.TREE and protocol is Protocol.LL128:
        chunk = _tree_ll128_chunk(chunk, shares.first_bytes, tuning)
    elif algorithm is NcclAlgorithm.PAT:
        chunk = _pat_chunk(function, chunk, shares.first_bytes * blocks)
    chunk -= chunk % _GRAIN_BYTES[protocol]
    return Cutting(
        protocol=protocol,
        channels=channels,
        chunk_bytes=chunk,
        slices=chunk_steps // slice_steps,
        min_slice_bytes=slice_steps * _STEP_BYTES[protocol] // _MIN_SLICE_SHARE
        if protocol is Protocol.SIMPLE
        else 0,
        slots=STEPS // slice_steps,
        split=Split.CELLS if channels > 1 else Split.EQUAL,
        traffic_per_byte=_traffic_per_byte(function, protocol, tuning),
        aggregation=_aggregation(chunk, shares.first_bytes, tuning) if algorithm is NcclAlgorithm.PAT else 1,
    )


def channel_shares(
    function: Function, protocol: Protocol, channels: int, nbytes: int, tuning: Tuning
) -> ChannelShares:
    """Return how an op is divided among its channels; `nbytes` as in `tuning.estimates`."""
    block_bytes = -(-nbytes // _blocks(function, tuning))
    return shares_of(block_bytes, channels, _traffic_per_byte(function, protocol, tuning))


def _blocks(function: Function, tuning: Tuning) -> int:
    """Return the number of blocks of an op: the ranks for an all-gather or reduce-scatter, else 1."""
    return tuning.layout.ranks if function in (Function.ALL_GATHER, Function.REDUCE_SCATTER) else 1


def _traffic_per_byte(function: Function, protocol: Protocol, tuning: Tuning) -> int:
    """Return NCCL's trafficPerByte."""
    per_byte = 2 if function is Function.ALL_REDUCE else _blocks(function, tuning)
    return per_byte * (4 if protocol is Protocol.LL else 1)


def _tree_ll128_chunk(chunk: int, share_bytes: int, tuning: Tuning) -> int:
    """Halve the chunk of a tree with LL128 until it fits the depth of the tree (calcCollChunking)."""
    ranks_per_host = tuning.layout.ranks / tuning.layout.hosts
    steps = 1 + math.floor(math.log2(tuning.layout.hosts)) + 0.1 * ranks_per_host
    for factor, least in ((64, 128 * KIB), (16, 32 * KIB)):
        while share_bytes // chunk < steps * factor / ranks_per_host and chunk > least:
            chunk //= 2
    return chunk


def _pat_chunk(function: Function, chunk: int, share_bytes: int) -> int:
    """Halve the chunk of PAT while a channel has few chunks (calcCollChunking)."""
    pieces = 32 if function is Function.ALL_GATHER else 16
    while chunk * pieces > share_bytes and chunk > 64 * KIB:
        chunk //= 2
    return chunk


def _aggregation(chunk: int, block_bytes: int, tuning: Tuning) -> int:
    """Return the blocks in one PAT message: as many of a channel as fit into half a chunk, below n/2."""
    most = tuning.layout.ranks // 2
    factor = 1
    while chunk // (max(1, block_bytes) * factor) >= 2 and factor < most:
        factor *= 2
    return factor


def p2p_cutting(tuning: Tuning, transfer_bytes: int, pinned_channels: int = 0) -> Cutting:
    """Return the cut of sends and receives of `transfer_bytes` each: Simple, up to eight peers per channel at once.

    `pinned_channels` replaces the number of channels (p2pnChannels), rounded up to a power of two; 0: as tuned.
    """
    ranks, hosts, graph = tuning.layout.ranks, tuning.layout.hosts, tuning.graph
    channels = _power_of_two_from(min(pinned_channels or graph.channels, MAX_CHANNELS))
    if hosts > 1:
        # Only the rank's own NIC counts, not all NICs of its host.
        most = math.ceil(graph.inter / _CHANNEL_GBYTES)
        step, min_part, max_part = _P2P_CHUNK_BYTES, _P2P_CHUNK_BYTES // 2, _P2P_CHUNK_BYTES
    else:
        most, step = channels, _P2P_CHUNK_BYTES_ONE_HOST
        min_part, max_part = step // 8, step * 32
    most = min(_power_of_two_from(most), channels)
    while most * math.ceil(ranks / 8) > channels and most > 1:
        most //= 2
    least = most
    while least * ranks > channels and least > 1:
        least //= 2
    peers = PeerParts(channels, least, most, min_part, max_part)
    return Cutting(
        protocol=Protocol.SIMPLE,
        channels=channels,
        chunk_bytes=step,
        slices=1,
        min_slice_bytes=_STEP_BYTES[Protocol.SIMPLE] // _MIN_SLICE_SHARE,
        slots=STEPS,
        split=Split.PAGES,
        peers=peers,
        parts=peers.parts_of(transfer_bytes),
    )


def _power_of_two_from(number: int) -> int:
    """Return the least power of two that is not below `number`."""
    return 1 << (number - 1).bit_length()
