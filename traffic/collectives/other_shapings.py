"""Shapings other than NCCL's: gloo, MPI with MPICH's cut-offs, and plain.

This module chooses algorithm and cut by collective, byte count and group size. MPICH and gloo send the data of a step
as one message (a rendezvous); only gloo's ring cuts a buffer into segments. Plain uses the naive algorithm, for
comparison.
"""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic.collectives.core.cutting import KIB, Cutting
from etloop.traffic.collectives.core.table import Protocol

WHOLE_BYTES: Final = 1 << 30
"""Largest message: an RDMA write of RoCE has at most 2 GiB, NCCL_MAX_NET_SIZE is 1 GiB."""
_GLOO_SEGMENT_BYTES: Final = 1024 * KIB


@dataclass(frozen=True, slots=True)
class ShapingRequest:
    """One op as input of these tables."""

    collective: str
    """As `Schedule.collective`."""
    ranks: int
    op_bytes: int
    """As in a plan: the buffer; for an all-gather and a gather the bytes that one rank contributes."""

    @property
    def power_of_two(self) -> bool:
        """Return whether the group size is a power of two."""
        return self.ranks & (self.ranks - 1) == 0


@dataclass(frozen=True, slots=True)
class Pick:
    """An algorithm and the reason for it."""

    algorithm: str
    reason: str


def whole_buffers(channels: int = 1) -> Cutting:
    """Return the cut that sends the data of a step as one message per channel."""
    return Cutting(
        protocol=Protocol.SIMPLE,
        channels=channels,
        chunk_bytes=WHOLE_BYTES,
        slices=1,
        min_slice_bytes=0,
        slots=8,
    )


def gloo_ring_cutting(request: ShapingRequest) -> Cutting:
    """Return the segments of gloo's ring: at most 1 MiB, a multiple of n and at least 2n of them, two in flight.

    Source: facebookincubator/gloo gloo/allreduce.cc.
    """
    segments = max(-(-request.op_bytes // _GLOO_SEGMENT_BYTES), 2 * request.ranks)
    segments = -(-segments // request.ranks) * request.ranks
    return Cutting(
        protocol=Protocol.SIMPLE,
        channels=1,
        chunk_bytes=max(1, -(-request.op_bytes // segments)),
        slices=1,
        min_slice_bytes=0,
        slots=2,
        segments=segments,
    )


_GLOO: Final = {
    "all-reduce": ("gloo_ring", "AllreduceOptions defaults to the ring"),
    "all-gather": ("ring", "gloo/allgather.cc"),
    "reduce-scatter": ("halving_doubling", "gloo/reduce_scatter.h"),
    "broadcast": ("binomial", "gloo/broadcast.cc"),
    "reduce": ("binomial", "instead of gloo/reduce.cc, a ring and a gather"),
    "all-to-all": ("direct", "gloo/alltoall.cc posts all sends and receives"),
    "gather": ("linear", "gloo/gather.cc"),
    "scatter": ("linear", "gloo/scatter.cc"),
    "barrier": ("recursive_doubling", "gloo/barrier.cc, dissemination"),
}
_PLAIN: Final = {
    "all-reduce": "ring",
    "all-gather": "ring",
    "reduce-scatter": "ring",
    "broadcast": "chain",
    "reduce": "chain",
    "all-to-all": "direct",
    "gather": "linear",
    "scatter": "linear",
    "barrier": "ring",
}


def gloo_pick(request: ShapingRequest) -> Pick:
    """Return gloo's algorithm for a collective."""
    algorithm, source = _GLOO[request.collective]
    return Pick(algorithm, f"gloo: {source}")


def plain_pick(request: ShapingRequest) -> Pick:
    """Return the naive algorithm."""
    return Pick(_PLAIN[request.collective], "plain: one message a step")


_SHORT_ALL_REDUCE_BYTES: Final = 2048
_SHORT_ALL_TO_ALL_BYTES: Final = 256
_MEDIUM_ALL_TO_ALL_BYTES: Final = 32 * KIB
_FEW_RANKS: Final = 8
_SHORT_ALL_GATHER_BYTES: Final = 81_920
_LONG_ALL_GATHER_BYTES: Final = 524_288
_SHORT_BROADCAST_BYTES: Final = 12_288
_LONG_REDUCE_SCATTER_BYTES: Final = 524_288


def mpi_pick(request: ShapingRequest) -> Pick:
    """Return MPICH's algorithm for a collective by its default cut-offs (src/mpi/coll, MPIR_CVAR_*)."""
    match request.collective:
        case "all-reduce":
            if request.op_bytes <= _SHORT_ALL_REDUCE_BYTES:
                return Pick("recursive_doubling", f"MPICH: at most {_SHORT_ALL_REDUCE_BYTES} B")
            return Pick("halving_doubling", f"MPICH: above {_SHORT_ALL_REDUCE_BYTES} B, Rabenseifner")
        case "all-gather":
            return _mpi_all_gather(request)
        case "all-to-all":
            return _mpi_all_to_all(request)
        case "reduce-scatter":
            if request.op_bytes < _LONG_REDUCE_SCATTER_BYTES:
                return Pick(
                    "halving_doubling", f"MPICH: below {_LONG_REDUCE_SCATTER_BYTES} B, recursive halving"
                )
            return Pick("pairwise", f"MPICH: from {_LONG_REDUCE_SCATTER_BYTES} B on, pairwise exchange")
        case "broadcast":
            short = request.op_bytes < _SHORT_BROADCAST_BYTES or request.ranks < _FEW_RANKS
            remark = "" if short else "; scatter and all-gather, which MPICH takes here, are not modelled"
            return Pick("binomial", f"MPICH: binomial tree{remark}")
        case "barrier":
            return Pick("recursive_doubling", "MPICH: dissemination")
        case _:
            return Pick("binomial", "MPICH: binomial tree")


def _mpi_all_gather(request: ShapingRequest) -> Pick:
    """Return MPICH's algorithm for an all-gather, by the bytes of all ranks together."""
    total = request.op_bytes * request.ranks
    if request.power_of_two and total < _LONG_ALL_GATHER_BYTES:
        return Pick(
            "recursive_doubling", f"MPICH: {total} B in all, below {_LONG_ALL_GATHER_BYTES}, power of two"
        )
    if total < _SHORT_ALL_GATHER_BYTES:
        return Pick("bruck", f"MPICH: {total} B in all, below {_SHORT_ALL_GATHER_BYTES}")
    return Pick("ring", f"MPICH: {total} B in all, long")


def _mpi_all_to_all(request: ShapingRequest) -> Pick:
    """Return MPICH's algorithm for an all-to-all, by the bytes per peer."""
    block = request.op_bytes // request.ranks
    if block <= _SHORT_ALL_TO_ALL_BYTES and request.ranks >= _FEW_RANKS:
        return Pick("bruck", f"MPICH: {block} B a peer, at most {_SHORT_ALL_TO_ALL_BYTES}")
    if block <= _MEDIUM_ALL_TO_ALL_BYTES:
        return Pick("scattered", f"MPICH: {block} B a peer, at most {_MEDIUM_ALL_TO_ALL_BYTES}")
    return Pick("pairwise", f"MPICH: {block} B a peer, long")
