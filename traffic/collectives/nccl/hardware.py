"""The hosts of the modelled job: inputs of NCCL's tuning, and the channels that follow from them.

These are not the hosts of the rig: a job on 400 Gb/s NICs remains that job when it is replayed over ports of 10 Gb/s.
NCCL searches its topology for rings; reproducing the search is out of proportion, so `graph_of` states its usual
outcome (facts in its docstring), and channels can be pinned.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from etloop.contract.base.setting import setting
from etloop.contract.base.units import (
    NS_PER_S,
    format_duration,
    format_rate,
    parse_duration_ns,
    parse_rate_bps,
)
from etloop.contract.base.value_parsers import integer, one_of, with_bounds, word_of
from etloop.traffic.collectives.core.cutting import MAX_CHANNELS


class Gpu(IntEnum):
    """GPU generations in NCCL's tables; the value is the row."""

    VOLTA = 0
    AMPERE = 1
    HOPPER = 2
    BLACKWELL = 3


class Cpu(StrEnum):
    """CPU vendors, on which NCCL's NIC posting latency and the bandwidth of LL between hosts depend."""

    INTEL = "intel"
    AMD = "amd"
    OTHER = "other"


class ScaleUp(StrEnum):
    """Link between the accelerators of a host."""

    NVLINK = "nvlink"
    PCI = "pci"


@dataclass(frozen=True, slots=True)
class Hardware:
    """The hosts of the modelled job, all equal."""

    gpu: Gpu = setting("gpu", one_of({gpu.name.lower(): gpu for gpu in Gpu}), Gpu.HOPPER)
    """Generation of the GPU."""
    cpu: Cpu = setting("cpu", word_of(Cpu), Cpu.INTEL)
    """Vendor of the CPU."""
    nic_bps: int = setting(
        "nic", with_bounds(parse_rate_bps, 1_000_000, 100_000_000_000_000, format_rate), 400_000_000_000
    )
    """Speed of a NIC."""
    nics_per_host: int = setting("nics_per_host", integer(1, MAX_CHANNELS), 0)
    """NICs of a host; the mapping's, or one for each rank, if left out."""
    scale_up: ScaleUp = setting("scale_up", word_of(ScaleUp), ScaleUp.NVLINK)
    """Link between the GPUs of a host."""
    # `graph->latencyInter`; the usual plugins state none.
    network_latency_ns: int = setting(
        "network_latency", with_bounds(parse_duration_ns, 0, NS_PER_S, format_duration), 0
    )
    """Latency that a network plugin adds to a message."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A communicator over hosts, with `ranks_per_host` consecutive members on each."""

    ranks: int
    ranks_per_host: int

    @property
    def hosts(self) -> int:
        """Return the number of hosts that have members."""
        return -(-self.ranks // self.ranks_per_host)


@dataclass(frozen=True, slots=True)
class Graph:
    """Result of NCCL's search. Bandwidths are GB/s of one of its channels."""

    search_channels: int
    intra: float
    """Bandwidth inside a host."""
    inter: float
    """Bandwidth between hosts; on a single host equal to `intra`."""
    channels: int
    """Channels after doubling: the maximum that a collective uses."""
    plain_tree: bool
    """Whether the tree pattern is the plain one, used with one accelerator per host (graph/search.cc)."""


_SPEEDS_BEFORE_HOPPER: Final = (
    48.0,
    30.0,
    28.0,
    24.0,
    20.0,
    18.0,
    15.0,
    12.0,
    10.0,
    9.0,
    7.0,
    6.0,
    5.0,
    4.0,
    3.0,
)
_SPEEDS_HOPPER: Final = (48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0, 6.0, 3.0)
_SLOW_SPEEDS: Final = (2.4, 1.2, 0.24, 0.12)
_SPEEDS: Final = (
    (*_SPEEDS_BEFORE_HOPPER, *_SLOW_SPEEDS),
    (*_SPEEDS_BEFORE_HOPPER, *_SLOW_SPEEDS),
    (*_SPEEDS_HOPPER, *_SLOW_SPEEDS),
    (96.0, *_SPEEDS_HOPPER, *_SLOW_SPEEDS),
)
"""GB/s that the search tries between hosts, by `Gpu` (graph/search.cc speedArrayInter); it takes the first that fits."""
_NVLINK_GBYTES: Final = (120.0, 240.0, 370.0, 720.0)
"""NVLink of one accelerator, GB/s, by `Gpu`: 6 and 12 links of 20, 18 of 20.6 and of 40 (graph/topo.h)."""
_NVLINK_CHANNELS: Final = (6, 12, 12, 12)
"""Rings of one host, by `Gpu`; modelled, because their traffic never crosses the device under test."""
_PCI_GBYTES: Final = (12.0, 24.0, 24.0, 48.0)
_DOUBLED_ABOVE_GBYTES: Final = 45.0
_DOUBLED_BELOW_CHANNELS: Final = 16


def graph_of(hardware: Hardware, layout: Layout) -> Graph:
    """Return the channels and their bandwidth for a communicator.

    There is one ring per NIC at the speed of the NIC; channels are always doubled, and doubled once more from Hopper on
    between hosts if a ring has more than 45 GB/s and there are fewer than 16 (graph/connect.cc). That gives 2 channels
    for an A100 and 4 for an H100 with one NIC each, 16 for eight H100 with eight NICs.
    """
    if layout.hosts == 1:
        return _one_host(hardware)
    nics = min(hardware.nics_per_host or layout.ranks_per_host, layout.ranks_per_host)
    speed = _fitting(_SPEEDS[hardware.gpu], hardware.nic_bps / 8e9)
    one_rank_per_host = layout.ranks_per_host == 1
    if not one_rank_per_host and hardware.scale_up is ScaleUp.PCI:
        # All traffic enters the host over the same bus: one ring, limited by the slower of NIC and bus.
        search, inter = 1, min(speed, _PCI_GBYTES[hardware.gpu])
        intra = inter
    else:
        search, inter = min(nics, MAX_CHANNELS // 2), speed
        intra = inter if one_rank_per_host else max(inter, _NVLINK_GBYTES[hardware.gpu] / search)
    channels = min(MAX_CHANNELS, 2 * search)
    if hardware.gpu >= Gpu.HOPPER and intra > _DOUBLED_ABOVE_GBYTES and channels < _DOUBLED_BELOW_CHANNELS:
        channels *= 2
    return Graph(search, intra, inter, channels, plain_tree=one_rank_per_host)


def _one_host(hardware: Hardware) -> Graph:
    """Return the channels of a communicator inside one host."""
    if hardware.scale_up is ScaleUp.PCI:
        rings, speed = 1, _PCI_GBYTES[hardware.gpu]
    else:
        rings = _NVLINK_CHANNELS[hardware.gpu]
        speed = _NVLINK_GBYTES[hardware.gpu] / rings
    return Graph(rings, speed, speed, 2 * rings, plain_tree=False)


def _fitting(speeds: tuple[float, ...], gbytes: float) -> float:
    """Return the first speed that the NIC reaches, or the NIC's own speed if it is below all of them."""
    return next((speed for speed in speeds if speed <= gbytes), gbytes)
