"""Where NCCL 2.32 chooses and cuts otherwise than 2.30, and its all-gathers along rails.

Times are worked by hand from src/tuning of v2.32.3; messages from src/ce_coll.cc and all_gather_gin.cuh.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from etloop.contract.base.errors import PlanError
from etloop.traffic._native import StepTables
from etloop.traffic.collectives.choice import Settings, choose
from etloop.traffic.collectives.core.columns import to_columns
from etloop.traffic.collectives.core.table import Protocol
from etloop.traffic.collectives.nccl.constants import NcclAlgorithm, NcclVersion
from etloop.traffic.collectives.nccl.hardware import Gpu, Hardware, Layout, ScaleUp
from etloop.traffic.collectives.nccl.tuning import Function, Tuning, channels_for, latency_us, time_us
from etloop.traffic.collectives.pins import Pin

OLD, NEW = NcclVersion.V2_30, NcclVersion.V2_32
AR, RING, TREE, PAT, SIMPLE = (
    Function.ALL_REDUCE,
    NcclAlgorithm.RING,
    NcclAlgorithm.TREE,
    NcclAlgorithm.PAT,
    Protocol.SIMPLE,
)
B200 = Hardware(gpu=Gpu.BLACKWELL)
MIB = 1 << 20


@pytest.mark.parametrize("algorithm", [RING, TREE])
def test_two_blackwell_hosts_count_with_the_bandwidth_between_them(algorithm: NcclAlgorithm) -> None:
    """Eight cards of 400 Gb/s: 48 GB/s a ring between hosts, 90 inside; a tree has at most 42.8 of either."""
    old, new = (time_us(AR, algorithm, SIMPLE, 1 << 30, Tuning(Layout(16, 8), B200, v)) for v in (OLD, NEW))
    latency = (8.4 + 28 * 3.4 + 2 * 14) * 1.4 if algorithm is RING else 8.4 + 2 * (7 * 4 + 14)
    bus = {RING: (8 * 90 * 16 / 30, 8 * 48 * 16 / 30), TREE: (8 * 42.8 / 2, 8 * 42.8 / 2)}[algorithm]
    assert (old, new) == pytest.approx([latency + (1 << 30) / (1000 * bandwidth) for bandwidth in bus])


def test_a_ring_inside_a_blackwell_host_has_a_plateau() -> None:
    """Eight ranks, 24 channels, 14 steps: a share of 1 - (1/4)^13 of 0.4, less 0.1 from 512 KiB a channel and rank on."""
    tuning = Tuning(Layout(8, 8), B200)
    share, latency = 1 - 0.25**13, latency_us(AR, RING, SIMPLE, tuning)
    for nbytes, delta in ((24 * 8 * 63, 0.0), (24 * 8 * 64, 0.4), (24 * 8 * 384 << 10, 0.35), (1 << 30, 0.3)):
        expected = latency * (1 + share * delta) + nbytes / (1000 * 720 * 8 / 14)
        assert time_us(AR, RING, SIMPLE, nbytes, tuning) == pytest.approx(expected)
        assert time_us(AR, RING, SIMPLE, nbytes, Tuning(Layout(8, 8), B200, OLD)) <= expected


def test_slow_rings_have_all_threads_and_pat_counts_a_plugin_once() -> None:
    pci = Hardware(gpu=Gpu.VOLTA, scale_up=ScaleUp.PCI)
    assert [channels_for(RING, SIMPLE, 32 << 10, Tuning(Layout(8, 8), pci, v)) for v in (OLD, NEW)] == [2, 1]
    slow = Hardware(network_latency_ns=7000)
    old, new = (
        latency_us(Function.ALL_GATHER, PAT, SIMPLE, Tuning(Layout(8, 1), slow, v)) for v in (OLD, NEW)
    )
    assert old - new == pytest.approx(3 * 7 / 3.5)


def sent(algorithm: str, layout: Layout, block_bytes: int, settings: Settings) -> Counter[tuple[int, int]]:
    """Return the messages between hosts by (source, destination), counted by the planner's cursor."""
    choice = choose("all-gather", layout, block_bytes, settings)
    assert choice.algorithm == algorithm
    source, destination, _, messages, _, _ = StepTables(to_columns((choice.schedule(),))).schedule_sends(
        0, block_bytes
    )
    pairs: Counter[tuple[int, int]] = Counter()
    for a, b, count in zip(source.tolist(), destination.tolist(), messages.tolist(), strict=True):
        if a // layout.ranks_per_host != b // layout.ranks_per_host:
            pairs[a, b] += count
    return pairs


def up(number: int, by: int) -> int:
    """Divide, rounding up."""
    return -(-number // by)


def by_nccl(
    algorithm: str, layout: Layout, block_bytes: int, version: NcclVersion
) -> Counter[tuple[int, int]]:
    """Return the puts between hosts by (source, destination), written down loop by loop from NCCL's source."""
    g, hosts = layout.ranks_per_host, layout.hosts
    pairs: Counter[tuple[int, int]] = Counter()
    contexts = 1 if version is OLD or block_bytes < 4 * MIB else 4
    width = 64 * MIB
    if contexts > 1:
        per_context = up(up(block_bytes, contexts), width)
        width = min(width, up(up(block_bytes, contexts * per_context), 8192) * 8192)
    for rank in range(layout.ranks):
        host, place = divmod(rank, g)
        ahead, behind = ((host + step) % hosts * g + place for step in (1, -1))
        if algorithm == "rail_ring":
            # Every thread block has consecutive cells of 1 KiB, and puts 1 MiB at a time.
            blocks = max(1, min(up(16, g), up(block_bytes, MIB)))
            share = up(up(block_bytes, 1024), blocks) * 1024
            left = block_bytes
            for _ in range(blocks):
                pairs[rank, ahead] += (hosts - 1) * up(min(share, left), MIB)
                left -= min(share, left)
        elif algorithm == "ce_direct":
            for other in range(hosts):
                if other != host:
                    pairs[rank, other * g + place] += max(1, up(block_bytes, width))
        else:
            first, second = block_bytes // 2, block_bytes - block_bytes // 2
            if contexts == 4 and block_bytes >= 128 * MIB:
                half = min(up(up(second, 4), 8192) * 8192, 64 * MIB)
                width = min(width, max(half, 8 * MIB))
            pairs[rank, ahead] += (hosts - 1) * max(1, up(first, width))
            pairs[rank, behind] += (hosts - 1) * max(1, up(second, width))
    return pairs


def test_messages_of_all_gathers_along_rails_are_nccl_s() -> None:
    """Thirty points: algorithm, version, hosts, ranks a host and bytes."""
    seed = 20261129
    print(f"seed {seed}")
    draw = random.Random(seed)
    for algorithm in ("rail_ring", "ce_direct", "ce_ring"):
        for _ in range(10):
            layout = Layout((g := draw.choice([1, 2, 4, 8])) * draw.randint(2, 6), g)
            nbytes = draw.choice([4096, 3 * MIB, 4 * MIB, 32 * MIB, 512 * MIB]) + 2 * draw.randint(0, 2000)
            version = NEW if algorithm == "ce_ring" else draw.choice([OLD, NEW])
            settings = Settings(pins=(("all-gather", Pin(algorithm)),), nccl=version)
            expected = by_nccl(algorithm, layout, nbytes, version)
            assert sent(algorithm, layout, nbytes, settings) == expected, (algorithm, layout, nbytes, version)


def test_an_all_gather_that_a_version_does_not_have_is_refused() -> None:
    old = Settings(pins=(("all-gather", Pin("ce_ring")),), nccl=OLD)
    with pytest.raises(PlanError, match=r"NCCL 2\.30 has no NCCL_HIER_CE_COLL_AG_RAIL_RING_ENABLE"):
        choose("all-gather", Layout(16, 8), MIB, old)
    with pytest.raises(PlanError, match="PAT with several ranks a host is not modelled"):
        choose("all-gather", Layout(16, 8), MIB, Settings(pins=(("all-gather", Pin("pat")),)))
