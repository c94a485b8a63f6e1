"""How NCCL, gloo and MPICH cut an op: values worked by hand from their rules."""

import pytest

from etloop.traffic.collectives.core.cutting import Cutting, PeerParts
from etloop.traffic.collectives.core.table import Protocol, Split
from etloop.traffic.collectives.nccl.constants import NcclAlgorithm
from etloop.traffic.collectives.nccl.hardware import Gpu, Hardware, Layout
from etloop.traffic.collectives.nccl.shaping import cutting_of, p2p_cutting
from etloop.traffic.collectives.nccl.tuning import Function, Tuning
from etloop.traffic.collectives.other_shapings import (
    ShapingRequest,
    gloo_pick,
    gloo_ring_cutting,
    mpi_pick,
    plain_pick,
)

RING, TREE, PAT = NcclAlgorithm.RING, NcclAlgorithm.TREE, NcclAlgorithm.PAT
SIMPLE, LL, LL128 = Protocol.SIMPLE, Protocol.LL, Protocol.LL128
AR, AG, RS = Function.ALL_REDUCE, Function.ALL_GATHER, Function.REDUCE_SCATTER
FOUR = Tuning(Layout(4, 1), Hardware())
DGX = Tuning(Layout(64, 8), Hardware())
KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("function", "algorithm", "protocol", "chunk", "slices", "min_slice", "slots"),
    [
        # 4 steps of 512 KiB a chunk, 2 a slice: messages of 1 MiB, four under way.
        (AR, RING, SIMPLE, 2 * MIB, 2, 32 * KIB, 4),
        (AG, RING, SIMPLE, 2 * MIB, 2, 32 * KIB, 4),
        (RS, RING, SIMPLE, 2 * MIB, 2, 32 * KIB, 4),
        # Everything else: one step a chunk and a message.
        (AR, TREE, SIMPLE, 512 * KIB, 1, 16 * KIB, 8),
        (Function.BROADCAST, RING, SIMPLE, 512 * KIB, 1, 16 * KIB, 8),
        (Function.REDUCE, RING, SIMPLE, 512 * KIB, 1, 16 * KIB, 8),
        (AR, RING, LL, 32 * KIB, 1, 0, 8),
        (AR, TREE, LL, 32 * KIB, 1, 0, 8),
        (AG, RING, LL128, 576_000, 1, 0, 8),
        (AR, RING, LL128, 576_000, 1, 0, 8),
    ],
)
def test_chunks_follow_from_buffer_steps(
    function: Function,
    algorithm: NcclAlgorithm,
    protocol: Protocol,
    chunk: int,
    slices: int,
    min_slice: int,
    slots: int,
) -> None:
    cut = cutting_of(function, algorithm, protocol, 2, 1 << 30, FOUR)
    assert (cut.chunk_bytes, cut.slices, cut.min_slice_bytes, cut.slots) == (chunk, slices, min_slice, slots)


@pytest.mark.parametrize(
    ("function", "algorithm", "protocol", "channels", "nbytes", "tuning", "chunk"),
    [
        # 1 + 2 + 0.1 steps, one rank a host: below 198.4 chunks down to 72,000, below 49.6 down to 18,000; whole lines.
        (AR, TREE, LL128, 1, MIB, FOUR, 17_280),
        # Enough of them: nothing is halved.
        (AR, TREE, LL128, 1, 256 * MIB, FOUR, 576_000),
        # 1 + 3 + 0.8 steps over 8 ranks a host: 64 x 4.8 / 8 = 38.4 chunks; 16 MiB has 29 of 576,000, 58 of 288,000.
        (AR, TREE, LL128, 1, 16 * MIB, DGX, 288_000),
        # A channel's share counts: 32 MiB over two is the same.
        (AR, TREE, LL128, 2, 32 * MIB, DGX, 288_000),
        # 32 chunks of a gather in 8 MiB: 256 KiB; never below 64 KiB.
        (AG, PAT, SIMPLE, 1, 8 * MIB, FOUR, 256 * KIB),
        (AG, PAT, SIMPLE, 1, 4 * KIB, FOUR, 64 * KIB),
        # 16 of a reduce-scatter.
        (RS, PAT, SIMPLE, 1, 8 * MIB, FOUR, 512 * KIB),
        (RS, PAT, SIMPLE, 2, 8 * MIB, FOUR, 256 * KIB),
    ],
)
def test_small_shares_get_smaller_chunks(
    function: Function,
    algorithm: NcclAlgorithm,
    protocol: Protocol,
    channels: int,
    nbytes: int,
    tuning: Tuning,
    chunk: int,
) -> None:
    assert cutting_of(function, algorithm, protocol, channels, nbytes, tuning).chunk_bytes == chunk


@pytest.mark.parametrize(
    ("ranks", "nbytes", "aggregation"),
    [
        (8, 8 * KIB, 4),  # blocks of 1 KiB: half of eight ranks is the most
        (64, 64 * 64 * KIB, 2),  # 64 KiB: two fill a chunk of 128 KiB
        (8, 8 * 256 * KIB, 1),  # a block of 256 KiB is more than a chunk of 64 KiB
        (64, 64 * 8 * KIB, 8),  # 8 KiB: eight fill a chunk of 64 KiB
        (3, 3 * KIB, 1),  # half of three ranks, rounded down
        (8, 8 * 512 * KIB, 1),
        (2, 16, 1),
        (4, 0, 2),
    ],
)
def test_pat_joins_small_blocks(ranks: int, nbytes: int, aggregation: int) -> None:
    tuning = Tuning(Layout(ranks, 1), Hardware())
    assert cutting_of(AG, PAT, SIMPLE, 1, nbytes, tuning).aggregation == aggregation


@pytest.mark.parametrize(
    ("function", "protocol", "per_byte"),
    [(AR, SIMPLE, 2), (AR, LL, 8), (AG, SIMPLE, 4), (RS, LL128, 4), (AG, LL, 16), (Function.REDUCE, SIMPLE, 1)],
)  # fmt: skip
def test_channels_share_by_cells(function: Function, protocol: Protocol, per_byte: int) -> None:
    cut = cutting_of(function, RING, protocol, 2, MIB, FOUR)
    assert (cut.split, cut.traffic_per_byte) == (Split.CELLS, per_byte)
    assert cutting_of(function, RING, protocol, 1, MIB, FOUR).split is Split.EQUAL


def peers(cut: Cutting) -> PeerParts:
    assert cut.peers is not None
    return cut.peers


@pytest.mark.parametrize(
    ("tuning", "transfer", "channels", "least", "most", "parts"),
    [
        # 48 GB/s at 14 a channel: 4 for a peer; four ranks leave one each of four channels, and large parts take all.
        (FOUR, MIB, 4, 1, 4, 4),
        (FOUR, 256 * KIB, 4, 1, 4, 2),
        (FOUR, 128 * KIB, 4, 1, 4, 1),
        (FOUR, 0, 4, 1, 4, 1),
        # 64 ranks in batches of eight over 16 channels: two each.
        (DGX, MIB, 16, 1, 2, 2),
        # A pair has the channels for itself: two from the start, four for large transfers.
        (Tuning(Layout(2, 1), Hardware()), 128 * KIB, 4, 2, 4, 2),
        (Tuning(Layout(2, 1), Hardware()), 64 * KIB, 4, 2, 4, 1),
        (Tuning(Layout(2, 1), Hardware()), MIB, 4, 2, 4, 4),
        # An A100 with 200 Gb/s: two channels, both for a peer.
        (Tuning(Layout(2, 1), Hardware(gpu=Gpu.AMPERE, nic_bps=200_000_000_000)), MIB, 2, 1, 2, 2),
    ],
)
def test_sends_take_parts_over_channels(
    tuning: Tuning, transfer: int, channels: int, least: int, most: int, parts: int
) -> None:
    cut = p2p_cutting(tuning, transfer)
    assert (cut.channels, peers(cut).least, peers(cut).most, cut.parts) == (channels, least, most, parts)
    assert cut.protocol is SIMPLE


def test_pinned_channels_of_sends_become_a_power_of_two() -> None:
    assert p2p_cutting(DGX, MIB, 5).channels == 8
    assert p2p_cutting(FOUR, MIB, 1).parts == 1


@pytest.mark.parametrize(
    ("ranks", "op_bytes", "segment"),
    [
        (4, 64 * MIB, MIB),  # 64 segments of 1 MiB, a multiple of four
        (4, MIB, 128 * KIB),  # at least eight
        (3, 64 * MIB, -(-64 * MIB // 66)),  # 64 rounded up to 66
        (4, 0, 1),
    ],
)
def test_gloo_cuts_segments(ranks: int, op_bytes: int, segment: int) -> None:
    cut = gloo_ring_cutting(ShapingRequest("all-reduce", ranks, op_bytes))
    assert (cut.chunk_bytes, cut.slots, cut.slices) == (segment, 2, 1)
    assert cut.segments % ranks == 0


@pytest.mark.parametrize(
    ("collective", "ranks", "op_bytes", "algorithm"),
    [
        ("all-reduce", 4, 2048, "recursive_doubling"),
        ("all-reduce", 4, 2049, "halving_doubling"),
        ("all-to-all", 8, 8 * 256, "bruck"),
        ("all-to-all", 4, 4 * 256, "scattered"),
        ("all-to-all", 8, 8 * 257, "scattered"),
        ("all-to-all", 8, 8 * 32 * KIB, "scattered"),
        ("all-to-all", 8, 8 * (32 * KIB + 1), "pairwise"),
        ("all-gather", 8, 524_288 // 8 - 1, "recursive_doubling"),
        ("all-gather", 8, 524_288 // 8, "ring"),
        ("all-gather", 6, 81_920 // 6, "bruck"),
        ("all-gather", 6, 81_920 // 6 + 1, "ring"),
        ("reduce-scatter", 8, 524_287, "halving_doubling"),
        ("reduce-scatter", 8, 524_288, "pairwise"),
        ("broadcast", 8, 12_287, "binomial"),
        ("reduce", 8, 100, "binomial"),
        ("gather", 8, 100, "binomial"),
        ("barrier", 8, 4, "recursive_doubling"),
    ],
)
def test_mpich_decides_by_its_cut_offs(collective: str, ranks: int, op_bytes: int, algorithm: str) -> None:
    assert mpi_pick(ShapingRequest(collective, ranks, op_bytes)).algorithm == algorithm


def test_a_long_broadcast_of_mpich_says_what_it_is_not() -> None:
    assert "not modelled" in mpi_pick(ShapingRequest("broadcast", 8, 12_288)).reason
    assert "not modelled" not in mpi_pick(ShapingRequest("broadcast", 7, 12_288)).reason


def test_gloo_and_plain_have_an_algorithm_for_everything() -> None:
    for collective in (
        "all-reduce",
        "all-gather",
        "reduce-scatter",
        "broadcast",
        "reduce",
        "all-to-all",
        "barrier",
    ):
        request = ShapingRequest(collective, 6, 1000)
        assert gloo_pick(request).reason.startswith("gloo: ")
        assert plain_pick(request).algorithm in {"ring", "chain", "direct"}
