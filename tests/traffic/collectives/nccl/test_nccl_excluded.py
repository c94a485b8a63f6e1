"""What NCCL could choose and has no schedule here, on which hosts."""

import pytest

from etloop.traffic.collectives.choice import Settings, choose
from etloop.traffic.collectives.nccl.excluded import SHARP, WINDOWS, excluded_from
from etloop.traffic.collectives.nccl.hardware import Gpu, Hardware, Layout, ScaleUp
from etloop.traffic.collectives.nccl.tuning import MULTICAST_PAT, Function, Tuning
from etloop.traffic.collectives.pins import Pin

AR, AG, RS = Function.ALL_REDUCE, Function.ALL_GATHER, Function.REDUCE_SCATTER
H100, A100 = Hardware(), Hardware(gpu=Gpu.AMPERE)
NO_NVLINK = Hardware(scale_up=ScaleUp.PCI)
MIB = 1 << 20
RAIL_RING = "AllGather_RailRing_LsaSTMC (algorithm: rail_ring)"
COPY_ENGINE = "copy-engine AllGather (algorithm: ce_direct or ce_ring)"


@pytest.mark.parametrize(
    ("function", "hardware", "layout", "names"),
    [
        (AR, H100, Layout(1024, 8), ["NVLSTree", "CollNetDirect", "CollNetChain", "NVLS"]),
        (AG, H100, Layout(1024, 8), ["CollNetDirect", "NVLS", RAIL_RING, COPY_ENGINE, MULTICAST_PAT]),
        (
            RS,
            H100,
            Layout(1024, 8),
            [
                "CollNetDirect",
                "NVLS",
                MULTICAST_PAT,
                "ReduceScatter_RailA2A_LsaLD (algorithm: rail_a2a)",
                "ReduceScatter_RailA2A_LsaLDMC",
            ],
        ),
        # Multicast in NVSwitch begins with Hopper, and needs two ranks of a host.
        (AR, A100, Layout(64, 8), ["CollNetDirect", "CollNetChain"]),
        (AR, H100, Layout(8, 1), ["CollNetDirect", "CollNetChain"]),
        (RS, H100, Layout(8, 1), ["CollNetDirect", "ReduceScatter_RailA2A_LsaLD (algorithm: rail_a2a)"]),
        # NVLSTree has at least two channels: two cards of a host.
        (AR, Hardware(nics_per_host=1), Layout(64, 8), ["CollNetDirect", "CollNetChain", "NVLS"]),
        # A card for every rank, or CollNet gathers nothing; more than eight ranks it serves in no host.
        (AG, Hardware(nics_per_host=4), Layout(64, 8), ["NVLS", RAIL_RING, COPY_ENGINE, MULTICAST_PAT]),
        (AR, H100, Layout(64, 16), ["NVLSTree", "NVLS"]),
        (AR, NO_NVLINK, Layout(64, 8), ["CollNetChain"]),
        (RS, NO_NVLINK, Layout(64, 8), []),
        # Inside a host.
        (AR, H100, Layout(8, 8), ["NVLS"]),
        (AG, A100, Layout(8, 8), []),
        (Function.BROADCAST, H100, Layout(64, 8), []),
    ],
)
def test_what_is_possible_follows_from_the_hosts(
    function: Function, hardware: Hardware, layout: Layout, names: list[str]
) -> None:
    assert [each.name for each in excluded_from(function, MIB, Tuning(layout, hardware))] == names


def test_every_one_says_what_it_needs() -> None:
    needs = {each.name: each.needs for each in excluded_from(RS, MIB, Tuning(Layout(64, 8), H100))}
    assert needs["CollNetDirect"] == needs["NVLS"] == SHARP
    assert needs["ReduceScatter_RailA2A_LsaLDMC"] == WINDOWS


def test_the_reason_of_a_choice_names_what_nccl_takes_by_default() -> None:
    choice = choose("all-reduce", Layout(1024, 8), 1 << 30, Settings())
    assert "(NVLSTree is left out: it has no schedule and would take less)" in choice.reason
    assert "NVLSTree" not in choose("all-reduce", Layout(8, 1), 1 << 30, Settings()).reason
    pinned = choose("all-reduce", Layout(1024, 8), 1 << 30, Settings(pin=Pin("tree")))
    assert "NVLSTree" not in pinned.reason
    assert pinned.excluded == ()
