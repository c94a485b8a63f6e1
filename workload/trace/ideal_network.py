"""Computes the duration of one operation on a network without contention.

Uses closed forms. With n members, size S, latency a for one message and time b for a byte, ring and chain forms
(Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 19(1), 2005):
all-reduce 2 (n-1) (a + S b / n), reduce-scatter (n-1) (a + S b / n), all-gather (n-1) (a + S b), broadcast and
reduce (n-1) a + S b, all-to-all a + S b (n-1) / n, barrier 2 (n-1) a, message a + S b. Gather and scatter are
limited by the link of the root: a + S b (n-1) and a + S b (n-1) / n.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import setting
from etloop.contract.base.units import (
    NS_PER_S,
    format_duration,
    format_rate,
    parse_duration_ns,
    parse_rate_bps,
)
from etloop.contract.base.value_parsers import with_bounds
from etloop.workload.trace.trace import CollectiveKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BITS_NS: Final = 8 * 10**9


@dataclass(frozen=True, slots=True)
class IdealNetwork:
    """Link rate and latency of the network that the bound assumes."""

    link_bps: int = setting(
        "link", with_bounds(parse_rate_bps, 1_000_000, 100_000_000_000_000, format_rate), 400_000_000_000
    )
    """Link rate of the network that the remaining ranks are modelled on."""
    latency_ns: int = setting("latency", with_bounds(parse_duration_ns, 0, NS_PER_S, format_duration), 2_000)
    """Time from the first bit sent to the first bit received, host to host."""

    @property
    def ns_a_byte(self) -> float:
        """Return the serialisation time of one byte in ns."""
        return _BITS_NS / self.link_bps


def op_durations_ns(
    collective: NDArray[np.int8],
    size_bytes: NDArray[np.int64],
    members: NDArray[np.int64],
    network: IdealNetwork,
) -> NDArray[np.int64]:
    """Return the duration of each operation in ns, int64; `collective` -1 is a message. Operations split their size
    evenly.

    The arrays have one entry per operation. A collective with one member takes 0.
    """
    n = np.maximum(members, 1).astype(np.float64)
    steps = n - 1
    serialisation_ns = size_bytes * network.ns_a_byte
    latency_ns = float(network.latency_ns)
    kinds = {
        CollectiveKind.ALL_REDUCE: 2 * steps * (latency_ns + serialisation_ns / n),
        CollectiveKind.REDUCE_SCATTER: steps * (latency_ns + serialisation_ns / n),
        CollectiveKind.ALL_GATHER: steps * (latency_ns + serialisation_ns),
        CollectiveKind.BROADCAST: steps * latency_ns + serialisation_ns,
        CollectiveKind.REDUCE: steps * latency_ns + serialisation_ns,
        CollectiveKind.ALL_TO_ALL: latency_ns + serialisation_ns * steps / n,
        CollectiveKind.GATHER: latency_ns + serialisation_ns * steps,
        CollectiveKind.SCATTER: latency_ns + serialisation_ns * steps / n,
        CollectiveKind.BARRIER: 2 * steps * latency_ns,
    }
    duration = latency_ns + serialisation_ns
    for kind, duration_of_kind in kinds.items():
        duration = np.where(collective == kind, np.where(members > 1, duration_of_kind, 0.0), duration)
    return np.asarray(np.rint(duration), dtype=np.int64)
