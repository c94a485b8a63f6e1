"""When an op is complete, and how far its small messages are granted ahead: the rule of each library, and the user's setting.

Decides completion, eager size and slots of a cut. The engine applies them (traffic/native/core/lanes.h). Sources, read in the
code: NVIDIA/nccl v2.30.7 src/device/prims_simple.h (`waitPeer`, `postPeer`; `~Primitives` for registered buffers), prims_ll.h,
src/transport/net.cc (`NCCL_STEPS`); facebookincubator/gloo gloo/transport/tcp/pair.cc; open-mpi/ompi
opal/mca/btl/tcp/btl_tcp_component.c; deepseek-ai/DeepEP csrc/kernels/internode_ll.cu.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import format_bytes
from etloop.traffic.collectives.core.cutting import KIB, Cutting
from etloop.traffic.collectives.core.table import MOST_SLOTS, Completion

EAGER_BYTES: Final = 64 * KIB
"""Open MPI's eager limit over TCP (`btl_eager_limit`): smaller messages leave without a rendezvous."""


class CompletionRule(StrEnum):
    """The setting `completion` of a scenario."""

    BY_LIBRARY = "default-by-library"
    ACKNOWLEDGED = "acknowledged"
    POSTED = "posted"


@dataclass(frozen=True, slots=True)
class _Library:
    """Behaviour of a library."""

    completion: Completion
    eager_bytes: int = EAGER_BYTES
    """0: every message is a rendezvous."""
    slots_of_cut: bool = False
    """Whether the slots of a connection are those of its cut (NCCL's eight steps), shared by consecutive ops."""


_LIBRARIES: Final = {
    # Simple with copied buffers, LL and LL128: the last chunk is in the FIFO, and the next op begins at once while slots are
    # free.
    "nccl": _Library(Completion.POSTED, slots_of_cut=True),
    # The bytes were written to the socket. The receiver announces each receive, so that each message is a rendezvous.
    "gloo": _Library(Completion.POSTED, eager_bytes=0),
    # Eager sends are over when written; above the limit the data is an RDMA write after a rendezvous.
    "mpi": _Library(Completion.EAGER),
    # No library: the completion of an RDMA write.
    "plain": _Library(Completion.ACKNOWLEDGED),
    # Writes and the closing atomic were issued; `quiet` is called only in barriers and clean-up.
    "deepep": _Library(Completion.POSTED),
}


def with_completion(cutting: Cutting, library: str, rule: CompletionRule) -> Cutting:
    """Return the cut with the completion of a library (a shaping, or "deepep"), or the one that `rule` fixes."""
    behaviour = _LIBRARIES[library]
    completion = behaviour.completion
    if rule is not CompletionRule.BY_LIBRARY:
        completion = Completion[rule.name]
    return replace(
        cutting,
        completion=completion,
        eager_bytes=behaviour.eager_bytes,
        connection_slots=cutting.slots if behaviour.slots_of_cut else MOST_SLOTS,
    )


def completion_words(cutting: Cutting) -> str:
    """Return the rule of a cut in the words of plans: "acknowledged", "posted", or "posted up to 64KiB"."""
    if cutting.completion is Completion.EAGER:
        return f"posted up to {format_bytes(cutting.eager_bytes)}"
    return cutting.completion.name.lower()
