"""What a plan should take: ideal and twin, at the level that is affordable, over as many iterations as are."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from etloop.contract.base.errors import ConfigError, PlanError
from etloop.contract.model.run import ExpectedRun
from etloop.contract.model.topology import FOREVER_NS, Outage, Routing, SwitchEnd
from etloop.controller.inputs.rig import parse_rig
from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.controller.plan.plan import Plan, make_plan
from etloop.controller.run.expectation import (
    NO_TOPOLOGY,
    Affordable,
    at_device_rates,
    expect,
    expect_by_flows,
)
from etloop.controller.run.prepare import RunInputs, prepare
from etloop.controller.run.topology_check import DescribedDevice, check_device
from etloop.results.expected.expected_vs_measured import expected_rows
from etloop.results.measure.collectives import group_ops
from etloop.results.measure.iterations import measure_iterations
from etloop.traffic.flow_level import flow_level, ideal_network
from etloop.traffic.flow_network import network_of
from etloop.traffic.topology.routes import routes
from etloop.traffic.topology.topology_file import parse_topology
from etloop.workload.trace.trace import CollectiveKind
from tests.support.runs.plan_by_hand import Coll, job_of

MIB = 1 << 20
AR, A2A = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL


def planned(
    kind: CollectiveKind,
    ranks: int,
    message_bytes: int,
    iterations: int = 1,
    per_host: int = 1,
    background: str = "",
    transport: str = "",
) -> Plan:
    """One collective over so many ranks, each on its own 100 Gb/s port; ports alternate between two agents."""
    ports = [f"      - {{name: p{rank}, addresses: 10.0.{rank}.1, link: 100Gbps}}\n" for rank in range(ranks)]
    half = (ranks + 1) // 2
    rig = "agents:\n  - name: a\n    ports:\n" + "".join(ports[:half])
    rig += "  - name: b\n    ports:\n" + "".join(ports[half:])
    scenario = (
        f"workload: {{trace: none}}\niterations: {iterations}\ncollectives: {{shaping: plain}}\n"
        f"transport: {{path_mtu: 4096, window_packets: 256, ack_every: 16, timeout: 1s{transport}}}\n"
        f"mapping: {{ranks_per_host: {per_host}}}\n{background}"
    )
    return make_plan(
        parse_scenario(scenario.encode(), "s", Path()),
        parse_rig(rig.encode(), "r", Path()),
        job_of(ranks, Coll(kind, tuple(range(ranks)), message_bytes)),
    )


def port_names(plan: Plan) -> list[str]:
    return [port.name for port in plan.whole().ports]


def device(text: str) -> DescribedDevice:
    return DescribedDevice(parse_topology(textwrap.dedent(text).encode(), "t.yaml"), "t.yaml")


def single(plan: Plan, rate: str = "100Gbps") -> DescribedDevice:
    return device(f"single: {{ports: [{', '.join(port_names(plan))}], rate: {rate}}}\n")


def leaf_spine(plan: Plan, spines: int, balancing: str = "ecmp") -> DescribedDevice:
    """Two leaves with half of the ports each."""
    names = port_names(plan)
    half = len(names) // 2
    return device(
        f"""
        leaf_spine:
          rate: 100Gbps
          uplink_rate: 100Gbps
          spines: {spines}
          leaf: {{balancing: {balancing}}}
          leaves:
            - {{ports: [{", ".join(names[:half])}]}}
            - {{ports: [{", ".join(names[half:])}]}}
        """
    )


def jct_ns(run: ExpectedRun) -> int:
    return int(run.ops["completed_ns"].max() - run.ops["issued_ns"].min())


@pytest.mark.parametrize("kind", [AR, A2A])
def test_a_twin_without_a_bottleneck_takes_little_more_than_ideal(kind: CollectiveKind) -> None:
    plan = planned(kind, 4, 8 * MIB)
    ideal, twin = expect(plan, single(plan)).runs
    (_, by_flows) = expect(plan, single(plan), Affordable(packets=10)).runs
    assert (ideal.network, ideal.level) == ("ideal", "flow")
    assert (twin.network, twin.level, twin.described_by) == ("twin", "packet", "t.yaml")
    assert (by_flows.network, by_flows.level) == ("twin", "flow")
    assert jct_ns(ideal) < jct_ns(by_flows) < 1.03 * jct_ns(ideal)
    assert jct_ns(by_flows) == pytest.approx(jct_ns(twin), rel=0.02), "flows take as long as packets"
    assert "one iteration has more than 10 packets" in by_flows.notes
    assert twin.counters["dropped_packets"] == 0
    assert by_flows.counters == {}


def test_without_a_topology_only_ideal_is_there_and_the_rest_is_said() -> None:
    expectation = expect(planned(AR, 4, MIB), None)
    assert [run.network for run in expectation.runs] == ["ideal"]
    assert expectation.absent == (NO_TOPOLOGY,)


def test_a_slower_device_slows_ideal_too() -> None:
    """The ports are at the rate of the device's, whatever the rig says."""
    plan = planned(AR, 4, 8 * MIB)
    (as_rig,) = expect(plan, None).runs
    slow, _ = expect(plan, single(plan, "25Gbps")).runs
    assert jct_ns(slow) == pytest.approx(4 * jct_ns(as_rig), rel=0.001)
    assert {
        port.link_bps for port in at_device_rates(plan.whole(), single(plan, "25Gbps").topology).ports
    } == {25 * 10**9}


def test_without_packets_nothing_is_said_of_links_that_go_down() -> None:
    plan = planned(A2A, 4, 1 * MIB)
    network = leaf_spine(plan, 2)
    outages = (Outage(SwitchEnd(0, 2), 10_000, FOREVER_NS),)
    broken = replace(network, topology=replace(network.topology, outages=outages, routing=Routing(0, 20_000)))
    expectation = expect(plan, broken, Affordable(packets=10))
    assert [run.network for run in expectation.runs] == ["ideal"]
    assert expectation.absent == (
        (
            "twin: outages of the topology take links down, which cannot be simulated without packets; "
            "one iteration has more than 10 packets"
        ),
    )
    with pytest.raises(
        PlanError, match="--level flow: outages of the topology take links down, which only the packet"
    ):
        expect_by_flows(plan, broken, 10**9)
    (_, twin) = expect(plan, broken).runs
    assert (twin.level, twin.notes, twin.failure) == ("packet", (), ""), "with packets it is all there"


def test_as_many_iterations_are_worked_out_as_are_affordable() -> None:
    plan = planned(AR, 4, 4 * MIB, iterations=5)
    whole = expect(plan, single(plan))
    assert [run.iterations for run in whole.runs] == [5, 5]
    one = expect(planned(AR, 4, 4 * MIB), None).runs[0]
    messages = flow_level_messages(planned(AR, 4, 4 * MIB))
    few = expect(plan, single(plan), Affordable(packets=15_000, messages=messages * 3 + 1))
    assert [(run.iterations, run.failure) for run in few.runs] == [(3, ""), (few.runs[1].iterations, "")]
    assert 1 <= few.runs[1].iterations < 5
    assert few.runs[1].level == "packet"
    for run in few.runs:
        assert np.bincount(run.ops["iteration"]).tolist() == [4] * run.iterations
    assert jct_ns(few.runs[0]) == pytest.approx(3 * jct_ns(one), rel=0.005)


def flow_level_messages(plan: Plan) -> int:
    return flow_level(plan.whole(), ideal_network(plan.whole())).messages


def test_a_job_beyond_all_means_is_not_compared_and_says_so() -> None:
    plan = planned(A2A, 4, MIB)
    expectation = expect(plan, single(plan), Affordable(packets=1, messages=1))
    assert expectation.runs == ()
    assert expectation.absent == (
        "ideal: one iteration has more than 1 messages",
        "twin: one iteration has more than 1 messages",
    )


def test_source_ports_name_the_ways_of_flows() -> None:
    """Structured: the lowest bits of the port; what comes of it is as by packets."""
    plan = planned(A2A, 8, 8 * MIB)
    described = leaf_spine(plan, 4, "structured")
    network = network_of(plan.whole(), tuple(port_names(plan)), described.topology)
    connections = plan.whole().connections
    for way, port in enumerate(connections.src_udp_port.tolist()):
        span = slice(int(network.way_offsets[way]), int(network.way_offsets[way + 1]))
        names = [network.link_names[link] for link in network.part_link[span].tolist()]
        assert [name for name in names if name.startswith("spine")] in (
            [],
            [f"spine{port % 256 % 4}/{int(connections.src_rank[way] < 4)}"],
        )
    _, packets = expect(plan, described).runs
    _, flows = expect(plan, described, Affordable(packets=10)).runs
    assert jct_ns(flows) == pytest.approx(jct_ns(packets), rel=0.05)


ANY_ORDER = ", out_of_order: accept"


def test_flows_take_the_ways_that_the_switches_choose() -> None:
    """Every queue pair on one spine link each way, by the hash; sprayed, over all of them, which are as one link."""
    plan = planned(A2A, 8, MIB, transport=ANY_ORDER)
    assignment, names = plan.whole(), tuple(port_names(plan))
    for balancing, spine_bps in (("ecmp", 100 * 10**9), ("spray", 400 * 10**9), ("adaptive", 400 * 10**9)):
        described = leaf_spine(plan, 4, balancing).topology
        assert routes(described)
        network = network_of(assignment, names, described)
        crossing = 0
        for way in range(len(network.way_offsets) - 1):
            span = slice(int(network.way_offsets[way]), int(network.way_offsets[way + 1]))
            links = network.part_link[span].tolist()
            names_of = [network.link_names[link] for link in links]
            rates = [int(network.link_bps[link]) for link in links]
            assert network.part_share[span].tolist() == [1.0] * len(links)
            of_spines = [rate for name, rate in zip(names_of, rates, strict=True) if name.startswith("spine")]
            # Up to the spines and down to the port; within a leaf only the latter.
            assert len([name for name in names_of if name.startswith("leaf")]) == (2 if of_spines else 1)
            assert of_spines in ([], [spine_bps])
            crossing += bool(of_spines)
        assert crossing == 8 * 4, "each of eight ranks to each of the four on the other leaf"


def test_flows_that_collide_on_a_spine_share_it() -> None:
    """One spine for four ports: the links upwards carry four times what a port does."""
    plan = planned(A2A, 8, 16 * MIB, transport=ANY_ORDER)
    ideal, narrow = expect(plan, leaf_spine(plan, 1), Affordable(packets=10)).runs
    _, wide = expect(plan, leaf_spine(plan, 4, "spray"), Affordable(packets=10)).runs
    # Four of the seven peers are beyond the one spine link that four ranks share.
    assert jct_ns(narrow) == pytest.approx(16 / 7 * jct_ns(ideal), rel=0.03)
    assert jct_ns(wide) == pytest.approx(jct_ns(ideal), rel=0.03)


UET = ", kind: uet, ack: {dscp: 48}"


def test_a_sprayed_transport_is_followed_where_no_packets_are_affordable() -> None:
    plan = planned(A2A, 8, 8 * MIB, transport=UET)
    _, packets = expect(plan, leaf_spine(plan, 4)).runs
    _, flows = expect(plan, leaf_spine(plan, 4), Affordable(packets=10)).runs
    assert (packets.level, flows.level) == ("packet", "flow")
    assert jct_ns(flows) == pytest.approx(jct_ns(packets), rel=0.05)


def test_without_packets_there_is_no_twin_of_what_flows_do_not_show_and_it_says_why() -> None:
    plan = planned(A2A, 8, MIB, transport=ANY_ORDER)
    network = leaf_spine(plan, 4, "flowlet")
    assert [run.level for run in expect(plan, network).runs] == ["flow", "packet"], "packets show it"
    expectation = expect(plan, network, Affordable(packets=10))
    assert [run.network for run in expectation.runs] == ["ideal"]
    (why,) = expectation.absent
    assert why.startswith("twin: switch leaf0: balancing: flowlet draws a way at every gap between packets")
    assert why.endswith("; one iteration has more than 10 packets")
    with pytest.raises(PlanError, match="balancing: flowlet draws a way"):
        expect_by_flows(plan, network, 10**9)


def test_sprayed_packets_and_sprayed_flows_take_as_long() -> None:
    plan = planned(A2A, 8, 8 * MIB)
    _, packets = expect(plan, leaf_spine(plan, 4)).runs
    _, flows = expect(plan, leaf_spine(plan, 4), Affordable(packets=10)).runs
    assert jct_ns(flows) == pytest.approx(jct_ns(packets), rel=0.05)


def test_a_device_that_lacks_ports_of_the_plan_is_refused() -> None:
    plan = planned(AR, 4, MIB)
    lacking = device("single: {ports: [a/p0, a/p1, b/p2], rate: 100Gbps}\n")
    with pytest.raises(
        PlanError, match=r"topology: b/p3: the plan uses this port, but it is attached to no switch"
    ):
        check_device(plan, lacking)
    check_device(plan, single(plan))


def test_the_whole_job_has_every_port_once_by_its_full_name() -> None:
    whole = planned(AR, 4, MIB).whole()
    assert [port.name for port in whole.ports] == ["a/p0", "a/p1", "b/p2", "b/p3"]
    assert sorted(rank.rank for rank in whole.ranks) == [0, 1, 2, 3]
    assert sorted(rank.port for rank in whole.ranks) == [0, 1, 2, 3]


@pytest.mark.parametrize("where", ["scenario", "rig"])
def test_a_topology_that_cannot_be_read_is_refused_before_anything_is_sent(
    where: str, tmp_path: Path
) -> None:
    (tmp_path / "t.yaml").write_text("single: {ports: [], rate: 100Gbps}\n")
    named = {"scenario": "twin: t.yaml\n", "rig": "topology: t.yaml\n"}
    scenario = "workload: {trace: none}\n" + (named["scenario"] if where == "scenario" else "")
    rig = "agents: [{name: a, ports: [{name: p0, addresses: 10.0.0.1, link: 1Gbps}]}]\n"
    (tmp_path / "s.yaml").write_text(scenario)
    (tmp_path / "r.yaml").write_text(rig + (named["rig"] if where == "rig" else ""))
    with pytest.raises(ConfigError, match=r"t\.yaml"):
        prepare(RunInputs.of(tmp_path / "s.yaml", tmp_path / "r.yaml"))


UDP = (
    "background: [{{name: bulk, udp: {{from: a/p0, to: b/p2, rate: 10Gbps, size: 8000B}}, dscp: 8{more}}}]\n"
)


def test_plain_udp_beside_the_job_is_in_ideal_and_twin() -> None:
    """10 Gb/s of payload are 10.0825 on the line of both its ports, which a ring of all four ports waits for."""
    alone = expect(planned(AR, 4, 64 * MIB), single(planned(AR, 4, 64 * MIB))).runs
    plan = planned(AR, 4, 64 * MIB, background=UDP.format(more=""))
    found = expect(plan, single(plan))
    by_flows = expect(plan, single(plan), Affordable(packets=10)).runs[1]
    assert [run.network for run in found.runs] == ["ideal", "twin"]
    ideal, twin = found.runs
    for run in (ideal, by_flows):
        assert jct_ns(run) == pytest.approx(jct_ns(alone[0]) / (1 - 0.100825), rel=0.02)
    longer = jct_ns(twin) / jct_ns(alone[1])
    assert 1 / (1 - 0.100825) < longer < 1.5, "bursts of a millisecond's worth fill queues, which are marked"
    assert not any("UDP" in note for run in (ideal, twin, by_flows) for note in run.notes)


def test_plain_udp_of_a_part_of_the_run_is_in_the_twin_and_missed_in_ideal() -> None:
    plan = planned(AR, 4, 64 * MIB, background=UDP.format(more=", start: 1ms"))
    ideal, twin = expect(plan, single(plan)).runs
    assert ideal.notes == ("without background of plain UDP that is not of the whole run (bulk)",)
    assert twin.notes == ()
    assert jct_ns(twin) > 1.05 * jct_ns(ideal)


def test_the_first_iteration_of_a_twin_does_not_begin_with_the_probe() -> None:
    plan = planned(AR, 4, MIB, iterations=3)
    _, twin = expect(plan, single(plan)).runs
    assert twin.start_ns > 0
    rows = expected_rows(twin, plan.tables, group_ops(plan.tables))
    first, second, _ = measure_iterations(rows.ops, int(rows.ops.records["iteration"].size // 3))
    assert first.jct_ns == pytest.approx(second.jct_ns, rel=0.05)
