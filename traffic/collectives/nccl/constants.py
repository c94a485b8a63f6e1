"""The modelled versions of NCCL, and the constants of its tuning model: microseconds and GB/s.

Source: NVIDIA/nccl v2.30.7, src/graph/tuning.cc; thread counts and thresholds src/include/device.h. Version 2.32.3
(src/tuning/cost_model.cc) has the same constants. Rows of protocols are in the order of `Protocol`: Simple, LL, LL128.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class NcclVersion(StrEnum):
    """Versions whose choices, cuts and schedules are modelled; every plan and result names the release."""

    V2_30 = "2.30"
    V2_32 = "2.32"

    @property
    def release(self) -> str:
        """Return the release whose source was read."""
        return {NcclVersion.V2_30: "2.30.7", NcclVersion.V2_32: "2.32.3"}[self]


NEWEST: Final = NcclVersion.V2_32


class NcclAlgorithm(StrEnum):
    """NCCL's algorithms that have a schedule here; `excluded` lists the rest."""

    TREE = "tree"
    RING = "ring"
    PAT = "pat"


Row = tuple[float, float, float]

BASE_LATENCY: Final[dict[NcclAlgorithm, Row]] = {
    NcclAlgorithm.TREE: (8.4, 6.8, 14.0),
    NcclAlgorithm.RING: (8.4, 6.6, 14.0),
    NcclAlgorithm.PAT: (8.0, 0.0, 0.0),
}
NVLINK_LATENCY: Final[dict[NcclAlgorithm, Row]] = {
    NcclAlgorithm.TREE: (4.0, 0.6, 1.25),
    NcclAlgorithm.RING: (3.4, 0.6, 1.9),
    NcclAlgorithm.PAT: (4.0, 0.0, 0.0),
}
PCI_LATENCY: Final[dict[NcclAlgorithm, Row]] = {
    NcclAlgorithm.TREE: (4.0, 1.0, 1.9),
    NcclAlgorithm.RING: (5.7, 1.0, 2.5),
    NcclAlgorithm.PAT: (4.0, 0.0, 0.0),
}
NET_LATENCY: Final[dict[NcclAlgorithm, Row]] = {
    NcclAlgorithm.TREE: (14.0, 5.0, 8.5),
    NcclAlgorithm.RING: (14.0, 2.7, 4.0),
    NcclAlgorithm.PAT: (14.0, 0.0, 0.0),
}

LL_MOST_ONE_HOST: Final = (39.0, 87.7, 141.0, 282.0)
"""llMaxBw on one host, by `Gpu`."""
LL_MOST_INTEL: Final = (39.0, 20.4)
"""llMaxBw on two hosts and on more; also for CPU vendors without a row of their own."""
LL_MOST_AMD: Final = (22.5, 19.0)

RING_LL128_MOST: Final = ((20.0,) * 3, (20.0,) * 3, (36.7,) * 3, (40.0,) * 3)
"""Per channel, by `Gpu` and by one, two or more hosts; the next two tables have the same form."""
TREE_LL128_MOST: Final = ((20.0,) * 3, (20.0,) * 3, (36.7, 36.7, 29.0), (55.6, 31.67, 20.0))
TREE_MOST: Final = ((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0), (70.0, 42.8, 24.0))

NVLS_TREE_MOST: Final = ((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (0.0, 57.7, 45.5), (0.0, 96.0, 80.0))
NVLS_EFFICIENCY: Final = (0.0, 0.0, 0.85, 0.74)
"""By `Gpu`."""
NVLS_TREE_NVLINK_LATENCY: Final = 25.0
NVLS_TREE_NET_LATENCY: Final = 20.9

TREE_CORRECTION: Final = (
    (.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9),
    (1., 1., 1., 1., .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1., 1., 1., 1., 1.),
    (1., 1., 1., 1., 1., .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1., 1., 1.),
)  # fmt: skip
"""Factor on a tree's bandwidth by protocol and log2(bytes / 64)."""
CORRECTED_BELOW: Final = 23
"""Bandwidth is corrected only for log2(bytes / 64) below this."""

THREADS: Final = (512, 512, 640)
"""Maximum threads of a kernel, by protocol."""
THREADS_SLOW_RING: Final = 256
"""Threads of a ring with Simple if its channels have at most `SLOW_RING_GBYTES` together inside a host."""
SLOW_RING_GBYTES: Final = 12.0
"""PCI_BW."""
THRESHOLD_BYTES: Final = (64, 8, 8)
"""Bytes per thread below which a channel is dropped, by protocol; for Ring LL times the number of ranks."""
PLATEAU_BYTES: Final = 64
"""Bytes per channel and rank from which the latency of a ring all-reduce between hosts with Simple is raised."""
PLATEAU_FACTOR: Final = 1.4
PLATEAU_FACTOR_VOLTA: Final = 1.9
PLATEAU_DELTA: Final = 0.1
"""From 2.32 on, for a ring inside a Blackwell host: the part of the plateau that larger ops lose."""
PLATEAU_FULL_BYTES: Final = 256 << 10
"""Bytes per channel and rank up to which it has all of it; at twice as many it has lost `PLATEAU_DELTA`."""
