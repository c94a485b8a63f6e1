"""Flows as jobs: when they begin, between whom, by which queue pair; and what they take on an empty network."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import etloop
from etloop.contract.base.errors import ConfigError
from etloop.contract.base.units import NS_PER_S
from etloop.controller.inputs.flow_files import SizeDistribution, distribution_of
from etloop.controller.inputs.scenario.flows import DrawnFlows, FlowPattern, FlowsLoad
from etloop.controller.inputs.scenario.scenario import Scenario, parse_scenario
from etloop.controller.plan.flow_jobs import SHIPPED, drawn_flows, flow_job
from etloop.workload.trace.program import OpKind

KILOBYTE = SizeDistribution((1000,), (1.0,))


def drawn(pattern: FlowPattern = FlowPattern.UNIFORM, *, seed: int = 1, count: int = 4000) -> DrawnFlows:
    return DrawnFlows("web_search", 8_000_000, count, pattern, seed)


def scenario(text: str, directory: Path = Path("/x")) -> Scenario:
    return parse_scenario(text.encode(), "s.yaml", directory)


def test_the_same_seed_gives_the_same_flows_and_another_others() -> None:
    first = drawn_flows(drawn(), 8, KILOBYTE, "w")
    assert first == drawn_flows(drawn(), 8, KILOBYTE, "w")
    assert first != drawn_flows(drawn(seed=2), 8, KILOBYTE, "w")
    assert list(first) == sorted(first)


def test_flows_come_at_the_rate_that_was_asked_for_and_as_chance_has_them() -> None:
    """4,000 flows of 1,000 bytes from 8 senders of 8 Mb/s each: 8,000 a second, gaps of 125 us that vary as much as they last."""
    gaps = np.diff([flow.start_ns for flow in drawn_flows(drawn(), 8, KILOBYTE, "w")])
    assert gaps.mean() == pytest.approx(125_000, rel=0.05)
    assert gaps.std() == pytest.approx(125_000, rel=0.05)


def test_who_sends_to_whom() -> None:
    uniform = Counter((f.source, f.destination) for f in drawn_flows(drawn(), 4, KILOBYTE, "w"))
    assert set(uniform) == {(a, b) for a in range(4) for b in range(4) if a != b}
    assert max(uniform.values()) < 2 * min(uniform.values())
    pairs = {(f.source, f.destination) for f in drawn_flows(drawn(FlowPattern.PERMUTATION), 6, KILOBYTE, "w")}
    assert [sorted(side) for side in zip(*pairs, strict=True)] == [list(range(6))] * 2
    assert all(source != destination for source, destination in pairs)
    incast = {(f.source, f.destination) for f in drawn_flows(drawn(FlowPattern.INCAST), 5, KILOBYTE, "w")}
    assert incast == {(source, 0) for source in range(1, 5)}


@pytest.mark.parametrize(("name", "mean_bytes"), [("web_search", 1_711_250.0), ("hadoop", 120_420.75)])
def test_shipped_sizes_are_drawn_with_their_mean(name: str, mean_bytes: float) -> None:
    sizes = distribution_of(SHIPPED[name].split(", "), name)
    assert sizes.mean_bytes == pytest.approx(mean_bytes, rel=0.001)
    fast = DrawnFlows(name, 10**10, 20_000, FlowPattern.UNIFORM, 1)
    flows = drawn_flows(fast, 8, sizes, "w")
    assert np.mean([flow.size_bytes for flow in flows]) == pytest.approx(mean_bytes, rel=0.05)


def test_flows_that_would_last_for_hours_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"w: 65536 flows of 1e?\d* bytes on average take \d+ s at this rate"
    ):
        drawn_flows(DrawnFlows("x", 1000, 65536, FlowPattern.UNIFORM, 1), 2, KILOBYTE, "w")


def test_flows_of_a_pair_take_its_processes_in_turn(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("from,to,bytes,start_ns\n0,1,10,5\n0,1,20,5\n0,1,30,9\n1,0,40,7\n")
    job = flow_job(FlowsLoad(0, 2, tmp_path / "f.csv"), "w")
    assert len(job.ranks) == 4
    sent = [
        [
            (int(program.message_bytes[at]), job.ranks[rank].peers[int(program.slot[at])])
            for at in np.flatnonzero(program.kind == OpKind.SEND)
        ]
        for rank, program in enumerate(job.programs)
    ]
    assert sent == [[(10, 2), (30, 2)], [(20, 3)], [(40, 0)], []], "processes 0, 1, 0 of host 0; 0 of host 1"
    first = job.programs[0]
    assert first.delay_ns[first.kind == OpKind.DELAY].tolist() == [5, 4], "at 5 ns, and 4 later"


def test_processes_of_a_host_share_it() -> None:
    (entry,) = scenario("workload: {flows: {hosts: 4, sizes: hadoop, rate: 1Gbps, processes: 4}}").jobs
    assert entry.mapping.ranks_per_host == 4
    with pytest.raises(
        ConfigError, match=r"ranks_per_host: is 2, but flows have 8 processes a host; remove it"
    ):
        scenario("workload: {flows: {file: f.csv}}\nmapping: {ranks_per_host: 2}")


@pytest.mark.parametrize(
    ("sentence", "text", "expected"),
    [
        (
            "a file, and how to draw",
            "{file: f.csv, rate: 1Gbps}",
            "rate: the file already lists every flow; remove it, or remove file",
        ),
        (
            "neither",
            "{hosts: 4, rate: 1Gbps}",
            "sizes: is missing; name a distribution (web_search, hadoop) or the file of one",
        ),
        ("no rate", "{hosts: 4, sizes: hadoop}", "rate: is missing; write the average rate of a sender"),
        (
            "no hosts",
            "{sizes: hadoop, rate: 1Gbps}",
            "hosts: is missing; write how many hosts send and receive, at most 128 of 8",
        ),
        (
            "more ranks than a load may have",
            "{sizes: hadoop, rate: 1Gbps, hosts: 129}",
            "hosts: 129 is out of range; write a whole number from 2 to 128",
        ),
        (
            "a pattern that is none",
            "{sizes: hadoop, rate: 1Gbps, hosts: 2, pattern: star}",
            "write uniform or permutation or incast",
        ),
    ],
)
def test_what_cannot_be_read_is_refused(sentence: str, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        scenario(f"workload: {{flows: {text}}}")
    assert expected in str(caught.value), sentence


@pytest.mark.parametrize(
    ("sentence", "load", "expected"),
    [
        (
            "fewer hosts than are named",
            {"hosts": 2, "processes": 1},
            "w: a flow uses host 200, but there are 2 hosts; write hosts: 201",
        ),
        (
            "too many with their processes",
            {"hosts": 0, "processes": 8},
            "w: 201 hosts of 8 processes; keep their product within 1024",
        ),
    ],
)
def test_lists_that_do_not_fit_the_load(
    tmp_path: Path, sentence: str, load: dict[str, int], expected: str
) -> None:
    (tmp_path / "f.csv").write_text("from,to,bytes,start_ns\n0,200,10,0\n")
    with pytest.raises(ConfigError) as caught:
        flow_job(FlowsLoad(source=tmp_path / "f.csv", **load), "w")
    assert expected in str(caught.value), sentence


def test_a_flow_alone_takes_what_paper_says_and_two_into_a_port_twice_that(tmp_path: Path) -> None:
    """409,600 bytes are 100 packets of 4,178 bytes on the line: 334.24 us at 10 Gb/s."""
    (tmp_path / "f.csv").write_text(
        "from,to,bytes,start_us\n0,2,409600,0\n0,2,100,1000\n0,2,409600,2000\n1,2,409600,2000\n"
    )
    run = etloop.run_twin(
        {
            "workload": {"flows": {"file": str(tmp_path / "f.csv"), "processes": 2}},
            "collectives": {"shaping": "plain"},
            "transport": {"cc": {"algorithm": "none"}},
        },
        out_dir=tmp_path / "run",
        topology={"single": {"ports": ["a/p", "b/p", "c/p"], "rate": "10Gbps"}},
    )
    flows = run.summary.flow_sizes
    assert flows is not None
    small, large, whole = flows.rows
    assert (small.planned, small.completed, large.completed, whole.completed) == (1, 1, 3, 4)
    assert (flows.latency, flows.why_no_slowdown) == ("topology", "")
    line_ns = 100 * 4178 * 8 * NS_PER_S // 10**10
    assert (large.upto_bytes, whole.upto_bytes) == (409_600, 409_600)
    assert large.slowdown_p50 == pytest.approx(2.0, rel=0.02), "two share the port"
    assert whole.slowdown_p50 == pytest.approx(1.0, rel=0.02), "of 1, 1, 2 and 2 the second"
    assert large.fct_p99_ns == pytest.approx(2 * line_ns, rel=0.02)
    assert small.slowdown_p50 == pytest.approx(1.0, rel=0.01)
    kept = json.loads((tmp_path / "run/kpis.json").read_text())["figures"]
    (slowdown,) = (one["value"] for one in kept if one["name"] == "fct_slowdown_p99")
    assert slowdown == whole.slowdown_p99
    assert "Flows by size" in (tmp_path / "run/report.html").read_text()
