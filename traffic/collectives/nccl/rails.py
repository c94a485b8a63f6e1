"""How NCCL cuts collectives for buffers in symmetric windows.

Channels are the thread blocks of the symmetric kernels, and the RMA contexts of the copy engines. Sources: NVIDIA/nccl
v2.32.3 src/ce_coll.cc (ncclHierCollNumCtx, ncclHierCollChunkWidth, ncclHierCollRingChunkWidth, ncclHierCollBuildChunk);
src/tuning/sym_model/gin.cc, src/sym_kernels.cc (getRequirements_gin), src/scheduler/symmetric_sched.cc,
src/device/symmetric/all_gather_gin.cuh and reduce_scatter_gin.cuh; v2.30.7 has one context.
"""

from __future__ import annotations

import math
from typing import Final

from etloop.traffic.collectives.core.cutting import KIB, Cutting
from etloop.traffic.collectives.core.table import MOST_SLOTS, Protocol, Split
from etloop.traffic.collectives.nccl.constants import NET_LATENCY, NcclAlgorithm, NcclVersion
from etloop.traffic.collectives.nccl.hardware import Gpu
from etloop.traffic.collectives.nccl.tuning import Tuning

RAIL_RING: Final = "rail_ring"
CE_DIRECT: Final = "ce_direct"
CE_RING: Final = "ce_ring"
RAIL_A2A: Final = "rail_a2a"
RAILED: Final = (RAIL_RING, RAIL_A2A, CE_DIRECT, CE_RING)

_MIB: Final = 1024 * KIB
_PUT_BYTES: Final = _MIB
"""ncclSymkAllGather_RailRing_ChunkSize."""
_CELL_BYTES: Final = 1 * KIB
"""NCCL_SYM_KERNEL_CELL_SIZE: a block of the kernel works on whole cells."""
_CELL_TRAFFIC: Final = 32
"""Traffic per byte for which `Split.CELLS` has cells of 1 KiB."""
_CONTEXTS: Final = 4
"""NCCL_NUM_RMA_INT_CTX."""
_CONTEXTS_FROM_BYTES: Final = 4 * _MIB
"""NCCL_RMA_MULTI_CTX_THRESHOLD: smaller blocks use one context."""
_MOST_CHUNK_BYTES: Final = 64 * _MIB
_ALIGN_BYTES: Final = 8 * KIB
_HALVES_FROM_BYTES: Final = 128 * _MIB
_LEAST_HALF_CHUNK_BYTES: Final = 8 * _MIB
_MOST_SLICES: Final = 16
_MOST_BLOCKS: Final = 64
"""ncclSymkMaxBlocks."""
_SCATTER_CHUNK_BYTES: Final = 128 * KIB
"""NCCL_SYM_RS_GIN_CHUNK_SIZE."""
_ACCUMULATED: Final = 2
"""Bytes of an element of the accumulator (float) by those of the data (half or bfloat16)."""
_GIN_LATENCY_S: Final = NET_LATENCY[NcclAlgorithm.RING][Protocol.SIMPLE] / 1e6
_SM_LATENCY_S: Final = 10e-6
_LSA_BYTES_PER_S: Final = (360e9, 720e9)
"""Of Hopper and Blackwell, as the next two."""
_SM_BYTES_PER_S: Final = {False: (13.7e9, 26.6e9), True: (4.22e9, 8.44e9)}
"""By whether NVLink multicast loads the data (LsaLDMC)."""
_MOST_BUFFERS_LOG2: Final = 9
_PEER_BUFFERS_LOG2: Final = 2


def why_not_railed(algorithm: str, version: NcclVersion) -> str:
    """Return why a version has no such all-gather; "" if it has."""
    if algorithm == CE_RING and version is NcclVersion.V2_30:
        return "NCCL 2.30 has no NCCL_HIER_CE_COLL_AG_RAIL_RING_ENABLE; write nccl: '2.32', or algorithm: ce_direct"
    return ""


def rail_cutting(algorithm: str, block_bytes: int, tuning: Tuning, pinned_channels: int = 0) -> Cutting:
    """Return the cut of a collective with `block_bytes` from or for each rank; `pinned_channels` replaces NCCL's number.

    A block is cut into as many messages for each peer between hosts as by NCCL. With copy engines NCCL rounds their sizes
    down to 8 KiB, here they are equal.
    """
    if algorithm == RAIL_A2A:
        return _scatter_cutting(block_bytes, tuning, pinned_channels)
    if algorithm == RAIL_RING:
        channels = pinned_channels or _kernel_blocks(block_bytes, tuning)
        cells = -(-block_bytes // _CELL_BYTES)
        share = min(block_bytes, -(-cells // channels) * _CELL_BYTES)
        last = block_bytes % share or share if share else 0
        # A divisor of both numbers of messages, so that no channel has an empty one.
        messages = math.gcd(-(-share // _PUT_BYTES), -(-last // _PUT_BYTES))
        return _cutting(channels, share, messages, _PUT_BYTES)
    contexts = pinned_channels or _contexts(block_bytes, tuning.version)
    width = _width(block_bytes, contexts)
    if algorithm == CE_DIRECT:
        messages = _chunks(block_bytes, width)
        used = _divisor(messages, contexts)
        return _cutting(used, -(-block_bytes // used), messages // used)
    half = block_bytes - block_bytes // 2
    if contexts >= 4 and block_bytes >= _HALVES_FROM_BYTES:
        aligned = min(_align(-(-half // contexts)), _MOST_CHUNK_BYTES)
        width = min(width, max(aligned, _LEAST_HALF_CHUNK_BYTES))
    messages = _chunks(half, width)
    used = _divisor(messages, contexts)
    return _cutting(2 * used, -(-half // used), messages // used)


def _cutting(channels: int, share_bytes: int, messages: int, put_bytes: int = 0) -> Cutting:
    """Return a cut of a channel's share into `messages` of `put_bytes`, or of equal size.

    At most 16 are sent one after another along the ring before the first of them is sent on.
    """
    slices = _divisor(max(1, messages), _MOST_SLICES)
    equal_bytes = max(1, -(-share_bytes * slices // max(1, messages)))
    return Cutting(
        protocol=Protocol.SIMPLE,
        channels=channels,
        chunk_bytes=slices * put_bytes or equal_bytes,
        slices=slices,
        min_slice_bytes=put_bytes,
        slots=MOST_SLOTS,
        split=Split.CELLS if put_bytes and channels > 1 else Split.EQUAL,
        traffic_per_byte=_CELL_TRAFFIC if put_bytes else 1,
    )


def _scatter_cutting(block_bytes: int, tuning: Tuning, pinned_channels: int) -> Cutting:
    """Return the cut of a reduce-scatter of two-byte elements, which traces do not record, without multicast."""
    channels = pinned_channels or max(
        1,
        min(
            _saturating_blocks(tuning, multicast=False), _MOST_BLOCKS, -(-block_bytes // _SCATTER_CHUNK_BYTES)
        ),
    )
    buffers = [_inbox_bytes(tuning, multicast=multicast) for multicast in (False, True)]
    inbox_log2 = (max(buffers) - 1).bit_length()
    peers_log2 = (tuning.layout.hosts - 1).bit_length() - 1
    least_log2 = inbox_log2 - min(peers_log2 + _PEER_BUFFERS_LOG2, _MOST_BUFFERS_LOG2)
    # An accumulator of twice the chunk holds elements of twice the size.
    most_bytes = 2 * _SCATTER_CHUNK_BYTES // _ACCUMULATED
    chunk = min(most_bytes, 1 << max(least_log2, min(most_bytes.bit_length() - 1, inbox_log2 - 1)))
    return Cutting(
        protocol=Protocol.SIMPLE,
        channels=channels,
        chunk_bytes=chunk,
        slices=1,
        min_slice_bytes=chunk,
        slots=MOST_SLOTS,
        split=Split.CELLS if channels > 1 else Split.EQUAL,
        traffic_per_byte=_CELL_TRAFFIC,
    )


def _loads(tuning: Tuning, *, multicast: bool) -> tuple[float, int, int]:
    """Return how often the SMs, NVLink and the network carry the bytes of a block
    (ncclTuningGetBusMulReduceScatterRailA2A)."""
    places, hosts = tuning.layout.ranks_per_host, tuning.layout.hosts
    reads = 1 if multicast else places
    sm = (0 if places == 1 else reads * (hosts - 1)) + reads + hosts - 1
    return sm, max(places if multicast else places - 1, places - 1) * hosts, hosts - 1


def _rates(tuning: Tuning) -> tuple[float, float]:
    """Return the bytes per second of NVLink and of a NIC."""
    is_blackwell = tuning.hardware.gpu >= Gpu.BLACKWELL
    return _LSA_BYTES_PER_S[is_blackwell], tuning.hardware.nic_bps / 8


def _effective_rate(tuning: Tuning, *, multicast: bool) -> float:
    """Return the bytes of a block per second that NVLink and network carry."""
    (_, lsa_load, net_load), (lsa, net) = _loads(tuning, multicast=multicast), _rates(tuning)
    return min(lsa / lsa_load if lsa_load else math.inf, net / net_load)


def _saturating_blocks(tuning: Tuning, *, multicast: bool) -> int:
    """Return the thread blocks that saturate NVLink or the network (ncclTuningCalcSatBlocksReduceScatterRailA2A)."""
    sm_load = _loads(tuning, multicast=multicast)[0]
    sm = _SM_BYTES_PER_S[multicast][tuning.hardware.gpu >= Gpu.BLACKWELL]
    return math.ceil(_effective_rate(tuning, multicast=multicast) / (sm / sm_load))


def _inbox_bytes(tuning: Tuning, *, multicast: bool) -> int:
    """Return the bytes in flight for which the kernel has buffers (getRequirements_gin)."""
    net_load = _loads(tuning, multicast=multicast)[2]
    return int(_effective_rate(tuning, multicast=multicast) * net_load * (_GIN_LATENCY_S + _SM_LATENCY_S))


def _kernel_blocks(block_bytes: int, tuning: Tuning) -> int:
    """Return the thread blocks of the symmetric kernel (ncclSymkGinModel), without NCCL_SYM_CTAS."""
    heads = tuning.layout.ranks_per_host
    most = -(-(32 if tuning.hardware.gpu >= Gpu.BLACKWELL else 16) // heads)
    return max(1, min(most, -(-block_bytes // _PUT_BYTES)))


def _contexts(block_bytes: int, version: NcclVersion) -> int:
    """Return the RMA contexts in use (ncclHierCollNumCtx), without CUDA graphs."""
    return 1 if version is NcclVersion.V2_30 or block_bytes < _CONTEXTS_FROM_BYTES else _CONTEXTS


def _width(block_bytes: int, contexts: int) -> int:
    """Return the maximum bytes of a message (ncclHierCollChunkWidth)."""
    if contexts == 1:
        return _MOST_CHUNK_BYTES
    share_bytes = -(-block_bytes // contexts)
    per_context = max(1, -(-share_bytes // _MOST_CHUNK_BYTES))
    return min(_MOST_CHUNK_BYTES, _align(-(-block_bytes // (contexts * per_context))))


def _chunks(nbytes: int, width: int) -> int:
    """Return the messages of a transfer (ncclHierCollBuildChunk)."""
    return max(1, -(-nbytes // max(1, width)))


def _divisor(messages: int, most: int) -> int:
    """Return the largest number up to `most` that divides the messages evenly."""
    return next(number for number in range(min(messages, most), 0, -1) if messages % number == 0)


def _align(nbytes: int) -> int:
    """Round up to a multiple of 8 KiB."""
    return -(-nbytes // _ALIGN_BYTES) * _ALIGN_BYTES
