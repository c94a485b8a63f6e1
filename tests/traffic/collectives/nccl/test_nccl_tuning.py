"""NCCL's tuning model against values worked by hand from its formula and tables (v2.30.7)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.traffic.collectives.core.table import Protocol
from etloop.traffic.collectives.nccl.constants import CORRECTED_BELOW, TREE_CORRECTION, NcclAlgorithm
from etloop.traffic.collectives.nccl.hardware import Cpu, Gpu, Hardware, Layout, ScaleUp, graph_of
from etloop.traffic.collectives.nccl.tuning import (
    Function,
    Tuning,
    channels_for,
    estimates,
    latency_us,
    time_us,
    why_disabled,
)

GBPS = 1_000_000_000
RING, TREE, PAT = NcclAlgorithm.RING, NcclAlgorithm.TREE, NcclAlgorithm.PAT
SIMPLE, LL, LL128 = Protocol.SIMPLE, Protocol.LL, Protocol.LL128
AR, AG, RS = Function.ALL_REDUCE, Function.ALL_GATHER, Function.REDUCE_SCATTER
FOUR_H100 = Tuning(Layout(4, 1), Hardware())
"""Four hosts with one H100 and one 400 Gb/s card each: one ring of 48 GB/s, four channels."""
EIGHT_DGX = Tuning(Layout(64, 8), Hardware())
ONE_DGX = Tuning(Layout(8, 8), Hardware())


@pytest.mark.parametrize(
    ("hardware", "layout", "channels", "inter"),
    [
        # An A100 with one 200 Gb/s card a host: one ring of 24 GB/s, doubled.
        (Hardware(gpu=Gpu.AMPERE, nic_bps=200 * GBPS), Layout(4, 1), 2, 24.0),
        # An H100 with one 400 Gb/s card a host: above 45 GB/s a ring is doubled twice.
        (Hardware(), Layout(4, 1), 4, 48.0),
        # Eight H100 with eight cards: sixteen are enough.
        (Hardware(), Layout(64, 8), 16, 48.0),
        # The same hosts with one card: one ring, and NVLink makes it fast inside.
        (Hardware(nics_per_host=1), Layout(64, 8), 4, 48.0),
        # One rank of each host: it has one card, however many the host has.
        (Hardware(nics_per_host=8), Layout(8, 1), 4, 48.0),
        # A 100 Gb/s card: 12.5 GB/s is searched at 12, and not doubled twice.
        (Hardware(nic_bps=100 * GBPS), Layout(4, 1), 2, 12.0),
        # A card slower than all that are searched counts as it is.
        (Hardware(nic_bps=GBPS // 2), Layout(4, 1), 2, 0.0625),
        # Without NVLink one ring goes through the host's bus.
        (Hardware(gpu=Gpu.AMPERE, scale_up=ScaleUp.PCI), Layout(16, 8), 2, 24.0),
        # Never more than 64.
        (Hardware(nics_per_host=64), Layout(128, 64), 64, 48.0),
    ],
)
def test_channels_follow_from_hosts_and_cards(
    hardware: Hardware, layout: Layout, channels: int, inter: float
) -> None:
    graph = graph_of(hardware, layout)
    assert (graph.channels, graph.inter) == (channels, inter)


@pytest.mark.parametrize(
    ("function", "algorithm", "protocol", "nbytes", "tuning", "expected_us"),
    [
        # 8.4 + 6 x 14 = 92.4, raised by 1.4 for the plateau; 64 MiB at 48 x 4/6 = 32 GB/s.
        (AR, RING, SIMPLE, 64 << 20, FOUR_H100, 92.4 * 1.4 + 2097.152),
        # 252 bytes are 15.75 a channel and rank: below the plateau.
        (AR, RING, SIMPLE, 252, FOUR_H100, 92.4 + 252 / 32_000),
        # 6.6 + 6 x 5 (one rank a host: the tree's row); Intel's limit of 20.4 GB/s on four hosts, x 4/6.
        (AR, RING, LL, 64 << 20, FOUR_H100, 36.6 + (64 << 20) / 13_600),
        # 14 + 6 x 8.5; 36.7 GB/s a channel is less than 0.92 x 48.
        (AR, RING, LL128, 64 << 20, FOUR_H100, 65 + (64 << 20) / (36_700 * 4 / 6)),
        # 8.4 + 2 x 2 x 14; 36 GB/s a channel x 0.85 (plain tree) x 0.5, corrected by 0.8 at 2^20 lines of 64 B.
        (AR, TREE, SIMPLE, 64 << 20, FOUR_H100, 64.4 + (64 << 20) / (15_300 * 0.8)),
        # 6.8 + 2 x 2 x 5; 36 / 3.8 GB/s x 0.85 x 0.5, corrected by 0.9 at 2^4 lines of 64 B.
        (AR, TREE, LL, 1024, FOUR_H100, 26.8 + 1024 / (36_000 / 3.8 * 0.85 * 0.5 * 0.9)),
        # 14 + 2 x 2 x 8.5; min(36 x 120/128, 29) GB/s; 16 MiB is corrected by 0.9 at 2^18.
        (AR, TREE, LL128, 16 << 20, FOUR_H100, 48 + (16 << 20) / (29_000 * 0.85 * 0.5 * 0.9)),
        # 7 steps of 14; the ring's bandwidth is n/(n-1) of the bus.
        (AG, RING, SIMPLE, 1 << 20, Tuning(Layout(8, 1), Hardware()), 106.4 + (1 << 20) / (48_000 * 8 / 7)),
        # 8 + 3 x 14 / 3.5 + 8 x 2.8; 0.75 x 48 GB/s.
        (RS, PAT, SIMPLE, 8192, Tuning(Layout(8, 1), Hardware()), 42.4 + 8192 / 36_000),
        # 64 ranks on 8 hosts: 14 steps between hosts, 112 inside at 3 x 1 us of posting, less than 3.4.
        (AR, RING, SIMPLE, 1 << 30, EIGHT_DGX, (8.4 + 112 * 3.4 + 14 * 14) * 1.4 + (1 << 30) / (384_000 * 64 / 126)),
        # AMD posts in 2 us, 6 with Simple: more than NVLink's 3.4.
        (
            AR,
            RING,
            SIMPLE,
            1 << 30,
            Tuning(Layout(64, 8), Hardware(cpu=Cpu.AMD)),
            (8.4 + 112 * 6 + 14 * 14) * 1.4 + (1 << 30) / (384_000 * 64 / 126),
        ),
        # 2 x (7 x 4 + 3 x 14) + 8.4; min(0.92 x 384, 8 x 36) x 0.5, balanced, corrected by 0.9 at 2^22.
        (AR, TREE, SIMPLE, 256 << 20, EIGHT_DGX, 148.4 + (256 << 20) / (144_000 * 0.9)),
        # From 2^23 lines on nothing is corrected.
        (AR, TREE, SIMPLE, 512 << 20, EIGHT_DGX, 148.4 + (512 << 20) / 144_000),
        # A broadcast: one step of latency, all of the bus.
        (Function.BROADCAST, RING, SIMPLE, 1 << 20, FOUR_H100, 22.4 + (1 << 20) / 48_000),
        # One host: 14 steps of NVLink, no network, no plateau; 370 GB/s.
        (AR, RING, SIMPLE, 1 << 20, ONE_DGX, 8.4 + 14 * 3.4 + (1 << 20) / (370_000 * 8 / 14)),
        # One host: LL is bound by the accelerator, 141 GB/s.
        (AR, RING, LL, 1 << 20, ONE_DGX, 6.6 + 14 * 0.6 + (1 << 20) / (141_000 * 8 / 14)),
        # Two hosts count with the bandwidth inside; Intel's limit of LL is 39 there, half of the ring is less.
        (AR, RING, LL, 1 << 20, Tuning(Layout(2, 1), Hardware()), 6.6 + 2 * 5 + (1 << 20) / 24_000),
    ],
)  # fmt: skip
def test_times_are_those_of_the_formula(
    function: Function,
    algorithm: NcclAlgorithm,
    protocol: Protocol,
    nbytes: int,
    tuning: Tuning,
    expected_us: float,
) -> None:
    assert time_us(function, algorithm, protocol, nbytes, tuning) == pytest.approx(expected_us, rel=1e-9)


def test_volta_has_a_higher_plateau() -> None:
    volta = Tuning(Layout(4, 1), Hardware(gpu=Gpu.VOLTA))
    latency = latency_us(AR, RING, SIMPLE, volta)
    assert time_us(AR, RING, SIMPLE, 1 << 20, volta) == pytest.approx(
        1.9 * latency + (1 << 20) / (48_000 * 4 / 6)
    )


def test_a_plugins_latency_counts_twice_with_simple() -> None:
    slow = Tuning(Layout(4, 1), Hardware(network_latency_ns=3000))
    assert latency_us(AR, RING, SIMPLE, slow) - latency_us(AR, RING, SIMPLE, FOUR_H100) == pytest.approx(
        6 * 6.0
    )
    assert latency_us(AR, RING, LL, slow) - latency_us(AR, RING, LL, FOUR_H100) == pytest.approx(6 * 3.0)


def best(function: Function, nbytes: int, tuning: Tuning) -> tuple[NcclAlgorithm, Protocol]:
    least = min(estimates(function, nbytes, tuning), key=lambda estimate: estimate.time_ns)
    return least.algorithm, least.protocol


@pytest.mark.parametrize(
    ("function", "nbytes", "tuning", "expected"),
    [
        # Small: latency decides, and LL has the least.
        (AR, 1024, FOUR_H100, (TREE, LL)),
        # Large: bandwidth decides, and Simple has the most.
        (AR, 64 << 20, FOUR_H100, (RING, SIMPLE)),
        (AR, 1 << 30, EIGHT_DGX, (RING, SIMPLE)),
        # Many hosts: a ring's latency grows with them, a tree's with their logarithm.
        (AR, 1 << 20, Tuning(Layout(512, 1), Hardware()), (TREE, LL128)),
        (AG, 1024, Tuning(Layout(512, 1), Hardware()), (PAT, SIMPLE)),
        (RS, 1 << 30, FOUR_H100, (RING, SIMPLE)),
    ],
)
def test_the_least_time_is_what_one_expects(
    function: Function, nbytes: int, tuning: Tuning, expected: tuple[NcclAlgorithm, Protocol]
) -> None:
    assert best(function, nbytes, tuning) == expected


@pytest.mark.parametrize(
    ("algorithm", "protocol", "tuning", "why"),
    [
        (PAT, LL, FOUR_H100, "PAT has the Simple protocol only"),
        (PAT, SIMPLE, EIGHT_DGX, "PAT with several ranks a host is not modelled"),
        (RING, LL128, Tuning(Layout(8, 4), Hardware(scale_up=ScaleUp.PCI)), "LL128 needs NVLink inside a host"),
        (RING, LL128, Tuning(Layout(8, 1), Hardware(scale_up=ScaleUp.PCI)), ""),
        (TREE, SIMPLE, EIGHT_DGX, ""),
    ],
)  # fmt: skip
def test_what_is_disabled_says_why(
    algorithm: NcclAlgorithm, protocol: Protocol, tuning: Tuning, why: str
) -> None:
    assert why_disabled(algorithm, protocol, tuning) == why


def test_every_function_offers_what_nccl_offers() -> None:
    def offered(function: Function) -> list[tuple[str, str]]:
        return [(str(e.algorithm), e.protocol.name) for e in estimates(function, 4096, FOUR_H100)]

    three = ["LL", "LL128", "SIMPLE"]
    assert offered(AR) == [*(("tree", p) for p in three), *(("ring", p) for p in three)]
    assert offered(AG) == offered(RS) == [*(("ring", p) for p in three), ("pat", "SIMPLE")]
    assert offered(Function.REDUCE) == [("ring", p) for p in three]


@pytest.mark.parametrize(
    ("algorithm", "protocol", "nbytes", "tuning", "channels"),
    [
        (RING, SIMPLE, 1 << 20, FOUR_H100, 4),  # 512 threads x 64 B = 32 KiB a channel
        (RING, SIMPLE, 96 << 10, FOUR_H100, 3),
        (RING, SIMPLE, (64 << 10) - 1, FOUR_H100, 1),
        (RING, SIMPLE, 0, FOUR_H100, 1),
        (RING, LL, 48 << 10, FOUR_H100, 3),  # 512 x 8 B x 4 ranks = 16 KiB a channel
        (TREE, LL, 12 << 10, FOUR_H100, 3),  # 512 x 8 B = 4 KiB
        (RING, LL128, 10_240, FOUR_H100, 2),  # 640 x 8 B = 5,120 B
        (RING, SIMPLE, 1 << 30, EIGHT_DGX, 16),
    ],
)
def test_small_ops_get_fewer_channels(
    algorithm: NcclAlgorithm, protocol: Protocol, nbytes: int, tuning: Tuning, channels: int
) -> None:
    assert channels_for(algorithm, protocol, nbytes, tuning) == channels


def test_the_correction_has_an_entry_for_every_size_it_is_asked_for() -> None:
    assert all(len(row) > CORRECTED_BELOW for row in TREE_CORRECTION)


@given(
    st.sampled_from(list(Function)),
    st.integers(0, 1 << 40),
    st.integers(2, 1024),
    st.integers(1, 16),
    st.sampled_from(list(Gpu)),
    st.sampled_from(list(Cpu)),
    st.sampled_from(list(ScaleUp)),
)
def test_every_op_on_every_hardware_has_a_time(
    function: Function, nbytes: int, ranks: int, per_host: int, gpu: Gpu, cpu: Cpu, scale_up: ScaleUp
) -> None:
    tuning = Tuning(Layout(ranks, min(ranks, per_host)), Hardware(gpu=gpu, cpu=cpu, scale_up=scale_up))
    found = estimates(function, nbytes, tuning)
    assert found
    assert all(estimate.time_ns > 0 for estimate in found)
    channels = {channels_for(e.algorithm, e.protocol, nbytes, tuning) for e in found}
    assert channels <= set(range(1, tuning.graph.channels + 1))
