"""What a transfer takes alone: worked out on paper, packet by packet, and as the twin has it."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import etloop
from etloop.contract.model.empty_network import Framing, LatencySource, LoneNetwork, LoneWay
from etloop.controller.run.verdict import judge_again
from etloop.results.kpis.lone_flow import lone_flow_ns, way_ns

ROCE = Framing(4096, 82, 16, 4, 4, 1)
NO_CONTROL = {"cc": {"algorithm": "none"}}


def in_turn_ns(way: LoneWay, framing: Framing, size_bytes: int) -> float:
    """Send packet after packet over hop after hop."""
    count = max(-(-size_bytes // framing.packet_bytes), 1)
    rest = size_bytes - (count - 1) * framing.packet_bytes
    packets = [framing.packet_bytes] * (count - 1) + [-(-rest // framing.word_bytes) * framing.word_bytes]
    free_ns = [0.0] * len(way.link_bps)
    for number, payload_bytes in enumerate(packets):
        size = payload_bytes + framing.around_bytes
        size += framing.first_bytes * (number == 0) + framing.last_bytes * (number == count - 1)
        at_ns = 0.0
        for hop, rate_bps in enumerate(way.link_bps):
            at_ns = free_ns[hop] = max(at_ns, free_ns[hop]) + size * 8e9 / rate_bps
    return free_ns[-1] + way.latency_ns


@pytest.mark.parametrize("seed", range(20))
def test_the_formula_is_what_packets_in_turn_take(seed: int) -> None:
    drawn = random.Random(seed)
    rates = tuple(drawn.choice((10, 25, 100, 400)) * 10**9 for _ in range(drawn.randint(1, 6)))
    way = LoneWay(rates, rates, drawn.randint(0, 10**5))
    sizes = [1, 4096, 4097, 8192, 8193, 12288, *(drawn.randint(1, 10**6) for _ in range(10))]
    expected = [in_turn_ns(way, ROCE, size) for size in sizes]
    assert way_ns(way, ROCE, np.array(sizes, np.float64)) == pytest.approx(expected), f"seed {seed}: {way}"


def test_the_quickest_way_counts_and_an_unknown_pair_has_no_time() -> None:
    slow, fast = (LoneWay((bps,), (bps,), ns) for bps, ns in ((10**9, 0), (10**10, 5_000)))
    network = LoneNetwork(LatencySource.TOPOLOGY, "t.yaml", (ROCE,), ((slow, fast),), (0,), (1,), (0,), (0,))
    src, dst = np.array([0, 0, 1]), np.array([1, 1, 0])
    found = lone_flow_ns(network, src, dst, np.array([100.0, 1e6, 100.0]))
    assert found[0] == in_turn_ns(slow, ROCE, 100)
    assert found[1] == pytest.approx(in_turn_ns(fast, ROCE, 10**6))
    assert np.isnan(found[2])


def chain(rates: list[str], delays: list[str], ends: str = "100Gbps") -> dict[str, Any]:
    """Switches in a row, a/p before the first and b/p behind the last."""
    return {
        "switches": [{"name": f"s{number}"} for number in range(len(rates) + 1)],
        "links": [
            {"from": f"s{number}", "to": f"s{number + 1}", "rate": rate, "delay": delay}
            for number, (rate, delay) in enumerate(zip(rates, delays, strict=True))
        ],
        "attach": [
            {"port": "a/p", "to": "s0", "rate": ends},
            {"port": "b/p", "to": f"s{len(rates)}", "rate": "100Gbps"},
        ],
    }


DUMBBELL = {
    "left": ["a/p"], "right": ["b/p"], "rate": "100Gbps", "delay": "500ns", "trunk_rate": "25Gbps", "trunk_delay": "50us",
}  # fmt: skip


@pytest.mark.parametrize(
    ("sentence", "topology", "transport"),
    [
        ("one switch", {"single": {"ports": ["a/p", "b/p"], "rate": "10Gbps"}}, {}),
        ("a trunk of 25G and 50 us", {"dumbbell": DUMBBELL}, {}),
        ("three switches, slow first", chain(["10Gbps", "100Gbps"], ["5us", "1us"]), {}),
        (
            "five switches",
            chain(["100Gbps", "25Gbps", "400Gbps", "50Gbps"], ["1us", "0us", "9us", "100ns"]),
            {},
        ),
        ("small packets", chain(["25Gbps"], ["20us"], "50Gbps"), {"path_mtu": 1024}),
        ("multipath of MRC", chain(["25Gbps"], ["2us"]), {"kind": "mrc"}),
        ("UET", chain(["25Gbps"], ["2us"]), {"kind": "uet"}),
    ],
)
def test_flows_alone_in_the_twin_have_no_slowdown(
    tmp_path: Path, sentence: str, topology: dict[str, Any], transport: dict[str, Any]
) -> None:
    sizes = (1, 1000, 4097, 10_000, 300_000, 3_000_000)
    flows = [f"{at % 2},{1 - at % 2},{size},{at * 5000}" for at, size in enumerate(sizes)]
    found = slowdowns(tmp_path, flows, topology, NO_CONTROL | transport)
    assert found == pytest.approx([1.0] * len(found), abs=0.01), sentence


def test_flows_that_share_have_a_slowdown_and_a_flow_elsewhere_changes_none(tmp_path: Path) -> None:
    """4 x 8 MiB into one host: 2,746 us by 688 us."""
    topology = {
        "single": {"ports": [f"{name}/p" for name in "abcdefgh"], "rate": "100Gbps", "delay": "500ns"}
    }
    flows = [f"{source},7,8388608,0" for source in range(4)]
    (tmp_path / "alone").mkdir()
    (tmp_path / "beside").mkdir()
    without = slowdowns(tmp_path / "alone", flows, topology, NO_CONTROL)
    beside = slowdowns(tmp_path / "beside", [*flows, "4,5,1000,100"], topology, NO_CONTROL)
    assert without[0] == pytest.approx(3.99, abs=0.02)
    assert beside[1] == without[0]
    assert beside[0] == pytest.approx(1.0, abs=0.01)


def test_a_run_is_judged_again_by_the_same_divisor(tmp_path: Path) -> None:
    flows = ["0,1,1000000,0", "2,1,1000000,0"]
    topology = {"single": {"ports": ["a/p", "b/p", "c/p"], "rate": "100Gbps"}}
    run = flow_run(tmp_path, flows, topology, NO_CONTROL)
    (tmp_path / "conditions.yaml").write_text("verdict: {checks: [{check: fct_slowdown_p99 <= 1.5}]}\n")
    again = judge_again(tmp_path / "run", tmp_path / "conditions.yaml", None, is_kept=True)
    assert again.flow_sizes == run.summary.flow_sizes
    assert again.verdict is not None
    assert again.verdict.result == "fail"


def slowdowns(
    directory: Path, flows: list[str], topology: dict[str, Any], transport: dict[str, Any]
) -> list[float]:
    """Return the greatest slowdown of each decade of size."""
    sizes = flow_run(directory, flows, topology, transport).summary.flow_sizes
    assert sizes is not None
    return [one.slowdown_p99 for one in sizes.rows[:-1] if one.slowdown_p99 is not None]


def flow_run(
    directory: Path, flows: list[str], topology: dict[str, Any], transport: dict[str, Any]
) -> etloop.Run:
    """Run flows in virtual time."""
    (directory / "f.csv").write_text("\n".join(itertools.chain(["from,to,bytes,start_us"], flows)) + "\n")
    scenario = {
        "workload": {"flows": {"file": str(directory / "f.csv"), "processes": 1}},
        "collectives": {"shaping": "plain"},
        "transport": transport,
    }
    return etloop.run_twin(scenario, out_dir=directory / "run", topology=topology)
