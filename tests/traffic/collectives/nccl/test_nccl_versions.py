"""Where NCCL 2.32 chooses and cuts otherwise than 2.30, and its collectives for buffers in symmetric windows.

Times are worked by hand from src/tuning of v2.32.3; messages are what its compiled functions say (nccl_puts.json).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


PUTS: dict[str, Any] = json.loads(Path(__file__).with_name("nccl_puts.json").read_text())
COLLECTIVES = {"ce_all_to_all": "all-to-all", "rail_a2a": "reduce-scatter"}


def sent(point: dict[str, Any]) -> dict[str, list[int]]:
    """Return what the point's rank sends to ranks of other hosts: messages and bytes by peer."""
    collective = COLLECTIVES.get(point["algorithm"], "all-gather")
    g = point["ranks_per_host"]
    layout = Layout(point["hosts"] * g, g)
    op_bytes = point["bytes"] * (1 if collective == "all-gather" else layout.ranks)
    settings = Settings(
        pins=((collective, Pin(point["algorithm"].replace("ce_all_to_all", "ce_direct"))),),
        nccl=NcclVersion(point["nccl"]),
        hardware=Hardware(gpu=Gpu[point["gpu"].upper()]),
    )
    choice = choose(collective, layout, op_bytes, settings)
    tables = StepTables(to_columns((choice.schedule(),)))
    columns = [column.tolist() for column in tables.schedule_sends(0, op_bytes)]
    pairs: dict[str, list[int]] = {}
    for rank, peer, _, messages, _, data_bytes in zip(*columns, strict=True):
        if rank == point["rank"] and peer // g != rank // g:
            pair = pairs.setdefault(str(peer), [0, 0])
            pair[0] += messages
            pair[1] += data_bytes
    return pairs


@pytest.mark.parametrize("algorithm", ["rail_ring", "rail_a2a", "ce_direct", "ce_ring", "ce_all_to_all"])
def test_messages_for_symmetric_windows_are_those_of_nccl_s_source(algorithm: str) -> None:
    """Twelve random points each. Two rings share a block in whole bytes, here in units of 16."""
    points = [point for point in PUTS["points"] if point["algorithm"] == algorithm]
    assert len(points) == 12
    for point in points:
        found = sent(point)
        assert {peer: pair[0] for peer, pair in found.items()} == {
            peer: pair[0] for peer, pair in point["puts"].items()
        }, point
        assert sum(pair[1] for pair in found.values()) == sum(pair[1] for pair in point["puts"].values()), (
            point
        )


def test_an_all_gather_that_a_version_does_not_have_is_refused() -> None:
    old = Settings(pins=(("all-gather", Pin("ce_ring")),), nccl=OLD)
    with pytest.raises(PlanError, match=r"NCCL 2\.30 has no NCCL_HIER_CE_COLL_AG_RAIL_RING_ENABLE"):
        choose("all-gather", Layout(16, 8), MIB, old)
    with pytest.raises(PlanError, match="PAT with several ranks a host is not modelled"):
        choose("all-gather", Layout(16, 8), MIB, Settings(pins=(("all-gather", Pin("pat")),)))
