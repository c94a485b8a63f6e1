"""What the name of a GPU kernel says about the collective it runs. Pure."""

from __future__ import annotations

import re
from typing import Final

from etloop.workload.trace.trace import ABSENT, CollectiveKind

# ncclSymkDevKernel: kernels of NCCL 2.27 and later over symmetric memory. rcclGenericKernel: RCCL of ROCm 7.
_NCCL: Final = re.compile(r"(void )?(nccl|rccl|msccl)(Symk?)?(Dev|Generic)?Kernel", re.IGNORECASE)
_COLLECTIVES: Final = {
    "allreduce": CollectiveKind.ALL_REDUCE,
    "allgather": CollectiveKind.ALL_GATHER,
    "reducescatter": CollectiveKind.REDUCE_SCATTER,
    "broadcast": CollectiveKind.BROADCAST,
    "alltoall": CollectiveKind.ALL_TO_ALL,
    "reduce": CollectiveKind.REDUCE,
}
_SEND_RECV: Final = "sendrecv"


def is_nccl_kernel(name: str) -> bool:
    """Whether a kernel is a communication kernel of NCCL or a library of its interface."""
    return _NCCL.match(name) is not None


def kernel_collective(name: str) -> int:
    """`CollectiveKind` of an NCCL kernel by its name, `ABSENT` where the name leaves it open (SendRecv, Generic)."""
    plain = "".join(c for c in name.split("(", maxsplit=1)[0].lower() if c.isalnum())
    return next((int(kind) for text, kind in _COLLECTIVES.items() if text in plain), ABSENT)


def kernel_fits(name: str, collective: CollectiveKind | None) -> bool:
    """Whether a kernel may run an operation: `collective`, or point to point where that is None."""
    stated = kernel_collective(name)
    if stated == ABSENT:
        plain = name.lower()
        return _SEND_RECV not in plain or collective in (
            None,
            CollectiveKind.ALL_TO_ALL,
            CollectiveKind.GATHER,
            CollectiveKind.SCATTER,
            # NCCL runs gathers of uneven sizes as broadcasts, or as point to point in one batch.
            CollectiveKind.ALL_GATHER,
        )
    if collective is CollectiveKind.BARRIER:
        return stated == CollectiveKind.ALL_REDUCE
    return collective is not None and stated == collective
