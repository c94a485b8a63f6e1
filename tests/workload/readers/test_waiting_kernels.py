"""Communication recognised by behaviour: which kernels wait for other ranks, what stays of their time, what is reported."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from etloop.workload.readers.named_kernels import named_communication
from etloop.workload.readers.node_rows import NodeRow, rank_trace
from etloop.workload.readers.pytorch.kernel_table import (
    KernelTable,
    looks_communicating,
    parse_table,
    shipped_table,
)
from etloop.workload.readers.waiting_kernels import cut_waits
from etloop.workload.trace.trace import LeftOut, NodeKind, RankTrace

Kernel = tuple[str, float, float]
"""Name, start and duration in us."""


def rank_of(rank: int, *kernels: Kernel, groups: dict[str, tuple[int, ...]] | None = None) -> RankTrace:
    rows = []
    for node_id, (name, start_us, duration_us) in enumerate(kernels):
        row = NodeRow(node_id, name, NodeKind.COMP, is_cpu_op=0, stream=7)
        row.time(int(start_us * 1000), int(duration_us * 1000))
        rows.append(row)
    return rank_trace(rows, rank, f"w.{rank}", "kineto", groups)


def cut(
    *ranks: RankTrace, table: KernelTable | None = None
) -> tuple[tuple[RankTrace, ...], tuple[LeftOut, ...]]:
    return cut_waits(ranks, table or KernelTable())


def durations_us(ranks: tuple[RankTrace, ...]) -> list[list[float]]:
    return [(rank.duration_ns // 1000).tolist() for rank in ranks if rank.duration_ns is not None]


def test_a_kernel_that_ends_together_on_all_ranks_is_a_wait() -> None:
    late = rank_of(2, ("gemm", 9_000, 500), ("mix<8>(int)", 9_600, 400), ("gemm", 10_100, 500))
    early = [
        rank_of(rank, ("gemm", 0, 500), ("mix<8>(int)", 600, 9_400), ("gemm", 10_100, 500)) for rank in (0, 1)
    ]
    ranks, (left_out,) = cut(*early, late)
    assert durations_us(ranks) == [[500, 400, 500]] * 3
    assert left_out.count == 3
    assert "mix ends together on 3 ranks and lasts 400 to 9400 us" in left_out.problem.what
    assert ranks[0].start_ns is not None
    assert (ranks[0].start_ns // 1000).tolist() == [0, 600, 1_100], "the wait leaves the timeline of the rank"
    assert ranks[0].duration_us.tolist() == [500, 400, 500]


def test_work_that_overlaps_the_wait_keeps_its_times() -> None:
    early = rank_of(0, ("mix", 0, 10_000), ("gemm", 2_000, 500), ("gemm", 11_000, 500))
    ranks, _ = cut(early, rank_of(1, ("mix", 9_800, 200), ("gemm", 11_000, 500)))
    assert ranks[0].start_ns is not None
    assert (ranks[0].start_ns // 1000).tolist() == [0, 2_000, 11_000]


@pytest.mark.parametrize(
    ("why", "ends_us", "durations"),
    [
        ("uneven experts begin together and end apart", [1_000, 9_000], [1_000, 9_000]),
        ("less than one order of magnitude", [9_000, 9_000], [1_000, 9_000]),
        ("too short to matter", [90, 90], [1, 90]),
        ("equal work", [9_000, 9_000], [9_000, 9_000]),
    ],
)
def test_compute_stays_compute(why: str, ends_us: list[float], durations: list[float]) -> None:
    kernels = [("work", end - duration, duration) for end, duration in zip(ends_us, durations, strict=True)]
    given = tuple(rank_of(rank, kernel) for rank, kernel in enumerate(kernels))
    ranks, left_out = cut(*given)
    assert left_out == (), why
    assert all(after is before for after, before in zip(ranks, given, strict=True))


def test_one_rank_shows_no_wait() -> None:
    assert cut(rank_of(0, ("mix", 0, 10_000)))[1] == ()


def test_clocks_may_differ_by_a_constant() -> None:
    """With four runs or more, the constant difference of two clocks is removed."""
    waits = [5_000.0, 100, 8_000, 6_000, 200, 7_000]
    ends = [10_000.0 * (number + 1) for number in range(len(waits))]
    here = rank_of(0, *(("mix", end - wait, wait) for end, wait in zip(ends, waits, strict=True)))
    offset_us = 777_000.0
    there = rank_of(1, *(("mix", end + offset_us - 100, 100.0) for end in ends))
    ranks, (left_out,) = cut(here, there)
    assert durations_us(ranks) == [[100] * 6] * 2
    assert left_out.count == 12


def test_groups_wait_among_themselves() -> None:
    """Two groups that end at different times are recognised by the groups that the ranks recorded."""
    pairs = {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}
    runs = {0: (0, 9_000), 1: (8_600, 400), 2: (0, 25_000), 3: (24_700, 300)}
    ranks, left_out = cut(
        *(
            rank_of(rank, ("mix", start_us, duration_us), groups={"tp": pairs[rank]})
            for rank, (start_us, duration_us) in runs.items()
        )
    )
    assert durations_us(ranks) == [[400], [400], [300], [300]]
    assert [omission.count for omission in left_out] == [2, 2]


def test_recordings_of_different_length_are_joined_at_their_ends() -> None:
    here = rank_of(0, ("mix", 0, 100), ("mix", 200, 9_800), ("mix", 20_000, 5_000))
    there = rank_of(1, ("mix", 9_900, 100), ("mix", 24_900, 100))
    ranks, (left_out,) = cut(here, there)
    assert durations_us(ranks) == [[100, 100, 100], [100, 100]]
    assert left_out.count == 4


def test_a_table_decides_before_the_behaviour() -> None:
    runs = rank_of(0, ("mix", 0, 9_000)), rank_of(1, ("mix", 8_900, 100))
    is_compute = parse_table(b"kernels: [{name: mix1, collective: none}]", "k")
    named = rank_of(0, ("mix1", 0, 9_000)), rank_of(1, ("mix1", 8_900, 100))
    assert cut(*named, table=is_compute)[1] == ()
    assert cut(*runs, table=is_compute)[1] != ()


def test_a_kernel_may_state_its_rank_in_its_template_arguments() -> None:
    ranks, (left_out,) = cut(
        *(
            rank_of(rank, (f"mix<{rank}>(int)", 9_000.0 - wait, wait))
            for rank, wait in enumerate((9_000.0, 8_000, 90))
        )
    )
    assert durations_us(ranks) == [[90]] * 3
    assert "mix ends together on 3 ranks" in left_out.problem.what


def test_times_in_microseconds_are_enough() -> None:
    """Converted traces have no nanoseconds."""
    timed = (
        rank_of(0, ("mix", 100, 9_000), ("gemm", 9_200, 50)),
        rank_of(1, ("mix", 9_000, 100), ("gemm", 9_200, 50)),
    )
    ranks, (left_out,) = cut(*(replace(rank, start_ns=None, duration_ns=None) for rank in timed))
    assert [rank.duration_us.tolist() for rank in ranks] == [[100, 50]] * 2
    assert ranks[0].start_us.tolist() == [100, 300]
    assert left_out.count == 2


def test_a_converted_trace_names_its_kernels_of_communication() -> None:
    shipped = shipped_table()
    ranks = [
        rank_of(rank, ("void dpsk::ep::internode::dispatch<8>(int)", 1, 5), ("gemm_reduce", 9, 5))
        for rank in (0, 1)
    ]
    (left_out,) = named_communication(ranks, shipped)
    assert left_out.count == 2
    assert "2 dpsk::ep::internode::dispatch" in left_out.problem.what
    assert named_communication([rank_of(0, ("internode::notify_dispatch", 1, 5))], shipped) == ()


@pytest.mark.parametrize(
    ("kernel", "communicates"),
    [
        ("void uccl::internode_ll::combine<true>(int)", True),
        ("mori::moe::EpDispatchInterNodeKernel", True),
        ("hybrid_ep::dispatch_kernel<2>", True),
        ("deep_ep::elastic::dispatch_impl", True),
        ("tensorrt_llm::kernels::moe_comm::moeAllToAllKernel", True),
        ("nccl_ep::ht::combine", True),
        ("vcclKernel_AllGather", True),
        ("oneccl_reduce_base<float, 2>", True),
        ("kuserbuffers_pushsend", True),
        ("aclnnMoeDistributeCombine", True),
        ("occlusion_query", False),
        ("step_dispatch", False),
        ("vectorized_elementwise_kernel", False),
        ("triton_poi_fused_all_gather_0", False),
    ],
)
def test_names_of_libraries_and_forks(kernel: str, communicates: bool) -> None:
    assert looks_communicating(kernel) is communicates


def test_a_name_of_communication_is_reported_once_but_loses_its_wait() -> None:
    name = "uccl::barrier"
    ranks, left_out = cut(rank_of(0, (name, 0, 9_000)), rank_of(1, (name, 8_900, 100)))
    assert left_out == (), "the reader of the rank reports it by its name"
    assert (
        np.concatenate([rank.duration_ns for rank in ranks if rank.duration_ns is not None]).tolist()
        == [100_000] * 2
    )
