"""Which of NCCL's algorithms a plan says it leaves out."""

from etloop.controller.plan.choices import excluded_notes
from etloop.controller.plan.schedule_set import ChosenOp
from etloop.traffic.collectives.choice import Settings, choose
from etloop.traffic.collectives.nccl.hardware import Layout


def chosen(collective: str, layout: Layout, op_bytes: int) -> ChosenOp:
    choice = choose(collective, layout, op_bytes, Settings())
    return ChosenOp(collective, layout.ranks, layout.ranks_per_host, op_bytes, op_bytes, 0, choice)


def test_sizes_at_which_nvls_tree_is_least_are_named() -> None:
    dgx = Layout(1024, 8)
    tree, others = excluded_notes([chosen("all-reduce", dgx, 1 << power) for power in (10, 20, 30)])
    assert "all_reduce of 1024 ranks, 8 a host: NCCL may take NVLSTree" in tree
    assert "1 of 3 sizes, 1.07 GB: 6.21 ms where tree takes 7.72 ms" in tree
    assert "CollNetDirect (all_reduce), CollNetChain (all_reduce), NVLS (all_reduce)" in others


def test_kernels_for_registered_buffers_are_named() -> None:
    dgx = Layout(64, 8)
    (note,) = excluded_notes([chosen("all-gather", dgx, 1 << 20), chosen("reduce-scatter", dgx, 1 << 20)])
    assert "AllGather_RailRing_LsaSTMC (algorithm: rail_ring) (all_gather)" in note
    assert "ReduceScatter_RailA2A_LsaLDMC (reduce_scatter)" in note


def test_what_stays_inside_a_host_and_what_is_not_tuned_is_no_note() -> None:
    inside = chosen("all-reduce", Layout(8, 8), 1 << 20)
    sends = chosen("all-to-all", Layout(64, 8), 1 << 20)
    rooted = chosen("broadcast", Layout(64, 8), 1 << 20)
    assert excluded_notes([inside, sends, rooted]) == ()
