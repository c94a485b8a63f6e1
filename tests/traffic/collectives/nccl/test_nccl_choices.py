"""Our choices beside those of NCCL's own functions: the head of tests/data/nccl_choices.tsv says which and how they were had."""

import csv
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.traffic.collectives.choice import Choice, Settings, choose
from etloop.traffic.collectives.nccl.cells import shares_of
from etloop.traffic.collectives.nccl.constants import NcclVersion
from etloop.traffic.collectives.nccl.excluded import NVLS_TREE
from etloop.traffic.collectives.nccl.hardware import Cpu, Gpu, Hardware, Layout, ScaleUp
from tests.support.places import ROOT

_TEXT: Final = (ROOT / "tests/data/nccl_choices.tsv").read_text(encoding="utf-8")
_LINES: Final = [line for line in _TEXT.splitlines() if not line.startswith("#")]
ROWS: Final = list(csv.DictReader(_LINES, delimiter="\t"))
Row = dict[str, str]


def our_choice(row: Row) -> Choice:
    hardware = Hardware(
        Gpu[row["gpu"].upper()],
        Cpu(row["cpu"]),
        int(row["nic_gbps"]) * 1_000_000_000,
        int(row["nics_per_host"]),
        ScaleUp(row["scale_up"]),
        int(row["network_latency_ns"]),
    )
    layout = Layout(int(row["ranks"]), int(row["ranks_per_host"]))
    # A plan states the whole buffer of a reduce-scatter, one rank's of the others.
    blocks = layout.ranks if row["function"] == "reduce-scatter" else 1
    return choose(
        row["function"],
        layout,
        int(row["block_bytes"]) * blocks,
        Settings(hardware=hardware, nccl=NcclVersion.V2_30),
    )


def test_every_point_is_chosen_and_cut_as_nccl_does() -> None:
    differing = []
    for row in ROWS:
        choice = our_choice(row)
        cutting = choice.request.cutting
        algorithm = "ring" if choice.algorithm == "chain" else choice.algorithm
        ours = (
            algorithm,
            choice.protocol.name.lower(),
            *map(str, (cutting.channels, choice.channels, cutting.chunk_bytes, cutting.aggregation)),
        )
        names = ("algorithm", "protocol", "channels", "used", "chunk_bytes", "aggregation")
        theirs = tuple(row[name] for name in names)
        if ours != theirs:
            differing.append((row, ours))
    assert not differing, f"{len(differing)} of {len(ROWS)} points, such as {differing[0]}"


def test_every_time_is_nccls() -> None:
    for row in ROWS:
        choice = our_choice(row)
        least_ns = min(each.time_ns for each in choice.alternatives)
        # NCCL reckons in single precision.
        assert least_ns == pytest.approx(1000 * float(row["time_us"]), rel=1e-5, abs=1), row
        tree_ns = [each.time_ns for each in choice.excluded if each.name == NVLS_TREE]
        theirs = [] if row["nvls_tree_us"] == "-" or not tree_ns else [1000 * float(row["nvls_tree_us"])]
        assert tree_ns == pytest.approx(theirs, rel=1e-5, abs=1), row


def test_the_points_tell_the_rules_apart() -> None:
    assert len(ROWS) >= 400
    used = [row for row in ROWS if row["used"] != row["channels"]]
    joined = [row for row in ROWS if row["aggregation"] != "1"]
    slow = [row for row in ROWS if row["algorithm"] == "ring" and row["protocol"] == "simple"]
    assert len(used) > 20
    assert len(joined) > 20
    assert len(slow) > 50
    assert {row["function"] for row in ROWS} == {
        "broadcast",
        "reduce",
        "all-gather",
        "reduce-scatter",
        "all-reduce",
    }


@given(st.integers(0, 1 << 40), st.integers(1, 64), st.sampled_from([1, 2, 3, 4, 8, 64, 256, 1024]))
def test_channels_are_between_one_and_all(nbytes: int, channels: int, traffic_per_byte: int) -> None:
    shares = shares_of(nbytes, channels, traffic_per_byte)
    assert 1 <= shares.channels <= channels
    assert 0 <= shares.first_bytes <= nbytes
    if shares.channels == 1:
        assert shares.first_bytes == nbytes
