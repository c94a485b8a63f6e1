"""Algorithms that NCCL could choose on the modelled hosts and that a choice leaves out: their names and requirements.

This module decides when each is possible, by NCCL 2.30.7 (src/graph/tuning.cc, src/enqueue.cc updateCollCostTable,
src/transport/nvls.cc, src/sym_kernels.cc) and 2.32.3 (src/tuning, src/ce_coll.cc). Those with a schedule are pinned by the
name in brackets. Only NVLSTree has no requirement but hosts with NVSwitch; its time follows from
NCCL's formula, over as many channels of the same bandwidth as the rings have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from etloop.traffic.collectives.nccl import constants as tables
from etloop.traffic.collectives.nccl.constants import NcclVersion
from etloop.traffic.collectives.nccl.hardware import Cpu, Gpu, ScaleUp
from etloop.traffic.collectives.nccl.tuning import MULTICAST_PAT, Function, Tuning

NVLS_TREE: Final = "NVLSTree"
NVSWITCH: Final = "NVSwitch"
SHARP: Final = "a SHARP switch and NCCL_COLLNET_ENABLE=1"
WINDOWS: Final = "buffers registered in symmetric windows"
COPY_ENGINES: Final = "such buffers and NCCL_CTA_POLICY=2"
BY_NAME: Final = "NVLS and NCCL_ALGO=PAT"
_MOST_DIRECT_RANKS: Final = 8
"""NCCL_MAX_DIRECT_ARITY + 1: maximum ranks of a host with CollNet."""
_MOST_NVLS_RANKS: Final = 32
"""NCCL_MAX_NVLS_ARITY."""
_GATHERS: Final = frozenset({Function.ALL_GATHER, Function.REDUCE_SCATTER})
_ROOTED: Final = frozenset({Function.BROADCAST, Function.REDUCE})


@dataclass(frozen=True, slots=True)
class Excluded:
    """An algorithm or kernel of NCCL that a choice leaves out."""

    name: str
    """NCCL's name of it."""
    needs: str
    """Requirement on hosts, fabric or program."""
    time_ns: int = 0
    """Time by NCCL's formula; 0: not modelled."""


def excluded_from(function: Function, nbytes: int, tuning: Tuning) -> tuple[Excluded, ...]:
    """Return what NCCL could choose for an op in addition to `tuning.estimates`; `nbytes` as there."""
    if function in _ROOTED:
        return ()
    layout, hardware = tuning.layout, tuning.hardware
    nvlink = hardware.scale_up is ScaleUp.NVLINK
    multicast = nvlink and hardware.gpu >= Gpu.HOPPER and layout.ranks_per_host >= 2
    is_all_reduce = function is Function.ALL_REDUCE
    if layout.hosts == 1:
        is_supported = is_all_reduce or layout.ranks_per_host <= _MOST_NVLS_RANKS
        return (Excluded("NVLS", NVSWITCH),) if multicast and is_supported else ()
    excluded: list[Excluded] = []
    if is_all_reduce and multicast and tuning.graph.search_channels >= 2:
        excluded.append(Excluded(NVLS_TREE, NVSWITCH, round(1000 * nvls_tree_us(nbytes, tuning))))
    if nvlink and layout.ranks_per_host <= _most_direct(function, tuning):
        excluded.append(Excluded("CollNetDirect", SHARP))
    if is_all_reduce and layout.ranks_per_host <= _MOST_DIRECT_RANKS:
        excluded.append(Excluded("CollNetChain", SHARP))
    if multicast and layout.ranks_per_host <= _MOST_NVLS_RANKS:
        excluded.append(Excluded("NVLS", SHARP))
    if function is Function.ALL_GATHER and multicast:
        excluded.append(Excluded("AllGather_RailRing_LsaSTMC (algorithm: rail_ring)", WINDOWS))
    if function is Function.ALL_GATHER and (nvlink or layout.ranks_per_host == 1):
        excluded.append(Excluded("copy-engine AllGather (algorithm: ce_direct or ce_ring)", COPY_ENGINES))
    if function in _GATHERS and multicast and tuning.version is not NcclVersion.V2_30:
        excluded.append(Excluded(MULTICAST_PAT, BY_NAME))
    if function is Function.REDUCE_SCATTER and (nvlink or layout.ranks_per_host == 1):
        excluded.append(Excluded("ReduceScatter_RailA2A_LsaLD (algorithm: rail_a2a)", WINDOWS))
        if multicast:
            excluded.append(Excluded("ReduceScatter_RailA2A_LsaLDMC", WINDOWS))
    return tuple(excluded)


def nvls_tree_us(nbytes: int, tuning: Tuning) -> float:
    """Return the time of an NVLSTree all-reduce between hosts, in microseconds (ncclTopoTuneModel, ncclTopoGetAlgoTime)."""
    graph, layout, hardware = tuning.graph, tuning.layout, tuning.hardware
    hosts, channels = layout.hosts, graph.search_channels
    inside = 2 * graph.intra * tables.NVLS_EFFICIENCY[hardware.gpu] * (channels - 1) / channels
    between = graph.inter * (2 if hosts <= 2 else 1)
    bus = channels * min(inside, between, tables.NVLS_TREE_MOST[hardware.gpu][min(hosts, 3) - 1])
    bandwidth = bus * layout.ranks / (2 * (layout.ranks - 1))
    size = (nbytes >> 6).bit_length() - 1
    corrected = hardware.gpu >= Gpu.BLACKWELL and hardware.cpu is not Cpu.OTHER
    if corrected and 0 <= size < len(tables.TREE_CORRECTION[0]):
        bandwidth *= tables.TREE_CORRECTION[0][size]
    between_us = tables.NVLS_TREE_NET_LATENCY + 2 * hardware.network_latency_ns / 1000
    latency = tables.NVLS_TREE_NVLINK_LATENCY + 2 * (hosts.bit_length() - 1) * between_us
    return latency + nbytes / (1000 * bandwidth)


def _most_direct(function: Function, tuning: Tuning) -> int:
    """Return the maximum ranks of a host with CollNetDirect; all-gather and reduce-scatter need a NIC for each rank."""
    nics = tuning.hardware.nics_per_host or _MOST_DIRECT_RANKS
    return min(nics, _MOST_DIRECT_RANKS) if function in _GATHERS else _MOST_DIRECT_RANKS
