"""`jobs`, `rounds`, `background` and `timeline` of a scenario: what is read, what is taken over, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from etloop.contract.base.errors import ConfigError, PlanError
from etloop.contract.model.topology import SwitchEnd
from etloop.controller.inputs.scenario.loads import CollectiveLoad, IncastLoad, StorageLoad, duration_ns
from etloop.controller.inputs.scenario.scenario import Scenario, parse_scenario
from etloop.controller.inputs.scenario.timeline import ends_of
from etloop.controller.plan.jobs import background_notes, build_jobs
from etloop.controller.plan.plan import plan_jobs
from etloop.traffic.topology.topology_file import parse_topology
from etloop.workload.trace.trace import CollectiveKind
from tests.support.runs.plan_by_hand import rig_of

AR = "{kind: all_reduce, ranks: 4, size: 1MiB}"
JOBS = f"""
jobs:
  - {{name: a, workload: {{collective: {AR}}}}}
  - {{name: b, workload: {{collective: {{kind: all_to_all, ranks: 2, size: 64KiB, count: 3, compute: 2ms}}}}, iterations: 5}}
"""


def scenario(text: str) -> Scenario:
    return parse_scenario(text.encode(), "s.yaml", Path())


def mistakes(text: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        scenario(text)
    return [str(problem) for problem in raised.value.problems]


def test_a_workload_is_one_job() -> None:
    read = scenario(f"iterations: 7\nworkload: {{collective: {AR}}}")
    (job,) = read.jobs
    assert (job.name, job.passes, read.plan_iterations) == ("job", 7, 7)
    assert job.source.load == CollectiveLoad(CollectiveKind.ALL_REDUCE, 4, 1 << 20, 1, 0)


def test_jobs_take_over_what_they_do_not_say() -> None:
    read = scenario(
        JOBS
        + "  - {name: c, workload: {trace: t}, mapping: {ranks_per_host: 2}, collectives: {shaping: plain}, start: 4ms}\n"
        "iterations: 3\nmapping: {placement: round_robin, ports: [a/p0, b/p0]}\ncollectives: {algorithm: ring}\n"
        "scale: {bytes: 1/4}\n"
    )
    a, b, c = read.jobs
    assert (a.passes, b.passes, c.passes) == (3, 5, 3)
    assert a.mapping.ports == ("a/p0", "b/p0")
    assert a.collectives is read.collectives
    assert (c.mapping.ranks_per_host, c.mapping.ports) == (2, ())
    assert c.collectives.settings.shaping == "plain"
    assert c.start_ns == 4_000_000
    assert c.source.trace == Path("t")
    assert c.source.settings.bytes_scale == pytest.approx(0.25)
    assert b.source.load == CollectiveLoad(CollectiveKind.ALL_TO_ALL, 2, 1 << 16, 3, 2_000_000)
    assert read.plan_iterations == 1


def test_rounds_are_iterations_of_the_plan() -> None:
    assert scenario(JOBS + "rounds: 9").plan_iterations == 9


def test_background_is_read_with_its_class_and_its_time() -> None:
    read = scenario(
        f"workload: {{collective: {AR}}}\n"
        "background:\n"
        "  - {name: i, incast: {senders: 3, size: 2KiB, period: 10ms}, dscp: 10, start: 1s, stop: 3s}\n"
        "  - {name: s, storage: {clients: 2, servers: 1, read: 25%, sizes: [4KiB, 12KiB], rate: 65536kbps, depth: 4}}\n"
    )
    incast, storage = read.background
    assert incast.load == IncastLoad(3, 2048, 10_000_000, 200)
    assert (incast.dscp, storage.dscp) == (10, -1)
    assert storage.load == StorageLoad(2, 1, 65_536_000, (4096, 12288), 250_000, 4, 10_000, 1)
    assert duration_ns(storage.load) == 10_000_000_000, "10000 x 8 KiB at 65.536 Mb/s"
    assert background_notes(read) == ("background s runs as long as the jobs, for at most 10 s",)


def test_the_rate_of_an_incast_is_its_period() -> None:
    """2 KiB at 16.384 Mb/s are a millisecond."""
    read = scenario(
        "workload: {incast: {senders: 1, size: 2KiB, bursts: 5, rate: 16384kbps}}\n"
        "background: [{name: i, incast: {senders: 1, size: 4KiB, rate: 16384kbps}, stop: 10ms}]\n"
    )
    assert read.jobs[0].source.load == IncastLoad(1, 2048, 1_000_000, 5)
    assert read.background[0].load == IncastLoad(1, 4096, 2_000_000, 5)
    with pytest.raises(ConfigError, match=r"rate: cannot be combined with period; write one of the two"):
        scenario("workload: {incast: {senders: 1, size: 2KiB, period: 1ms, rate: 1Mbps}}")


def test_plain_udp_is_sent_and_received_by_the_agents_of_its_ports() -> None:
    read = scenario(
        f"workload: {{collective: {AR}}}\nmapping: {{placement: round_robin}}\n"
        "background: [{name: u, udp: {from: a/p0, to: b/p0, rate: 8Mbps, size: 1000B}, dscp: 46, start: 1s}]"
    )
    assert read.background == ()
    plan = plan_jobs(read, rig_of({"a": 1, "b": 1}), build_jobs(read))
    (sends,), (receives,) = plan.assignments["a"].streams, plan.assignments["b"].streams
    assert (sends.sends, receives.sends) == (True, False)
    assert (sends.src_ip, sends.dst_ip, sends.udp_port) == (
        receives.src_ip,
        receives.dst_ip,
        receives.udp_port,
    )
    assert (sends.traffic_class, sends.rate_bps, sends.start_ns, sends.stop_ns) == (
        46 << 2,
        8_000_000,
        1_000_000_000,
        0,
    )
    elsewhere = scenario(
        f"workload: {{collective: {AR}}}\nmapping: {{ports: [a/p0]}}\n"
        "background: [{name: u, udp: {from: a/p0, to: b/p0, rate: 8Mbps}}, {name: v, udp: {from: a/p0, to: z/p0, rate: 8Mbps}}]"
    )
    with pytest.raises(PlanError) as raised:
        plan_jobs(elsewhere, rig_of({"a": 1, "b": 1}), build_jobs(elsewhere))
    assert [problem.what for problem in raised.value.problems] == [
        "agent b has no rank and takes no part in the run",
        'the rig has no port "z/p0"',
    ]


def test_what_cannot_be_planned_is_cut_where_no_end_is_said_and_refused_where_one_is() -> None:
    load = "{name: s, storage: {clients: 1, servers: 1, sizes: [1KiB], rate: 100Gbps}"
    base = f"workload: {{collective: {AR}}}\nbackground: [{load}"
    (cut,) = scenario(base + "}]").background
    assert isinstance(cut.load, StorageLoad)
    assert cut.load.transfers == 65536
    with pytest.raises(
        PlanError, match=r"background\[0\]\.storage: 12207031 transfers of all clients; at most 65536"
    ):
        build_jobs(scenario(base + ", stop: 1s}]"))


def test_a_plan_of_jobs_has_each_where_its_mapping_says() -> None:
    text = (
        "jobs:\n"
        f"  - {{name: a, workload: {{collective: {AR}}}, mapping: {{placement: round_robin, ports: [a/p0, b/p0]}}}}\n"
        "  - {name: b, workload: {collective: {kind: all_to_all, ranks: 2, size: 64KiB}}, "
        'mapping: {placement: explicit, explicit: {0: "b/p0", 1: "c/p0"}}}\n'
        "background: [{name: i, incast: {senders: 2, size: 1KiB, period: 1ms}, dscp: 3}]\n"
    )
    read = scenario(text)
    plan = plan_jobs(read, rig_of({"a": 1, "b": 1, "c": 1}), build_jobs(read))
    labels = [plan.placement.ports[port].label for port in plan.placement.port]
    assert labels == ["a/p0", "b/p0", "a/p0", "b/p0", "b/p0", "c/p0", "a/p0", "b/p0", "c/p0"]
    assert len(set(plan.placement.host)) == 9, "ranks of different jobs share no host"
    addresses = [plan.placement.address_of(rank) for rank in range(9)]
    assert len(set(addresses)) == 9, "nor an address, where the port has enough"
    assert [name for name, _ in plan.tables.communicators] == ["a/all", "b/all"]
    whole = plan.whole()
    assert [rank.background for rank in whole.ranks] == [False] * 6 + [True] * 3
    assert {rank.traffic_class for rank in whole.ranks[6:]} == {3 << 2 | 2}, "ECT(0) as the jobs"
    assert {rank.traffic_class for rank in whole.ranks[:6]} == {-1}


def test_a_timeline_is_in_order_and_of_ports_that_there_are() -> None:
    read = scenario(
        f"workload: {{collective: {AR}}}\n"
        "timeline:\n"
        "  - {at: 3ms, link: leaf0/1, state: up}\n"
        "  - {at: 1ms, link: leaf0/1, state: down}\n"
    )
    assert [(event.at_ns, event.up) for event in read.timeline] == [(1_000_000, False), (3_000_000, True)]
    topology = parse_topology(
        b"leaf_spine: {leaves: [{ports: [a/p0, b/p0]}], spines: 1, rate: 1Gbps}", "t.yaml"
    )
    assert ends_of(read.timeline, topology) == (SwitchEnd(0, 1), SwitchEnd(0, 1))
    named = tuple(replace(event, link="b/p0", where="") for event in read.timeline[:1])
    with pytest.raises(PlanError, match=r'no switch has the port "b/p0"; write leaf0/1, which it is on'):
        ends_of(named, topology)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            JOBS + "workload: {trace: t}",
            "s.yaml:5: workload: each job has its own workload; move it into one of the jobs",
        ),
        (
            "jobs: []",
            "s.yaml:1: jobs: is missing or empty; write jobs such as - {name: a, workload: {trace: traces/}}",
        ),
        (
            f"rounds: 2\nworkload: {{collective: {AR}}}",
            "s.yaml:1: rounds: rounds need several jobs; write jobs, or iterations for one job",
        ),
        (
            f"rounds: 2\njobs: [{{name: a, workload: {{collective: {AR}}}}}]",
            "s.yaml:1: rounds: a round needs 2 or more jobs, got 1; write two jobs or more",
        ),
        (
            f"jobs: [{{name: a, start: 1s, workload: {{collective: {AR}}}}}]",
            "s.yaml:1: jobs[0].start: a single job cannot start later; remove it, or write another job",
        ),
        (
            JOBS + "  - {name: a, workload: {trace: t}}",
            's.yaml:5: jobs[2].name: the name "a" is used twice; choose another name',
        ),
        (
            "jobs: [{name: a, workload: {}}]",
            (
                "s.yaml:1: jobs[0].workload.trace: is missing; name the directory, prefix or archive of the .et "
                "files, or write a load"
            ),
        ),
        (
            f"workload: {{trace: t, collective: {AR}}}",
            "s.yaml:1: workload.trace: a load replaces the trace, and this key describes a trace; remove it",
        ),
        (
            f"workload: {{incast: {{senders: 1, size: 1B}}, collective: {AR}}}",
            "s.yaml:1: workload.incast: cannot be combined with collective; keep one of them",
        ),
        (
            "workload: {collective: {kind: all_redduce, ranks: 2, size: 1B}}",
            's.yaml:1: workload.collective.kind: "all_redduce" is not one of the choices',
        ),
        (
            "workload: {collective: {kind: all_reduce, ranks: 1, size: 1B}}",
            "s.yaml:1: workload.collective.ranks: 1 is out of range; write a whole number from 2 to 1024",
        ),
        (
            "workload: {collective: {kind: all_reduce, ranks: 2}}",
            "s.yaml:1: workload.collective.size: is missing; write the size of a rank's buffer, such as 64MiB",
        ),
        (
            f"workload: {{collective: {AR}}}\nbackground: [{{name: b}}]",
            "s.yaml:2: background[0].name: no load is given; write one of incast, storage and udp",
        ),
        (
            f"workload: {{collective: {AR}}}\nbackground: [{{name: b, incast: {{senders: 1, size: 1B}}}}]",
            "s.yaml:2: background[0].incast.period: is missing; write how often, such as 10ms",
        ),
        (
            f"workload: {{collective: {AR}}}\nbackground: [{{name: job, incast: {{senders: 1, size: 1B, period: 1s}}}}]",
            's.yaml:2: background[0].name: the name "job" is used twice; choose another name',
        ),
        (
            (
                f"workload: {{collective: {AR}}}\nbackground: [{{name: b, start: 2s, stop: 2s, incast: {{senders: 1, "
                f"size: 1B, period: 1s}}}}]"
            ),
            "s.yaml:2: background[0].stop: stop is not after start; raise stop, or leave it out",
        ),
        (
            f"workload: {{collective: {AR}}}\nmapping: {{placement: explicit, explicit: {{0-3: a/p0}}, ports: [a/p0]}}",
            "s.yaml:2: mapping.ports: an explicit placement names the ports itself; remove ports",
        ),
        (
            f"workload: {{collective: {AR}}}\ntimeline: [{{at: 1s, link: x, state: down}}]",
            's.yaml:2: timeline[0].link: "x" is not a port of a switch; write switch and port, such as leaf0/3',
        ),
        (
            f"workload: {{collective: {AR}}}\ntimeline: [{{at: 1s, link: s/0, state: up}}]",
            "s.yaml:2: timeline[0].state: s/0 is already up at that time; alternate down and up",
        ),
        (
            f"workload: {{collective: {AR}}}\ntimeline: [{{at: 1s, link: s/0, state: off}}]",
            's.yaml:2: timeline[0].state: "off" is not one of the choices; write down or up',
        ),
    ],
)
def test_a_mistake_is_told_with_place_and_remedy(text: str, message: str) -> None:
    found = mistakes(text)
    assert any(one.startswith(message) for one in found), found


def test_all_mistakes_of_all_jobs_come_together() -> None:
    found = mistakes(
        "jobs:\n  - {name: a, workload: {collective: {kind: x, ranks: 2, size: 1B}}}\n"
        "  - {name: b, workload: {incast: {senders: 0, size: 1B}}, iterations: 0}\n"
        "background: [{name: c, storage: {clients: 1, servers: 1, rate: 1}}]\n"
    )
    assert len(found) == 5, found


def test_a_buffer_too_small_for_its_ranks_is_refused_at_its_line() -> None:
    with pytest.raises(
        ConfigError, match=r"s.yaml:1: workload.collective: 8 bytes are too few for 4 ranks to send"
    ):
        build_jobs(scenario("workload: {collective: {kind: all_to_all, ranks: 4, size: 8B}}"))


def test_ports_that_the_rig_does_not_have_are_told() -> None:
    read = scenario(f"workload: {{collective: {AR}}}\nmapping: {{ports: [a/p0, z/p0]}}")
    with pytest.raises(PlanError, match=r'mapping\.ports: the rig has no port "z/p0"; the agents are a, b'):
        plan_jobs(read, rig_of({"a": 1, "b": 1}), build_jobs(read))
