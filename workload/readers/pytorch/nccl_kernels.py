"""Derives the collective that a GPU kernel runs from the kernel's name. Pure."""

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
    """Decide whether a kernel is a communication kernel of NCCL or of a library with its interface (RCCL, MSCCL)."""
    return _NCCL.match(name) is not None


def kernel_collective(name: str) -> int:
    """Return the `CollectiveKind` in an NCCL kernel's name, `ABSENT` if the name does not determine it (SendRecv,
    Generic)."""
    plain_name = "".join(c for c in name.split("(", maxsplit=1)[0].lower() if c.isalnum())
    return next((int(kind) for text, kind in _COLLECTIVES.items() if text in plain_name), ABSENT)


def kernel_fits(name: str, collective: CollectiveKind | None) -> bool:
    """Decide whether a kernel may run an operation: `collective`, or a point-to-point operation if that is None."""
    kind_in_name = kernel_collective(name)
    if kind_in_name == ABSENT:
        lower_name = name.lower()
        return _SEND_RECV not in lower_name or collective in (
            None,
            CollectiveKind.ALL_TO_ALL,
            CollectiveKind.GATHER,
            CollectiveKind.SCATTER,
            # NCCL runs gathers of uneven sizes as broadcasts, or as point to point in one batch.
            CollectiveKind.ALL_GATHER,
        )
    if collective is CollectiveKind.BARRIER:
        return kind_in_name == CollectiveKind.ALL_REDUCE
    return collective is not None and kind_in_name == collective
